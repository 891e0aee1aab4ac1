"""Trials: make some changes, and let the engine try a pod."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
from msgspec.structs import replace

from moorage.api.core import Object, Pod
from moorage.basis.printable import one_line
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.judges import close_refused
from moorage.core.cycle.search import SearchScope, draw
from moorage.errors import InputError, PluginError
from moorage.framework.changes import Change
from moorage.framework.plugin_runner import run_pre_filter, run_score
from moorage.framework.post_filter import PreFiltered
from moorage.framework.profile import Profile
from moorage.laboratory.change.offers import NO_OFFERS, ChangeSet, NodeOffers, Offers
from moorage.laboratory.explain.verdicts import is_accepted, judgements_of
from moorage.laboratory.trial.asked_cluster import AskedCluster
from moorage.laboratory.trial.workers import kept, workers_of
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.view import BoolArray, FewRows, PodInfo, Snapshot

if TYPE_CHECKING:
    from moorage.laboratory.plan.plan_problem import PlanProblem
    from moorage.laboratory.plan.plan_trials import NodeTrials

# Pods that could move to make room: each to the node, other than its own, that the scheduler would now choose for it.


@dataclass(slots=True)
class PodMoves:
    """Moves of the pods of one profile. Pods with volumes or devices do not move: their volumes would have to move as well."""

    profile: Profile
    snapshot: Snapshot
    known: dict[str, Change | None] = field(default_factory=dict)

    def instead_of(self, changes: Collection[Change]) -> frozenset[Change]:
        """Return changes in which each eviction of a pod that fits on another node is replaced by a move."""
        return frozenset(self._move(one) or one for one in changes)

    def _move(self, eviction: Change) -> Change | None:
        if eviction.verb != "evict":
            return None
        if eviction.target not in self.known:
            self.known[eviction.target] = self._searched(eviction)
        move = self.known[eviction.target]
        return None if move is None else replace(move, term=eviction.term)

    def _searched(self, eviction: Change) -> Change | None:
        table, old = self.snapshot.table, str(eviction.old)
        row = table.row_of.get(old)
        key = eviction.target.removeprefix("pod/")
        held = None if row is None else next((pod for pod in table.pods[row].values() if pod.key == key), None)
        if row is None or held is None or held.volumes is not None or held.spec.resource_claims:
            return None
        if held.spec.scheduler_name != self.profile.scheduler_name:
            return None
        with table.what_if(row):
            table.remove_pod(row, held)
            node = self._chosen(PodInfo(unplaced(held.pod)), row)
        return None if node is None else Change("cluster", "move", eviction.target, "nodeName", old, node)

    def _chosen(self, pod: PodInfo, row: int) -> str | None:
        """Return the node that the scheduler would choose for a pod if it could not use the node on this row."""
        try:
            found = run_pre_filter(self.profile, pod, self.snapshot)
            if found.refused is None and found.nodes is None and not self.profile.percentage_of_nodes_to_score:
                return self._chosen_of_all(pod, row, found)
        except PluginError:  # the cycle tells apart which errors end the search
            pass
        cycle = Cycle(0, by_class=False, nominated_first=False, errors_end=False)
        others = SearchScope(np.delete(np.arange(len(self.snapshot.table)), row), post_filter=False)
        return cycle.decide(self.profile, pod, self.snapshot, {}, others).node

    def _chosen_of_all(self, pod: PodInfo, row: int, found: PreFiltered) -> str | None:
        """Do the same if PreFilter leaves all nodes and Filter judges them all, in less time than a cycle needs.

        Raises  PluginError if a plugin fails or cannot judge a node
        """
        table = self.snapshot.table
        open_rows = np.ones(len(table), dtype=bool)
        steps = (step for step in self.profile.at("filter") if step.name not in found.skipped)
        close_refused(open_rows, steps, found.states, pod, self.snapshot.nodes)
        open_rows[row] = False
        rows = np.flatnonzero(open_rows)
        if len(rows) > 1 and self.profile.at("score"):
            rows = run_score(self.profile, found, pod, FewRows(self.snapshot, rows)).best()
        return table.nodes[draw(table, rows, pod.uid, 0)].name if len(rows) else None


def unplaced(pod: Pod) -> Pod:
    """Return the pod without a node, as before its placement."""
    return replace(pod, spec=replace(pod.spec, node_name=""), status=replace(pod.status, nominated_node_name=""))


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome for the pod.

    ``node``       the node of the pod, or the one it gets once its victims are deleted; "" for none
    ``displaced``  the pods that made room, as ``namespace/name``: preempted ones, and evicted ones that were replaced elsewhere
    ``stranded``   replacements of evicted pods that stay pending
    ``homes``      the nodes of the displaced pods that were replaced
    ``offers``     if the pod has no node, further changes that would help, if the caller asked for them
    """

    node: str = ""
    displaced: tuple[str, ...] = ()
    stranded: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    offers: Offers | None = None
    fault: str = ""


