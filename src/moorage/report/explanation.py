"""Why a pod is pending, or why it is on its node: ``Explanation`` and its parts."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from moorage.basis.printable import counted, one_line
from moorage.report.answer import Answer, AnswerRequest, Proof, ending
from moorage.report.explanation_values import (
    AtomReport,
    ChangeReport,
    ConflictTerm,
    ExplainRequest,
    ExplanationValues,
    Flip,
    FunnelStep,
    LeftOut,
    NearestNode,
    NodeGroup,
    NodeTotal,
    PodStanding,
    PreemptionNode,
    PreemptionReport,
    RefusalReport,
    ScoreReport,
)
from moorage.report.gates import MetricComparison
from moorage.report.style import WIDTH, cells, columns, is_for_agents, item, paragraph, text_width

__all__ = [
    "AutoscalerAnswer", "ConflictTerm", "ExplainRequest", "Explanation", "FunnelStep", "NearestNode", "NodeGroup",
    "PodStanding", "Proof", "RefusalReport",
]  # fmt: skip


# -- preemption text ---------------------------------------------------------------------------------------------------

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


# -- change lines ------------------------------------------------------------------------------------------------------
# What to do so that a pod is placed, as text: what, who does it, what else happens, and where the pod goes then.

#: How many changes are shown, each of another kind, and how many nodes.
_SHOWN, _NAMED = 3, 3


def change_lines(
    changes: Sequence[ChangeReport], nodes: Sequence[str], left_out: Sequence[LeftOut] = (), *, wide: bool
) -> Iterator[str]:
    """Yield the heading and the changes, the cheapest first: the first of each kind, or all that are known."""
    shown = list(changes) if wide else list({one.kind: one for one in reversed(changes)}.values())[::-1]
    shown = shown if wide else sorted(shown, key=changes.index)[:_SHOWN]
    yield "  What to do"
    width = max(len(one.kind) for one in shown)
    for number, one in enumerate(shown, 1):
        head = f"  {number:>3} {one.kind.ljust(width)}  "
        yield paragraph(_text(one), indent=head, hanging=" " * len(head))
        yield from _below(one, nodes, " " * len(head), wide=wide)
    more = [f"{counted(len(changes) - len(shown), 'more change')}: -o wide"] if len(changes) > len(shown) else []
    if wide:
        more += [f"not offered, {counted(one.changes, 'change')}: {one.text}" for one in left_out]
    for text in more:
        yield item(text, "      ")


def _below(one: ChangeReport, nodes: Sequence[str], indent: str, *, wide: bool) -> Iterator[str]:
    """Yield who makes the change, what else happens, and the nodes; ``wide``: also costs, equal changes and commands."""
    said = "; ".join((f"by {one.who}" if one.who != "no one" else "no action needed", *one.effects))
    yield paragraph(one_line(said), indent=indent, hanging=indent)
    if one.nodes:
        yield paragraph(f"→ {_names(one, nodes)}", indent=indent, hanging=indent + "  ")
    if wide:
        costs = ", ".join(f"{atom.verb} {_cost(atom.cost)}" for atom in one.atoms) if len(one.atoms) > 1 else one.atoms[0].verb
        yield paragraph(one_line(f"cost {_cost(one.cost)} ({costs})"), indent=indent, hanging=indent)
    if one.alike:
        shown = one.alike if wide else one.alike[:1]
        for at, other in enumerate(shown):
            more = f", and {len(one.alike) - 1} more" if not wide and not at and len(one.alike) > 1 else ""
            yield paragraph(f"or {one_line(other)}{more}", indent=indent, hanging=indent + "   ")
    for command in one.commands if wide or is_for_agents() else ():
        if one_line(command) != _text(one):
            yield f"{indent}{one_line(command)}"  # commands are not wrapped: they are there to be pasted
    if is_for_agents():
        yield f"{indent}changes: {_as_changes(one)}"


def _as_changes(one: ChangeReport) -> str:
    """Return the changes as tools take them: texts of edits where they are short, else the change as its document has it."""
    return json.dumps([_as_change(atom) for atom in one.atoms], ensure_ascii=False)


def _as_change(atom: AtomReport) -> str:
    match atom.verb, atom.target.partition("/"):
        case "cordon" | "uncordon", ("node", _, name):
            return f"node/{name} unschedulable={'true' if atom.verb == 'cordon' else 'false'}"
    fields = {name: getattr(atom, name) for name in ("owner", "verb", "target", "path", "old", "new")}
    return json.dumps({name: held for name, held in fields.items() if held not in ("", None)}, ensure_ascii=False)


def _cost(cost: float) -> str:
    return f"{cost:.2f}".rstrip("0").rstrip(".")


def _text(one: ChangeReport) -> str:
    return one_line(" + ".join(atom.text for atom in one.atoms))


def _names(one: ChangeReport, nodes: Sequence[str]) -> str:
    shown = " ".join(one_line(nodes[at]) for at in one.nodes[:_NAMED])
    more = len(one.nodes) - _NAMED
    return shown + (f" and {more} more" if more > 0 else "")


# -- score text --------------------------------------------------------------------------------------------------------
# Why a node was chosen, as text: the winner beside the runner-up, plugin by plugin.

#: How many flips of a kind are shown.
_FLIPS = 4


def score_lines(report: ScoreReport, nodes: Sequence[str], *, wide: bool) -> str:
    """Return the table of contributions, and what would flip the choice."""
    lines: list[str] = []
    if report.runner_up is not None:
        lines.append(_score_table(report, nodes, wide=wide))
        if wide and len(report.nodes) > 2:
            lines.append(_ranking(report, nodes))
    lines += [item(text) for text in _sentences(report, nodes, wide=wide)]
    return "\n".join(lines)


def _score_table(report: ScoreReport, nodes: Sequence[str], *, wide: bool) -> str:
    winner = report.nodes[0]
    rival = next(one for one in report.nodes if one.node == report.runner_up)
    names = [one_line(nodes[one.node]) for one in (winner, rival)]
    rows = [_score_row(winner, rival, at) for at in range(len(winner.shares))]
    if not wide:
        rows = _folded(winner, rival, rows)
    rows.append(["total", str(winner.total), str(rival.total), _signed(winner.total - rival.total)])
    text = _compared(names, rows)
    if max(map(len, text.split("\n"))) <= text_width():
        return text
    return f"  winner:    {names[0]}\n  runner-up: {names[1]}\n{_compared(['winner', 'runner-up'], rows)}"


def _compared(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    text = columns(["", *names, "difference"], rows, right=(1, 2, 3))
    return "\n".join(f"  {line}".rstrip() for line in text.split("\n"))


def _score_row(winner: NodeTotal, rival: NodeTotal, at: int) -> list[str]:
    share, other = winner.shares[at], rival.shares[at]
    name = f"{share.plugin} ×{share.weight}"  # noqa: RUF001
    return [name, str(share.contribution), str(other.contribution), _signed(share.contribution - other.contribution)]


def _folded(winner: NodeTotal, rival: NodeTotal, rows: Sequence[list[str]]) -> list[list[str]]:
    """Return one row for each plugin whose scores of the two nodes differ, and one for all other plugins."""
    pairs = list(zip(winner.shares, rival.shares, strict=True))
    same = [at for at, (a, b) in enumerate(pairs) if a.contribution == b.contribution]
    if len(same) < 2:
        return list(rows)
    kept = [row for at, row in enumerate(rows) if at not in same]
    amount = str(sum(pairs[at][0].contribution for at in same))
    others = f"{len(same)} other plugins" if kept else f"{len(same)} plugins"
    return [*kept, [others, amount, amount, "0"]]


def _signed(amount: int) -> str:
    return f"+{amount}" if amount > 0 else str(amount)


def _ranking(report: ScoreReport, nodes: Sequence[str]) -> str:
    header = ("RANK", "NODE", "TOTAL", "CONTRIBUTIONS")
    rows = [
        (
            str(one.rank).rjust(4), one_line(nodes[one.node]), str(one.total).rjust(5),
            " ".join(f"{share.plugin}={share.contribution}" for share in one.shares),
        )
        for one in report.nodes
    ]  # fmt: skip
    return cells([header, *rows], (4, 36, 12, WIDTH))


def _sentences(report: ScoreReport, nodes: Sequence[str], *, wide: bool) -> Iterator[str]:
    if report.refused:
        fit, refused = _are(report.feasible, "fits", "fit"), _are(report.refused, "is", "are")
        yield f"{report.feasible} of {report.feasible + report.refused} nodes {fit}; {report.refused} {refused} refused."
    if report.unscored:
        yield f"{report.unscored} feasible nodes were never scored: the search ended before it came to them."
    if len(report.tied) > 1:
        yield (
            f"Chosen from {len(report.tied)} equally scored nodes "
            f"({', '.join(nodes[at] for at in report.tied[:5])}{', …' if len(report.tied) > 5 else ''}): "
            "kube-scheduler draws at random, moorage by the seed."
        )
    by_target: dict[int | None, list[str]] = {}
    for flip in _shown(report.flips, wide=wide):
        by_target.setdefault(flip.to, []).append(flip.text)
    for to, texts in by_target.items():
        yield f"Moves to {nodes[to] if to is not None else 'another node'} with: {' · '.join(texts)}"
    without = next((flip.text + "." for flip in report.flips if flip.kind == "withoutNode"), "")
    if report.runner_up is not None and not any(flip.kind == "weight" for flip in report.flips):
        yield f"Weights: no weight in 1-100 changes the choice.  {without}".rstrip()
    elif without:
        yield without


def _are(number: int, one: str, many: str) -> str:
    return one if number == 1 else many


def _shown(flips: Sequence[Flip], *, wide: bool) -> Iterator[Flip]:
    """Yield the first few flips of each kind; all of them if ``wide``."""
    counts: dict[str, int] = {}
    for flip in flips:
        counts[flip.kind] = counts.get(flip.kind, 0) + 1
        if flip.kind != "withoutNode" and (wide or counts[flip.kind] <= (1 if flip.kind == "usage" else _FLIPS)):
            yield flip


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
        helps = "helps with nodes like those of the cluster. Other nodes: --types FILE"
        said = f"What to do: no change {known} {'lets it run' if explanation.outcome == 'gated' else helps}"
        yield paragraph(said, indent="  ")
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
    if explanation.message:
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


# -- autoscaler answer -------------------------------------------------------------------------------------------------
# What an autoscaler does about one pod or one node: the node that it adds, or the sentence and the pods that keep it.

#: How many types the text names.
_TYPES = 5

AutoscalerDecision = Literal["add", "existing", "none", "delete", "replace", "keep"]
_WORDS: Mapping[AutoscalerDecision, str] = {
    "add": "adds a node for", "existing": "adds no node: a node has room for", "none": "adds no node for",
    "delete": "removes", "replace": "replaces", "keep": "keeps",
}  # fmt: skip


class AutoscalerAnswer(Answer, frozen=True, kw_only=True):
    """The answer about ``thing``, such as ``pod shop/web-0`` or ``node/node-1``.

    ``why``     the autoscaler's sentences: one for each pool that cannot take a pod, or the event that keeps a node
    ``pods``    that hold a node, each with the reason; ``types``: of the new node, the cheapest first
    ``price``   of an hour: of the new node, or what is saved; ``settings``: the autoscaler's, and where they come from
    """

    KIND: ClassVar[str] = "AutoscalerAnswer"

    thing: str
    decision: AutoscalerDecision
    why: tuple[str, ...] = ()
    node: str = ""
    pool: str = ""
    pods: Mapping[str, str] = {}
    types: tuple[str, ...] = ()
    price: float | None = None
    currency: str = ""
    missing: Sequence[str] = ()
    settings: str = ""

    @staticmethod
    def head(decision: AutoscalerDecision, thing: str, autoscaler: str = "Karpenter") -> str:
        """Return the first line."""
        return f"{autoscaler} {_WORDS[decision]} {thing}."

    @property
    def holds(self) -> bool:
        """Whether the pod gets a node, or the node can go."""
        return self.decision not in {"none", "keep"}

    def _answer(self) -> dict[str, Any]:
        given = {
            "node": self.node, "nodePool": self.pool, "why": list(self.why), "pods": dict(self.pods), "types": list(self.types),
            "price": self.price, "currency": self.currency, "missing": list(self.missing), "settings": self.settings,
        }  # fmt: skip
        known = {key: held for key, held in given.items() if held not in ("", [], {}, None)}
        return {"thing": self.thing, "decision": self.decision} | known

    def _node_names(self) -> Collection[str]:
        return [self.node] if self.node else []

    def _text(self, *, wide: bool) -> str:
        return "\n".join([paragraph(one_line(self.summary)), *self._lines(wide)]) + "\n"

    def _lines(self, wide: bool) -> Iterator[str]:
        if self.types:
            shown = self.types if wide else self.types[:_TYPES]
            more = f" and {len(self.types) - len(shown)} more" if len(shown) < len(self.types) else ""
            pool = f"of NodePool {self.pool}, " if self.pool else ""
            yield item(f"→ {pool}the cheapest first: {', '.join(shown)}{more}")
        elif self.pool and self.decision == "add":
            yield f"  → of pool {one_line(self.pool)}"
        if self.node and self.decision == "existing":
            yield f"  → {one_line(self.node)}"
        if self.price is not None:
            word = "an hour costs" if self.decision == "add" else "an hour saves"
            yield f"  {word} {self.price:.4g} {self.currency or '(currency not given)'}"
        for why in self.why:
            mark = "→" if self.holds else "✗"
            yield item(f"{mark} {why}")
        if self.pods:
            rows = [[one_line(name), one_line(told)] for name, told in self.pods.items()]
            yield columns(["HELD BY", "WHY"], rows).rstrip("\n")
        if self.settings:
            yield item(f"with {self.settings}")
        for name in self.missing:
            yield item(f"not in the input: {name}")


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
