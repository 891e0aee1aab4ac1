"""Check that the schema of a custom kind is structural: it states a type everywhere, and junctors only restrict values.

The rules stand in ``rules/definitions.toml``; here are those that compare two schemas, or the schemas around one.

Source  apiextensions-apiserver, pkg/apiserver/schema: validation.go, complete.go; pkg/apis/apiextensions/validation
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from moorage.api.cel.regex import RegexError, compile_regex
from moorage.api.documents.served_kinds import Schema
from moorage.api.validation.faults import Faults, forbidden, invalid, required
from moorage.api.validation.rule_tables import Holders, Seen, check
from moorage.errors import Fault
from moorage.rules.admission.pod_checks import RULES

#: The deepest nesting of schemas. The limit of request bodies allows hardly more.
MAX_SCHEMA_DEPTH: Final = 50
_JUNCTORS: Final = ("allOf", "anyOf", "oneOf")
_HEAD: Final = frozenset(["apiVersion", "kind", "metadata"])
_EMBEDDED: Final = "x-kubernetes-embedded-resource"


def _schemas(schema: Schema, path: str) -> Iterator[tuple[Schema, str]]:
    """Yield the schemas directly inside a schema, with their paths."""
    for name in ("items", "additionalProperties", "not"):
        if isinstance(inner := schema.get(name), Mapping):
            yield inner, f"{path}.{name}"
    for name, inner in schema.get("properties", {}).items():
        yield inner, f"{path}.properties[{name}]"
    for junctor in _JUNCTORS:
        for i, inner in enumerate(schema.get(junctor, ())):
            yield inner, f"{path}.{junctor}[{i}]"


# -- structure ---------------------------------------------------------------------------------------------------------


def structural_faults(schema: Schema, path: str) -> Faults:
    """Yield the faults that make a schema not structural."""
    yield from sorted([*RULES.faults("RootSchema", schema, path), *_completeness(schema, schema, path, path)], key=str)


@check("schema")
def _schema(path: str, schema: Any, type_name: str) -> Iterable[Fault]:
    """Yield the faults of a schema by the rules of a type, where a list or a boolean may stand instead of a schema."""
    return RULES.faults(type_name, schema, path) if isinstance(schema, Mapping) else ()


@check("required object", of_holder=True)
def _required_object(path: str, value: Any, _: Any, __: Holders, ___: Seen, why: str = "") -> Iterable[Fault]:
    return () if isinstance(value, Mapping) else (required(path, why),)


@check("one schema")
def _one_schema(path: str, schema: Any, why: str) -> Iterable[Fault]:
    return () if isinstance(schema, Mapping) else (invalid(path, schema, why),)


@check("no list")
def _no_list(path: str, schema: Any, why: str) -> Iterable[Fault]:
    return (forbidden(path, why),) if isinstance(schema, list) else ()


@check("root metadata")
def _root_metadata(path: str, metadata: Schema) -> Iterable[Fault]:
    others = {name for name in metadata if name not in {"default", "properties", "type"}}
    if others or not set(metadata.get("properties", {})) <= {"name", "generateName"}:
        why = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        return (forbidden(path, why),)
    return ()


@check("regular expression")
def _regular_expression(path: str, pattern: str) -> Iterable[Fault]:
    try:
        compile_regex(pattern)
    except RegexError as error:
        return (invalid(path, pattern, f"must be a valid regular expression, but isn't: {error}"),)
    return ()


@check("list keys", of_holder=True)
def _list_keys(path: str, keys: list[str] | None, schema: Schema, *_: Any) -> Faults:
    """Yield the faults of the keys of a list: each names a scalar property of its items that always has a value."""
    items, holder = schema["items"], path.rpartition(".x-")[0]
    properties: Mapping[str, Schema] = items.get("properties", {})
    for i, key in enumerate(keys or ()):
        held = f"{holder}.items.properties[{key}]"
        found = properties.get(key)
        if found is None:
            yield invalid(path, keys, "entries must all be names of item properties")
        elif found.get("type") in {"array", "object"}:
            why = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield invalid(f"{held}.type", items.get("type"), why)
        if keys and key in keys[:i]:
            yield invalid(path, keys, "must not contain duplicate entries")
        if found is None:
            continue
        if key not in items.get("required", ()) and found.get("default") is None:
            why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            yield required(f"{held}.default", why)
        if found.get("nullable"):
            yield forbidden(f"{held}.nullable", "this property is in x-kubernetes-list-map-keys, so it cannot be nullable")


def _completeness(nested: Schema, schema: Schema | None, here: str, path: str) -> Faults:
    """Yield a fault for each field that occurs inside a junctor but not outside."""
    for junctor in (*_JUNCTORS, "not"):
        inner = nested.get(junctor, ())
        listed = [(inner, f"{path}.not")] if isinstance(inner, Mapping) else [
            (one, f"{path}.{junctor}[{i}]") for i, one in enumerate(inner)
        ]  # fmt: skip
        for one, where in listed:
            yield from _nested_completeness(one, schema, here, where)


def _nested_completeness(nested: Schema, schema: Schema | None, here: str, path: str) -> Faults:
    if schema is None:
        yield required(here, f"because it is defined in {path}")
        return
    yield from _completeness(nested, schema, here, path)
    if isinstance(items := nested.get("items"), Mapping):
        held = schema.get("items")
        yield from _nested_completeness(items, held if isinstance(held, Mapping) else None, f"{here}.items", f"{path}.items")
    for name, inner in nested.get("properties", {}).items():
        below = schema.get("properties", {}).get(name)
        yield from _nested_completeness(inner, below, f"{here}.properties[{name}]", f"{path}.properties[{name}]")


# -- contents ----------------------------------------------------------------------------------------------------------


class _Context(NamedTuple):
    """The place of a schema.

    ``no_defaults``: why it must not have defaults, "" if it may. ``is_head``: it describes ``apiVersion``, ``kind`` or
    ``metadata``.
    """

    no_defaults: str = ""
    is_head: bool = False


def open_schema_faults(schema: Schema, path: str, context: _Context = _Context(), *, is_root: bool = True) -> Faults:  # noqa: B008
    """Yield the faults of a schema and of all schemas inside it, whether it is structural or not."""
    yield from RULES.faults("OpenSchema", schema, path)
    if "default" in schema and context.no_defaults:
        yield forbidden(f"{path}.default", f"must not be set {context.no_defaults}")
    if context.is_head and schema.get(_EMBEDDED):
        yield forbidden(f"{path}.{_EMBEDDED}", "must not be used inside of resource meta")
    additional = schema.get("additionalProperties")
    if schema.get("properties") and additional not in (None, True):
        yield forbidden(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
    for inner, where in _schemas(schema, path):
        yield from open_schema_faults(inner, where, _inner_context(schema, inner, where, context, is_root), is_root=False)


def _inner_context(schema: Schema, inner: Schema, where: str, context: _Context, is_root: bool) -> _Context:
    if inner is schema.get("additionalProperties"):
        if context.is_head:
            return context._replace(no_defaults="inside additionalProperties applying to object metadata")
        return context
    name = next((name for name in _HEAD if schema.get("properties", {}).get(name) is inner), "")
    if not name or not (is_root or schema.get(_EMBEDDED)):
        return context
    return _Context(f"in top-level {name}" if is_root else context.no_defaults, is_head=True)