class Trials(Protocol):
    """Makes changes, tries the pod ``key``, ``namespace/name``, and rolls the changes back."""

    key: str

    def attempt(self, changes: Collection[Change], *, look: bool = True) -> Trial:
        """Make the changes and try the pod before all others; with ``look``, also find changes that would help if it fails."""

    def fits(self, changes: Collection[Change]) -> tuple[str, ...]:
        """Return the names of the nodes that no plugin refuses once the changes are made."""

    def moved(self, changes: ChangeSet) -> ChangeSet:
        """Return changes in which each eviction of a pod that fits on another node is replaced by a move."""


def in_order(changes: Iterable[Change]) -> list[Change]:
    """Return the changes of objects in the order in which they are made: pods move last."""
    made = (one for one in changes if one.owner != "config")
    return sorted(made, key=lambda one: (one.verb == "move", one.verb, one.target, one.path))


def check_move(move: Change, simulation: SimulatedCluster) -> None:
    """Raise InputError if a plugin refuses the node that a pod is to move to. The pod must be on no node."""
    pod = simulation.pod_named(move.target.removeprefix("pod/"))
    profile = None if pod is None else simulation.scheduler.profiles.get(pod.spec.scheduler_name)
    snapshot = simulation.scheduler.snapshot
    row = snapshot.table.row_of.get(str(move.new))
    if pod is None or profile is None or row is None or not is_accepted(profile, PodInfo(unplaced(pod)), snapshot, row):
        raise InputError(one_line(f"{move.target} does not fit on {move.new}"))


def moved_in(simulation: SimulatedCluster, key: str, changes: ChangeSet, known: dict[str, Change | None]) -> ChangeSet:
    """Return changes with evictions replaced by moves, for pods of the pod's scheduler; ``known`` caches the moves."""
    pod = simulation.pod_named(key)
    profile = None if pod is None else simulation.scheduler.profiles.get(pod.spec.scheduler_name)
    return changes if profile is None else PodMoves(profile, simulation.scheduler.snapshot, known).instead_of(changes)


def fits_of(profile: Profile, pod: Pod, simulation: SimulatedCluster) -> tuple[str, ...]:
    """Return the names of the nodes that no plugin of a profile refuses, sorted."""
    snapshot = simulation.scheduler.snapshot
    open_rows = np.ones(len(snapshot.table), dtype=bool)
    for one in judgements_of(profile, PodInfo(pod), snapshot):
        if one.refuses_any:
            open_rows &= ~one.refused
    return names_of(open_rows, simulation)


def names_of(rows: BoolArray, simulation: SimulatedCluster) -> tuple[str, ...]:
    """Return the names of the nodes on these rows, sorted."""
    nodes = simulation.scheduler.snapshot.table.nodes
    return tuple(sorted([nodes[row].metadata.name for row in np.flatnonzero(rows).tolist()]))


def unscheduled(pod: Pod, simulation: SimulatedCluster) -> Offers | None:
    """Return offers that let a scheduler try the pod: a scheduler name with a profile, no gates. None if it can already."""
    target, profiles = f"pod/{pod.key}", simulation.scheduler.profiles
    if pod.spec.node_name:
        return NO_OFFERS
    constraints: list[tuple[ChangeSet, ...]] = [
        (frozenset([Change("pod", "ungate", target, f"schedulingGates.{gate.name}", gate.name, None)]),)
        for gate in pod.spec.scheduling_gates
    ]
    if pod.spec.scheduler_name not in profiles:
        old = pod.spec.scheduler_name
        others: Iterable[Change] = (Change("pod", "scheduler-name", target, "schedulerName", old, name) for name in profiles)
        profile = Change("config", "profile", f"config/{old}", "schedulerName", None, old)
        constraints.append((*(frozenset([one]) for one in others), frozenset([profile])))
    return Offers((NodeOffers("", tuple(constraints)),), True) if constraints else None


# -- spread trials -----------------------------------------------------------------------------------------------------

Counts = tuple[int, ...]


class SpreadTrials:
    """Trials like those of ``NodeTrials``, several at once. ``runs`` and ``probes`` count those of all workers."""

    def __init__(
        self, executor: Executor, cluster: AskedCluster, problem: PlanProblem, pods: Sequence[Pod], policies: Sequence[Object],
        *, whole_queue: bool,
    ) -> None:  # fmt: skip
        self.workers = workers_of(executor)
        self.runs = self.probes = 0
        self._executor = executor
        self._data = pickle.dumps({"given": (cluster, problem, list(pods), list(policies), whole_queue)})

    def pending(self, sets: Sequence[Counts]) -> list[tuple[str, ...]]:
        """Return the pods that stay pending with each set, in the real order."""
        waiting = [self._executor.submit(_pending, self._data, counts) for counts in sets]
        found = []
        for one in waiting:
            left, runs, probes = one.result()
            self.runs += runs
            self.probes += probes
            found.append(left)
        return found


def _pending(data: bytes, counts: Counts) -> tuple[tuple[str, ...], int, int]:
    held = kept(data)
    if "trials" not in held:
        from moorage.laboratory.plan.plan_trials import NodeTrials

        cluster, problem, pods, policies, whole_queue = held["given"]
        held["trials"] = NodeTrials(cluster, problem, pods, policies, whole_queue=whole_queue)
    trials: NodeTrials = held["trials"]
    runs, probes = trials.runs, trials.probes
    left = trials.pending(counts)
    return left, trials.runs - runs, trials.probes - probes
