"""``Survival`` and ``FailureReport``: what happens when nodes, zones or other domains are lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from msgspec import Struct

from moorage.basis.printable import counted, one_line, some
from moorage.report.answer import Answer, ending
from moorage.report.plan import MovedPod
from moorage.report.short_names import some_pods
from moorage.report.style import cells, cut, human, item, paragraph


class NodeLoss(Struct, frozen=True, rename="camel"):
    """What happens when some nodes are lost.

    ``lost``           what is lost: a node, a zone, or the value of a label; two of them are joined with " + "
    ``nodes``          the lost nodes, and ``pods`` how many pods are on them
    ``pending``        the pods that are pending afterwards, and were not before
    ``lost_for_good``  pods that no controller replaces
    ``preempted``      pods that are evicted to make room
    ``stuck``          pods that cannot leave: their node is unreachable, and a StatefulSet waits for them
    ``moves``          how many pods are placed elsewhere
    ``moved``          the pods of the nodes, and the nodes of their replacements: ``to`` is empty for pending and lost pods
    ``by_priority``    how many pods are pending, by priority class, or by priority if it has no name; "" for neither
    ``why``            why the first pending pod is not placed: the message of kube-scheduler's event
    ``same_as``        the loss of equal nodes, which was computed instead of this one
    """

    lost: str
    nodes: tuple[str, ...]
    pods: int
    pending: tuple[str, ...] = ()
    lost_for_good: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    moves: int = 0
    by_priority: Mapping[str, int] = {}
    pending_cpu_milli: int = 0
    pending_memory_bytes: int = 0
    free_cpu_milli: int = 0
    free_memory_bytes: int = 0
    why: str | None = None
    same_as: str | None = None
    moved: tuple[MovedPod, ...] | None = None


class SurvivalFix(Struct, frozen=True, rename="camel"):
    """Changes after which no loss leaves a pod pending; an engine run of every loss verified it.

    ``notes``  the effect of cheaper changes
    """

    cost: float
    changes: tuple[str, ...]
    commands: tuple[str, ...]
    notes: tuple[str, ...] = ()


# -- survival text -----------------------------------------------------------------------------------------------------
# Losses as text: whether all are survived, the worst first.

#: How many losses, and how many pods of one, are shown before the rest is counted; ``wide`` shows all losses.
_LOSSES: Final = 12
_PODS: Final = 2
#: The most characters of a name.
_NAME: Final = 36


def survival_summary(over: str, losses: Sequence[NodeLoss], of: int) -> str:
    """Return the first line: whether every loss is survived, and if not, which are not; ``of``: how many losses there are."""
    if len(losses) < of:
        return _partial_summary(over, losses, of)
    bad = [loss for loss in losses if loss.pending]
    what = over if over in {"node", "zone"} else f"value of {over}"
    if not bad:
        return f"Safe: any {what} can be lost without a pod that stays pending."
    fine = [loss.lost for loss in losses if not loss.pending]
    most, least = max(len(loss.pending) for loss in bad), min(len(loss.pending) for loss in bad)
    pods = counted(most, "pod") if most == least else f"{least} to {most} pods"
    if not fine:
        return f"Not safe: losing any {what} leaves {pods} pending."
    rest = f"{fine[0]} can be lost" if len(fine) == 1 else f"the other {len(fine)} can be lost"
    if len(fine) > 1 and len(fine) <= 3:
        rest = f"{', '.join(fine)} can be lost"
    return f"Not safe: losing {_either([loss.lost for loss in bad])} leaves {pods} pending; {rest}."


def _partial_summary(over: str, losses: Sequence[NodeLoss], of: int) -> str:
    bad = [loss for loss in losses if loss.pending]
    what = {"node": "losses of nodes", "zone": "losses of zones"}.get(over, f"losses of values of {over}")
    ran = f"{len(losses):,} of {of:,} {what} {'is' if len(losses) == 1 else 'are'} known"
    if not bad:
        known = f"only {ran}, and no pod stays pending after those" if losses else f"none of the {of:,} {what} was run in time"
        return f"Undecided: {known}."
    most, least = max(len(loss.pending) for loss in bad), min(len(loss.pending) for loss in bad)
    pods = counted(most, "pod") if most == least else f"{least} to {most} pods"
    return f"Not safe: losing {_either([loss.lost for loss in bad])} leaves {pods} pending; only {ran}."


def _either(names: Sequence[str]) -> str:
    if len(names) > 3:
        return f"{some(names)}"
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _shown(report: Survival, *, wide: bool) -> list[NodeLoss]:
    """Return the losses, the worst first; equal nodes once."""
    worst = dict.fromkeys(report.worst, 0)
    ordered = sorted(report.failures, key=lambda loss: (worst.get(loss.lost, 1), -len(loss.pending), -len(loss.lost_for_good)))
    if report.over != "node" and len(ordered) <= _LOSSES:
        ordered = list(report.failures)
    kept = [loss for loss in ordered if loss.same_as is None or wide]
    if len(kept) > _LOSSES and not wide:  # list only losses that leave pods pending or lost
        kept = [loss for loss in kept if loss.pending or loss.lost_for_good]
    return kept if wide else kept[:_LOSSES]


def _table(report: Survival, *, wide: bool) -> str:
    equal: dict[str, int] = {}
    for loss in report.failures:
        if loss.same_as is not None and not wide:
            equal[loss.same_as] = equal.get(loss.same_as, 0) + 1
    shown = _shown(report, wide=wide)
    if not shown:
        return f"  No pod is lost for good with any of the {len(report.failures)} losses."
    rows = [["  LOST", "NODES", "PODS", "PENDING", "WHICH (lost for good: no controller)"]]
    for loss in shown:
        more = f" and {equal[loss.lost]} equal" if loss.lost in equal else ""
        sign = "✗ " if loss.pending else "✓ "
        gone = _pods([key if wide else key.partition("/")[2] for key in loss.lost_for_good], wide=wide)
        which = "; ".join(filter(None, [_pods(loss.pending, wide=wide), gone and f"lost for good: {gone}"]))
        counts = (f"{len(loss.nodes):5}", f"{loss.pods:4}", f"{len(loss.pending):7}")
        rows.append([sign + one_line(loss.lost) + more, *counts, which])
    text = cells(rows, [28, 5, 4, 7, 60])
    left = len([loss for loss in report.failures if loss.same_as is None or wide]) - len(shown)
    return text + (f"\n    and {left} more losses (-o wide)" if left > 0 else "")


def _pods(names: Sequence[str], *, wide: bool) -> str:
    if wide:
        return one_line(", ".join(names))
    shown = some_pods(names, 1 if len(names) > _PODS else _PODS)
    return one_line(" ".join(cut(word, _NAME) for word in shown.split()))


def _remarks(report: Survival) -> Iterator[str]:
    """Yield lines on pods that were pending before, the worst losses, preempted pods, and nodes in no domain."""
    before = len(report.pending_before)
    parts = []
    if before:
        verbs = "was already pending and is" if before == 1 else "were already pending and are"
        parts.append(f"({counted(before, 'pod')} {verbs} not counted.)")
    if report.worst:
        tie = " (tie)" if len(report.worst) > 1 else ""
        parts.append(f"worst: {some(report.worst)}{tie}")
    if parts:
        yield item("   ".join(parts))
    preempted = sorted({pod for loss in report.failures for pod in loss.preempted})
    if preempted:
        yield item(f"Preempted by pods that lose their node: {some_pods(preempted)}")
    if report.without:
        text = (
            f"! {counted(len(report.without), 'node')} without the label {report.over}: {some(report.without)}; never lost here"
        )
        yield item(text)


def counted_nodes(changes: Iterable[str]) -> list[str]:
    """Return texts of changes, with equal nodes to add in one: "add 2 nodes like n1"."""
    start, found = "add a node ", Counter(changes)
    return [
        f"add {n} nodes {text.removeprefix(start)}" if n > 1 and text.startswith(start) else text for text, n in found.items()
    ]


def _fixes(report: Survival) -> Iterator[str]:
    fix = report.fix
    if fix is not None:
        others = counted_nodes(text for text in fix.changes if not text.startswith("kubectl "))
        yield paragraph(one_line(f"Verified fix: {'; '.join([*fix.commands, *others])}"), hanging="  ")
        yield from (paragraph(one_line(f"! {note}"), hanging="  ") for note in fix.notes)
    elif report.fix_searched:
        time = " in time" if report.stopped is not None else ""
        yield paragraph(f"No fix was found{time} among changes of nodes: uncordon, label, untaint, one more node.")
    elif report.not_run:
        yield "No fix was searched for, because not every loss was run."
    elif not report.survives:
        yield "No fix was searched for: --probes says how many losses the search may compute."
    if report.spare is not None:
        yield _spare(report.spare)


def _spare(spare: SpareReport) -> str:
    like = one_line(spare.like)
    if spare.nodes is None and spare.tried < 0:
        return f"How many spare nodes like {like} are enough is not known: no number was tried to the end."
    if spare.nodes is None:
        return f"More than {spare.tried} spare nodes like {like} would be needed."
    if not spare.nodes:
        return f"No spare node like {like} is needed."
    return f"With {counted(spare.nodes, 'spare node')} like {like}, every loss is survived; with fewer, not."


def _certainty(report: Survival) -> str:
    equal = sum(loss.same_as is not None for loss in report.failures)
    same = f"; {counted(equal, 'node')} equal to another {'was' if equal == 1 else 'were'} not run again" if equal else ""
    ran = len(report.failures) - report.certain
    of = len(report.failures) + report.not_run
    every = f"{ran:,} of {of:,} losses were" if ran < of else "every loss was"
    sums = (
        f" Of {counted(report.certain, 'other')}, each pod fits on more nodes than the pods lost with it can take."
        if report.certain
        else ""
    )
    return f"Verified by the engine: {every} run ({report.proof.runs} runs in all{same}).{sums}"


# -- one loss ---------------------------------------------------------------------------------------------------------


def failure_summary(loss: NodeLoss) -> str:
    """Return the first line for one loss."""
    parts = [f"{counted(loss.moves, 'pod')} of {loss.pods} {'moves' if loss.moves == 1 else 'move'}"]
    if loss.pending:
        parts.append(f"{len(loss.pending)} {'stays' if len(loss.pending) == 1 else 'stay'} pending")
    if loss.stuck:
        parts.append(f"{len(loss.stuck)} cannot leave")
    if loss.lost_for_good:
        parts.append(f"{len(loss.lost_for_good)} {'is' if len(loss.lost_for_good) == 1 else 'are'} lost for good")
    return f"If {loss.lost} {'are' if ' + ' in loss.lost else 'is'} lost: {', '.join(parts)}."


class SpareReport(Struct, frozen=True, rename="camel"):
    """The fewest spare nodes like ``like`` with which every loss is survived; if ``nodes`` is None, more than ``tried``."""

    like: str
    tried: int
    nodes: int | None = None


class Survival(Answer, frozen=True, kw_only=True):
    """Whether a cluster survives every loss.

    ``over``            what is lost: ``node``, ``zone`` or a label
    ``survives``        None if not every loss was run, and those that were run are survived
    ``failures``        every loss whose outcome is known, in the order of the nodes or of the values
    ``certain``         how many of them needed no run: each pod fits on more nodes than those lost with it can take
    ``not_run``         how many are not known; ``unknown``: their nodes or values, unless two are lost together
    ``worst``           the losses that are worst; several if they are equally bad
    ``pending_before``  pods that are pending without any loss; they are not counted
    ``without``         nodes that are in no domain, and never lost
    ``fix``             changes after which every loss is survived; ``spare``: how many more nodes would have that effect
    """

    KIND: ClassVar[str] = "Survival"

    over: str
    survives: bool | None
    failures: tuple[NodeLoss, ...]
    certain: int = 0
    not_run: int = 0
    unknown: tuple[str, ...] = ()
    worst: tuple[str, ...] = ()
    pending_before: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    fix: SurvivalFix | None = None
    fix_searched: bool = False
    spare: SpareReport | None = None

    def _node_names(self) -> Collection[str]:
        return {name for loss in self.failures for name in loss.nodes}

    @property
    def holds(self) -> bool | None:
        """True if every loss is survived; None if that is not known."""
        return self.survives

    def _answer(self) -> dict[str, Any]:
        return self._known(
            "survives", "over", "failures", "worst", "pending_before", "without", "fix", "spare",
            certain=self.certain or None, notRun=self.not_run or None, unknown=self.unknown or None,
        )  # fmt: skip

    def _blocks(self, *, wide: bool) -> Iterator[str]:
        yield "\n".join([*([_table(self, wide=wide)] if self.failures else ()), *_remarks(self)])
        yield "\n".join(_fixes(self))
        yield ending(_certainty(self), wide=wide)


class FailureReport(Answer, frozen=True, kw_only=True):
    """The answer for one given loss: what happens when some nodes are lost at once.

    ``mode``  ``deleted``, or ``unreachable``
    """

    KIND: ClassVar[str] = "Survival"

    mode: str
    loss: NodeLoss

    @property
    def holds(self) -> bool:
        """True if no pod is pending afterwards that was not before."""
        return not self.loss.pending and not self.loss.stuck

    def _answer(self) -> dict[str, Any]:
        worst = [] if self.holds else [self.loss.lost]
        none: dict[str, Any] = {"pendingBefore": [], "without": []}
        return self._shown("mode", survives=self.holds, failures=[self.loss], worst=worst, **none)

    def _blocks(self, *, wide: bool) -> Iterator[str]:
        loss = self.loss
        rows = [
            ("✗", "pending", loss.pending), ("✗", "lost", loss.lost_for_good), ("✗", "stuck", loss.stuck),
            ("!", "preempted", loss.preempted),
        ]  # fmt: skip
        lines = [f"  ✓ {'moves':<10}{loss.moves:>3}"]
        for sign, word, names in rows:
            if names:
                shown = ", ".join(names) if wide else some_pods(names)
                head = f"  {sign} {word:<10}{len(names):>3}   "
                lines.append(paragraph(one_line(shown), indent=head, hanging=" " * len(head)))
        if loss.why:
            lines.append(item(f"Event: {loss.why}"))
        free = f"cpu {human('cpu', loss.free_cpu_milli)}, memory {human('memory', loss.free_memory_bytes)}"
        lines.append(f"  Free on the schedulable nodes afterwards: {free}")
        yield "\n".join(lines)
        how = {"deleted": "the nodes are deleted with their pods", "unreachable": "the nodes are unreachable"}[self.mode]
        yield ending(f"Verified by the engine in virtual time: {how}.", wide=wide)
