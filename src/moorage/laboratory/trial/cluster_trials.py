"""Trials in a cluster itself: changes are made in a transaction, the pod is tried, and everything is rolled back.

A change of the configuration is not made in the cluster. Instead, the cycle decides with the profile that the changed
configuration would give: without the plugin, or with other arguments for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import product, takewhile

from msgspec.structs import replace as with_fields

from moorage.api.core import Node, Pod
from moorage.api.workloads import Deployment
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.decision import Decision
from moorage.errors import InputError, MoorageError
from moorage.framework.changes import Change
from moorage.framework.profile import Profile
from moorage.laboratory.change.offers import ChangeSet, FirstLook, offers_of
from moorage.laboratory.edit.config_changes import reconfigured_profile
from moorage.laboratory.edit.object_edits import DRAWING
from moorage.laboratory.edit.pod_changes import POD_CHANGES
from moorage.laboratory.explain.verdicts import off_its_node
from moorage.laboratory.trial.asked_cluster import AskedCluster
from moorage.laboratory.trial.dry_run import Nominated, known_feasible, quick_decision
from moorage.laboratory.trial.recorded_state import RecordedQueue
from moorage.laboratory.trial.trials import (
    Trial,
    check_move,
    fits_of,
    in_order,
    moved_in,
    names_of,
    unscheduled,
)
from moorage.simulator.owners import controller_kind, controller_of, deployment_name
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.pod_info import PodInfo

#: Changes of a pod that need no new pod.
IN_PLACE = frozenset(["ungate", "tolerate", "tolerate-own"])
#: Plugins that a profile cannot do without at these points.
_NEEDED = frozenset(["queueSort", "bind"])


@dataclass
class ClusterTrials:
    """Trials of one pod, ``namespace/name``, in a cluster.

    ``with_queue``  the pods ahead of it in the queue are tried first
    ``patterns``    nodes that the cluster does not have, and that can be added
    """

    cluster: AskedCluster
    key: str
    with_queue: bool = False
    patterns: Sequence[Node] = ()

    def __post_init__(self) -> None:
        #: The number of pods that had arrived when the present attempt began.
        self._arrivals = 0
        #: The replacements of evicted pods that were tried before the pod and have a node, and their nodes.
        self._rivals: dict[str, str] = {}
        #: The UIDs of the pods of the workload that were created again with the pod.
        self._renewed: set[str] = set()
        self._first = FirstLook(patterns=self.patterns)
        self._moves: dict[str, Change | None] = {}
        self._cycle: tuple[SimulatedCluster, Cycle] | None = None

    def attempt(self, changes: Collection[Change], *, look: bool = True) -> Trial:
        with self.cluster.transaction():
            self._arrivals = self.cluster.simulation.arrivals
            try:
                pod, disabled = self._changed(changes)
                profile = self._profile(pod, disabled)
            except MoorageError as error:
                return Trial(fault=str(error))
            simulation = self.cluster.simulation
            before = unscheduled(pod, simulation)
            if before is not None and not (disabled and pod.spec.scheduler_name not in simulation.scheduler.profiles):
                return Trial(offers=before)
            if any(one.verb == "add-node" or one.verb in DRAWING for one in changes):  # DaemonSets are there first
                daemons = [one.uid for one in self._arrived() if controller_kind(one) == "DaemonSet"]
                if daemons:
                    self.cluster.schedule(daemons)
            if self.with_queue:
                self._try_ahead(pod)
            else:
                self._try_rivals(pod, changes)
            if not self._renew_siblings(pod, changes):
                return Trial(fault="the pods that are created again with it do not all find a place")
            cycle = None if any(one.owner == "pod" for one in changes) else self._keeping_cycle()
            trial = self._decided(pod, profile) if disabled else self._bound(pod, profile, cycle)
            if trial is not None:
                return trial
            snapshot = simulation.scheduler.snapshot
            return Trial(offers=offers_of(profile, PodInfo(pod), snapshot, changes, self._first) if look else None)

    def fits(self, changes: Collection[Change]) -> tuple[str, ...]:
        with self.cluster.transaction():
            self._arrivals = self.cluster.simulation.arrivals
            pod, disabled = self._changed(changes)
            if self.with_queue:
                self._try_ahead(pod)
            else:
                self._try_rivals(pod, changes)
            self._renew_siblings(pod, changes)
            profile, simulation = self._profile(pod, disabled), self.cluster.simulation
            known = None
            if not any(one.owner in {"pod", "config"} for one in changes):
                known = known_feasible(simulation.scheduler, self._keeping_cycle(), PodInfo(pod), profile)
            return fits_of(profile, pod, simulation) if known is None else names_of(known.rows, simulation)

    def moved(self, changes: ChangeSet) -> ChangeSet:
        return moved_in(self.cluster.simulation, self.key, changes, self._moves)

    def _changed(self, changes: Collection[Change]) -> tuple[Pod, list[Change]]:
        """Make the changes of objects. Return the changed pod, and the changes of the configuration, which are not made.

        Raises  InputError if a change cannot be made or deletes the pod, or if a pod does not fit on the node it is to move to
        """
        config = [one for one in changes if one.owner == "config"]
        with self._waking():
            for one in in_order(changes):
                if one.verb == "move":
                    self._check_move(one)
                self.cluster.apply(one)
        pod = self.cluster.simulation.pod_named(self.key)
        if pod is None:
            raise InputError(f"pod {self.key} does not exist")
        return pod, config

    def _waking(self) -> AbstractContextManager[None]:
        """Return a context in which changes wake waiting pods only if that may concern the pod.

        It does if the pod is gated, is tried with its group, or after the pods ahead of it in the queue.
        """
        queue, cluster = self.cluster.simulation.scheduler.queue, self.cluster.simulation.scheduler.cluster
        pod = self.cluster.simulation.pod_named(self.key)
        queued = None if pod is None else queue.get(pod.metadata.uid)
        if self.with_queue or queued is None or queued.gated or cluster.groups is not None:
            return nullcontext()
        return queue.waking_nobody() if isinstance(queue, RecordedQueue) else nullcontext()

    def _check_move(self, move: Change) -> None:
        """Raise InputError if a plugin refuses the node that a pod is to move to."""
        simulation = self.cluster.simulation
        held = simulation.scheduler.cluster
        pod = simulation.pod_named(move.target.removeprefix("pod/"))
        if pod is None or (held.node_of(pod.metadata.uid) or "") not in held.table.row_of:
            raise InputError(f"{move.target} is on no node")
        with off_its_node(held, pod.metadata.uid):
            check_move(move, simulation)

    def _keeping_cycle(self) -> Cycle:
        """Return a cycle that caches the verdicts on the unchanged pod, for decisions on it after changes of nodes."""
        simulation = self.cluster.simulation
        if self._cycle is None or self._cycle[0] is not simulation:
            own = simulation.scheduler.cycle
            self._cycle = simulation, Cycle(own.seed, own.percentage_of_nodes_to_score)
        return self._cycle[1]

    def _bound(self, pod: Pod, profile: Profile, cycle: Cycle | None) -> Trial | None:
        """Try the pod, then the pods that replace evicted ones; None if it finds no node or victims."""
        decision = quick_decision(self.cluster.simulation, pod, profile, cycle)
        if isinstance(decision, Nominated):
            return self._preempting(pod, profile, cycle, decision.name, decision.victims)
        if isinstance(decision, Decision):
            if decision.node is None:
                return None
            if not self._waiting():
                return Trial(decision.node)
        with self.cluster.transaction():
            (placement,) = self.cluster.schedule([pod.metadata.uid])
            if placement.node is not None:
                return Trial(placement.node, *self._replaced())
        if not placement.nominated or not placement.victims:
            return None
        return self._preempting(pod, profile, cycle, placement.nominated, placement.victims)

    def _try_ahead(self, pod: Pod) -> None:
        """Try the pods ahead of the pod in the queue."""
        ranked = (queued.pod.pod for queued in self.cluster.simulation.scheduler.queue.ranked())
        ahead = [other.uid for other in takewhile(lambda other: other.uid != pod.uid, ranked)]
        if ahead:
            self.cluster.schedule(ahead)

    def _try_rivals(self, pod: Pod, changes: Collection[Change]) -> None:
        """Try the pods that take the room that changes make before the pod gets there.

        A pod that replaces an evicted one and has a higher priority takes its place back, if it still fits there. A pod that is
        created again is younger than those of its priority that wait already; they profit from other changes before it does.
        """
        self._rivals = {}
        fresh = {other.uid for other in self._waiting()}
        is_renewed = any(one.owner == "pod" and one.verb not in IN_PLACE for one in changes)
        is_mixed = is_renewed and any(one.owner in {"node", "cluster"} and one.verb != "add-node" for one in changes)
        if not (fresh or is_mixed):
            return
        mine, pods = pod.spec.priority or 0, self.cluster.simulation.pods
        ranked = [queued.pod.pod.uid for queued in self.cluster.simulation.scheduler.queue.ranked()]
        others = [uid for uid in ranked if uid != pod.uid and uid in pods]
        ahead = [uid for uid in others if uid in fresh and (pods[uid].spec.priority or 0) > mine]
        freed = list(dict.fromkeys(str(one.old) for one in changes if one.verb == "evict"))
        for uid in ahead:
            (placed,) = self.cluster.schedule([uid], nodes=freed)
            if placed.node is None:
                (placed,) = self.cluster.schedule([uid])
            if placed.node is not None:
                self._rivals[placed.pod] = placed.node
        if is_mixed:
            self.cluster.schedule([uid for uid in others if uid not in fresh and (pods[uid].spec.priority or 0) >= mine])

    def _renew_siblings(self, pod: Pod, changes: Collection[Change]) -> bool:
        """Create the pods of the workload again if a change makes them all leave at once. Return whether all find a place.

        They have the same changes as the pod. Pods that wait already and have at least its priority are older than these, and
        take what room they can first.
        """
        self._renewed = set()
        siblings = self._leaving_together(pod, changes)
        if not siblings:
            return True
        simulation, mine, workload = self.cluster.simulation, pod.spec.priority or 0, _workload(pod)
        waiting = [one.pod.pod.uid for one in simulation.scheduler.queue.ranked()]
        before = simulation.arrivals
        own = [one for one in changes if one.target == f"pod/{pod.key}"]
        for one in siblings:
            self.cluster.apply(Change("cluster", "evict", f"pod/{one.key}"))
        fresh = [one for one in simulation.arrived_after(before) if _workload(one) == workload]
        for change, sibling in product(own, fresh):
            with suppress(InputError):  # an anti-affinity changed with that of the pod
                self.cluster.apply(with_fields(change, target=f"pod/{sibling.key}"))
        self._renewed = {one.uid for one in fresh}
        pods = simulation.pods
        rivals = [
            uid for uid in waiting
            if uid in pods and (pods[uid].spec.priority or 0) >= mine and _workload(pods[uid]) != workload
        ]  # fmt: skip
        if rivals:
            self.cluster.schedule(rivals)
        return all(one.node is not None for one in self.cluster.schedule([one.uid for one in fresh]))

    def _leaving_together(self, pod: Pod, changes: Collection[Change]) -> list[Pod]:
        """Return the pods of the workload that leave before one with the changes is created.

        They are those of a Job, which is replaced, those of a Deployment that recreates its pods, and those that repel the pod
        when their anti-affinity changes.
        """
        owner, own = controller_of(pod.metadata), [one for one in changes if one.target == f"pod/{pod.key}"]
        made = [one for one in own if one.verb in POD_CHANGES]
        repels = any(one.verb == "prefer" and one.path == "affinity.podAntiAffinity" for one in made)
        if owner is None or not made or not (owner.kind == "Job" or repels or self._recreates(pod)):
            return []
        workload = _workload(pod)
        return [one for one in self.cluster.simulation.pods.values() if one.spec.node_name and _workload(one) == workload]

    def _recreates(self, pod: Pod) -> bool:
        """Return whether the Deployment of a pod, if it has one, deletes its pods before it creates others."""
        name = deployment_name(pod)
        try:
            found = self.cluster.get(f"deployment/{pod.namespace}/{name}") if name else None
        except InputError:
            return False
        return isinstance(found, Deployment) and found.spec.strategy.get("type") == "Recreate"

    def _arrived(self) -> list[Pod]:
        """Return the pods without a node that were created in this trial, apart from those of the workload."""
        arrived = self.cluster.simulation.arrived_after(self._arrivals)
        return [pod for pod in arrived if not pod.spec.node_name and pod.uid not in self._renewed]

    def _waiting(self) -> list[Pod]:
        """Return the pods that replace evicted ones."""
        return [pod for pod in self._arrived() if controller_kind(pod) != "DaemonSet"]

    def _replaced(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Try the pods that replace evicted ones. Return those that are placed, those that are not, and nodes of the first."""
        waiting = self._waiting()
        placements = self.cluster.schedule([pod.metadata.uid for pod in waiting]) if waiting else []
        placed = [one for one in placements if one]
        homes = (*self._rivals.values(), *(str(one.node) for one in placed))
        return (*self._rivals, *(one.pod for one in placed)), tuple(one.pod for one in placements if not one), homes

    def _preempting(
        self, pod: Pod, profile: Profile, cycle: Cycle | None, nominated: str, victims: Collection[str]
    ) -> Trial | None:
        """Try the pod again without its victims, its nominated node first; None if it still finds no node."""
        if not victims:
            return None
        with self.cluster.transaction():
            with self._waking():
                self.cluster.apply(*(Change("cluster", "evict", f"pod/{key}") for key in victims))
            (placement,) = self.cluster.schedule([pod.metadata.uid], nodes=[nominated], dry_run=True)
            if placement.node is not None:
                return Trial(placement.node, tuple(victims))
            decision = None if cycle is None else quick_decision(self.cluster.simulation, pod, profile, cycle)
            if isinstance(decision, Decision):
                node = decision.node
            else:
                (placement,) = self.cluster.schedule([pod.metadata.uid], dry_run=True)
                node = placement.node
            return None if node is None else Trial(node, tuple(victims))

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


def _workload(pod: Pod) -> tuple[str, str, str] | None:
    """Return the namespace, the kind and the name of what creates a pod: of a Deployment, not of its ReplicaSet."""
    owner, name = controller_of(pod.metadata), deployment_name(pod)
    if owner is None:
        return None
    return (pod.namespace, "Deployment", name) if name else (pod.namespace, owner.kind, owner.name)
