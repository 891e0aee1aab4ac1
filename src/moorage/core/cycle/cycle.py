"""The scheduling cycle: one pod, one snapshot, one decision.

``Cycle`` runs PreFilter, Filter and Score and picks a node; if no node fits, it runs PostFilter. It changes no state: the
caller assumes the pod on the chosen node, reserves and binds.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace as with_changes

from moorage.core.cycle.cycle_input import CycleInput
from moorage.core.cycle.decision import Decision
from moorage.core.cycle.kept_failures import Failures
from moorage.core.cycle.search import EVERYWHERE, NodeOrder, SearchScope, draw, feasible_nodes_to_find
from moorage.core.cycle.sheets import Sheets
from moorage.core.cycle.verifying import Verification, VerifiedPath
from moorage.core.extenders.consultation import Asking, Consultation, HTTPExtender, without_asking
from moorage.core.extenders.nodes import BareView
from moorage.core.extenders.wire import ExtenderError, Whole, partial
from moorage.core.preemption.candidates import Candidate
from moorage.core.preemption.filter_input import FilterInput
from moorage.core.preemption.what_if import FailedAttempt, Nominated, judge_nominated
from moorage.errors import AttemptError, PluginError
from moorage.framework.effects import Effect
from moorage.framework.plugin_runner import Scores, ask, outside_versions, run_filter, run_pre_filter, run_score
from moorage.framework.points import PostFilterResult
from moorage.framework.post_filter import Consult, PreFiltered
from moorage.framework.profile import Profile
from moorage.framework.verdicts import Code, Status, Verdicts
from moorage.state.table import NodeTable
from moorage.state.view import NodeView, PodInfo, Snapshot

_NO_ROWS = np.zeros(0, dtype=np.intp)


@dataclass
class Cycle:
    """Decides for all profiles. Holds the seed of tie breaks and the position where the last sampled search ended.

    ``percentage_of_nodes_to_score``: 0 and 100 filter every node; 1-99 stop at that share of feasible nodes, as kube-scheduler
    does.
    ``always_score``: score even a single feasible node, for explanations and comparisons.
    ``nominated_first``: take the nominated node if the pod fits there, without filtering the others, as kube-scheduler does.
    ``errors_end``: a node that a plugin cannot judge ends the attempt, as in kube-scheduler; else the node counts as refused.
    ``by_class``: cache verdicts and scores of pod classes (see ``classes``) and the failures of pods that fit nowhere (see
    ``failures``); decisions are the same without.
    ``extenders``: the extenders in the order they are called; only ``deciding`` calls them. ``whole`` returns an object's full
    JSON for them.
    ``verification``: repeat a share of the decisions of the cached path without it.
    """

    seed: int = 0
    percentage_of_nodes_to_score: int = 0
    always_score: bool = False
    errors_end: bool = True
    nominated_first: bool = True
    by_class: bool = True
    extenders: tuple[HTTPExtender, ...] = ()
    whole: Whole = partial
    order: NodeOrder = field(default_factory=NodeOrder)
    verification: Verification | None = None
    _paths: dict[Profile, Sheets] = field(default_factory=dict)
    _failures: dict[Profile, Failures] = field(default_factory=dict)
    _outside: dict[Profile, tuple[Hashable, ...]] = field(default_factory=dict)

    def decide(
        self,
        profile: Profile,
        pod: PodInfo,
        snapshot: Snapshot,
        nominated: Nominated | None = None,
        scope: SearchScope = EVERYWHERE,
    ) -> Decision:
        """Return the chosen node for ``pod``, or why none fits. A broken plugin ends the attempt: ``Decision.error``."""
        return without_asking(self.deciding(CycleInput(profile, pod, snapshot, nominated or {}, scope), ask=False))

    def deciding(self, given: CycleInput, *, ask: bool = True) -> Asking[Decision]:
        """Decide like ``decide``, with the extenders. The caller adds no pod and changes no node while a call is open.

        ``ask``: call the extenders
        """
        pod = given.pod
        if not given.scope.count(given.snapshot.table):
            return Decision(pod)
        consultation = Consultation.of(pod, self.extenders, self.whole) if ask and self.extenders else Consultation(pod)
        try:
            known = self._known(given, consultation)
            if known is not None:
                return known
            decision = yield from self._full_path(given, consultation)
        except PluginError as error:
            decision = Decision(pod, error=error)
        else:
            if not consultation.extenders:
                self._keep(given, decision)
        if not consultation.done_without:
            return decision
        return with_changes(decision, done_without=tuple(consultation.done_without))

    def at_once(self, profile: Profile) -> Sheets | None:
        """Return the cached path of a profile, for pods that need no ``Decision``; None: call ``decide`` for each pod.

        A subclass may decide otherwise, so its pods need ``decide``, unless it overrides this.
        """
        if type(self) is not Cycle or not self.by_class or self.always_score or self.extenders or self._percentage_for(profile):
            return None
        try:
            return self.path(profile)
        except PluginError:  # the attempt reports it
            return None

    def path(self, profile: Profile) -> Sheets:
        """Return the cached path of a profile."""
        self._forget_outdated(profile)
        path = self._paths.get(profile)
        if path is None:
            path = Sheets(profile) if self.verification is None else VerifiedPath(profile, self.verification)
            self._paths[profile] = path
        return path

    def _forget_outdated(self, profile: Profile) -> None:
        """Forget what is kept of a profile whose plugins read data from outside, if that has changed."""
        if profile.outside and self._outside.get(profile) != (versions := outside_versions(profile)):
            self._outside[profile] = versions
            self._paths.pop(profile, None)
            self._failures.pop(profile, None)

    def _known(self, given: CycleInput, consultation: Consultation) -> Decision | None:
        """Decide from a cached failure or the cached path; None if the decision takes the full path."""
        profile, scope = given.profile, given.scope
        if scope.rows is not None or not self.by_class or consultation.decides:
            return None
        self._forget_outdated(profile)
        failures = self._failures.get(profile) if scope.post_filter and not consultation.extenders else None
        failed = failures.find(given.pod, given.snapshot, given.nominated) if failures is not None else None
        path = self._paths.get(profile)
        if failed is not None and isinstance(path, VerifiedPath) and not path.confirms(failed, self.seed, given):
            self._failures[profile], failed = Failures(path.trusted), None
        return failed or self._by_class(given)

    def _keep(self, given: CycleInput, decision: Decision) -> None:
        """Cache a failure for the next pod of its class, unless the next search depends on where this one ended."""
        profile = given.profile
        if decision.node is not None or not self.by_class or given.scope is not EVERYWHERE or self._percentage_for(profile):
            return
        failures = self._failures.get(profile)
        if failures is None:
            failures = self._failures[profile] = Failures(profile)
        failures.keep(decision, given.snapshot, given.nominated)

    def _percentage_for(self, profile: Profile) -> int:
        """Return the percentage of nodes at which a profile's searches may stop; 0: they never stop early, as at 100."""
        own = profile.percentage_of_nodes_to_score
        percentage = self.percentage_of_nodes_to_score if own is None else own
        return percentage if percentage < 100 else 0

    def _by_class(self, given: CycleInput) -> Decision | None:
        """Decide on the cached path; None if the decision takes the full path."""
        profile, pod, snapshot = given.profile, given.pod, given.snapshot
        if self.always_score or self._percentage_for(profile) or pod.status.nominated_node_name in snapshot.table.row_of:
            return None
        try:
            quick = self.path(profile).decide_by_keys(pod, snapshot, self.seed, given.nominated)
        except PluginError:  # the full path reports the node, and whether the error ends the attempt
            return None
        if quick is None:
            return None
        nodes = snapshot.table.nodes
        self.order.advance(quick.among, len(nodes))
        return quick.decision(pod, nodes[quick.row].name, len(nodes))

    def _full_path(self, given: CycleInput, consultation: Consultation) -> Asking[Decision]:
        pod, snapshot, scope = given.pod, given.snapshot, given.scope
        found = run_pre_filter(given.profile, pod, snapshot)
        asked = given.filtering(found)
        verdicts = Verdicts(len(snapshot.table))
        if found.refused is not None:
            verdicts.pre_filter = found.refused
            verdicts.refuse(np.arange(len(verdicts)), found.refused)
            return (yield from self._post_filter(given, asked, verdicts, consultation))
        trial = _Trial(self._nominated_row(given), Verdicts(len(verdicts)))
        feasible = yield from trial.run(asked, given, consultation)
        if not len(feasible):
            feasible = self._feasible(given, asked, verdicts)
            trial.tell(found, snapshot, verdicts)
            if self.errors_end:
                _raise_first_error(verdicts)
            feasible = yield from consultation.filter(feasible, snapshot, verdicts)
        if not len(feasible):
            return (yield from self._post_filter(given, asked, verdicts, consultation))
        table = snapshot.table
        evaluated = scope.count(table) if found.nodes is None else len(found.nodes)
        if len(feasible) == 1 and not self.always_score:
            return Decision(pod, table.nodes[feasible[0]].name, found, verdicts, evaluated=evaluated, feasible=1)
        scores = rate(asked, snapshot, feasible, bare=consultation.bare)
        if len(feasible) > 1:
            scores = yield from consultation.prioritize(scores, snapshot)
        row = self.drawn(table, scores.best(), pod)
        return Decision(pod, table.nodes[row].name, found, verdicts, scores, evaluated=evaluated, feasible=len(feasible))

    def drawn(self, table: NodeTable, best: npt.NDArray[np.intp], pod: PodInfo) -> int:
        """Return one of the best rows. A subclass that breaks ties in another way sets ``by_class`` to False."""
        return draw(table, best, pod.uid, self.seed)

    def _nominated_row(self, given: CycleInput) -> int | None:
        """Return the row of the pod's nominated node if it is tried before all others, else None."""
        first = self.nominated_first and given.profile.nominated_first
        row = given.snapshot.table.row_of.get(given.pod.status.nominated_node_name) if first else None
        return row if row is not None and given.scope.covers(row) else None

    def _feasible(self, given: CycleInput, asked: FilterInput, verdicts: Verdicts) -> npt.NDArray[np.intp]:
        percentage, snapshot, scope = self._percentage_for(given.profile), given.snapshot, given.scope
        rows = scope.close_others(_rows_to_look_at(given.profile, asked.found, snapshot, verdicts), verdicts)
        wanted = feasible_nodes_to_find(percentage, len(rows)) if percentage else len(rows)
        if wanted >= len(rows):
            whole = len(rows) == len(verdicts)
            judge(asked, snapshot.nodes if whole else NodeView(snapshot, rows), verdicts, given.nominated)
            if not whole:  # the next search starts after the nodes filtered here; filtering all of them changes nothing
                self.order.advance(len(rows), scope.count(snapshot.table))
            open_rows: npt.NDArray[np.intp] = rows[verdicts.ids[rows] == 0]
            return open_rows
        return self._sampled(given, asked, verdicts, rows, wanted)

    def _sampled(
        self, given: CycleInput, asked: FilterInput, verdicts: Verdicts, rows: npt.NDArray[np.intp], wanted: int
    ) -> npt.NDArray[np.intp]:
        """Search in kube-scheduler's order until enough feasible rows are found.

        The search ends at the next feasible row after that, so refused rows before it are filtered and reported as well.
        """
        snapshot, scope = given.snapshot, given.scope
        order = self.order.rows(snapshot.table, scope.rows)
        order = order[np.isin(order, rows)]
        feasible: list[int] = []
        processed, enough, further = 0, False, 1
        while processed < len(order) and not enough:
            if len(feasible) == wanted:
                further *= 2
            ahead = max(wanted, 100) if len(feasible) < wanted else further // 2
            chunk = order[processed : processed + ahead]
            trial = Verdicts(len(verdicts))
            judge(asked, NodeView(snapshot, chunk), trial, given.nominated)
            for row in chunk:
                status = trial.status(row)
                enough = status is None and len(feasible) == wanted
                if enough:
                    break
                processed += 1
                if status is None:
                    feasible.append(int(row))
                else:
                    verdicts.refuse(row, status)
        self.order.advance(processed, scope.count(snapshot.table))
        return np.array(feasible, dtype=np.intp)

    def _post_filter(
        self, given: CycleInput, asked: FilterInput, verdicts: Verdicts, consultation: Consultation
    ) -> Asking[Decision]:
        profile, pod, scope = given.profile, given.pod, given.scope
        outcome: PostFilterResult | None = None
        if not scope.post_filter:
            outcome = PostFilterResult(Code.UNSCHEDULABLE, ("All PostFilter plugins are skipped",))
        elif profile.at("postFilter"):
            preempting = any(extender.preempt_verb for extender in consultation.extenders)
            attempt = FailedAttempt(asked, given.snapshot, verdicts, given.nominated, consults=preempting)
            outcome = yield from _run_post_filter(profile, pod, attempt, consultation)
        count = scope.count(given.snapshot.table)
        return Decision(
            pod,
            None,
            asked.found,
            verdicts,
            post_filter=outcome,
            evaluated=count,
            among=count,
            release=profile.release,
        )


