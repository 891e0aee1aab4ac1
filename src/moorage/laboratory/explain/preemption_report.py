"""A full report on preemption: its result on every node, the victims on the chosen node, and why that node is chosen."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from moorage.api.selectors import SelectorError, compile_label_selector
from moorage.api.workloads import PodDisruptionBudget
from moorage.basis.printable import counted, some
from moorage.core.preemption.candidates import HARMS, NOT_HELPFUL, Candidate, PreemptionSearch, choose, harm_key
from moorage.core.preemption.filter_input import FilterInput
from moorage.core.preemption.reprieve import NO_VICTIMS
from moorage.core.preemption.row_importance import by_importance
from moorage.core.preemption.what_if import FailedAttempt, Nominated
from moorage.errors import MoorageError, PluginError
from moorage.framework.profile import Profile
from moorage.framework.verdicts import Code, Status
from moorage.laboratory.explain.verdicts import engine_view, row_names
from moorage.plugins.default_preemption import DefaultPreemption
from moorage.report.explanation_values import PreemptionNode, PreemptionReport, VictimReport
from moorage.state.view import BoolArray, PodInfo, Snapshot

#: How many candidates are described pod by pod.
_DESCRIBED: Final = 3
#: The highest priority that people can give.
_HIGHEST: Final = 1_000_000_000
#: The number of nodes times priorities up to which every priority is tried to find the lowest one that helps.
_TRIED: Final = 1000


def preemption_of(profile: Profile, pod: PodInfo, snapshot: Snapshot, nominated: Nominated) -> PreemptionReport | None:
    """Return what preemption would do for a pod that fits nowhere; None if the profile's PostFilter is not preemption."""
    told = find_preemption(profile, pod, snapshot, nominated)
    return None if told is None else told()


def find_preemption(
    profile: Profile, pod: PodInfo, snapshot: Snapshot, nominated: Nominated
) -> Callable[[], PreemptionReport] | None:
    """Find what ``preemption_of`` reports. The function that this returns makes the report, and reads no state."""
    plugin = next((step.plugin for step in profile.at("postFilter") if isinstance(step.plugin, DefaultPreemption)), None)
    if plugin is None:
        return None
    try:
        found, verdicts = engine_view(profile, pod, snapshot, nominated)
        attempt: Any = FailedAttempt(FilterInput(profile, found, pod), snapshot, verdicts, nominated)
        return _Story(plugin, attempt, profile, nominated).found()
    except (PluginError, MoorageError):  # the verdicts show the error
        return None


class _Described(NamedTuple):
    """Why victims cannot stay, by their UIDs, and the names of the pods that stay, the most important first."""

    short: Mapping[str, str]
    spared: tuple[str, ...]


