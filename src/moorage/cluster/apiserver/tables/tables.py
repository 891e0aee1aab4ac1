"""The tables of ``kubectl get``: the columns of each kind.

``columns.toml`` has the columns of built-in kinds, and where their cells come from.

Source  kubernetes, pkg/printers/internalversion/printers.go
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

from moorage.api.documents.served_kinds import Document, PrinterColumn, ServedKind
from moorage.api.documents.statuses import bad_request, quoted
from moorage.basis import table_of
from moorage.cluster.apiserver.tables import cells, cluster_cells
from moorage.cluster.apiserver.tables.cells import Cell, age, pod_conditions

# The columns of a custom kind in ``kubectl get``: values at JSONPaths.
#
# A path consists of fields, indexes and simple filters: ``.spec.size``, ``.status.conditions[0].reason``,
# ``.status.conditions[?(@.type=="Ready")].status``. Cells with other paths are empty.
#
# Source  apiextensions-apiserver, pkg/registry/customresource/tableconvertor/tableconvertor.go; client-go, util/jsonpath

_NAME: Final = {
    "name": "Name", "type": "string", "format": "name", "priority": 0,
    "description": "The name of the object, which is unique within its namespace and kind.",
}  # fmt: skip


def _heading(column: PrinterColumn) -> Document:
    description = column.description or f"Custom resource definition column (in JSONPath format): {column.path}"
    return {
        "name": column.name, "type": column.type, "format": column.format, "description": description,
        "priority": column.priority,
    }  # fmt: skip


def custom_cells(columns: Sequence[PrinterColumn], document: Document, now: float) -> list[Cell]:
    """Return the cells of an object's row."""
    return [str(document["metadata"]["name"]), *(_cell(column, document, now) for column in columns)]


def _cell(column: PrinterColumn, document: Document, now: float) -> Cell:
    found = find_at(document, column.path)
    if not found:
        return None
    value = found[0]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    match column.type:
        case "string":
            return _as_text(value)
        case "integer":
            return int(value) if is_number else None
        case "number":
            return value if is_number else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case "date":
            return age(value, now) if isinstance(value, str) else None
        case _:
            return None


