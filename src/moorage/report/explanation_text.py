"""An explanation as text: the answer first, then its reasons; at most 100 columns wide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from moorage.printable import one_line
from moorage.report.answer import Proof
from moorage.report.change_lines import change_lines
from moorage.report.explanation_values import ExplanationValues, NodeGroup, RefusalReport
from moorage.report.preemption_text import preemption_lines
from moorage.report.score_text import score_lines
from moorage.report.style import WIDTH, cells, paragraph
from moorage.wording import counted

__all__ = ["explanation_text"]

#: A longer part of a detail is not repeated in later groups.
_SHORT = 24
#: How many nodes, groups and conflicts are shown before the rest is counted; ``wide`` shows all.
_NODES, _GROUPS, _CONFLICTS = 3, 12, 3


def explanation_text(explanation: ExplanationValues, *, wide: bool = False) -> str:
    """Return the text, escaped, with signs and without colours."""
    blocks = [_first(explanation), *_blocks(explanation, wide=wide)]
    return "\n\n".join([*(block for block in blocks if block), _last(explanation, wide=wide)]) + "\n"


def _first(explanation: ExplanationValues) -> str:
    lines = [paragraph(one_line(explanation.summary))]
    lines += [paragraph(one_line(text), indent="  ") for text in explanation.standing.causes]
    return "\n".join(lines)


def _blocks(explanation: ExplanationValues, *, wide: bool) -> Iterator[str]:
    if explanation.scores is not None:
        yield score_lines(explanation.scores, explanation.nodes, wide=wide)
        if explanation.scores.runner_up is None and not wide:
            yield _funnel(explanation)
    if explanation.scores is None or wide:
        yield _funnel(explanation)
        yield _groups(explanation, wide=wide)
        yield "\n".join(_conflicts(explanation, wide=wide))
        yield _nearest(explanation, wide=wide)
    if explanation.changes:
        yield "\n".join(change_lines(explanation.changes, explanation.nodes, wide=wide))
    elif explanation.no_change_helps:
        yield "  Least change: no listed change helps."
    yield "\n".join(_endings(explanation, wide=wide))


def _endings(explanation: ExplanationValues, *, wide: bool) -> Iterator[str]:
    """Yield the state in the queue, preemption, and the event."""
    standing = explanation.standing
    if standing.text and wide:
        yield paragraph(one_line(standing.text), indent="  ")
    if standing.ended_by and (wide or explanation.not_created is not None):
        yield paragraph(one_line(f"Ended by: {', '.join(standing.ended_by)}"), indent="  ", hanging="    ")
    if explanation.preemption is not None:
        yield from preemption_lines(explanation.preemption, explanation.nodes, wide=wide)
    if explanation.message:
        yield paragraph(one_line(f"Event: {explanation.message}"), indent="  ", hanging="    ")
    for one in explanation.assumptions:
        if wide or one.name == "extenders":
            yield paragraph(one_line(f"Assumed: {one.name}: {one.value}"), indent="  ", hanging="    ")


def _funnel(explanation: ExplanationValues) -> str:
    steps = [step for step in explanation.funnel if step.after < step.before]
    if not steps:
        return ""
    nodes = f"{len(explanation.nodes)} node{'' if len(explanation.nodes) == 1 else 's'}"
    parts = [nodes, *(f"{one_line(step.plugin)} {step.after}" for step in steps), "(remaining)"]
    lines, line = [], " "
    for part in parts:
        if len(line) + 2 + len(part) > 100 and line.strip():
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
    shown = list(nodes) if wide or len(nodes) <= _NODES else list(nodes[:_NODES])
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
    lines += [paragraph(one_line(hint), indent="  ", hanging="    ") for hint in nearest.hints]
    return "\n".join(lines)


def _last(explanation: ExplanationValues, *, wide: bool) -> str:
    """Return how certain the answer is, and how to see more."""
    more = "" if wide else " More: -o wide"
    return paragraph(f"{_certainty(explanation)}{more}")


def _certainty(explanation: ExplanationValues) -> str:
    proof = explanation.proof
    if explanation.scores is not None:
        return "Scores are those of the decision itself; flips are computed from them."
    if explanation.not_created is not None:
        return "Quotas and limit ranges are enforced as kube-apiserver does, for pods in the order of their creation."
    if not explanation.groups and not proof.runs:
        return f"Decided as kube-scheduler {explanation.request.release} would, seed {explanation.request.seeds[0]}."
    if proof.runs:
        return _searched(proof, found=bool(explanation.changes))
    plugins = sum(not one.skipped for one in explanation.funnel)
    return f"Every plugin that applies ({plugins}) judged every node ({len(explanation.nodes)})."


def _searched(proof: Proof, *, found: bool) -> str:
    """Return how complete the search for changes was."""
    runs, tried = counted(proof.runs, "run"), counted(proof.probes, "change")
    if found:
        certain = "no cheaper answer exists" if proof.kind == "exhaustive" else "the search ended early"
        return f"All verified by the engine ({runs}); {certain} among {tried}."
    if proof.kind == "exhaustive":
        return f"Verified by the engine ({runs}): none of {tried} helps."
    return f"Undecided: the search for changes ended early ({runs} of the engine), before it found one among {tried}."