class _Story:
    """One failed attempt, and the search for victims over all nodes. Methods below "words" read no state of the engine."""

    def __init__(self, plugin: DefaultPreemption, attempt: Any, profile: Profile, nominated: Nominated) -> None:
        self.plugin = plugin
        self.attempt = attempt
        self.profile = profile
        self.nominated = nominated
        self.table = attempt.snapshot.table
        self.names = row_names(self.table).names
        self.held = tuple(attempt.snapshot.objects(PodDisruptionBudget).values())
        self.budgets = plugin.budgets(attempt.snapshot)

    def found(self) -> Callable[[], PreemptionReport]:
        attempt = self.attempt
        considered = self.plugin.search(attempt)
        may_help = self.plugin.may_help(attempt.pod, attempt.verdicts, attempt.snapshot)
        # a search that finds no candidate tries every node
        is_cut = may_help and bool(considered.candidates)
        everywhere = self.plugin.candidates(attempt, 100, len(attempt.verdicts)) if is_cut else considered
        chosen = choose(considered.candidates) if considered.candidates else None
        not_eligible = self.plugin.ineligible(self.attempt.pod, self.attempt)
        looked_at = np.zeros(len(self.table), dtype=bool) if not_eligible else self._considered(considered)
        described = {one.row: self._described(one) for one in _best(everywhere.candidates, chosen)}
        reprieve = tuple(other.key for other in self._order(chosen.row)) if chosen is not None else ()
        lowest = attempt.pod.priority if chosen is not None else self._lowest_priority()

        def told() -> PreemptionReport:
            nodes = self._nodes(everywhere, looked_at, described)
            return PreemptionReport(
                summary=self._summary(nodes, chosen, not_eligible),
                nodes=nodes,
                chosen=None if chosen is None or not_eligible else chosen.row,
                decided_by="" if chosen is None or not_eligible else _decided_by(considered.candidates),
                not_eligible=not_eligible,
                reprieve=reprieve,
                lowest_priority=lowest,
            )

        return told

    def _considered(self, search: PreemptionSearch) -> BoolArray:
        """Return which rows the decision itself looked at; shape (rows,)."""
        looked = [status is not None and status.reasons != (NOT_HELPFUL,) for status in search.verdicts.statuses]
        found: BoolArray = np.array(looked)[search.verdicts.ids]
        found[[*(one.row for one in search.candidates), *search.fitting]] = True
        hopeless = np.ones(len(found), dtype=bool)
        hopeless[self._hopeful] = False
        return found | hopeless

    @cached_property
    def _hopeful(self) -> npt.NDArray[np.intp]:
        """The rows that eviction might open."""
        rows: npt.NDArray[np.intp] = self.attempt.verdicts.rows_with(Code.UNSCHEDULABLE)
        return rows

    def _described(self, one: Candidate) -> _Described:
        """Return what only the best candidates are described with."""
        gone = {pod.uid for pod in one.victims.pods}
        stay = tuple(other.key for other in self._lesser(one.row) if other.uid not in gone)
        return _Described(self._short_of(one, gone), stay)

    def _lesser(self, row: int) -> list[PodInfo]:
        """Return the pods of lower priority, the most important first."""
        lesser = (other for other in self.table.pods[row].values() if other.priority < self.attempt.pod.priority)
        return by_importance(lesser, in_turn=self.plugin.ranks_in_turn)

    def _order(self, row: int) -> list[PodInfo]:
        """Return the pods of lower priority in the order in which they are put back."""
        exceeding, others = self.budgets.split(self._lesser(row))
        return [*exceeding, *others]

    def _short_of(self, one: Candidate, gone: Collection[str]) -> dict[str, str]:
        """Put the pods back as preemption does, and return the missing resources for each pod that cannot stay."""
        short: dict[str, str] = {}
        order = self._order(one.row)
        with self.attempt.what_if(one.row) as node:
            for other in order:
                node.remove(other)
            for other in order:
                node.add(other)
                status = node.refused_by() if other.uid in gone else None
                if status is not None:
                    short[other.uid] = f"{status.plugin}: {status.message}" if status.plugin else status.message
                    node.remove(other)
        return short

    def _lowest_priority(self) -> int | None:
        """Return the lowest priority at which a candidate appears; None if no priority of present pods helps.

        On few nodes, all priorities are tried; on many, the lowest is found by bisection.
        """
        rows = self._hopeful.tolist()
        present = self.plugin.priorities(rows, self.attempt.snapshot)
        higher: list[int] = sorted(one + 1 for one in present if self.attempt.pod.priority <= one < _HIGHEST)
        if not higher:
            return None
        if len(rows) * len(higher) <= _TRIED:
            return next((one for one in higher if self._helps(one)), None)
        if not self._helps(higher[-1]):
            return None
        low, high = 0, len(higher) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._helps(higher[middle]) else (middle + 1, high)
        return higher[low]

    def _helps(self, priority: int) -> bool:
        """Return whether the pod would find a candidate with another priority."""
        pod: PodInfo = self.attempt.pod
        higher = PodInfo(replace(pod.pod, spec=replace(pod.spec, priority=priority, preemption_policy=None)))
        found, verdicts = engine_view(self.profile, higher, self.attempt.snapshot, self.nominated)
        attempt: Any = FailedAttempt(FilterInput(self.profile, found, higher), self.attempt.snapshot, verdicts, self.nominated)
        search = self.plugin.candidates(attempt, 0, 1)
        return bool(search.candidates or search.fitting)

    # -- words ------------------------------------------------------------------------------------------------------------

    def _nodes(
        self, search: PreemptionSearch, considered: BoolArray, described: Mapping[int, _Described]
    ) -> tuple[PreemptionNode, ...]:
        """Return the verdict of each row; rows with equal statuses share its words."""
        found, own = search.verdicts, self.attempt.verdicts
        both = found.ids.astype(np.int64) * len(own.statuses) + own.ids
        _, first, kinds = np.unique(both, return_index=True, return_inverse=True)
        words = [_verdict(found.statuses[found.ids[row]], own.statuses[own.ids[row]]) for row in first.tolist()]
        of_row = [words[kind] for kind in kinds.tolist()]
        nodes = [
            PreemptionNode(row, verdict, seen, plugin, reason)
            for row, ((verdict, plugin, reason), seen) in enumerate(zip(of_row, considered.tolist(), strict=True))
        ]
        for one in search.candidates:
            nodes[one.row] = self._candidate(one, nodes[one.row].considered, described.get(one.row))
        return tuple(nodes)

    def _candidate(self, one: Candidate, considered: bool, described: _Described | None) -> PreemptionNode:
        victims = one.victims
        if described is None and not victims.exceeding:
            reports = [VictimReport(pod.key, pod.priority) for pod in victims.pods]
        else:
            short = {} if described is None else described.short
            budgets = self._budgets_of(victims.exceeding)
            reports = [
                VictimReport(pod.key, pod.priority, budgets.get(pod.uid, ()), short.get(pod.uid, "")) for pod in victims.pods
            ]
        return PreemptionNode(
            node=one.row,
            verdict="candidate",
            considered=considered,
            victims=tuple(reports),
            spared=() if described is None else described.spared,
            violations=victims.violations,
            highest_priority=reports[0].priority,
            priority_sum=sum([report.priority for report in reports]),
            latest_start=victims.pods[0].status.start_time or "",
        )

    def _budgets_of(self, exceeding: Sequence[PodInfo]) -> Mapping[str, tuple[str, ...]]:
        return {pod.uid: tuple(one.metadata.name for one in self.held if _covers(one, pod)) for pod in exceeding}

    def _summary(self, nodes: Sequence[PreemptionNode], chosen: Candidate | None, not_eligible: str) -> str:
        if not_eligible:
            return f"Preemption: {not_eligible}"
        if chosen is not None:
            candidates = sum(one.verdict == "candidate" for one in nodes)
            victims = some([pod.key for pod in chosen.victims.pods])
            among = "the only candidate" if candidates == 1 else f"the best of {candidates} candidates"
            budgets = sorted({name for names in self._budgets_of(chosen.victims.exceeding).values() for name in names})
            against = f", against {'budgets' if len(budgets) > 1 else 'budget'} {', '.join(budgets)}" if budgets else ""
            return f"Preemption evicts {victims} on {self._name(chosen.row)}, {among}{against}."
        parts = []
        by_verdict: dict[str, list[PreemptionNode]] = {}
        for one in nodes:
            by_verdict.setdefault(one.verdict, []).append(one)
        lacking = by_verdict.get("noLowerPriority", [])
        if lacking:
            parts.append(f"{self._names(lacking)} {'has' if len(lacking) == 1 else 'have'} no pod of lower priority")
        parts += list(self._not_enough(by_verdict.get("notEnough", [])))
        hopeless = by_verdict.get("notHelpful", [])
        if hopeless:
            others = "the other " if parts else ("" if len(hopeless) == 1 else "any of the ")
            parts.append(f"eviction cannot resolve the refusals on {others}{counted(len(hopeless), 'node')}")
        return f"Preemption would not help: {'; '.join(parts)}." if parts else "Preemption would not help."

    def _not_enough(self, nodes: Sequence[PreemptionNode]) -> Iterator[str]:
        by_reason: dict[str, list[PreemptionNode]] = {}
        for one in nodes:
            by_reason.setdefault(one.reason.removeprefix("node(s) "), []).append(one)
        for reason, some_nodes in by_reason.items():
            yield f"without its pods of lower priority, {self._names(some_nodes)} would still refuse it ({reason})"

    def _names(self, nodes: Sequence[PreemptionNode]) -> str:
        if len(nodes) > _DESCRIBED:
            return counted(len(nodes), "node")
        names = [self._name(one.node) for one in nodes]
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

    def _name(self, row: int) -> str:
        return self.names[row]


