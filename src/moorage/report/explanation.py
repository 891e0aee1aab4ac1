"""Why a pod is pending, or why it is on its node: ``Explanation`` and its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from moorage.basis.printable import counted, one_line
from moorage.report.answer import Answer, AnswerRequest, Proof, ending
from moorage.report.change_lines import change_lines, left_out_lines
from moorage.report.explanation_values import (
    ConflictTerm,
    ExplainRequest,
    ExplanationValues,
    FunnelStep,
    NearestNode,
    NodeGroup,
    PodStanding,
    PreemptionNode,
    PreemptionReport,
    RefusalReport,
)
from moorage.report.gates import MetricComparison
from moorage.report.score_text import score_lines
from moorage.report.style import WIDTH, cells, columns, item, paragraph, text_width

__all__ = [
    "ConflictTerm", "ExplainRequest", "Explanation", "FunnelStep", "NearestNode", "NodeGroup", "PodStanding", "Proof",
    "RefusalReport",
]  # fmt: skip


#: How many candidates are shown.
_CANDIDATES = 3
_INDENT = "    "


def preemption_lines(report: PreemptionReport, nodes: Sequence[str], *, wide: bool) -> Iterator[str]:
    """Yield what preemption does or would do; the candidates and the reprieve order if ``wide``."""
    by = {"": "", "only candidate": ""}.get(report.decided_by, f" Decided by: {report.decided_by}.")
    yield paragraph(one_line(report.summary + by), indent="  ")
    if report.lowest_priority is not None and report.chosen is None and not report.not_eligible:
        yield f"  A priority of {report.lowest_priority} or more would find a node to preempt on."
    if wide:
        yield from _candidates(report, nodes)


def _candidates(report: PreemptionReport, nodes: Sequence[str]) -> Iterator[str]:
    """Yield the table of the best candidates, then why each victim cannot stay."""
    found = [one for one in report.nodes if one.verdict == "candidate"]
    described = sorted((one for one in found if one.spared or any(victim.short_of for victim in one.victims)), key=_harm)
    first = [one for one in described if one.node == report.chosen]
    best = [*first, *(one for one in described if one not in first)][:_CANDIDATES]
    if best:
        yield _table(best, nodes)
    for victim in best[0].victims if best else ():
        budgets = f", violates {', '.join(victim.budgets)}" if victim.budgets else ""
        why = f": does not fit beside it ({victim.short_of})" if victim.short_of else ""
        yield item(f"{victim.pod} (priority {victim.priority}{budgets}){why}", "    ")
    if report.reprieve:
        yield item(f"Put back in this order: {', '.join(report.reprieve)}", "    ")


def _table(best: Sequence[PreemptionNode], nodes: Sequence[str]) -> str:
    """Return the numbers of candidates. Where the names are too long for one line, the numbers follow on the next."""
    header = ["CANDIDATE", "VICTIMS", "VIOLATIONS", "HIGHEST", "SUM", "LATEST START", "CONSIDERED"]
    rows = [_row(one, nodes) for one in best]
    text = columns(header, rows, right=(1, 2, 3, 4))
    if max(map(len, text.split("\n"))) + len(_INDENT) <= text_width():
        return "\n".join(f"{_INDENT}{line}" for line in text.split("\n"))
    lines = columns(["", *header[1:]], [["", *row[1:]] for row in rows], right=(1, 2, 3, 4)).split("\n")
    named = (f"{_INDENT}{one_line(row[0])}\n{_INDENT}{line}" for row, line in zip(rows, lines[1:], strict=True))
    return "\n".join([f"{_INDENT}{header[0]}\n{_INDENT}{lines[0]}", *named])


def _row(one: PreemptionNode, nodes: Sequence[str]) -> list[str]:
    numbers = (len(one.victims), one.violations, one.highest_priority, one.priority_sum)
    return [nodes[one.node], *map(str, numbers), one.latest_start or "-", "yes" if one.considered else "no"]


def _harm(one: PreemptionNode) -> tuple[int, int, int, int]:
    return one.violations, one.highest_priority, one.priority_sum, len(one.victims)


# -- explanation text --------------------------------------------------------------------------------------------------
# An explanation as text: the answer first, then its reasons; at most 100 columns wide.

#: A longer part of a detail is not repeated in later groups.
_SHORT = 24
#: How many nodes, groups and conflicts are shown before the rest is counted; ``wide`` shows all.
_MOST_NODES, _GROUPS, _CONFLICTS = 3, 12, 3


def _blocks(explanation: ExplanationValues, *, wide: bool) -> Iterator[str]:
    if explanation.changes:
        yield "\n".join(change_lines(explanation.changes, explanation.nodes, explanation.left_out, wide=wide))
    elif explanation.no_change_helps:
        known = "that makes sense" if explanation.left_out else "that is listed"
        needs = f": it needs {one_line(explanation.needs)}" if explanation.needs else ""
        types = "--types FILE (a Node manifest or a list of node types; moorage help plan)"
        helps = f"helps with nodes like those of the cluster{needs}. Other nodes: {types}"
        said = f"What to do: no change {known} {'lets it run' if explanation.outcome == 'gated' else helps}"
        more = [item(text, "      ") for text in left_out_lines(explanation.left_out)] if wide else []
        yield "\n".join([paragraph(said, indent="  "), *more])
    if explanation.scores is not None:
        yield score_lines(explanation.scores, explanation.nodes, wide=wide)
        if explanation.scores.runner_up is None and not wide:
            yield _funnel(explanation)
    if explanation.scores is None or wide:
        yield _funnel(explanation)
        yield _groups(explanation, wide=wide)
        yield "\n".join(_conflicts(explanation, wide=wide))
        yield _nearest(explanation, wide=wide)
    yield "\n".join(_endings(explanation, wide=wide))
    yield ending(_certainty(explanation), wide=wide)


def _endings(explanation: ExplanationValues, *, wide: bool) -> Iterator[str]:
    """Yield the state in the queue, preemption, and the event."""
    standing = explanation.standing
    if standing.text and wide:
        yield paragraph(one_line(standing.text), indent="  ")
    if standing.ended_by and (wide or (explanation.not_created is not None and not explanation.changes)):
        yield item(f"Ended by: {', '.join(standing.ended_by)}")
    if explanation.preemption is not None:
        yield from preemption_lines(explanation.preemption, explanation.nodes, wide=wide)
    if explanation.message and not any(explanation.message in text for text in standing.causes):
        yield item(f"Event: {explanation.message}")
    for one in explanation.assumptions:
        if wide or one.name == "extenders":
            yield item(f"Assumed: {one.name}: {one.value}")


def _funnel(explanation: ExplanationValues) -> str:
    steps = [step for step in explanation.funnel if step.after < step.before]
    if not steps:
        return ""
    nodes = f"{len(explanation.nodes)} node{'' if len(explanation.nodes) == 1 else 's'}"
    parts = [nodes, *(f"{one_line(step.plugin)} {step.after}" for step in steps), "(remaining)"]
    lines, line = [], " "
    for part in parts:
        if len(line) + 2 + len(part) > text_width() and line.strip():
            lines.append(line)
            line = " " * (3 + len(nodes))
        line += (" " if line == " " else "  ") + part
    return "\n".join([*lines, line])


def _groups(explanation: ExplanationValues, *, wide: bool) -> str:
    groups = explanation.groups if wide else explanation.groups[:_GROUPS]
    if not groups:
        return ""
    said: set[str] = set()
    rows = [["NODES", "  REFUSED BY", "WHAT IS THERE"], *(_group_row(g, explanation.nodes, said, wide=wide) for g in groups)]
    more = len(explanation.groups) - len(groups)
    left = sum(len(one.nodes) for one in explanation.groups[len(groups) :])
    rest = f"\n  and {more} more group{'s' if more > 1 else ''} of {left} nodes: -o wide" if more else ""
    return cells(rows, (30, 36, WIDTH)) + rest


def _group_row(group: NodeGroup, names: Sequence[str], said: set[str], *, wide: bool) -> list[str]:
    return [
        _named([names[at] for at in group.nodes], group, names, wide=wide),
        f"✗ {' '.join(dict.fromkeys(one_line(one.plugin or one.stage) for one in group.refusals))}",
        _details(group, names, said),
    ]


def _named(nodes: Sequence[str], group: NodeGroup, names: Sequence[str], *, wide: bool) -> str:
    shown = list(nodes) if wide or len(nodes) <= _MOST_NODES else list(nodes[:_MOST_NODES])
    if names[group.nearest] not in shown:
        shown[-1] = names[group.nearest]
    more = len(nodes) - len(shown)
    return one_line(" ".join(shown)) + (f" and {more} more" if more else "")


def _details(group: NodeGroup, names: Sequence[str], said: set[str]) -> str:
    """Return the details of refusals, without long parts and requirements that an earlier group already shows."""
    parts: list[str] = []
    described = {one.plugin for one in group.refusals if one.detail}
    for one in group.refusals:
        if not one.detail and one.plugin in described:
            continue
        for part in (one.detail or _reason(one)).split("; "):
            known = part in said
            if part.endswith(" required") or len(part) > _SHORT:
                said.add(part)
            if part not in parts and not known:
                parts.append(part)
    text = one_line("; ".join(parts)) or "the same"
    varied = group.varied or (len(group.nodes) > 1 and any(one.numbers for one in group.refusals))
    return f"{text} ({one_line(names[group.nearest])})" if varied else text


def _reason(refusal: RefusalReport) -> str:
    return refusal.reason.removeprefix("node(s) ")


def _conflicts(explanation: ExplanationValues, *, wide: bool) -> Iterator[str]:
    """Yield the decisive conflict, then the others if there are any."""
    if explanation.eligible_conflict:
        terms = " · ".join(one_line(term.term) for term in explanation.eligible_conflict)
        many = "both" if len(explanation.eligible_conflict) == 2 else "all of these"
        yield paragraph(f"No eligible node satisfies {many}: {terms}", indent="  ", hanging="    ")
    if wide:
        for one in explanation.conflicts:
            yield paragraph("Conflict: " + " · ".join(one_line(term.term) for term in one), indent="  ", hanging="    ")


def _nearest(explanation: ExplanationValues, *, wide: bool) -> str:
    nearest = explanation.nearest
    if nearest is None:
        return ""
    lines = []
    if wide:
        lacks = "; ".join(one_line(one.detail or _reason(one)) for one in nearest.refusals)
        lines.append(paragraph(f"Nearest: {one_line(explanation.nodes[nearest.node])}: {lacks}", indent="  ", hanging="    "))
    lines += [item(hint) for hint in nearest.hints]
    return "\n".join(lines)


def _certainty(explanation: ExplanationValues) -> str:
    proof = explanation.proof
    if explanation.scores is not None:
        return "Scores are those of the decision itself; flips are computed from them."
    refused = explanation.not_created
    if refused is not None and refused.by.endswith("AdmissionPolicy"):
        return "Admission policies in the input apply to objects without a creation time, and to pods that workloads lack."
    if refused is not None:
        return "Quotas and limit ranges are enforced as kube-apiserver does, for pods in the order of their creation."
    if not explanation.groups and not proof.runs:
        return f"Decided as kube-scheduler {explanation.request.release} would, seed {explanation.request.seeds[0]}."
    if proof.runs:
        runs, tried = counted(proof.runs, "run"), counted(proof.probes, "change")
        if explanation.changes:
            certain = "no cheaper answer exists" if proof.kind == "exhaustive" else "the search ended early"
            return f"All verified by the engine ({runs}); {certain} among {tried}."
        if proof.kind == "exhaustive":
            return f"Verified by the engine ({runs}): none of {tried} helps."
        return f"Undecided: the search for changes ended early ({runs} of the engine), before it found one among {tried}."
    plugins = sum(not one.skipped for one in explanation.funnel)
    return f"Every plugin that applies ({plugins}) judged every node ({len(explanation.nodes)})."


class Explanation(ExplanationValues, frozen=True, kw_only=True):
    """The answer of ``moorage explain``, with its text; see ``ExplanationValues``."""

    def _blocks(self, *, wide: bool) -> Iterator[str]:
        return _blocks(self, wide=wide)

    def _first_block(self) -> str:
        return "\n".join([super()._first_block(), *(paragraph(one_line(text), indent="  ") for text in self.standing.causes)])


# -- comparison of autoscalers -----------------------------------------------------------------------------------------

#: Name of a figure → its unit, in the order of the table.
SCALING_UNITS: Mapping[str, str] = {
    "cost": "", "nodeHours": "h", "waitMean": "s", "waitP99": "s", "pendingAtTheEnd": "pods", "evicted": "pods",
    "nodesRemoved": "nodes",
}  # fmt: skip


class AutoscalerComparison(Answer, frozen=True, kw_only=True):
    """What two autoscalers cost and what pods feel of it: figures by name, over the seeds."""

    KIND: ClassVar[str] = "AutoscalerComparison"

    figures: Mapping[str, MetricComparison]
    names: tuple[str, str]
    currency: str = ""
    missing: Sequence[str] = ()

    @classmethod
    def of(
        cls, request: AnswerRequest, figures: Mapping[str, MetricComparison], names: tuple[str, str], currency: str,
        missing: Sequence[str],
    ) -> AutoscalerComparison:  # fmt: skip
        """Return the answer, with a first line about money."""
        cost = figures["cost"]
        differs = cost.difference or 0.0
        share = f" ({abs(differs) / cost.a:.1%})" if cost.a else ""
        told = f"B costs {abs(differs):.2f}{f' {currency}' * bool(currency)} {'less' if differs < 0 else 'more'} than A{share}."
        if cost.runs == 1:
            told = f"In one run, {told}"
        may_be_chance = cost.may_be_zero and cost.runs > 1
        summary = "B costs as much as A, or the difference may be chance." if may_be_chance or not differs else told
        return cls(
            request=request, summary=summary, figures=figures, names=names, currency=currency, missing=missing,
            proof=Proof("run", runs=2 * len(request.seeds)),
        )  # fmt: skip

    @property
    def holds(self) -> bool:
        return True

    def _answer(self) -> dict[str, Any]:
        figures = {
            name: {
                "unit": SCALING_UNITS.get(name, "") or self.currency, "a": one.a, "b": one.b, "difference": one.difference,
                "interval": list(one.bounds(relative=True)), "mayBeChance": one.may_be_zero,
            }
            for name, one in self.figures.items()
        }  # fmt: skip
        return {"a": self.names[0], "b": self.names[1], "figures": figures, "missing": list(self.missing)}

    def _text(self, *, wide: bool) -> str:
        head = [self.summary, f"A: {one_line(self.names[0])}", f"B: {one_line(self.names[1])}", ""]
        below = [item(f"not in the input: {text}") for text in self.missing]
        return "\n".join([*head, scaling_table(self.figures, currency=self.currency), *below]).rstrip("\n") + "\n"


def scaling_table(found: Mapping[str, MetricComparison], a: str = "A", b: str = "B", currency: str = "") -> str:
    """Return a comparison as a table. A difference that may be chance is marked with ``~``."""
    rows = []
    for name, one in found.items():
        low, high = one.bounds(relative=True)
        shown = f"{'~ ' if one.may_be_zero else ''}{one.difference or 0.0:+.2f}"
        unit = SCALING_UNITS.get(name, "") or currency
        rows.append([name, unit, f"{one.a:.2f}", f"{one.b:.2f}", shown, f"{low:+.2f} to {high:+.2f}"])
    return columns(["FIGURE", "UNIT", a, b, f"{b} - {a}", "95 % INTERVAL"], rows, right=(2, 3, 4, 5)) + "\n"
