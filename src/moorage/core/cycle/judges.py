"""Who judges the rows for a pod: some plugins of a profile, what PreFilter and PreScore answer, and a rule for several.

Nothing here is kept for rows; see ``column`` for answers that are, and ``one_look`` for a pod that needs them once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

from moorage.framework.answer_forms import Rule
from moorage.framework.plugin_runner import ask, refused_rows
from moorage.framework.post_filter import PreFiltered
from moorage.framework.profile import Profile, Step
from moorage.framework.reuse import Scope
from moorage.framework.verdicts import SKIP, Hold, Narrow
from moorage.state.columns import BoolArray, both
from moorage.state.view import NodeView, PodInfo, Snapshot


class Steps:
    """Some plugins of a profile, by name, at PreFilter, Filter, PreScore and Score.

    ``reads_pods``: they read the pods of a row, or their sums, too
    """

    def __init__(self, profile: Profile, names: Set[str], *, reads_pods: bool = False) -> None:
        pre_filter, filter_, pre_score, score = (
            tuple(step for step in profile.at(point) if step.name in names)
            for point in ("preFilter", "filter", "preScore", "score")
        )
        self.pre_filter, self.filter, self.pre_score, self.score = pre_filter, filter_, pre_score, score
        self.weights, self.reads_pods = profile.weights, reads_pods
        reads_others = {step.name: step.reuse.other_nodes for step in (*filter_, *score) if step.reuse.other_nodes is not None}
        #: What tells whether nodes beside the judged one changed; see ``Reuse``.
        self.others = tuple(reads_others.values())
        self._plans: dict[tuple[Set[str], Set[str]], Plan] = {}
        judging = [*((step, "filter") for step in filter_), *((step, "score") for step in score)]
        shares = {step.name: step.reuse.share for step, _ in judging}
        makers = {share and share.rules for share in shares.values()}
        maker = makers.pop() if len(makers) == 1 else None
        #: Makes the rule of a pod for all plugins at once; None if there is none.
        self.rule_for: Callable[[PodInfo], Rule | None] = lambda pod: None
        if maker is not None and all(step.name in shares for step in (*pre_filter, *pre_score)):
            parts = [
                share.part(point, self.weights.get(step.name, 1)) for step, point in judging if (share := step.reuse.share)
            ]
            if None not in parts:
                self.rule_for = maker(parts)

    def __bool__(self) -> bool:
        return bool(self.filter or self.pre_score or self.score)

    def scoring(self, found: PreFiltered, pod: PodInfo, view: NodeView) -> list[tuple[Step, Any]]:
        """Run PreScore for the rows of a view. Return the Score plugins that did not skip, with their states."""
        told = {step.name: ask(step, "preScore", pod, view.snapshot, view) for step in self.pre_score}
        states = found.states
        scoring = [(step, told[step.name] if step.name in told else states.get(step.name, pod)) for step in self.score]
        return [one for one in scoring if one[1] is not SKIP]

    def plan(self, skipped: frozenset[str], passed: frozenset[str]) -> Plan:
        """Return the plugins that judge the rows for pods that these plugins skip in PreFilter and in PreScore."""
        plan = self._plans.get((skipped, passed))
        if plan is None:
            plan = self._plans[skipped, passed] = Plan(self, skipped, passed)
        return plan


class Plan:
    """The plugins that judge rows. ``by_room``: rows with equal rooms have equal verdicts and scores, none of them scaled."""

    def __init__(self, steps: Steps, skipped: Set[str], passed: Set[str]) -> None:
        self.filters = [step for step in steps.filter if step.name not in skipped]
        scores = [(step, steps.weights.get(step.name, 1)) for step in steps.score if step.name not in passed]
        self.plain = [pair for pair in scores if pair[0].normalize is None]
        self.scaled = [pair for pair in scores if pair[0].normalize is not None]
        judging = [*self.filters, *(step for step, _ in scores)]
        self.by_room = not self.scaled and all(step.reuse.scope is Scope.USAGE for step in judging)


class PreFilters(NamedTuple):
    """The answers of some PreFilter plugins.

    ``states`` by plugin, the plugins that ``skipped``, the rows left as a mask (``narrowed``; None: all), and whether a plugin
    ``refused`` the pod.
    """

    states: dict[str, Any]
    skipped: frozenset[str]
    narrowed: BoolArray | None
    refused: bool

    def agrees_with(self, other: PreFilters) -> bool:
        """Return whether these answers equal others, not counting the states."""
        if self.skipped != other.skipped or self.refused != other.refused:
            return False
        if self.narrowed is None or other.narrowed is None:
            return self.narrowed is other.narrowed
        return bool((self.narrowed == other.narrowed).all())


_NOTHING: Final = frozenset[str]()
_NO_ANSWERS: Final = PreFilters({}, _NOTHING, None, False)


def ask_pre_filters(steps: Sequence[Step], pod: PodInfo, snapshot: Snapshot) -> PreFilters:
    """Run PreFilter of all these plugins for a pod."""
    if not steps:
        return _NO_ANSWERS
    states: dict[str, Any] = {}
    skipped: list[str] = []
    narrowed: BoolArray | None = None
    refused = False
    for step in steps:
        answer = ask(step, "preFilter", pod, snapshot)
        if answer is SKIP:
            skipped.append(step.name)
        elif isinstance(answer, Hold):
            refused = True
        elif isinstance(answer, Narrow):
            narrowed = both(narrowed, snapshot.nodes.named(answer.nodes))
            states[step.name] = answer.state
        else:
            states[step.name] = answer
    return PreFilters(states, frozenset(skipped), narrowed, refused)


def close_refused(
    open_rows: BoolArray, steps: Iterable[Step], states: Mapping[str, Any], pod: PodInfo, nodes: NodeView
) -> None:
    """Clear in ``open_rows`` the rows of a view that Filter plugins refuse."""
    for step in steps:
        refused = refused_rows(step, states.get(step.name, pod), nodes)
        if refused is not None:
            open_rows &= ~refused


class Judges:
    """Who judges the rows for a pod.

    ``rule``    that of all plugins at once, None if there is none
    ``found``   the answers of PreFilter; ``states``: these and those of PreScore
    ``plan``    the plugins that judge rows
    """

    __slots__ = ("found", "plan", "rule", "states")

    def __init__(self, steps: Steps, pod: PodInfo, snapshot: Snapshot) -> None:
        self.rule = steps.rule_for(pod)
        self.found = ask_pre_filters(steps.pre_filter, pod, snapshot)
        self.states: Mapping[str, Any] = self.found.states
        passed = _NOTHING
        if steps.pre_score:
            asked = {step.name: ask(step, "preScore", pod, snapshot, snapshot.nodes) for step in steps.pre_score}
            self.states = {**self.states, **asked}
            passed = frozenset([name for name, state in asked.items() if state is SKIP])
        self.plan = steps.plan(self.found.skipped, passed)
