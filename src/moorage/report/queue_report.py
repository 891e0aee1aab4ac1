"""The queues of a run: what each uses, borrows and lends, who waits, for how long, and for what."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from moorage.api.quantity import canonical
from moorage.basis.printable import counted
from moorage.report.style import columns, fitted, human

#: Up to this many workloads are listed in a text; of more, those that wait come first.
_LISTED: Final = 40


def amount_text(resource: str, amount: int) -> str:
    """Return an amount as Kueue writes it in messages and statuses: cpu is in millicores."""
    if resource == "cpu":
        return canonical(f"{amount}m")
    is_binary = resource in {"memory", "ephemeral-storage"} or resource.startswith("hugepages-")
    return canonical(f"{amount // 1024}Ki" if is_binary and amount % 1024 == 0 else str(amount))


def time_text(seconds: float | None) -> str:
    """Return a span of time in its two largest units."""
    if seconds is None:
        return "-"
    if math.isinf(seconds):
        return "never"
    left = round(seconds)
    for unit, size, below, smaller in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if left >= size:
            rest = left % size // smaller
            return f"{left // size}{unit}{rest}{below}" if rest else f"{left // size}{unit}"
    return f"{left}s"


class QueueAmounts(Struct, frozen=True, rename="camel"):
    """The quota of a queue for one flavor and resource, and its use at the end and on average over the run.

    ``lent``: what other queues of the tree use of it; where several could have lent it, each in proportion
    """

    flavor: str
    resource: str
    nominal: int
    borrowing_limit: int | None
    lending_limit: int | None
    used: int
    borrowed: int
    lent: int
    mean_used: float
    mean_borrowed: float
    mean_lent: float


class QueueWaits(Struct, frozen=True, rename="camel"):
    """Waits from arrival to the first quota, in seconds; a workload that never got any waits without end."""

    p50: float
    p90: float
    p99: float
    longest: float

    @classmethod
    def of(cls, waits: Iterable[float]) -> QueueWaits | None:
        """Return percentiles by nearest rank; None without a wait."""
        ordered = sorted(waits)
        if not ordered:
            return None
        return cls(*(ordered[math.ceil(percent * len(ordered) / 100) - 1] for percent in (50, 90, 99, 100)))


class QueueFigures(Struct, frozen=True, rename="camel"):
    """A ClusterQueue. ``share`` is its dominant resource share; ``lost_hours``: what evicted pods had used, by resource."""

    name: str
    cohort: str
    weight: float
    share: int
    arrived: int
    admitted: int
    waiting: int
    finished: int
    evictions: int
    amounts: tuple[QueueAmounts, ...]
    waits: QueueWaits | None
    used_hours: Mapping[str, float]
    lost_hours: Mapping[str, float]
    fault: str = ""


class CohortFigures(Struct, frozen=True, rename="camel"):
    """A Cohort, and the one above it; ``nominal`` is quota of its own, by resource, over all flavors."""

    name: str
    parent: str
    nominal: Mapping[str, int]


class QueueEviction(Struct, frozen=True, rename="camel"):
    """A loss of quota: when, in seconds; the reason of the condition Preempted or Evicted; for which object; Kueue's text."""

    at: float
    reason: str
    by: str = ""
    message: str = ""


class WorkloadFigures(Struct, frozen=True, rename="camel"):
    """A workload. ``state`` is Waiting, Admitted, Finished, Deactivated or Gone; ``without_node`` counts its pending pods.

    ``held``  from when to when it held quota, in seconds; the last end is null if it still does
    ``lost``  its evictions
    """

    namespace: str
    name: str
    object: str
    cluster_queue: str
    priority: int
    pods: int
    admitted_pods: int
    state: str
    reason: str
    arrived: float
    reserved: float | None
    started: float | None
    finished: float | None
    evictions: int
    without_node: int
    held: tuple[tuple[float, float | None], ...] = ()
    lost: tuple[QueueEviction, ...] = ()


