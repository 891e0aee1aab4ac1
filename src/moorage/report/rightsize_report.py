"""``RightsizeReport``: what requests that follow usage free, step by step, and how full the remaining nodes are then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct

from moorage.basis.printable import counted, one_line
from moorage.report.answer import Answer, plain
from moorage.report.style import columns, human, paragraph, some_pods

__all__ = ["NodePressure", "RequestChange", "RightsizeReport", "RightsizeStep", "rightsize_summary"]

#: How many changes the text shows without -o wide.
_SHOWN = 12


class RequestChange(Struct, frozen=True, rename="camel"):
    """Another request of a container, in millicores or bytes. ``measured``: how many of the workload's pods were."""

    workload: str
    container: str
    resource: str
    before: int
    after: int
    pods: int
    measured: int
    step: int


class NodePressure(Struct, frozen=True, rename="camel"):
    """The node that is fullest by measured use, its share, and how many nodes are above 90 %."""

    resource: str
    node: str
    share: float
    above: int


class RightsizeStep(Struct, frozen=True, rename="camel"):
    """The cluster after a step. ``requested``: amounts of all pods; ``removed``: nodes that can go; ``saved``: their price."""

    number: int
    what: str
    changes: Mapping[str, int]
    pods: int
    requested: Mapping[str, int]
    nodes: int
    removed: tuple[str, ...]
    saved: float | None
    pressure: tuple[NodePressure, ...]


def rightsize_summary(steps: Sequence[RightsizeStep], unit: str) -> str:
    """Return the first line: what the last step frees more than the requests as they are."""
    first, last = steps[0], steps[-1]
    if not sum(last.changes.values()):
        return "No request changes: usage gives no reason to."
    freed = len(last.removed) - len(first.removed)
    amounts = ", ".join(f"{human(name, abs(d))} {name} {'less' if d < 0 else 'more'}" for name, d in _deltas(first, last) if d)
    saved = "" if last.saved is None else f", which saves {last.saved - (first.saved or 0):g} {unit}"
    what = f"{counted(freed, 'node')} more can go{saved}" if freed > 0 else "no more node can go"
    already = f", beside {len(first.removed)} that can go already" if first.removed else ""
    changed = f"{counted(last.pods, 'pod')} with other requests, {amounts or 'as much in all'}"
    return f"{what[:1].upper()}{what[1:]}{already}: {changed}."


def _deltas(first: RightsizeStep, last: RightsizeStep) -> Iterator[tuple[str, int]]:
    for name, amount in last.requested.items():
        yield name, amount - first.requested[name]


class RightsizeReport(Answer, frozen=True, kw_only=True):
    """The answer. ``unmeasured``: workloads of which nothing is known; ``unit``: that of prices, if there are any."""

    KIND: ClassVar[str] = "RightsizeReport"

    changes: tuple[RequestChange, ...] = ()
    steps: tuple[RightsizeStep, ...] = ()
    unmeasured: tuple[str, ...] = ()
    unit: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether a change of requests frees a node; undecided if the search ended early."""
        freed = len(self.steps[-1].removed) > len(self.steps[0].removed)
        return True if freed else None if self.stopped is not None else False

    def _answer(self) -> dict[str, Any]:
        return {
            "changes": plain(self.changes),
            "steps": plain(self.steps),
            "unmeasured": list(self.unmeasured),
            **({"unit": self.unit} if self.unit else {}),
        }

    def _node_names(self) -> set[str]:
        return {name for one in self.steps for name in (*one.removed, *(held.node for held in one.pressure))}

    def _text(self, *, wide: bool) -> str:
        parts = ["\n".join(self._steps()), "\n".join(self._changes(wide)), "\n".join(self._end(wide))]
        return "\n\n".join([paragraph(one_line(self.summary)), *filter(None, parts)]) + "\n"

    def _steps(self) -> Iterator[str]:
        rows = []
        for one in self.steps:
            asked = [human(name, one.requested[name]) for name in ("cpu", "memory")]
            full = {held.resource: f"{held.share:.0%}" for held in one.pressure}
            money = [] if not self.unit else [f"{one.saved:g}" if one.saved is not None else ""]
            rows.append(
                [
                    str(one.number),
                    str(one.pods),
                    *asked,
                    str(len(one.removed)),
                    *money,
                    full.get("cpu", ""),
                    full.get("memory", ""),
                ]
            )
        money = ["SAVED"] if self.unit else []
        head = ["STEP", "PODS", "CPU", "MEMORY", "NODES GO", *money, "FULLEST CPU", "MEMORY"]
        yield columns(head, rows, right=range(len(head))).rstrip("\n")
        for one in self.steps:
            up, down = one.changes["raised"], one.changes["lowered"]
            named = f" ({counted(up, 'request')} raised, {down} lowered)" if up or down else ""
            yield paragraph(f"{one.number}  {one.what}{named}", indent="  ", hanging="     ")

    def _changes(self, wide: bool) -> Iterator[str]:
        listed = self.changes if wide else self.changes[:_SHOWN]
        rows = [
            [str(one.step), one_line(one.workload), one_line(one.container), f"{one.pods}", one.resource,
             f"{human(one.resource, one.before)} → {human(one.resource, one.after)}"]
            for one in listed
        ]  # fmt: skip
        if rows:
            yield columns(["STEP", "WORKLOAD", "CONTAINER", "PODS", "", "REQUEST"], rows).rstrip("\n")
        if len(rows) < len(self.changes):
            yield f"  and {len(self.changes) - len(rows)} more: -o wide"

    def _end(self, wide: bool) -> Iterator[str]:
        if self.unmeasured:
            names = some_pods(self.unmeasured)
            yield paragraph(
                one_line(f"! nothing is known of {counted(len(self.unmeasured), 'workload')}: {names}"),
                indent="  ",
                hanging="    ",
            )
        for one in self.steps[-1].pressure:
            if one.above:
                text = f"! {counted(one.above, 'node')} above 90 % of {one.resource} by measured use, {one.node} the fullest"
                yield paragraph(one_line(text), indent="  ", hanging="    ")
        for assumed in self.assumptions if wide else ():
            yield paragraph(one_line(f"Assumed: {assumed.name}: {assumed.value}"), indent="  ", hanging="    ")
