"""Frames: tables of NumPy columns, for programs that compute with them.

pandas and polars are imported by ``to_pandas`` and ``to_polars`` alone.
"""

from __future__ import annotations

import csv
import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from moorage.basis.packages import how_to_add
from moorage.basis.printable import csv_cell
from moorage.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from moorage.state.pod_info import PodInfo
    from moorage.state.table import NodeTable

Column = npt.NDArray[Any]
#: How many rows a notebook shows.
_SHOWN = 20


class ColumnFrame:
    """Rows of equal length columns. ``frame[0]`` is a row as a dict, ``frame["cpu_milli"]`` a column."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = dict(columns)
        self._length = len(next(iter(self._columns.values()), ()))

    def columns(self) -> dict[str, Column]:
        """Return the columns by name."""
        return dict(self._columns)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, at: int | str) -> Any:
        if isinstance(at, str):
            return self._columns[at]
        if not -self._length <= at < self._length:
            raise IndexError(f"row {at} of {self._length}")
        return {name: _plain(column[at]) for name, column in self._columns.items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[at] for at in range(self._length))

    def __repr__(self) -> str:
        return f"ColumnFrame({self._length} rows: {', '.join(self._columns)})"

    def _repr_html_(self) -> str:
        """Return the first rows as a table, for a notebook."""
        import html  # its table of names takes milliseconds to load, and few answers are shown in a notebook

        head = "".join(f"<th>{html.escape(name)}</th>" for name in self._columns)
        shown = [[str(column[at]) for column in self._columns.values()] for at in range(min(self._length, _SHOWN))]
        rows = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in shown]
        more = f"<p>{self._length:,} rows</p>" if self._length > _SHOWN else ""
        return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>{more}"

    def to_polars(self) -> Any:
        """Return a ``polars.DataFrame``; polars must be installed."""
        import polars  # type: ignore[import-not-found,import-untyped,unused-ignore]

        return polars.DataFrame(self._columns)

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame``; pandas must be installed."""
        import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]

        return pandas.DataFrame(self._columns)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the columns as Arrow's C stream, for libraries such as pandas and polars; pyarrow must be installed."""
        try:
            arrow = importlib.import_module("pyarrow")
        except ImportError:
            raise InputError(f"Arrow streams need pyarrow: {how_to_add('pyarrow')}") from None
        stream: object = arrow.table(self._columns).__arrow_c_stream__(requested_schema)
        return stream

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write the rows to a CSV file, with a line of column names first."""
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(map(csv_cell, self._columns))
            writer.writerows(zip(*(map(csv_cell, column.tolist()) for column in self._columns.values()), strict=True))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def frame_of(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> ColumnFrame:
    """Return a frame with these columns; numbers and booleans become typed columns, other values object columns."""
    held = list(rows)
    cells = list(zip(*held, strict=True)) if held else [()] * len(names)
    return ColumnFrame({name: _column(values) for name, values in zip(names, cells, strict=True)})


def _column(values: Sequence[Any]) -> Column:
    kinds = {type(value) for value in values}
    if kinds in ({bool}, {int}, {float}):
        return np.array(values)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def unit_name(resource: str) -> str:
    """Return a resource's name with its unit: ``cpu_milli``, ``memory_bytes``; others are counts and keep their names."""
    if resource == "cpu":
        return "cpu_milli"
    sized = resource in {"memory", "ephemeral-storage"} or resource.startswith("hugepages-")
    return f"{resource.replace('-', '_')}_bytes" if sized else resource


def nodes_frame(table: NodeTable) -> ColumnFrame:
    """Return the nodes in the order they were added: names, zones, states, and each resource offered and requested."""
    rows = np.argsort(table.arrival.view, kind="stable")
    names = sorted({name for node in table.nodes for name in node.status.allocatable if name != "pods"} | {"cpu", "memory"})
    columns: dict[str, Column] = {
        "name": _column([table.nodes[row].name for row in rows]),
        "zone": _column([_zone(table.nodes[row].labels) for row in rows]),
        "unschedulable": table.unschedulable.view[rows],
        "pods": table.pod_count.view[rows],
        "pods_allowed": table.allowed_pods.view[rows],
    }
    for name in names:
        columns[unit_name(name)] = table.allocatable(name).view[rows]
        columns[f"{unit_name(name)}_requested"] = table.requested(name).view[rows]
    return ColumnFrame(columns)


def _zone(labels: Mapping[str, str]) -> str:
    return labels.get("topology.kubernetes.io/zone", labels.get("failure-domain.beta.kubernetes.io/zone", ""))


def pods_frame(pods: Sequence[PodInfo], state_of: Callable[[PodInfo], str]) -> ColumnFrame:
    """Return the pods in the order they arrived: names, nodes, states, priorities, and requests."""
    names = sorted({name for pod in pods for name in pod.requests} | {"cpu", "memory"})
    columns: dict[str, Column] = {
        "namespace": _column([pod.namespace for pod in pods]),
        "name": _column([pod.name for pod in pods]),
        "node": _column([pod.spec.node_name for pod in pods]),
        "state": _column([state_of(pod) for pod in pods]),
        "priority": np.array([pod.priority for pod in pods], dtype=np.int64),
        "scheduler_name": _column([pod.spec.scheduler_name for pod in pods]),
    }
    for name in names:
        columns[unit_name(name)] = np.array([pod.requests.get(name, 0) for pod in pods], dtype=np.int64)
    return ColumnFrame(columns)