def _verdict(status: Status | None, own: Status | None) -> tuple[str, str, str]:
    """Return the verdict on a node that is no candidate, with the plugin that still refuses it, if any, and its reason."""
    assert status is not None
    if status.reasons == (NOT_HELPFUL,):
        own = own or status
        return "notHelpful", own.plugin, own.message
    if status.reasons == (NO_VICTIMS,):
        return "noLowerPriority", "", ""
    return "notEnough", status.plugin, status.message


def _best(candidates: Sequence[Candidate], chosen: Candidate | None) -> list[Candidate]:
    """Return the best candidates, the chosen one first."""
    kinds: dict[Hashable, list[tuple[int, Candidate]]] = {}  # the harm of each kind is computed once
    for place, one in enumerate(candidates):
        alike = kinds.setdefault(harm_key(one.victims), [])
        if len(alike) <= _DESCRIBED:
            alike.append((place, one))
    ranked: list[tuple[tuple[int, ...], int, Candidate]] = []
    for alike in kinds.values():
        harms = tuple([harm(alike[0][1].victims) for _, harm in HARMS])
        ranked += [(harms, place, one) for place, one in alike]
    best = [one for _, _, one in sorted(ranked, key=lambda entry: entry[:2])]
    first = [one for one in candidates if chosen is not None and one.row == chosen.row]
    return [*first, *(one for one in best if one not in first)][:_DESCRIBED]


def _decided_by(candidates: Sequence[Candidate]) -> str:
    """Return the first criterion that leaves one candidate, or one kind of candidates."""
    if len(candidates) == 1:
        return "only candidate"
    left = list(candidates)
    for name, harm in HARMS:
        amounts = [harm(one.victims) for one in left]
        least = min(amounts)
        left = [one for one, amount in zip(left, amounts, strict=True) if amount == least]
        if len(left) == 1:
            return name
    return "first in order"


def _covers(budget: PodDisruptionBudget, pod: PodInfo) -> bool:
    try:
        selector = compile_label_selector(budget.spec.selector)
    except SelectorError:
        return False
    return budget.metadata.namespace == pod.namespace and not selector.is_empty and selector.matches(pod.labels)
