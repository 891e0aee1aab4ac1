"""Decisions as lines: each decision of a run in one line, and kube-scheduler's message for a pending pod in several.

The wording is not changed; only the order of the reasons and the line breaks differ from the event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from moorage.basis.printable import one_line
from moorage.core.cycle.decision import Decision
from moorage.report.style import PLAIN, Style, paragraph

_HEAD: Final = re.compile(r"(?<!\S)0/\d+ nodes are available: ")
#: Each reason starts with the number of its nodes.
_BETWEEN_REASONS: Final = re.compile(r", (?=\d+ )")
_AFTER_COMMA: Final = re.compile(r"(?<=,) ")
_NUMBER: Final = re.compile(r"\d+(?= )")


def obstacle_lines(message: str, *, indent: str = "    ", style: Style = PLAIN) -> Iterator[str]:
    """Yield the lines of a message; the first reason is emphasised."""
    text = one_line(message)
    heads = list(_HEAD.finditer(text))
    if not heads:
        yield from _filled(_AFTER_COMMA.split(text), indent, style.width)
        return
    lead = text[: heads[0].start()]
    for at, head in enumerate(heads):
        end = heads[at + 1].start() if at + 1 < len(heads) else len(text)
        reasons, rest = _reasons(text[head.end() : end].strip())
        for line in _filled([f"{lead}{head[0].rstrip()}", *reasons], indent, style.width):
            yield line if at else line.replace(reasons[0], style.bold(reasons[0]), 1)
        lead = f"{rest} " if rest else ""
    if lead:
        yield paragraph(lead.rstrip(), indent=indent, hanging=f"{indent}  ", width=style.width)


def _reasons(text: str) -> tuple[list[str], str]:
    """Return the reasons, those with the most nodes first, each with its comma or full stop, and the sentence after them."""
    *some, last = _BETWEEN_REASONS.split(text)
    last, stop, rest = last.partition(". ")
    stop = stop or ("." if last.endswith(".") else "")
    ordered = sorted([*some, last.removesuffix(".")], key=_fewest_last)
    return [*(f"{reason}," for reason in ordered[:-1]), f"{ordered[-1]}{stop.strip()}"], rest


def _fewest_last(reason: str) -> int:
    number = _NUMBER.match(reason)
    return -int(number[0]) if number else 0


def _filled(parts: list[str], indent: str, width: int) -> Iterator[str]:
    """Yield lines that break between parts; a part that is longer than a line breaks at words."""
    line = indent
    for part in parts:
        longer = f"{line} {part}" if line.strip() else f"{line}{part}"
        if len(longer) <= width:
            line = longer
            continue
        if line.strip():
            yield line
            line = f"{indent}  "
        *whole, line = (paragraph(part, indent=line, hanging=f"{indent}    ", width=width) or line).split("\n")
        yield from whole
    if line.strip():
        yield line


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