@dataclass(frozen=True, slots=True)
class _Trial:
    """The pod's nominated node, filtered alone; ``row`` is None if the pod has no nominated node."""

    row: int | None
    verdicts: Verdicts

    def run(self, asked: FilterInput, given: CycleInput, consultation: Consultation) -> Asking[npt.NDArray[np.intp]]:
        """Return the row if the pod fits there, else no rows."""
        if self.row is None:
            return _NO_ROWS
        rows = np.array([self.row], dtype=np.intp)
        judge(asked, NodeView(given.snapshot, rows), self.verdicts, given.nominated)
        if self.verdicts.status(self.row) is not None:
            return _NO_ROWS
        try:
            return (yield from consultation.filter(rows, given.snapshot, self.verdicts))
        except ExtenderError:  # the extender is called again with all feasible nodes
            return _NO_ROWS

    def tell(self, found: PreFiltered, snapshot: Snapshot, verdicts: Verdicts) -> None:
        """Record why the pod does not fit, if PreFilter excludes the node from the search that follows."""
        if self.row is None or found.nodes is None or snapshot.table.nodes[self.row].name in found.nodes:
            return
        status = self.verdicts.status(self.row)
        if status is not None:
            verdicts.refuse(self.row, status)


def _raise_first_error(verdicts: Verdicts) -> None:
    """Raise AttemptError for the first row that a plugin could not judge, if there is one."""
    rows = verdicts.rows_with(Code.ERROR)
    broken = verdicts.status(int(rows[0])) if len(rows) else None
    if broken is not None:
        raise AttemptError(broken.plugin, broken.message)


