"""Trials in a cluster itself: changes are made in a transaction, the pod is tried, and everything is rolled back.

A change of the configuration is not made in the cluster. Instead, the cycle decides with the profile that the changed
configuration would give: without the plugin, or with other arguments for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Protocol

from moorage.api.core import Pod
from moorage.config.scheduler_document import Loaded
from moorage.cycle.cycle import Cycle
from moorage.cycle.decision import Decision
from moorage.errors import InputError, MoorageError
from moorage.framework.changes import Change
from moorage.framework.profile import Profile
from moorage.laboratory.config_changes import reconfigured_profile
from moorage.laboratory.dry_run import OnlyNode, quick_decision
from moorage.laboratory.eviction_bounds import known_feasible, may_be_bounded
from moorage.laboratory.moves import off_its_node
from moorage.laboratory.offers import ChangeSet, FirstLook, offers_of
from moorage.laboratory.placements import PodPlacement
from moorage.laboratory.trials import Trial, check_move, fits_of, in_order, moved_in, unscheduled
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.pod_info import PodInfo

__all__ = ["ClusterTrials"]

#: Plugins that a profile cannot do without at these points.
_NEEDED = frozenset(["queueSort", "bind"])


class TriedCluster(Protocol):
    """The methods of a cluster that trials need."""

    @property
    def simulation(self) -> SimulatedCluster: ...
    @property
    def loaded(self) -> Loaded: ...
    def transaction(self) -> AbstractContextManager[Any]: ...
    def apply(self, *changes: Change) -> None: ...
    def schedule(
        self, pods: Iterable[str | Pod] | None = None, *, nodes: Sequence[str] | None = None, dry_run: bool = False
    ) -> list[PodPlacement]: ...


@dataclass
class ClusterTrials:
    """Trials of one pod, ``namespace/name``, in a cluster.

    ``with_queue``  the pods ahead of it in the queue are tried first
    """

    cluster: TriedCluster
    key: str
    with_queue: bool = False

    def __post_init__(self) -> None:
        self._known = frozenset(self.cluster.simulation.pods)
        self._first = FirstLook()
        self._moves: dict[str, Change | None] = {}
        self._cycle: tuple[SimulatedCluster, Cycle] | None = None
        #: The simulation in which the pod found no node as it is, if only nodes that change can help it.
        self._stuck_in: SimulatedCluster | None = None

    def attempt(self, changes: Collection[Change], *, look: bool = True) -> Trial:
        with self.cluster.transaction():
            position = self.cluster.simulation.scheduler.cluster.table.changes.position
            try:
                pod, disabled = self._changed(changes)
                profile = self._profile(pod, disabled)
            except MoorageError as error:
                return Trial(fault=str(error))
            simulation = self.cluster.simulation
            before = unscheduled(pod, simulation)
            if before is not None and not (disabled and pod.spec.scheduler_name not in simulation.scheduler.profiles):
                return Trial(offers=before)
            if self.with_queue:
                self._try_ahead(pod)
            cycle = None if any(one.owner == "pod" for one in changes) else self._keeping_cycle()
            changed = None if cycle is None else self._changed_since(position)
            trial = self._decided(pod, profile) if disabled else self._bound(pod, profile, cycle, changed)
            if trial is not None:
                return trial
            if cycle is not None and not changes:
                known = known_feasible(simulation.scheduler, cycle, PodInfo(pod), profile)
                self._stuck_in = simulation if may_be_bounded(PodInfo(pod), known) else None
            snapshot = simulation.scheduler.snapshot
            return Trial(offers=offers_of(profile, PodInfo(pod), snapshot, changes, self._first) if look else None)

    def fits(self, changes: Collection[Change]) -> tuple[str, ...]:
        with self.cluster.transaction():
            pod, disabled = self._changed(changes)
            if self.with_queue:
                self._try_ahead(pod)
            return fits_of(self._profile(pod, disabled), pod, self.cluster.simulation)

    def moved(self, changes: ChangeSet) -> ChangeSet:
        return moved_in(self.cluster.simulation, self.key, changes, self._moves)

    def _changed(self, changes: Collection[Change]) -> tuple[Pod, list[Change]]:
        """Make the changes of objects. Return the changed pod, and the changes of the configuration, which are not made.

        Raises  InputError if a change cannot be made or deletes the pod, or if a pod does not fit on the node it is to move to
        """
        config = [one for one in changes if one.owner == "config"]
        for one in in_order(changes):
            if one.verb == "move":
                self._check_move(one)
            self.cluster.apply(one)
        pod = self.cluster.simulation.pod_named(self.key)
        if pod is None:
            raise InputError(f"pod {self.key} does not exist")
        return pod, config

    def _check_move(self, move: Change) -> None:
        """Raise InputError if a plugin refuses the node that a pod is to move to."""
        simulation = self.cluster.simulation
        held = simulation.scheduler.cluster
        pod = simulation.pod_named(move.target.removeprefix("pod/"))
        placed = None if pod is None else held.pod(pod.metadata.uid)
        row = None if placed is None else held.table.row_of.get(held.node_of(placed.uid) or "")
        if placed is None or row is None:
            raise InputError(f"{move.target} is on no node")
        with off_its_node(held.table, row, placed):
            check_move(move, simulation)

    def _keeping_cycle(self) -> Cycle:
        """Return a cycle that caches the verdicts on the unchanged pod, for decisions on it after changes of nodes."""
        simulation = self.cluster.simulation
        if self._cycle is None or self._cycle[0] is not simulation:
            own = simulation.scheduler.cycle
            self._cycle = simulation, Cycle(own.seed, own.percentage_of_nodes_to_score)
        return self._cycle[1]

    def _changed_since(self, position: int) -> Collection[int] | None:
        """Return the rows that changed in this trial, if no other row can help the pod; None if one may."""
        simulation = self.cluster.simulation
        rows = simulation.scheduler.cluster.table.changes.since(position)
        return None if rows is None or self._stuck_in is not simulation else set(rows)

    def _bound(self, pod: Pod, profile: Profile, cycle: Cycle | None, changed: Collection[int] | None) -> Trial | None:
        """Try the pod, then the pods that replace evicted ones; None if the pod finds no node."""
        decision = quick_decision(self.cluster.simulation, pod, profile, cycle, changed)
        only = (decision.name,) if isinstance(decision, OnlyNode) else None
        if isinstance(decision, Decision):
            if decision.node is None:
                return None
            if not self._waiting():
                return Trial(decision.node)
        with self.cluster.transaction():
            (placement,) = self.cluster.schedule([pod.metadata.uid], nodes=only)
            if placement.node is not None:
                return Trial(placement.node, *self._replaced())
        return self._preempting(pod, placement.victims) if placement.nominated and placement.victims else None

    def _try_ahead(self, pod: Pod) -> None:
        """Try the pods ahead of the pod in the queue."""
        ranked = (queued.pod.pod for queued in self.cluster.simulation.scheduler.queue.ranked())
        ahead = [other.uid for other in takewhile(lambda other: other.uid != pod.uid, ranked)]
        if ahead:
            self.cluster.schedule(ahead)

    def _waiting(self) -> list[Pod]:
        """Return the pods that replace evicted ones. New pods are the last ones."""
        fresh = [*takewhile(lambda pod: pod.uid not in self._known, self.cluster.simulation.newest_first())]
        return [pod for pod in reversed(fresh) if not pod.spec.node_name]

    def _replaced(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Try the pods that replace evicted ones. Return those that are placed, and those that are not."""
        waiting = self._waiting()
        placements = self.cluster.schedule([pod.metadata.uid for pod in waiting]) if waiting else []
        return tuple(one.pod for one in placements if one), tuple(one.pod for one in placements if not one)

    def _preempting(self, pod: Pod, victims: Collection[str]) -> Trial | None:
        """Try the pod again without its victims."""
        with self.cluster.transaction():
            self.cluster.apply(*(Change("cluster", "evict", f"pod/{key}") for key in victims))
            (placement,) = self.cluster.schedule([pod.metadata.uid], dry_run=True)
            return Trial(placement.node, tuple(victims)) if placement.node is not None else None

    def _decided(self, pod: Pod, profile: Profile) -> Trial | None:
        """Decide with a profile that lacks plugins; None if the pod finds no node."""
        scheduler = self.cluster.simulation.scheduler
        cycle = Cycle(scheduler.cycle.seed, by_class=False)
        decision = cycle.decide(profile, PodInfo(pod), scheduler.snapshot, scheduler.queue.nominated)
        if decision.node is not None:
            return Trial(decision.node)
        after = decision.post_filter
        if after is not None and after.nominated and after.victims:
            return Trial(after.nominated, tuple(one.key for one in after.victims))
        return None

    def _profile(self, pod: Pod, changes: Iterable[Change] = ()) -> Profile:
        """Return the profile of a pod, with these changes of the configuration."""
        profiles = self.cluster.simulation.scheduler.profiles
        profile = profiles.get(pod.spec.scheduler_name) or next(iter(profiles.values()))
        held = [one for one in changes if one.verb != "profile"]
        if any(one.verb == "plugin-argument" for one in held):
            profile = reconfigured_profile(profile, held, self.cluster.loaded, self.cluster.simulation.scheduler)
            return replace(profile, scheduler_name=pod.spec.scheduler_name)
        gone = {one.target.rpartition("/")[2] for one in held}
        if not gone:
            return profile
        steps = {
            point: at_point if point in _NEEDED else tuple(step for step in at_point if step.name not in gone)
            for point, at_point in profile.steps.items()
        }
        return replace(profile, steps=steps, scheduler_name=pod.spec.scheduler_name)
