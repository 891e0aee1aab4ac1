"""Write ``docs/reference/plugin-types.md``: the types that plugins see, with fields, members and an example each.

``python -m tools.plugin_types`` writes the page from the docstrings of the code; with ``--check`` it only says by its status
whether the page is that of now.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import inspect
import itertools
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

PAGE: Final = Path(__file__).parents[1] / "docs" / "reference" / "plugin-types.md"
TABLE: Final = Path(__file__).with_suffix(".toml")
_LINKS: Final = """[Extension points](extension-points.md) has the methods that a plugin
can have, and [moorage.testing](testing.md) builds such values for tests."""
#: What the examples have.
GIVEN: Final = """from moorage.plugins.node_resources_fit import NodeResourcesFit
from moorage.testing.builders import a_cluster, a_node, a_pod, failed_attempt
from moorage.testing.fake_handle import FakeHandle

pod = a_pod("p", {"team": "red"}, containers=[{"name": "c", "resources": {"requests": {"cpu": "3"}}}])
snapshot = a_cluster([a_node("n1", {"disk": "ssd"}, allocatable={"cpu": "2", "pods": 5})]).snapshot
nodes, handle = snapshot.nodes, FakeHandle(snapshot)
node = nodes.first
attempt = failed_attempt([NodeResourcesFit()], pod, snapshot)"""
#: Members that are for the scheduler alone.
_INTERNAL: Final = frozenset({
    "merge", "share", "takes_over", "keep", "facts_of_shape", "facts_of_spec", "is_twin_of", "shares_all", "waiting_shape",
    "shape", "shape_without_claims", "needs_under", "label_class", "with_affinity_terms", "bound", "divisors", "exact_divisors",
    "usage", "index", "changes_of", "infos",
})  # fmt: skip


class Described(NamedTuple):
    """A type of the page: its section, the class, an example, which a test runs, and attributes that only instances have."""

    section: str
    cls: type[Any]
    example: str
    attributes: Mapping[str, str] = {}


def described() -> list[Described]:
    """Return the types of the page, in its order."""
    found = []
    for one in tomllib.loads(TABLE.read_text(encoding="utf-8"))["type"]:
        module, _, name = one["name"].rpartition(".")
        found.append(
            Described(
                one["section"],
                getattr(importlib.import_module(module), name),
                one["example"].strip(),
                one.get("attributes", {}),
            )
        )
    return found


def page() -> str:
    """Return the page."""
    parts = [
        "# The types that plugins see\n",
        f"`make reference` writes this page from the docstrings of the code. {_LINKS}\n",
        f"The examples have these values:\n\n```python\n{GIVEN}\n```\n",
    ]
    for title, types in groupby(described(), key=lambda one: one.section):
        parts.append(f"## {title}\n")
        parts += ["\n".join(_described(one)) for one in types]
    return "\n".join(parts)


def _described(one: Described) -> Iterator[str]:
    cls = one.cls
    yield f"### {cls.__name__}\n"
    yield f"`{cls.__module__}.{cls.__name__}`\n"
    yield f"{_text(inspect.getdoc(cls) or '')}\n"
    rows = [*one.attributes.items(), *_members(cls)]
    if rows:
        yield "| | |\n|---|---|"
        yield from (f"| `{name}` | {text} |" for name, text in rows)
        yield ""
    yield f"```python\n{one.example}\n```\n"


def _members(cls: type[Any]) -> Iterator[tuple[str, str]]:
    """Yield fields with their types and defaults, then the other public members, with what they say."""
    if issubclass(cls, enum.Enum):
        said = _told_of_members(cls)
        yield from ((f"{cls.__name__}.{name}", said.get(name) or _value(one)) for name, one in cls.__members__.items())
    yield from _fields(cls)
    for name, member in list(vars(cls).items()):
        if name.startswith("_") or name in _INTERNAL or name in getattr(cls, "__annotations__", {}):
            continue
        inner = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if inspect.isfunction(inner):
            yield f"{name}{signature_of(inner)}".replace("|", "\\|"), first_paragraph(inner)
        elif isinstance(member, property) or (hasattr(member, "__get__") and inspect.getdoc(member) and not callable(member)):
            yield name, first_paragraph(getattr(member, "fget", None) or member)


def _told_of_members(cls: type[Any]) -> dict[str, str]:
    """Return the texts below the members of an enumeration, which Python does not keep."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0].body  # type: ignore[attr-defined]
    found = {}
    for one, following in itertools.pairwise(body):
        match one, following:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = _text(" ".join(text.split())).replace("|", "\\|")
    return found


def _fields(cls: type[Any]) -> Iterator[tuple[str, str]]:
    if dataclasses.is_dataclass(cls):
        for one in dataclasses.fields(cls):
            default = "" if one.default is dataclasses.MISSING else f", by default `{_shown(one.default)}`"
            yield one.name, f"`{_kind(one.type)}`{default}"
    elif isinstance(cls, type) and issubclass(cls, msgspec.Struct):
        for field in msgspec.structs.fields(cls):
            default = "" if field.default is msgspec.NODEFAULT else f", by default `{_shown(field.default)}`"
            yield field.name, f"`{_kind(cls.__annotations__.get(field.name, field.type))}`{default}"
    elif hasattr(cls, "_fields"):
        defaults = cls._field_defaults
        for name in cls._fields:
            default = f", by default `{_shown(defaults[name])}`" if name in defaults else ""
            yield name, f"`{_kind(cls.__annotations__[name])}`{default}"


def _kind(given: object) -> str:
    text = given if isinstance(given, str) else getattr(given, "__name__", str(given))
    return text.replace("|", "\\|")


def _shown(default: object) -> str:
    return f"{type(default).__name__}.{default.name}" if isinstance(default, enum.Enum) else repr(default)


def _value(one: enum.Enum) -> str:
    return f"`{one.value}`" if isinstance(one.value, str) else ""


def signature_of(function: Any) -> str:
    """Return the parameters of a function as a page shows them: without ``self`` and types."""
    found = inspect.signature(function)
    parameters = [
        one.replace(annotation=inspect.Parameter.empty)
        for one in found.parameters.values()
        if one.name not in {"self", "cls"} and not inspect.isroutine(one.default)
    ]
    plain = found.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    return str(plain).replace(", /", "").replace("(/)", "()")


def first_paragraph(member: Any) -> str:
    """Return the first paragraph of a docstring as one line."""
    return _text((inspect.getdoc(member) or "").partition("\n\n")[0]).replace("\n", " ").replace("|", "\\|")


def _text(docstring: str) -> str:
    """Return a docstring in Markdown: a list of fields becomes a list."""
    docstring = docstring.replace("``", "`").replace(".. ", "")
    return re.sub(r"^(`[^\n]*?`)  +(?=\S)", r"* \1 ", docstring, flags=re.MULTILINE)


def main(words: list[str]) -> int:
    """Write or check the page; return the exit status."""
    if "--check" not in words:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    return int(PAGE.read_text(encoding="utf-8") != page())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
