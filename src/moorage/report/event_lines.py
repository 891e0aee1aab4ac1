"""Every decision of a run, one line each."""

from __future__ import annotations

from typing import Any

from moorage.basis.printable import one_line
from moorage.core.cycle.decision import Decision

__all__ = ["EventLog"]


class EventLog:
    """Collects decisions as plain data, and formats each as a line like kube-scheduler's events."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def note(self, time_s: float, attempt: int, decision: Decision) -> str:
        """Record a decision and return its line."""
        pod = decision.pod.key
        entry: dict[str, Any] = {"seconds": round(time_s, 3), "pod": pod, "attempt": attempt}
        stamp = f"{time_s:.3f}s".rjust(10)
        if decision.node is not None:
            self.entries.append({**entry, "reason": "Scheduled", "node": decision.node})
            return one_line(f"{stamp}  Scheduled         {pod}  to {decision.node}")
        entry |= {"reason": "FailedScheduling", "message": decision.message}
        outcome = decision.post_filter
        line = f"{stamp}  FailedScheduling  {pod}  {decision.message}"
        if outcome is not None and outcome.nominated:
            victims = [victim.key for victim in outcome.victims]
            entry |= {"nominatedNode": outcome.nominated, "victims": victims}
            line += f" Preempts {', '.join(victims) or 'no pods'} on {outcome.nominated}."
        self.entries.append(entry)
        return one_line(line)
