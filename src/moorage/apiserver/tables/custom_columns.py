"""The columns of a custom kind in ``kubectl get``: values at JSONPaths.

A path consists of fields, indexes and simple filters: ``.spec.size``, ``.status.conditions[0].reason``,
``.status.conditions[?(@.type=="Ready")].status``. Cells with other paths are empty.

Source  apiextensions-apiserver, pkg/registry/customresource/tableconvertor/tableconvertor.go; client-go, util/jsonpath
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from moorage.apiserver.tables.cells import Cell, age, name_of
from moorage.apiserver.vocabulary.custom_versions import PrinterColumn
from moorage.apiserver.vocabulary.records import Document

__all__ = ["custom_cells", "custom_headings", "find_at"]

_NAME: Final = {
    "name": "Name", "type": "string", "format": "name", "priority": 0,
    "description": "The name of the object, which is unique within its namespace and kind.",
}  # fmt: skip


def custom_headings(columns: Sequence[PrinterColumn]) -> list[Document]:
    """Return the column definitions of a table."""
    return [dict(_NAME), *map(_heading, columns)]


def _heading(column: PrinterColumn) -> Document:
    description = column.description or f"Custom resource definition column (in JSONPath format): {column.path}"
    return {
        "name": column.name, "type": column.type, "format": column.format, "description": description,
        "priority": column.priority,
    }  # fmt: skip


def custom_cells(columns: Sequence[PrinterColumn], document: Document, now: float) -> list[Cell]:
    """Return the cells of an object's row."""
    return [name_of(document), *(_cell(column, document, now) for column in columns)]


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
        found = [inner for value in found for inner in _below(value, step)]
    return found


def _below(value: Any, step: _Step) -> Iterable[Any]:
    if step is None:
        return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(step, str):
        return [value[step]] if isinstance(value, dict) and step in value else ()
    if not isinstance(value, list):
        return ()
    if isinstance(step, int):
        return [value[step]] if -len(value) <= step < len(value) else ()
    return [one for one in value if _passes(one, step)]


def _passes(value: Any, wanted: _Filter) -> bool:
    found = find_at(value, wanted.path)
    return bool(found) and (found[0] == wanted.value) is (wanted.operator == "==")
