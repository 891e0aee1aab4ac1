"""Collects the arrivals of a trace, in any order."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from moorage.api.core import Node
from moorage.simulator.trace import Trace
from moorage.simulator.trace_arrivals import ArrivalColumns, PodTemplate

__all__ = ["TraceBuilder"]


class TraceBuilder:
    """Collects arrivals in any order. A pod whose name is taken gets a number behind the name."""

    def __init__(self) -> None:
        self._templates: list[PodTemplate] = []
        self._shapes: dict[Hashable, int] = {}
        self._names: list[str] = []
        self._taken: dict[str, int] = {}
        self._shape_of, self._time_s, self._duration_s = array("q"), array("d"), array("d")

    def __len__(self) -> int:
        return len(self._names)

    def shape(self, key: Hashable, make: Callable[[], PodTemplate]) -> int:
        """Return the index of the template for this key; ``make`` creates the template of a new key."""
        number = self._shapes.get(key)
        if number is None:
            number = self._shapes[key] = len(self._templates)
            self._templates.append(make())
        return number

    def add(self, name: str, shape: int, time_s: float, duration_s: float | None = None) -> int:
        """Add an arrival and return its row."""
        count = self._taken.get(name, 0)
        self._taken[name] = count + 1
        self._names.append(f"{name}.{count}" if count else name)
        self._shape_of.append(shape)
        self._time_s.append(time_s)
        self._duration_s.append(math.nan if duration_s is None else duration_s)
        return len(self._names) - 1

    def end(self, row: int, duration_s: float) -> None:
        """Set how long a pod runs."""
        self._duration_s[row] = max(duration_s, 0.0)

    def time_of(self, row: int) -> float:
        """Return when a pod arrives."""
        return self._time_s[row]

    def start(self, row: int, time_s: float) -> None:
        """Set when a pod arrives."""
        self._time_s[row] = time_s

    def finish(self, nodes: Sequence[Node], notes: Sequence[str] = (), *, origin_s: float = 0.0) -> Trace:
        """Return the trace. ``origin_s`` is the time that becomes 0; earlier arrivals are moved to 0."""
        times = np.maximum(np.array(self._time_s, dtype=np.float64) - origin_s, 0.0)
        order = np.argsort(times, kind="stable")
        rows = np.arange(len(times), dtype=np.int64)
        arrivals = ArrivalColumns(
            templates=tuple(self._templates), names=self._names, shape_of=np.array(self._shape_of, dtype=np.int64),
            row=rows, copy=np.zeros_like(rows), time_s=times, duration_s=np.array(self._duration_s, dtype=np.float64),
        )  # fmt: skip
        return Trace(tuple(nodes), arrivals.at(order), tuple(notes))