def _rows_to_look_at(profile: Profile, found: PreFiltered, snapshot: Snapshot, verdicts: Verdicts) -> npt.NDArray[np.intp]:
    """Return the rows that PreFilter left, and refuse the others."""
    if found.nodes is None:
        return np.arange(len(verdicts))
    row_of = snapshot.table.row_of
    rows = np.array(sorted(row_of[name] for name in found.nodes if name in row_of), dtype=np.intp)
    verdicts.refuse(np.arange(len(verdicts)), status_of_left_out(profile, found))
    verdicts.ids[rows] = 0
    return rows


def status_of_left_out(profile: Profile, found: PreFiltered) -> Status:
    """Return the status of the nodes that PreFilter left out."""
    named = " ".join(found.narrowed_by)
    reasons = (f"node(s) didn't satisfy plugin(s) [{named}]",) if profile.release.names_nodes_left_out else ()
    return Status(Code.UNSCHEDULABLE if profile.release.evicts_on_nodes_left_out else Code.UNRESOLVABLE, "", reasons)


def judge(asked: FilterInput, nodes: NodeView, verdicts: Verdicts, nominated: Nominated) -> None:
    """Run Filter over a view; rows with nominated pods are judged with those pods added."""
    run_filter(asked.profile, asked.found, asked.pod, nodes, verdicts)
    if nominated:
        judge_nominated(asked, nodes, verdicts, nominated)


