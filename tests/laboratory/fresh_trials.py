"""Trials that each run a new engine on changed input objects: slow and simple, to check the trials in a cluster with."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from moorage.api.core import Node, Pod
from moorage.api.meta import Object
from moorage.core.config.scheduler_document import Loaded
from moorage.core.cycle.search import SearchScope
from moorage.errors import InputError
from moorage.framework.changes import Change
from moorage.laboratory.change.offers import ChangeSet, offers_of
from moorage.laboratory.edit.changes import apply
from moorage.laboratory.edit.config_changes import reconfigure
from moorage.laboratory.edit.object_edits import DRAWING
from moorage.laboratory.plan.node_types import daemon_pods, drawn_daemon_pods, policies_of
from moorage.laboratory.trial.trials import (
    Trial,
    check_move,
    fits_of,
    in_order,
    moved_in,
    unplaced,
    unscheduled,
)
from moorage.simulator.owners import controller_kind
from moorage.simulator.simulate import Options, load_options, prepare
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.pod_info import PodInfo


@dataclass
class FreshTrials:
    """Trials that each run a new engine. ``objects`` are the cluster at rest, ``key`` is the pod as ``namespace/name``."""

    objects: Sequence[Object]
    key: str
    options: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        self.loaded = load_options(self.options)
        self._known = {obj.uid for obj in self.objects if isinstance(obj, Pod)}

    def attempt(self, changes: Collection[Change], *, look: bool = True) -> Trial:
        try:
            return self._tried(*self._changed(changes), changes, look=look)
        except InputError as error:
            return Trial(fault=str(error))

    def fits(self, changes: Collection[Change]) -> tuple[str, ...]:
        objects, loaded = self._changed(changes)
        simulation, _ = prepare(self.options, loaded=loaded)
        simulation.load(objects)
        pod = simulation.pod_named(self.key)
        return () if pod is None else fits_of(simulation.scheduler.profiles[pod.spec.scheduler_name], pod, simulation)

    def moved(self, changes: ChangeSet) -> ChangeSet:
        simulation, _ = prepare(self.options, loaded=self.loaded)
        simulation.load(self.objects)
        return moved_in(simulation, self.key, changes, {})

    def _changed(self, changes: Collection[Change]) -> tuple[list[Object], Loaded]:
        objects, loaded = list(self.objects), self.loaded
        for change in changes:
            if change.owner == "config":
                loaded = reconfigure(loaded, change)
        known = {obj.uid for obj in objects if isinstance(obj, Node)}
        for change in in_order(changes):
            if change.verb == "move":
                simulation, _ = prepare(self.options, loaded=self.loaded)
                simulation.load([_unplaced_if(obj, change.target) for obj in objects])
                check_move(change, simulation)
            held = {obj.uid: obj for obj in objects if isinstance(obj, Node)}
            objects = apply(objects, change)
            changed = [obj for obj in objects if change.verb in DRAWING and obj is not held.get(obj.uid, obj)]
            objects += [pod for obj in changed for pod in drawn_daemon_pods(held[obj.uid], obj, policies_of(objects))]
        added = [obj for obj in objects if isinstance(obj, Node) and obj.uid not in known]
        return [*objects, *(daemon_pods(added, policies_of(objects)) if added else ())], loaded

    def _tried(
        self, objects: Sequence[Object], loaded: Loaded, changes: Collection[Change] = (), *, look: bool = False
    ) -> Trial:
        simulation, _ = prepare(self.options, loaded=loaded)
        simulation.load(objects)
        pod = simulation.pod_named(self.key)
        if pod is None:
            return Trial(fault=f"pod {self.key} is not there")
        before = unscheduled(pod, simulation)
        if before is not None:
            return Trial(offers=before)
        for one in [
            some for some in simulation.pods.values() if controller_kind(some) == "DaemonSet" and some.uid not in self._known
        ]:
            simulation.attempt(one)
        rivals = [
            one
            for one in simulation.pods.values()
            if one.uid not in self._known and not one.spec.node_name and (one.spec.priority or 0) > (pod.spec.priority or 0)
        ]
        freed = [simulation.scheduler.snapshot.table.row_of[str(one.old)] for one in changes if one.verb == "evict"]
        for one in sorted(rivals, key=lambda one: -(one.spec.priority or 0)):
            simulation.attempt(one, SearchScope(np.array(sorted(set(freed))), post_filter=False))
            if not simulation.pods[one.uid].spec.node_name:
                simulation.attempt(one)
        profile = simulation.scheduler.profiles[pod.spec.scheduler_name]
        offers = None if not look else offers_of(profile, PodInfo(pod), simulation.scheduler.snapshot, changes)
        simulation.attempt(pod)
        now = simulation.pods[pod.uid]
        if now.spec.node_name:
            return Trial(now.spec.node_name, *self._replaced(simulation))
        nominated = simulation.scheduler.queue.nomination(pod.uid)
        victims = tuple(one.pod.key for one in simulation.victims.values())
        if nominated and victims:
            left = [obj for obj in objects if not (isinstance(obj, Pod) and obj.uid in simulation.victims)]
            again = self._tried(left, loaded)
            return Trial(again.node, victims) if again.node else Trial(offers=offers)
        return Trial(offers=offers)

    def _replaced(self, simulation: SimulatedCluster) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Try the pods that replace evicted ones. Return those that are placed, those that are not, and nodes of the first."""
        fresh = [pod for pod in simulation.pods.values() if pod.uid not in self._known]
        waiting = [pod for pod in fresh if controller_kind(pod) != "DaemonSet"]
        for pod in waiting:
            if not pod.spec.node_name:
                simulation.attempt(pod)
        nodes = {pod.key: simulation.pods[pod.uid].spec.node_name for pod in waiting if pod.uid in simulation.pods}
        placed = {key: str(node) for key, node in nodes.items() if node}
        return tuple(placed), tuple(key for key, node in nodes.items() if not node), tuple(placed.values())


def _unplaced_if(obj: Object, target: str) -> Object:
    return unplaced(obj) if isinstance(obj, Pod) and f"pod/{obj.key}" == target else obj
