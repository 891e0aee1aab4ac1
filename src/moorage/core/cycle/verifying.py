"""Repeat a share of the decisions of the cached path without it, and find the plugin whose promise does not hold.

A plugin that reads more of a pod than its signature has, or more of the cluster than its scope says, makes the cached path
decide on stale answers. A difference is reported with the plugin's name; from then on the plugin runs for every pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from moorage.core.cycle.column import KeyColumn
from moorage.core.cycle.cycle_input import CycleInput
from moorage.core.cycle.decision import Decision, Quick
from moorage.core.cycle.search import draw
from moorage.core.cycle.sheet import ShapeRoute
from moorage.core.cycle.sheets import Sheets
from moorage.core.preemption.filter_input import FilterInput
from moorage.core.preemption.what_if import Nominated, judge_nominated
from moorage.errors import PluginError
from moorage.framework.plugin_runner import refused_rows, run_filter, run_pre_filter, run_score, scored
from moorage.framework.profile import Profile
from moorage.framework.verdicts import Skip, Verdicts
from moorage.state.view import NodeView, PodInfo, Snapshot

_NONE: Nominated = MappingProxyType({})
_OWN: Final = "moorage."


class PromiseError(PluginError):
    """A decision of the cached path that differs from the one without it, and the plugin that breaks a promise."""


@dataclass
class Verification:
    """Which decisions are repeated, and what came of it.

    ``share``: of the decisions of the cached path, 0 to 1. ``on_difference`` gets each difference.
    ``repeated``: how many were repeated; ``differences``: how many differed, by the plugin that is the cause; empty if unknown
    """

    share: float
    on_difference: Callable[[PromiseError], None] | None = None
    repeated: int = 0
    differences: dict[str, int] = field(default_factory=dict)
    _due: float = 0.0

    def is_due(self) -> bool:
        """Return whether to repeat a decision."""
        self._due += self.share
        if self._due < 1.0:
            return False
        self._due -= 1.0
        self.repeated += 1
        return True

    def report(self, plugin: str, what: str) -> None:
        self.differences[plugin] = self.differences.get(plugin, 0) + 1
        if self.on_difference is not None:
            self.on_difference(PromiseError(plugin, what))


class VerifiedPath(Sheets):
    """The cached path of a profile, of which a share of the decisions is repeated."""

    def __init__(self, profile: Profile, verification: Verification) -> None:
        super().__init__(profile)
        self._given, self._verification = profile, verification
        self._distrusted: frozenset[str] = frozenset()
        #: The profile, with plugins that promise nothing once they broke a promise.
        self.trusted = profile

    def decide_by_keys(self, pod: PodInfo, snapshot: Snapshot, seed: int, nominated: Nominated = _NONE) -> Quick | None:
        return self._verified(super().decide_by_keys(pod, snapshot, seed, nominated), pod, snapshot, seed, nominated)

    def decide_known(self, pod: PodInfo, snapshot: Snapshot, seed: int, nominated: Nominated = _NONE) -> Quick | None:
        return self._verified(super().decide_known(pod, snapshot, seed, nominated), pod, snapshot, seed, nominated)

    def decide_copy(self, route: ShapeRoute, pod: PodInfo, snapshot: Snapshot, seed: int) -> Quick | None:
        return self._verified(super().decide_copy(route, pod, snapshot, seed), pod, snapshot, seed, _NONE)

    def _verified(self, quick: Quick | None, pod: PodInfo, snapshot: Snapshot, seed: int, nominated: Nominated) -> Quick | None:
        """Return a decision, repeated if it is its turn; None if it was wrong: the full path decides then."""
        if quick is None or not self._verification.is_due():
            return quick
        expected = _decided(self._given, PodInfo(pod.pod), snapshot, seed, nominated)
        if expected == (quick.row, quick.feasible):
            return quick
        columns, idle = self.columns_of(pod, snapshot)
        suspects = _suspects(self._given, columns, idle, pod, snapshot)
        self._distrust(suspects, pod, _words(quick.row, quick.feasible, snapshot), _words(*expected, snapshot))
        return None

    def confirms(self, failed: Decision, seed: int, given: CycleInput) -> bool:
        """Repeat a failure that was kept, if it is its turn. Return False if the pod fits now."""
        if not self._verification.is_due():
            return True
        snapshot = given.snapshot
        row, feasible = _decided(self._given, PodInfo(failed.pod.pod), snapshot, seed, given.nominated)
        if row >= 0:
            suspects = _custom(self._given, failed.rejected_by) or set(failed.rejected_by)
            self._distrust(suspects, failed.pod, _words(-1, 0, snapshot), _words(row, feasible, snapshot))
        return row < 0

    def _distrust(self, suspects: Set[str], pod: PodInfo, kept: str, now: str) -> None:
        """Report the plugins that may be the cause, and run them for every pod from now on."""
        self._distrusted |= suspects
        self.trusted = self._given.distrusting(self._distrusted)
        Sheets.__init__(self, self.trusted)  # with nothing kept
        for name in sorted(suspects) or [""]:
            what = f"has a reuse that does not hold: kept answers put pod {pod.key} on {kept}, new ones on {now}"
            self._verification.report(name, f"{what}. It runs for every pod now")


def _words(row: int, feasible: int, snapshot: Snapshot) -> str:
    return "no node" if row < 0 else f"node {snapshot.table.nodes[row].name}, one of {feasible}"


def _decided(profile: Profile, pod: PodInfo, snapshot: Snapshot, seed: int, nominated: Nominated) -> tuple[int, int]:
    """Decide without any cache. Return the row and the number of feasible rows; (-1, 0) if none is feasible."""
    found = run_pre_filter(profile, pod, snapshot)
    if found.refused is not None:
        return -1, 0
    table, rows = snapshot.table, np.arange(len(snapshot.table))
    if found.nodes is not None:
        rows = np.array(sorted(table.row_of[name] for name in found.nodes if name in table.row_of), dtype=np.intp)
    verdicts, view = Verdicts(len(table)), snapshot.nodes if found.nodes is None else NodeView(snapshot, rows)
    run_filter(profile, found, pod, view, verdicts)
    if nominated:
        judge_nominated(FilterInput(profile, found, pod), view, verdicts, nominated)
    feasible = rows[verdicts.ids[rows] == 0]
    if len(feasible) < 2 or not profile.at("score"):
        return (draw(table, feasible, pod.uid, seed), len(feasible)) if len(feasible) else (-1, 0)
    scores = run_score(profile, found, pod, NodeView(snapshot, feasible))
    return draw(table, scores.best(), pod.uid, seed), len(feasible)


def _suspects(
    profile: Profile, columns: Iterable[KeyColumn], idle: frozenset[str], pod: PodInfo, snapshot: Snapshot
) -> set[str]:
    """Return the plugins that break a promise; all custom ones if none can be found."""
    columns, mine = list(columns), _answers(profile, PodInfo(pod.pod), snapshot)
    for column in columns:  # two pods with one signature get different answers
        first = _answers(profile, PodInfo(column.first.pod), snapshot)
        if names := {name for name in column.names if first.get(name) != mine.get(name)}:
            return names
    wrong: set[str] = set()
    for column in columns:  # the kept answers are no longer those that the plugins give
        if column.differs(PodInfo(pod.pod), snapshot):
            wrong |= column.names
    if not wrong:
        wrong = set(idle - run_pre_filter(profile, PodInfo(pod.pod), snapshot).skipped)
    everyone = {step.name for point in ("filter", "score") for step in profile.at(point)}
    return _custom(profile, wrong) or wrong or _custom(profile, everyone)


def _custom(profile: Profile, names: Iterable[str]) -> set[str]:
    """Return those of the plugins that are not built in."""
    steps = {step.name: step for in_point in profile.steps.values() for step in in_point}
    return {name for name in names if name in steps and not type(steps[name].plugin).__module__.startswith(_OWN)}


def _answers(profile: Profile, pod: PodInfo, snapshot: Snapshot) -> Mapping[str, Any]:
    """Return each plugin's verdicts and raw scores of all rows, for comparison."""
    answers: dict[str, list[Any]] = {}
    states: dict[str, Any] = {}
    found = run_pre_filter(profile, pod, snapshot)
    for step in profile.at("filter"):
        told = answers.setdefault(step.name, [])
        told.append(step.name in found.skipped)
        if step.name not in found.skipped:
            refused = refused_rows(step, found.state_of(step, pod), snapshot.nodes)
            told.append(None if refused is None or not refused.any() else refused.tobytes())
    for step in profile.at("preScore"):
        states[step.name] = step.call(pod, snapshot, snapshot.nodes)
    for step in profile.at("score"):
        told = answers.setdefault(step.name, [])
        state = states.get(step.name, found.states.get(step.name, pod))
        told.append(None if isinstance(state, Skip) else scored(step, state, snapshot.nodes).astype(np.int64).tobytes())
    return answers
