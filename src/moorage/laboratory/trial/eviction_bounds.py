"""Whether preemption can find a node for a pod, by cheap tests: most trials change one node, so no other becomes a candidate.

They answer for a pod whose verdict on a node depends on that node and its pods, and on counts of pods by topology domain, while
these counts stay the same. All other pods need a real attempt.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeGuard

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.decision import Feasible
from moorage.core.engine.scheduler import Scheduler
from moorage.core.preemption.what_if import FailedAttempt
from moorage.errors import MoorageError
from moorage.framework.plugin_runner import run_filter
from moorage.framework.profile import Profile
from moorage.framework.verdicts import Verdicts
from moorage.plugins.affinity.affinity_scores import AffinityCounts
from moorage.plugins.default_preemption import DefaultPreemption
from moorage.plugins.dynamic_resources import DynamicResources
from moorage.plugins.spread.spread_scores import Spread
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

__all__ = ["Since", "Stuck", "known_feasible", "rows_to_preempt", "stuck_in", "without_vain_nomination"]


# -- counts beside -----------------------------------------------------------------------------------------------------
# What the verdict on a node may depend on apart from the node and its pods: counts of pods by topology domain.

_Counts = npt.NDArray[Any]
_EMPTY: Final[_Counts] = np.zeros(0, dtype=np.int64)


class CountsBeside(Struct, frozen=True, eq=False):
    """The rules of a pod that count other pods, with copies of the counts.

    ``terms``    the affinity terms by plugin, and ``affinity`` their counts by plugin, kind and topology key
    ``spreads``  the spread constraints and their counts by plugin
    """

    terms: Mapping[str, Hashable]
    affinity: Mapping[Hashable, _Counts]
    spreads: Mapping[str, Sequence[Spread]]

    def refuses_no_less_than(self, before: CountsBeside) -> bool:
        """Return True if every node that is as before, and was refused, is certain to be refused still.

        This also holds once pods of the node are removed, of those that it had before.
        """
        if self.terms != before.terms or self.spreads.keys() != before.spreads.keys():
            return False
        keys = {**self.affinity, **before.affinity}
        if not all(_are_equal(self.affinity.get(key, _EMPTY), before.affinity.get(key, _EMPTY)) for key in keys):
            return False
        return all(
            len(now) == len(old := before.spreads[name]) and all(map(_is_no_looser, now, old))
            for name, now in self.spreads.items()
        )


def counts_beside(known: Feasible) -> CountsBeside | None:
    """Return what the verdicts on a pod depend on apart from each node and its pods; None if that is not known."""
    if known.beside is None:
        return None
    terms: dict[str, Hashable] = {}
    affinity: dict[Hashable, _Counts] = {}
    spreads: dict[str, Sequence[Spread]] = {}
    for name in known.beside:
        state = known.found.states.get(name)
        if isinstance(state, AffinityCounts):
            terms[name] = state.affinity, state.anti_affinity, state.matches_itself
            for kind in ("wanted", "refused", "refusing"):
                affinity |= {(name, kind, key): counts.copy() for key, counts in getattr(state, kind).items()}
        elif _are_spreads(state):
            spreads[name] = [replace(one, counts=one.counts.copy(), domains=one.domains.copy()) for one in state]
        else:
            return None
    return CountsBeside(terms, affinity, spreads)


def _are_spreads(state: Any) -> TypeGuard[Sequence[Spread]]:
    return isinstance(state, Sequence) and bool(state) and all(isinstance(one, Spread) for one in state)


def _are_equal(one: _Counts, other: _Counts) -> bool:
    """Return whether counts are equal. A label value that one side lacks has no count on the other."""
    shared = min(len(one), len(other))
    return bool(np.array_equal(one[:shared], other[:shared]) and not one[shared:].any() and not other[shared:].any())


def _is_no_looser(now: Spread, before: Spread) -> bool:
    """Return True if no domain has fewer pods than before, or more room because the least count rose.

    The domains from before count as many pods. Domains that are new can only lower the least count, unless ``minDomains`` asks
    for several.
    """
    if (now.constraint, now.own) != (before.constraint, before.own):
        return False
    if _are_equal(now.domains, before.domains):
        return _are_equal(now.counts, before.counts)
    shared = min(len(now.domains), len(before.domains))
    held = before.domains[:shared]
    if before.constraint.min_domains > 1 or not held.any() or before.domains[shared:].any() or before.counts[shared:].any():
        return False
    counts, earlier = now.counts[:shared], before.counts[:shared]
    same = np.array_equal(counts[held], earlier[held]) and bool(now.domains[:shared][held].all())
    return same and bool((counts >= earlier).all())


# -- eviction bounds ---------------------------------------------------------------------------------------------------


def known_feasible(scheduler: Scheduler, cycle: Cycle, pod: PodInfo, profile: Profile) -> Feasible | None:
    """Return the rows that no plugin refuses, by the cached verdicts, without regard to nominated pods; None if not known."""
    if cycle.percentage_of_nodes_to_score:
        return None
    return cycle.path(profile).feasible(pod, scheduler.snapshot)


@dataclass(frozen=True, slots=True)
class Stuck:
    """A state in which an attempt found neither a node nor victims for a pod.

    After a change, only rows that changed can help the pod, while ``still_holds``.
    """

    nominated: Mapping[str, frozenset[str]]
    beside: CountsBeside

    def still_holds(self, scheduler: Scheduler, known: Feasible) -> bool:
        """Return whether nominations and counts let the nodes that are as before still refuse the pod."""
        if _nominations(scheduler) != self.nominated:
            return False
        beside = counts_beside(known)
        return beside is not None and beside.refuses_no_less_than(self.beside)


class Since(NamedTuple):
    """The rows that changed since a pod was stuck."""

    stuck: Stuck
    rows: Collection[int]


def _nominations(scheduler: Scheduler) -> dict[str, frozenset[str]]:
    return {node: frozenset([one.uid for one in pods]) for node, pods in scheduler.queue.nominated.items() if pods}


def stuck_in(scheduler: Scheduler, cycle: Cycle, pod: PodInfo, profile: Profile) -> Stuck | None:
    """Return the present state, in which an attempt found neither a node nor victims; None if other rows may help later."""
    if pod.status.nominated_node_name or pod.spec.scheduling_group is not None:
        return None
    known = known_feasible(scheduler, cycle, pod, profile)
    beside = None if known is None else counts_beside(known)
    return None if beside is None else Stuck(_nominations(scheduler), beside)


def without_vain_nomination(scheduler: Scheduler, known: Feasible, pod: PodInfo) -> PodInfo:
    """Return the pod without its nomination if its nominated node refuses it: then it is decided like any other pod."""
    row = scheduler.snapshot.table.row_of.get(pod.status.nominated_node_name)
    if row is None or known.rows[row]:
        return pod
    return PodInfo(replace(pod.pod, status=replace(pod.status, nominated_node_name="")))


def rows_to_preempt(
    scheduler: Scheduler, known: Feasible, pod: PodInfo, profile: Profile, since: Since | None = None
) -> Collection[int] | None:
    """Return the rows where preemption may help a pod that all nodes refuse; None if they are not known, or some node fits."""
    if known.number:
        return None
    changed = since.rows if since is not None and since.stuck.still_holds(scheduler, known) else None
    found: set[int] = set()
    for step in profile.at("postFilter"):
        if isinstance(step.plugin, DefaultPreemption):
            rows = _candidates(step.plugin, scheduler, pod, profile, known, changed)
            if rows is None:
                return None
            found |= rows
        elif not isinstance(step.plugin, DynamicResources) or step.name not in known.found.skipped:
            return None
    return found


def _candidates(
    plugin: DefaultPreemption, scheduler: Scheduler, pod: PodInfo, profile: Profile, known: Feasible,
    changed: Collection[int] | None,
) -> set[int] | None:  # fmt: skip
    """Return the rows on which one plugin may help; None if that is not known."""
    verdicts = Verdicts(len(scheduler.snapshot.table))
    attempt = FailedAttempt(profile, known.found, pod, scheduler.snapshot, verdicts, scheduler.queue.nominated)
    try:
        if _is_ineligible(plugin, attempt, profile):
            return set()
        if changed is None:
            return None if plugin.has_lesser(pod, scheduler.snapshot) else set()
        rows = {row for row in changed if row < len(verdicts) and _has_room_without_lesser(attempt, row)}
        return rows if not rows or plugin.always_wants_a_candidate else None
    except MoorageError:  # the attempt reports it
        return None


def _is_ineligible(plugin: DefaultPreemption, attempt: Any, profile: Profile) -> bool:
    """Return whether the pod may not preempt now: by its policy, or because its victims are still there."""
    pod, snapshot = attempt.pod, attempt.snapshot
    row = snapshot.table.row_of.get(pod.status.nominated_node_name)
    if row is not None:
        run_filter(profile, attempt.found, pod, NodeView(snapshot, np.array([row], dtype=np.intp)), attempt.verdicts)
    return bool(plugin.ineligible(pod, attempt))


def _has_room_without_lesser(attempt: FailedAttempt, row: int) -> bool:
    """Return whether the pod fits on a node without its pods of lower priority."""
    pod = attempt.pod
    lesser = [other for other in attempt.snapshot.table.pods[row].values() if other.priority < pod.priority]
    if not lesser:
        return False
    with attempt.what_if(row) as node:
        for other in lesser:
            node.remove(other)
        return node.refused_by() is None