class QueueReport(Struct, frozen=True, rename="camel"):
    """All queues at the end of a run of so many seconds. ``fairness``: Jain's index of what queues used of their quota."""

    queues: tuple[QueueFigures, ...]
    workloads: tuple[WorkloadFigures, ...]
    fair_sharing: bool
    seconds: float
    fairness: float | None = None
    cohorts: tuple[CohortFigures, ...] = ()

    @property
    def is_timed(self) -> bool:
        """True if jobs arrived later or ended."""
        return any(one.finished is not None or one.arrived for one in self.workloads)

    def waiting(self) -> list[WorkloadFigures]:
        return [one for one in self.workloads if one.state in {"Waiting", "Deactivated"}]

    def data(self) -> dict[str, Any]:
        """Return the report as plain data; an endless wait is null."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        for queue in found["queues"]:
            if queue["waits"] is not None:
                queue["waits"] = {name: None if math.isinf(value) else value for name, value in queue["waits"].items()}
        return found

    def notes(self) -> Iterator[str]:
        """Yield a sentence for each workload that waits."""
        for one in self.waiting():
            yield f"{one.namespace}/{one.object} waits for quota: {one.reason}"

    def text(self) -> str:
        """Return tables of queues and workloads, and why each waiting one waits."""
        parts = [self._amounts(), self._queues(), *([self._workloads()] if self.workloads else [])]
        if waiting := self.waiting():
            lines = ["Waiting for quota:"]
            for one in waiting[:_LISTED]:
                lines += [f"  {one.namespace}/{one.object}", fitted(one.reason, indent="    ", hanging="      ")]
            more = len(waiting) - _LISTED
            parts.append("\n".join([*lines, *([f"  … and {counted(more, 'workload')} more"] if more > 0 else [])]))
        return "\n\n".join(parts) + "\n"

    def _amounts(self) -> str:
        head = ["CLUSTERQUEUE", "COHORT", "FLAVOR", "RESOURCE", "QUOTA", "USED", "BORROWED", "LENT"]
        mean = self.is_timed and self.seconds > 0
        rows = []
        for queue in self.queues:
            for one in queue.amounts:
                three = (one.mean_used, one.mean_borrowed, one.mean_lent) if mean else (one.used, one.borrowed, one.lent)
                amounts = [amount_text(one.resource, one.nominal), *(_rounded(one.resource, amount) for amount in three)]
                rows.append([queue.name, queue.cohort or "-", one.flavor, one.resource, *amounts])
        title = f"QUOTA   on average over {time_text(self.seconds)}\n" if mean else ""
        return title + columns(head, rows, right=(4, 5, 6, 7), gap="  ")

    def _queues(self) -> str:
        head = ["CLUSTERQUEUE", "ADMITTED", "WAITING"]
        if self.is_timed:
            head += ["FINISHED", "EVICTIONS", "WAIT P50", "P90", "LONGEST"]
        if self.fair_sharing:
            head += ["WEIGHT", "SHARE"]
        rows = []
        for one in self.queues:
            row = [one.name, str(one.admitted), str(one.waiting)]
            if self.is_timed:
                waits = one.waits
                three = ("-",) * 3 if waits is None else tuple(map(time_text, (waits.p50, waits.p90, waits.longest)))
                row += [str(one.finished), str(one.evictions), *three]
            if self.fair_sharing:
                row += [f"{one.weight:g}", "infinite" if one.share == 2**63 - 1 else str(one.share)]
            rows.append(row)
        text = columns(head, rows, right=tuple(range(1, len(head))), gap="  ")
        if self.is_timed and self.seconds > 0 and self.fairness is not None:
            text += f"\nFairness of what queues used of their quota (Jain): {self.fairness:.3f}"
        names = dict.fromkeys(resource for one in self.queues for resource in one.lost_hours)
        lost = {resource: sum(one.lost_hours.get(resource, 0.0) for one in self.queues) for resource in names}
        if shown := [f"{resource} {_rounded(resource, hours)}" for resource, hours in sorted(lost.items()) if hours]:
            text += "\n" + fitted(f"Lost to evictions, in hours: {', '.join(shown)}", hanging="  ")
        return text

    def _workloads(self) -> str:
        waiting = self.waiting()
        others = [one for one in self.workloads if one not in waiting] if len(self.workloads) <= _LISTED else []
        rows = []
        for one in (*others, *waiting[:_LISTED]) if others or waiting else self.workloads[:_LISTED]:
            size = f"{one.admitted_pods} of {one.pods}" if 0 < one.admitted_pods < one.pods else str(one.pods)
            rows.append([one.namespace, one.object, one.cluster_queue or "-", size, *self._state(one)])
        head = ["NAMESPACE", "WORKLOAD", "CLUSTERQUEUE", "PODS", *(["WAITED"] if self.is_timed else []), "STATE"]
        text = columns(head, rows, right=(3, 4) if self.is_timed else (3,))
        left = len(self.workloads) - len(rows)
        return f"{text}\n… and {counted(left, 'workload')} more" if left else text

    def _state(self, one: WorkloadFigures) -> list[str]:
        state = one.state.lower()
        if one.state == "Waiting" and one.evictions:
            state = "evicted, waiting"
        elif one.state == "Gone":
            state = "evicted, gone"
        elif one.state == "Admitted" and one.without_node:
            state = f"admitted, {one.without_node} without a node"
        elif one.finished is not None:
            state = f"finished at {time_text(one.finished)}"
        if not self.is_timed:
            return [state]
        until = one.reserved if one.reserved is not None else self.seconds
        return [time_text(until - one.arrived), state]


def _rounded(resource: str, amount: float) -> str:
    """Return a mean or a sum as people read it: one decimal where it is not whole."""
    if amount == int(amount):
        return amount_text(resource, int(amount))
    if resource in {"memory", "ephemeral-storage"}:
        return human(resource, round(amount))
    return f"{amount / 1000 if resource == 'cpu' else amount:.1f}"
