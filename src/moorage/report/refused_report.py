"""Pods that were not created, as text and as data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from moorage.printable import one_line
from moorage.report.obstacles import obstacle_lines
from moorage.report.outcome import RefusedPods
from moorage.report.style import PLAIN, Style

__all__ = ["refused_data", "refused_lines"]


def refused_lines(refused: Iterable[RefusedPods], style: Style = PLAIN) -> Iterator[str]:
    """Yield each workload with the API server's message below it."""
    for one in refused:
        title = one.workload or f"Pod/{one.names[0]}"
        count = f": {len(one.names)} of {one.wanted} pods" if one.workload else ""
        yield f"  {style.red(one_line(f'{one.namespace} {title}') + count)}"
        yield from obstacle_lines(one.message, style=style)


def refused_data(refused: Iterable[RefusedPods]) -> list[dict[str, Any]]:
    """Return ``notCreated`` of the document."""
    return [_data(one) for one in refused]


def _data(one: RefusedPods) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "namespace": one.namespace,
        "workload": one.workload or None,
        "names": list(one.names),
        "wanted": one.wanted,
        "by": one.by,
        "quota": one.quota or None,
        "message": one.message,
        "resources": [{"resource": a.resource, "requested": a.requested, "used": a.used, "hard": a.hard} for a in one.amounts],
    }
    return {key: value for key, value in shown.items() if value is not None}
