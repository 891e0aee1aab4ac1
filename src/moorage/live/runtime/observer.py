"""Observers of the running scheduler: the protocols of its log and its metrics.

The loop calls both and reads nothing from them. Neither may raise or wait. ``SILENT`` discards log lines, and ``UNMEASURED``
turns metrics off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from moorage.core.cycle.decision import Decision
from moorage.core.engine.facts import Phase
from moorage.core.engine.group_outcome import GroupReport
from moorage.core.queue.queued_pod import QueuedPod
from moorage.state.pod_info import PodInfo

__all__ = ["SILENT", "UNMEASURED", "UNOBSERVED", "BoundPod", "Log", "Measures", "Observers", "Ref", "ref"]


class Ref(NamedTuple):
    """An object by name; ``namespace`` is "" for cluster-scoped objects."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def ref(pod: PodInfo) -> Ref:
    """Return a pod's name as a log shows it."""
    return Ref(pod.namespace, pod.name)


class Log(Protocol):
    """Log lines with key-value facts. A higher level is more verbose; the log decides which levels it shows.

    Facts are text, numbers, booleans, ``Ref`` and sequences of these. Callers never pass secrets.
    """

    def shows(self, level: int) -> bool:
        """Return whether lines of this level are shown; check it before computing costly facts."""

    def info(self, level: int, message: str, **facts: object) -> None: ...
    def warning(self, message: str, **facts: object) -> None: ...
    def error(self, error: object, message: str, **facts: object) -> None:
        """Log an error that the scheduler survives; ``error`` may be None."""


class BoundPod(NamedTuple):
    """A pod that the fast lane placed and that is bound now.

    Seconds: ``seconds`` since its attempt began, ``waited_s`` since its initial attempt (None: unknown), ``bind_s`` since
    its bind began.
    """

    decision: Decision
    queued: QueuedPod
    seconds: float
    waited_s: float | None
    bind_s: float


class Measures(Protocol):
    """Counts and durations. Seconds are of the loop's clock."""

    def began(self) -> None:
        """Record that an attempt is about to begin, or to find that no pod is ready."""

    def attempted(self, decision: Decision, seconds: float) -> None:
        """Record an attempt; ``seconds`` until its decision."""

    def placed(self, decisions: Sequence[Decision], seconds: float) -> None:
        """Record attempts of the fast lane, which took ``seconds`` each; no plugin had work after the decision."""

    def all_bound(self, pods: Sequence[BoundPod]) -> None:
        """Record bound pods and their binds."""

    def bound(self, decision: Decision, queued: QueuedPod, seconds: float, waited_s: float | None) -> None:
        """Record a bound pod: ``seconds`` since its attempt began, ``waited_s`` since its initial attempt (None: unknown)."""

    def failed(self, decision: Decision, seconds: float) -> None:
        """Record a failed attempt, whether it failed in the scheduling cycle or the binding cycle."""

    def grouped(self, report: GroupReport, seconds: float) -> None:
        """Record an attempt for a pod group; ``seconds`` until its decision."""

    def permitted(self, result: str, seconds: float) -> None:
        """Record how long Permit held a pod; ``result`` is the status it ended with."""

    def worked(self, phase: Phase, profile: str, seconds: float, error: str | None) -> None:
        """Record the end of a piece of work."""

    def handled(self, event: str, seconds: Sequence[float]) -> None:
        """Record that the engine processed facts, with the time that each took."""


class _Silence:
    def shows(self, level: int) -> bool:
        del level
        return False

    def info(self, level: int, message: str, **facts: object) -> None:
        """Say nothing."""

    def warning(self, message: str, **facts: object) -> None:
        """Say nothing."""

    def error(self, error: object, message: str, **facts: object) -> None:
        """Say nothing."""


SILENT: Log = _Silence()
#: Turns metrics off.
UNMEASURED: Measures | None = None


@dataclass(frozen=True, slots=True)
class Observers:
    """The observers of a scheduler: ``report`` gets a line for each error it survives; log and metrics get everything."""

    report: Callable[[str], None] = lambda line: None
    log: Log = SILENT
    measures: Measures | None = UNMEASURED


UNOBSERVED = Observers()
