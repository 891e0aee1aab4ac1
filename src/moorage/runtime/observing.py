"""Who looks on while the scheduler runs: a log for people, and measures for machines.

Both are told of what the loop does, and never asked anything. Neither may fail or wait. What nobody listens to costs next to
nothing: ``SILENT`` and ``UNMEASURED`` are told as well, and forget.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from moorage.cycle.decision import Decision
from moorage.engine.facts import Phase
from moorage.engine.group_outcome import GroupReport
from moorage.queue.queued import QueuedPod
from moorage.state.pod_info import PodInfo

__all__ = ["SILENT", "UNMEASURED", "Log", "Measures", "Ref", "ref"]


class Ref(NamedTuple):
    """An object by name; ``namespace`` is "" for objects of the whole cluster."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def ref(pod: PodInfo) -> Ref:
    """Return a pod's name as a log shows it."""
    return Ref(pod.namespace, pod.name)


class Log(Protocol):
    """Lines with facts. The higher a line's level, the less it matters; which levels are shown is the log's own affair.

    Facts are text, numbers, booleans, ``Ref`` and sequences of these. Callers never pass anything secret.
    """

    def shows(self, level: int) -> bool:
        """Say whether lines of this level go anywhere: ask before working out facts that cost something."""

    def info(self, level: int, message: str, **facts: object) -> None: ...
    def warning(self, message: str, **facts: object) -> None: ...
    def error(self, error: object, message: str, **facts: object) -> None:
        """Tell of something that went wrong and was survived; ``error`` may be None."""


class Measures(Protocol):
    """Counts and durations. Seconds are of the loop's clock."""

    def began(self) -> None:
        """An attempt is about to begin, or to find that no pod is ready."""

    def attempted(self, decision: Decision, seconds: float) -> None:
        """An attempt was made; ``seconds`` until there was a node, or none."""

    def bound(self, decision: Decision, queued: QueuedPod, seconds: float, waited_s: float | None) -> None:
        """A pod is bound: ``seconds`` since its attempt began, ``waited_s`` since it first became ready to be tried."""

    def failed(self, decision: Decision, seconds: float) -> None:
        """An attempt came to nothing, at once or on the way to the node."""

    def grouped(self, report: GroupReport, seconds: float) -> None:
        """An attempt for a pod group was made; ``seconds`` until it was known what becomes of its pods."""

    def permitted(self, result: str, seconds: float) -> None:
        """Permit held a pod for so long; ``result`` is the status it ended with."""

    def worked(self, phase: Phase, profile: str, seconds: float, error: str | None) -> None:
        """A piece of work ended."""

    def handled(self, event: str, seconds: float) -> None:
        """The engine took in a fact."""


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
#: Tells the loop not to measure at all.
UNMEASURED: Measures | None = None