def _as_text(value: Any) -> str:
    """Return a value as JSONPath templates print it."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


# -- paths -------------------------------------------------------------------------------------------------------------


class _Filter(NamedTuple):
    path: str
    operator: str
    value: Any


_Step = str | int | _Filter | None
_STEP: Final = re.compile(
    r"""\.(?P<field>(?:[^.\[\]\\]|\\.)+)
    | \[(?P<index>-?\d{1,9})\]
    | \['(?P<quoted>[^'\]]*)'\]
    | \[(?P<every>\*)\]
    | \[\?\(\s*@(?P<path>[\w.\-]*)\s*(?P<operator>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|-?\d+(?:\.\d+)?|true|false)\s*\)\]""",
    re.VERBOSE,
)


@lru_cache(maxsize=512)
def _steps(path: str) -> tuple[_Step, ...] | None:
    """Return the steps of a path, or None if its form is not supported."""
    steps: list[_Step] = []
    at = 0
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            return None
        steps.append(_step(found))
        at = found.end()
    return tuple(steps)


def _step(found: re.Match[str]) -> _Step:
    if (field := found["field"]) is not None:
        return None if field == "*" else re.sub(r"\\(.)", r"\1", field)
    if found["index"] is not None:
        return int(found["index"])
    if found["quoted"] is not None:
        return str(found["quoted"])
    if found["every"] is not None:
        return None
    text = found["value"]
    value = text[1:-1] if text[0] in "\"'" else json.loads(text)
    return _Filter(found["path"], found["operator"], value)


def find_at(document: Any, path: str) -> list[Any]:
    """Return the values at a path; none if it leads nowhere."""
    steps = _steps(path)
    found = [] if steps is None else [document]
    for step in steps or ():
        if isinstance(step, str):
            found = [value[step] for value in found if isinstance(value, dict) and step in value]
        else:
            found = [inner for value in found for inner in _below(value, step)]
    return found


def _below(value: Any, step: int | _Filter | None) -> Iterable[Any]:
    if step is None:
        return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not isinstance(value, list):
        return ()
    if isinstance(step, int):
        return [value[step]] if -len(value) <= step < len(value) else ()
    found = [(one, find_at(one, step.path)) for one in value]
    return [one for one, held in found if held and (held[0] == step.value) is (step.operator == "==")]


class _Layout(NamedTuple):
    columns: tuple[str, ...]
    cells: Callable[[Document, float], list[Cell]]
    conditions: Callable[[Document], list[Document]] | None = None


def table(kind: ServedKind, documents: Sequence[Document], now: float, include: str, *, heading: bool = True) -> Document:
    """Return objects as a ``Table``. ``include`` is the part of the object in each row: Metadata, Object or None."""
    shown = _table(_layout(kind), documents, now, include, heading=heading)
    if heading and kind.custom is not None:
        shown["columnDefinitions"] = [dict(_NAME), *map(_heading, kind.custom.columns)]
    return shown


def rows(kind: ServedKind, documents: Iterable[Document], now: float, include: str) -> Iterator[Document]:
    """Yield the rows of a table one by one."""
    layout = _layout(kind)
    return (_row(layout, document, now, include) for document in documents)


def _layout(kind: ServedKind) -> _Layout:
    if kind.custom is not None:
        columns = kind.custom.columns
        return _Layout((), lambda document, now: custom_cells(columns, document, now))
    return _built_in_layout(f"{kind.kind}.{kind.group}".rstrip("."))


@cache
def _columns() -> Mapping[str, Mapping[str, str]]:
    """Return the headings and sources of the columns of each built-in kind."""
    return table_of("moorage.cluster.apiserver.tables", "columns.toml")


@cache
def _built_in_layout(kind: str) -> _Layout:
    """Return the layout of a kind that is named with its group."""
    columns = _columns().get(kind, {"Age": "@"})
    if not any(heading.removeprefix("+").partition(":")[0] == "Name" for heading in columns):
        columns = {"Name": ".metadata.name", **columns}
    readers = [_reader(source) for source in columns.values() if source]

    def row(document: Document, now: float) -> list[Cell]:
        cells: list[Cell] = []
        for read in readers:
            found = read(document, now)
            cells += found if isinstance(found, list) else [found]
        return cells

    return _Layout(tuple(columns), row, pod_conditions if kind == "Pod" else None)


def _reader(source: str) -> Callable[[Document, float], Cell | list[Cell]]:
    """Return the function that reads the cells of a source; ``columns.toml`` describes the forms."""
    form, _, absent = source.partition("|")
    if form.startswith("@"):
        moment = form[1:] or ".metadata.creationTimestamp"
        return lambda document, now: absent if absent and not _first(document, moment) else age(_first(document, moment), now)
    word, _, listed = form.rpartition(" ")
    paths = listed.removeprefix("#").split("/")
    if form.startswith("#"):
        return lambda document, _: sum(
            len(held) for path in paths for held in find_at(document, path) if isinstance(held, (list, dict))
        )
    if form.startswith("."):

        def texts(document: Document, _: float) -> Cell:
            parts = [",".join(map(_as_text, find_at(document, path))) for path in paths]
            return "/".join(parts) if parts[-1] else absent

        return texts
    if not word:
        function: Callable[[Document, float], Cell | list[Cell]] = getattr(cells, form, None) or getattr(cluster_cells, form)
        return function

    def values(document: Document, _: float) -> Cell | list[Cell]:
        found = [READERS[word](_first(document, path), absent) for path in paths]
        return found[0] if len(found) == 1 else "/".join(map(str, found))

    return values


def _first(document: Document, path: str) -> Any:
    return next(iter(find_at(document, path)), None)


#: Functions of a value, or None, and of what is shown for nothing.
READERS: Final[Mapping[str, Callable[[Any, str], Cell | list[Cell]]]] = {
    "containers": lambda value, _: cells.containers_of(value),
    "first": lambda value, absent: str(value or absent),
    "flag": lambda value, absent: absent == "true" if value is None else bool(value),
    "given": lambda value, absent: absent if value is None else str(value),
    "int": lambda value, _: int(value or 0),
    "modes": lambda value, _: cluster_cells.modes(value),
    "pairs": lambda value, _: cells.pairs(value),
    "selector": lambda value, _: cells.selector_of(value),
}


def scale_table(scale: Document, now: float, include: str = "Metadata") -> Document:
    """Return a ``Scale`` as a ``Table``."""
    shown = _table(_built_in_layout("Scale.autoscaling"), [scale], now, include)
    return {**shown, "metadata": {"resourceVersion": scale["metadata"]["resourceVersion"]}}


def included(parameter: str) -> str:
    """Return the validated ``includeObject`` parameter, defaulting to Metadata.

    Raises  ApiError 400
    """
    if parameter not in {"", "Metadata", "None", "Object"}:
        why = f"includeObject: Invalid value: {quoted(parameter)}: must be 'Metadata', 'Object', 'None', or empty"
        raise bad_request(f"Unable to convert to Table as requested: {why}")
    return parameter or "Metadata"


def _table(layout: _Layout, documents: Sequence[Document], now: float, include: str, *, heading: bool = True) -> Document:
    shown: Document = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}}
    shown["columnDefinitions"] = [_column(name) for name in layout.columns] if heading else None
    return {**shown, "rows": [_row(layout, document, now, include) for document in documents]}


def _row(layout: _Layout, document: Document, now: float, include: str) -> Document:
    row: Document = {"cells": layout.cells(document, now)}
    if layout.conditions is not None and (conditions := layout.conditions(document)):
        row["conditions"] = conditions
    row["object"] = None if include == "None" else document if include == "Object" else _metadata_of(document)
    return row


def _column(definition: str) -> Document:
    name, _, form = definition.removeprefix("+").partition(":")
    return {
        "name": name, "type": form or "string", "format": "name" if name in _NAMES and not form else "",
        "description": name, "priority": int(definition.startswith("+")),
    }  # fmt: skip


#: Columns that hold names, unless they state a type.
_NAMES: Final = frozenset(["Attacher", "Name"])


def _metadata_of(document: Document) -> Document:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": document["metadata"]}
