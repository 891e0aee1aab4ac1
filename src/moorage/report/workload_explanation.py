"""Why a job waits in its queue: its place, what it lacks, who borrows, what would start it, and when it starts by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from msgspec import Struct

from moorage.basis.printable import counted, one_line
from moorage.report.answer import Answer, plain
from moorage.report.queue_report import amount_text, time_text
from moorage.report.style import columns, paragraph

__all__ = ["Borrower", "NeededQuota", "StartingChange", "WorkloadExplanation"]

_STATES: Final = {
    "started": "runs",
    "nodes": "has quota and waits for nodes",
    "checks": "has quota and waits for admission checks",
    "quota": "waits for quota",
    "topology": "waits for room in the topology of its nodes",
    "turn": "waits behind others of its queue",
    "preemption": "waits for the end of jobs that it preempts",
    "pods ready": "waits until the pods of other jobs are ready",
    "queue": "waits for a queue that cannot admit it",
    "given up": "was given up",
}


class NeededQuota(Struct, frozen=True, rename="camel"):
    """What a workload needs of one flavor and resource, and what there is. ``why`` says if the flavor is not for its pods."""

    flavor: str
    resource: str
    needed: int
    quota: int
    used: int
    free: int
    why: str = ""

    @property
    def missing(self) -> int:
        return max(0, self.needed - self.free)


class Borrower(Struct, frozen=True, rename="camel"):
    """A queue of the tree that uses more than its quota, and its workloads that hold it."""

    queue: str
    flavor: str
    resource: str
    borrowed: int
    workloads: tuple[str, ...]


class StartingChange(Struct, frozen=True, rename="camel"):
    """A change with which the workload starts at once. ``kind`` is gang, flavor, priority, stop, weight, limit or quota."""

    kind: str
    text: str


class WorkloadExplanation(Answer, frozen=True, kw_only=True):
    """``waits_for`` is one of ``quota``, ``nodes``, ``checks``, ``turn`` and so on; ``started`` if the job runs.

    ``position``  its place among the ``waiting`` workloads of its queue, from 1 on; None if it does not wait there
    ``starts_s``  when all its pods have a node, in seconds of simulated time; None: never, as far as can be seen
    """

    KIND: ClassVar[str] = "WorkloadExplanation"

    namespace: str
    object: str
    local_queue: str
    cluster_queue: str
    cohort: str
    priority: int
    pods: int
    waits_for: str
    reason: str
    position: int | None = None
    waiting: int = 0
    without_node: int = 0
    now_s: float = 0.0
    starts_s: float | None = None
    ends: bool = True
    needed: tuple[NeededQuota, ...] = ()
    borrowers: tuple[Borrower, ...] = ()
    changes: tuple[StartingChange, ...] = ()
    tried: bool = True

    @property
    def holds(self) -> bool:
        return self.waits_for == "started"

    def _answer(self) -> dict[str, Any]:
        found = {
            "namespace": self.namespace,
            "object": self.object,
            "localQueue": self.local_queue,
            "clusterQueue": self.cluster_queue,
            "cohort": self.cohort,
            "priority": self.priority,
            "pods": self.pods,
            "waitsFor": self.waits_for,
            "reason": self.reason,
            "position": self.position,
            "waiting": self.waiting,
            "withoutNode": self.without_node,
            "startsSeconds": self.starts_s,
            "needed": [{**plain(one), "missing": one.missing} for one in self.needed],
            "borrowers": plain(self.borrowers),
            "changes": plain(self.changes),
        }
        return {name: value for name, value in found.items() if value is not None}

    def _text(self, *, wide: bool) -> str:
        del wide
        parts = [paragraph(one_line(self.summary)), "\n".join(self._facts())]
        if self.needed:
            head = ["FLAVOR", "RESOURCE", "NEEDED", "QUOTA", "USED", "FREE", "MISSING"]
            rows = [[one.flavor, one.resource, *(amount_text(one.resource, n) for n in _numbers(one))] for one in self.needed]
            parts.append(columns(head, rows, right=(2, 3, 4, 5, 6), gap="  "))
            if whys := list(dict.fromkeys(one.why for one in self.needed if one.why)):
                parts.append("\n".join(paragraph(one_line(why), hanging="  ") for why in whys))
        if self.borrowers:
            parts.append("\n".join(["Who borrows:", *map(_borrower_line, self.borrowers)]))
        if not self.holds:
            parts.append("\n".join(self._change_lines()))
        return "\n\n".join(parts) + "\n"

    def _facts(self) -> Iterator[str]:
        where = self.cluster_queue or "none"
        cohort = f", cohort {self.cohort}" if self.cohort else ""
        place = "" if self.position is None else f"; place {self.position} of {self.waiting}"
        yield paragraph(f"queue     {where} (LocalQueue {self.local_queue}{cohort}){place}", indent="  ", hanging=" " * 12)
        yield f"  asks for  {counted(self.pods, 'pod')} at priority {self.priority}"
        if self.reason:
            yield paragraph(one_line(f"because   {self.reason}"), indent="  ", hanging=" " * 12)
        if self.holds:
            return
        if self.starts_s is not None:
            soon = time_text(self.starts_s - self.now_s)
            yield f"  starts    in {soon}, if nothing else comes"
        else:
            why = "" if self.ends else ": no job before it has an end"
            yield f"  starts    never, if nothing else changes{why}"

    def _change_lines(self) -> Iterator[str]:
        if not self.changes:
            yield "No single change was found that starts it now." if self.tried else "Changes were not searched for."
            return
        yield "What would start it now (any one of these):"
        for one in self.changes:
            yield paragraph(one_line(f"→ {one.text}"), indent="  ", hanging="    ")


def _numbers(one: NeededQuota) -> tuple[int, int, int, int, int]:
    return one.needed, one.quota, one.used, one.free, one.missing


def _borrower_line(one: Borrower) -> str:
    names = ", ".join(one.workloads[:3]) + (" …" if len(one.workloads) > 3 else "")
    amount = amount_text(one.resource, one.borrowed)
    text = f"{one.queue} borrows {amount} {one.resource} in {one.flavor}; it admitted {names or 'nothing'}"
    return paragraph(one_line(text), indent="  ", hanging="    ")


def headline(namespace: str, title: str, waits_for: str) -> str:
    """Return the first line."""
    return f"{namespace}/{title} {_STATES[waits_for]}"
