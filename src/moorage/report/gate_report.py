"""The results of a comparison or a simulation for a pipeline: gates, and pending pods with their manifests."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from moorage.report.gates import GateResult
from moorage.report.run_values import UnplacedPod

__all__ = ["GateReport", "PendingFinding", "SourceLine"]


class SourceLine(Struct, frozen=True):
    """A line of a file, counted from 1."""

    file: str
    line: int = 1


class PendingFinding(Struct, frozen=True):
    """A pod that stays pending, and the manifest that it comes from.

    ``is_new``    the pod was not pending before
    ``compared``  there is an earlier run; without one, every pod is new that the input does not show as unschedulable
    """

    pod: UnplacedPod
    where: SourceLine | None = None
    is_new: bool = False
    compared: bool = True

    @property
    def text(self) -> str:
        """The finding in one sentence."""
        what = "is pending and was not before" if self.is_new and self.compared else "is pending"
        return f"{self.pod.pod} {what}: {self.pod.message or 'it was not tried'}"


class GateReport(Struct, frozen=True):
    """``command`` is what ran, ``summary`` its first line, ``where`` the configuration or the first manifest.

    ``version``  of moorage
    ``details``  the whole text, for formats that have room for it
    """

    command: str
    summary: str
    gates: tuple[GateResult, ...] = ()
    pending: tuple[PendingFinding, ...] = ()
    where: SourceLine | None = None
    details: str = ""
    version: str = "0.0.0"

    @property
    def failed(self) -> tuple[GateResult, ...]:
        return tuple(gate for gate in self.gates if not gate.passed)

    def problems(self) -> Iterator[tuple[str, str, SourceLine | None]]:
        """Yield title, text and place of each problem, the worst first: failed gates, then newly pending pods."""
        for gate in self.failed:
            yield f"gate failed: {gate.gate}", gate.text, self.where
        for one in self.pending:
            if one.is_new:
                yield f"pod pending: {one.pod.pod}", one.text, one.where