def rate(asked: FilterInput, snapshot: Snapshot, feasible: npt.NDArray[np.intp], *, bare: bool = False) -> Scores:
    """Score the feasible rows; each gets 1 if there are no Score plugins. ``bare``: score them without pods and images."""
    whole = len(feasible) == len(snapshot.table) and bool((feasible == np.arange(len(feasible))).all())
    view = snapshot.nodes if whole else NodeView(snapshot, feasible)
    if not asked.profile.at("score"):
        return Scores(feasible, np.ones(len(feasible), dtype=np.int64))
    return run_score(asked.profile, asked.found, asked.pod, BareView(snapshot, feasible) if bare else view)


def _run_post_filter(
    profile: Profile, pod: PodInfo, attempt: FailedAttempt, consultation: Consultation
) -> Asking[PostFilterResult]:
    """Run PostFilter plugins in order until one succeeds or reports that nothing can help.

    The effects of the plugins before that one are kept.

    Source  framework/runtime/framework.go, RunPostFilterPlugins
    """
    reasons: list[str] = []
    nominated: str | None = None
    effects: tuple[Effect, ...] = ()
    for step in profile.at("postFilter"):
        result = ask(step, "postFilter", pod, attempt)
        if isinstance(result, Consult):
            result = yield from _consulted(result, attempt.snapshot, consultation)
        if not isinstance(result, PostFilterResult):
            raise PluginError(step.name, f"returned {result!r} in postFilter; return PostFilterResult(code, ...)")
        if result.code is Code.ERROR:
            return PostFilterResult(Code.ERROR, result.reasons, effects=effects)
        if result.code in {Code.SUCCESS, Code.UNRESOLVABLE}:
            return replace(result, effects=(*effects, *result.effects)) if effects else result
        if result.nominated is not None:
            nominated = result.nominated
        reasons.extend(result.reasons)
        effects += result.effects
    return PostFilterResult(Code.UNSCHEDULABLE, tuple(reasons), nominated, effects=effects)


def _consulted(wanted: Consult[Candidate], snapshot: Snapshot, consultation: Consultation) -> Asking[PostFilterResult]:
    """Pass the candidates for preemption to the extenders, and let the plugin choose among those they keep."""
    try:
        return wanted.choose((yield from consultation.preempt(wanted.candidates, snapshot)))
    except ExtenderError as error:
        return PostFilterResult(Code.ERROR, (f"preemption: {error}",))
