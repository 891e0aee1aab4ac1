"""What a question is, from its table: one TOML file each, from which commands, requests, tools and the reference are made.

A table has the parameters of the command, as ``cli/option_tables.py`` reads them. Beside these it says

``[asked]``   what a browser or an agent sends: ``fields``, of which one says which question it is; ``also``, if no field of
              another question is there; the ``kind`` of the answer; ``inside``, the field that holds all others
``[tool]``    what an agent reads: its ``name``, if it is not that of the command; the ``text`` that describes it; ``main``, a
              field that the question has even if it is empty; ``always``, fields that it always has; ``needs``, parameters of
              which one must be given, and ``needed``, how they are named

A parameter that can be sent has

``field``     its name in a question. Its option has the value
``within``    the bounds of a number that is sent, if they are narrower than those of the option
``file``      the name of the file that gets the value: the field holds its content
``by_code``   ``question_arguments.py`` reads the field, because it is no plain option
``tool``      the parameter of the tool, if agents have it: its ``name``, ``type``, ``default``, ``help``, ``least`` and
              ``most`` where they differ from those of the option, and ``required``

``python``    its name in the method of ``moorage.Cluster``, if it is another one; "" if that does not have it

``[sent.NAME]`` is a field without a parameter of its own: ``sets`` is the option that it stands for, of those that several
commands share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from moorage.basis import table_of

_PACKAGE: Final = "moorage.interfaces.questions"
#: The tables. If a request has fields of several questions, it asks the first of them.
NAMES: Final = (
    "explain", "report", "capacity", "plan", "drain", "cordon", "fail", "survive", "compare", "check", "deschedule",
    "rightsize", "simulate", "sweep", "config-show",
)  # fmt: skip
#: What a table has beside the parameters.
SECTIONS: Final = frozenset({"asked", "tool", "sent", "refused"})
#: Type of a parameter of a tool → its value if none is given.
_NOTHING: Final[Mapping[str, Any]] = {"text": "", "texts": (), "flag": False, "integer": 0, "number": 0}


class SentField(NamedTuple):
    """A field of a question: its ``name``, and the ``option`` that it is, or "" for a positional argument.

    ``type``    text, texts, flag, integer or number
    ``least``, ``most``  the bounds of a number
    ``file``    the name of the file with its content, or ""
    ``by_code``  no plain option
    """

    name: str
    option: str
    type: str
    least: float
    most: float
    file: str
    by_code: bool


class ToolParameter(NamedTuple):
    """A parameter of an agent's tool. ``field``: that of the question; ``default``: None without one."""

    name: str
    field: str
    type: str
    default: Any
    required: bool
    help: str | None
    least: float | None
    most: float | None


@cache
def question_table(name: str) -> dict[str, Any]:
    """Return the table of a question; ``name`` is one of ``NAMES``."""
    return table_of(_PACKAGE, f"{name}.toml")


def rows_of(table: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the parameters of a table, without those that several commands share."""
    for name, row in table.items():
        if isinstance(row, dict) and name not in SECTIONS:
            yield name, row


@cache
def sent_fields(name: str) -> tuple[SentField, ...]:
    """Return the fields that a question can have."""
    table = question_table(name)
    own = [_field(row["field"], parameter, row) for parameter, row in rows_of(table) if "field" in row]
    return (*own, *(_field(field, "", row) for field, row in table.get("sent", {}).items()))


def has_time_limit(name: str) -> bool:
    """Return whether a question can be given a time limit."""
    shared = question_table(name).get("question")
    return shared is not None and "time_limit" not in shared.get("without", ())


def tool_parameters(name: str) -> tuple[ToolParameter, ...]:
    """Return the parameters of the tool that asks a question, beside those of all tools."""
    table = question_table(name)
    own = [_parameter(row["field"], parameter, row) for parameter, row in rows_of(table) if "tool" in row]
    sent = table.get("sent", {}).items()
    return (*own, *(_parameter(field, field, row) for field, row in sent if "tool" in row))


def tools() -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield the name of each tool, the table of its question, and what the table says of it."""
    for name in NAMES:
        about = question_table(name).get("tool")
        if about is not None:
            yield about.get("name", name), name, about


def option_of(parameter: str, row: Mapping[str, Any]) -> str:
    """Return how the option of a parameter is written, in its long form; "" for a positional argument."""
    if "argument" in row:
        return ""
    flags: Sequence[str] = row.get("flags", (f"--{parameter.replace('_', '-')}",))
    return next(flag for flag in flags if flag.startswith("--"))


def _type_of(row: Mapping[str, Any]) -> str:
    if row.get("many"):
        return "texts"
    held = row.get("type", "text")
    return held if held in _NOTHING else "text"


def _field(field: str, parameter: str, row: Mapping[str, Any]) -> SentField:
    least, most = row.get("within", (row.get("least", 0), row.get("most", 0)))
    option = option_of(parameter, row) if parameter else row.get("sets", "")
    return SentField(field, option, _type_of(row), least, most, row.get("file", ""), row.get("by_code", False))


def _parameter(field: str, parameter: str, row: Mapping[str, Any]) -> ToolParameter:
    about = row["tool"]
    form = about.get("type", _type_of(row))
    default = about.get("default", row.get("default") if form == _type_of(row) else None)
    bounds = [about.get(bound, row.get(bound)) for bound in ("least", "most")]
    return ToolParameter(
        about.get("name", parameter),
        field,
        form,
        _NOTHING.get(form) if default is None else default,
        about.get("required", False),
        about.get("help", row.get("help")),
        *bounds,
    )
