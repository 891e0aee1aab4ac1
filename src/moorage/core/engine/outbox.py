"""The outputs of the engine: its reports and requests in one queue, which every driver drains with ``Scheduler.take``.

Outputs leave in the order in which the engine produced them. A decision precedes the work that follows from it, and a revoked
decision precedes whatever its pod does next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from moorage.core.cycle.decision import Decision
from moorage.core.engine.facts import Phase, Query, Work
from moorage.core.groups.group_cycle import GroupReport
from moorage.errors import MoorageError
from moorage.framework.effects import Effect, Evict
from moorage.state.pod_info import PodInfo


class Decided(Struct, frozen=True):
    """An attempt for one pod ended with this decision."""

    decision: Decision


class Revoked(Struct, frozen=True):
    """A decision failed after it was reported: a Permit wait ended, or the binding cycle failed."""

    decision: Decision


class Cancel(Struct, frozen=True):
    """The work of this ticket may be cancelled at once; answer it with ``Done`` and NO_LONGER_WANTED."""

    ticket: int


class Skipped(Struct, frozen=True):
    """A pod reached the head of the queue while it was being deleted."""

    pod: PodInfo


class Preempted(Struct, frozen=True):
    """A victim gave up its node before it was bound, so no eviction is requested."""

    eviction: Evict


class GroupAttempted(Struct, frozen=True):
    """An attempt for a pod group ended. The decisions of its pods are reported before."""

    report: GroupReport


class PluginFault(Struct, frozen=True):
    """A plugin or an extender failed where that does not end an attempt."""

    error: MoorageError


Output = Decided | Revoked | Work | Query | Cancel | Skipped | Preempted | GroupAttempted | PluginFault


class Outbox:
    """Outputs that no driver has taken yet, oldest first. Tickets number the work and count up from 1."""

    def __init__(self) -> None:
        self._outputs: list[Output] = []
        self.tickets = 0

    def __bool__(self) -> bool:
        return bool(self._outputs)

    def __iter__(self) -> Iterator[Output]:
        return iter(self._outputs)

    def put(self, output: Output) -> None:
        """Append one output."""
        self._outputs.append(output)

    def order(self, phase: Phase, pod: PodInfo, node: str, effects: tuple[Effect, ...] = ()) -> int:
        """Request work and return its ticket."""
        self.tickets += 1
        self._outputs.append(Work(self.tickets, phase, pod, node, effects))
        return self.tickets

    def fault(self, error: MoorageError) -> None:
        """Report an error that does not end an attempt."""
        self._outputs.append(PluginFault(error))

    def retract(self, unwanted: Callable[[Output], bool]) -> None:
        """Remove outputs that no driver has taken."""
        self._outputs = [output for output in self._outputs if not unwanted(output)]

    def drain(self) -> list[Output]:
        """Remove and return all outputs."""
        outputs, self._outputs = self._outputs, []
        return outputs
