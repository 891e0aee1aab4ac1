"""Collects the arrivals of a trace, in any order."""

from __future__ import annotations

import math
from abc import abstractmethod
from array import array
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import overload

import numpy as np
import numpy.typing as npt

from moorage.api.core import Node
from moorage.simulator.trace import ArrivalColumns, PodTemplate, Trace, job_names

# Texts of a trace's rows, packed: a million names take some 20 MB, where as many strings take 80 MB.


class _Texts(Sequence[str]):
    """A sequence of texts; a subclass returns one at a time."""

    __slots__ = ()

    @abstractmethod
    def _text(self, row: int) -> str:
        """Return the text of a row, counted from 0."""

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        rows = range(len(self))[at]
        return self._text(rows) if isinstance(rows, int) else [self._text(row) for row in rows]


class PackedTexts(_Texts):
    """Texts in the order they were added, one after the other in a buffer."""

    __slots__ = ("_bytes", "_ends")

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ends = array("q", [0])

    def append(self, text: str) -> None:
        """Add a text."""
        self._bytes += text.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def _text(self, row: int) -> str:
        return self._bytes[self._ends[row] : self._ends[row + 1]].decode("utf-8", "surrogatepass")


class RowNames(_Texts):
    """The names of rows. ``number``: how often a row's text occurred before; if above 0, the name ends with it. None: all 0."""

    __slots__ = ("_number", "_texts")

    def __init__(self, texts: Sequence[str], number: npt.NDArray[np.int64] | None) -> None:
        self._texts, self._number = texts, number

    def __len__(self) -> int:
        return len(self._texts)

    def _text(self, row: int) -> str:
        number = 0 if self._number is None else self._number.item(row)
        return f"{self._texts[row]}.{number}" if number else self._texts[row]


def repeats(texts: Sequence[str], hashes: array[int]) -> npt.NDArray[np.int64] | None:
    """Return how often each text occurred before it; shape (texts,). None if all differ. ``hashes``: one for each text."""
    keys = np.frombuffer(hashes, dtype=np.int64) if len(hashes) else np.zeros(0, dtype=np.int64)
    order = np.argsort(keys, kind="stable")
    same = np.flatnonzero(np.diff(keys[order]) == 0)
    if not len(same):
        return None
    found = np.zeros(len(keys), dtype=np.int64)
    counts: dict[str, int] = {}
    for row in np.sort(order[np.union1d(same, same + 1)]).tolist():
        text = texts[row]
        found[row] = counts.get(text, 0)
        counts[text] = counts.get(text, 0) + 1
    return found


class TraceBuilder:
    """Collects arrivals in any order. A pod whose name is taken gets a number behind the name."""

    def __init__(self) -> None:
        self._templates: list[PodTemplate] = []
        self._shapes: dict[Hashable, int] = {}
        self._names, self._labels = PackedTexts(), PackedTexts()
        #: The hashes of the names. Rows of equal names are found when all are there.
        self._hashes = array("q")
        self._shape_of, self._time_s, self._duration_s = array("q"), array("d"), array("d")
        self._job_of, self._jobs, self._gangs = array("q"), dict[str, int](), bytearray()

    def __len__(self) -> int:
        return len(self._hashes)

    def shape(self, key: Hashable, make: Callable[[], PodTemplate]) -> int:
        """Return the index of the template for this key; ``make`` creates the template of a new key."""
        number = self._shapes.get(key)
        if number is None:
            number = self._shapes[key] = len(self._templates)
            self._templates.append(make())
        return number

    def add(self, name: str, shape: int, time_s: float, duration_s: float | None = None, labels: Sequence[str] = (), *,
        job: str = "", gang: bool = False,
    ) -> int:  # fmt: skip
        """Add an arrival and return its row.

        ``labels``  the values of the template's ``own`` labels
        ``job``     what the job of this pod is called in the trace; ``gang``: its pods start together
        """
        if job:
            self._job_of.extend([-1] * (len(self._hashes) - len(self._job_of)))  # rows before the first with a job
            number = self._jobs.setdefault(job, len(self._jobs))
            if number == len(self._gangs):
                self._gangs.append(gang)
            self._job_of.append(number)
        if labels:
            while len(self._labels) < len(self._hashes):  # rows before the first that has labels of its own
                self._labels.append("")
            self._labels.append("\n".join(labels))
        elif len(self._labels):
            self._labels.append("")
        self._names.append(name)
        self._hashes.append(hash(name))
        self._shape_of.append(shape)
        self._time_s.append(time_s)
        self._duration_s.append(math.nan if duration_s is None else duration_s)
        return len(self._hashes) - 1

    def end(self, row: int, duration_s: float) -> None:
        """Set how long a pod runs."""
        self._duration_s[row] = max(duration_s, 0.0)

    def has_end(self, row: int) -> bool:
        """Return whether the pod of a row has a duration."""
        return not math.isnan(self._duration_s[row])

    def time_of(self, row: int) -> float:
        """Return when a pod arrives."""
        return self._time_s[row]

    def start(self, row: int, time_s: float) -> None:
        """Set when a pod arrives."""
        self._time_s[row] = time_s

    def finish(self, nodes: Sequence[Node], notes: Sequence[str] = (), *, origin_s: float | None = 0.0) -> Trace:
        """Return the trace. ``origin_s`` is the time that becomes 0, None: the first; earlier arrivals are moved to 0."""
        times = np.array(self._time_s, dtype=np.float64)
        origin_s = times.min(initial=np.inf) if origin_s is None else origin_s
        np.maximum(np.subtract(times, origin_s, out=times), 0.0, out=times)
        names = RowNames(self._names, repeats(self._names, self._hashes))
        self._hashes = array("q")
        rows = np.arange(len(times), dtype=np.int64)
        arrivals = ArrivalColumns(
            templates=tuple(self._templates), names=names, shape_of=np.array(self._shape_of, dtype=np.int64),
            row=rows, copy=np.zeros_like(rows), time_s=times, duration_s=np.array(self._duration_s, dtype=np.float64),
            labels=self._labels,
        )  # fmt: skip
        arrivals = self._with_jobs(arrivals)
        if not (times[:-1] <= times[1:]).all():
            arrivals = arrivals.at(np.argsort(times, kind="stable"))
        return Trace(tuple(nodes), arrivals, tuple(notes))

    def _with_jobs(self, arrivals: ArrivalColumns) -> ArrivalColumns:
        """Add the jobs; those of one pod start as any pod does."""
        if not self._jobs:
            return arrivals
        self._job_of.extend([-1] * (len(arrivals.names) - len(self._job_of)))
        job_of = np.array(self._job_of, dtype=np.int64)
        sizes = np.bincount(job_of[job_of >= 0], minlength=len(self._jobs))
        gangs = np.frombuffer(bytes(self._gangs), dtype=np.uint8).astype(bool)
        return replace(arrivals, job_of=job_of, jobs=job_names(self._jobs), gang_of=np.where(gangs & (sizes > 1), sizes, 0))
