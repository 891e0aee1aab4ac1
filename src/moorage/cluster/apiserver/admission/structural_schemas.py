"""Check that the schema of a custom kind is structural: it states a type everywhere, and junctors only restrict values.

Source  apiextensions-apiserver, pkg/apiserver/schema: validation.go, complete.go; pkg/apis/apiextensions/validation
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from moorage.api.cel.regex import RegexError, compile_regex
from moorage.api.validation.faults import forbidden, invalid, required, unsupported
from moorage.cluster.apiserver.vocabulary.served_kinds import Schema
from moorage.errors import Fault

Faults = Iterator[Fault]
#: The deepest nesting of schemas. The limit of request bodies allows hardly more.
MAX_SCHEMA_DEPTH: Final = 50
_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_JUNCTORS: Final = ("allOf", "anyOf", "oneOf")
_HEAD: Final = frozenset(["apiVersion", "kind", "metadata"])
_X: Final = "x-kubernetes-"
_EMBEDDED, _PRESERVES, _INT_OR_STRING = f"{_X}embedded-resource", f"{_X}preserve-unknown-fields", f"{_X}int-or-string"
_LIST_TYPE, _MAP_TYPE, _LIST_KEYS, _RULES = (
    f"{_X}{name}" for name in ("list-type", "map-type", "list-map-keys", "validations")
)


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
    yield from sorted([*_invariants(schema, "root", path), *_completeness(schema, schema, path, path)], key=str)


_EMPTY_TYPE: Final = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}


def _invariants(schema: Schema, level: str, path: str) -> Faults:
    kind, embedded = schema.get("type", ""), bool(schema.get(_EMBEDDED))
    items, additional = schema.get("items"), schema.get("additionalProperties")
    if kind == "array" and not isinstance(items, Mapping):
        yield required(f"{path}.items", "must be specified")
    if isinstance(items, Mapping):
        yield from _invariants(items, "item", f"{path}.items")
    for name, inner in schema.get("properties", {}).items():
        yield from _invariants(inner, "field", f"{path}.properties[{name}]")
    if additional is not None:
        if level == "root":
            yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
        if isinstance(additional, Mapping):
            yield from _invariants(additional, "field", f"{path}.additionalProperties")
    yield from _extension_faults(schema, path)
    yield from _value_faults(schema, level, path)
    if embedded and kind != "object":
        why = "must be object if x-kubernetes-embedded-resource is true"
        yield invalid(f"{path}.type", kind, why) if kind else required(f"{path}.type", why)
    elif not kind and not schema.get(_INT_OR_STRING) and not schema.get(_PRESERVES):
        yield required(f"{path}.type", _EMPTY_TYPE[level])
    if embedded and additional is not None:
        yield forbidden(f"{path}.additionalProperties", "must not be used if x-kubernetes-embedded-resource is set")
    if level == "root" and kind and kind != "object":
        yield invalid(f"{path}.type", kind, "must be object at the root")
    yield from _head_faults(schema, level, path)
    if embedded and not schema.get(_PRESERVES) and not schema.get("properties"):
        why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        yield required(f"{path}.properties", why)


def _extension_faults(schema: Schema, path: str) -> Faults:
    if schema.get(_INT_OR_STRING):
        for name in (_PRESERVES, _EMBEDDED):
            if schema.get(name):
                yield invalid(f"{path}.{name}", True, "must be false if x-kubernetes-int-or-string is true")


def _head_faults(schema: Schema, level: str, path: str) -> Faults:
    """Yield the faults in the schemas of fields that every object has."""
    properties: Mapping[str, Schema] = schema.get("properties", {})
    is_resource = level == "root" or bool(schema.get(_EMBEDDED))
    for name in ("kind", "apiVersion"):
        if is_resource and name in properties and properties[name].get("type") != "string":
            yield invalid(f"{path}.properties[{name}].type", properties[name].get("type", ""), "must be string")
    metadata, where = properties.get("metadata"), f"{path}.properties[metadata]"
    if metadata is None:
        return
    if is_resource and metadata.get("type") != "object":
        yield invalid(f"{where}.type", metadata.get("type", ""), "must be object")
    names = set(metadata.get("properties", {}))
    others = {name for name in metadata if name not in {"default", "description", "properties", "type"}}
    if level == "root" and (others or not names <= {"name", "generateName"} or metadata.get("description")):
        why = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield forbidden(where, why)


def _is_int_or_string(schema: Schema) -> bool:
    return schema.get("anyOf") == [{"type": "integer"}, {"type": "string"}]


def _value_faults(schema: Schema, level: str, path: str) -> Faults:
    """Yield the faults of the junctors and the pattern of a schema."""
    all_of = schema.get("allOf", ())
    skips_first = bool(all_of) and _is_int_or_string(all_of[0])
    if not _is_int_or_string(schema):
        for i, inner in enumerate(schema.get("anyOf", ())):
            yield from _nested_faults(inner, level, f"{path}.anyOf[{i}]")
    for i, inner in enumerate(all_of):
        yield from _nested_faults(inner, level, f"{path}.allOf[{i}]", skips_any_of=skips_first and i == 0)
    for i, inner in enumerate(schema.get("oneOf", ())):
        yield from _nested_faults(inner, level, f"{path}.oneOf[{i}]")
    if isinstance(schema.get("not"), Mapping):
        yield from _nested_faults(schema["not"], level, f"{path}.not")
    if pattern := schema.get("pattern"):
        try:
            compile_regex(pattern)
        except RegexError as error:
            yield invalid(f"{path}.pattern", pattern, f"must be a valid regular expression, but isn't: {error}")


#: Fields that schemas inside junctors must not have.
_NOT_NESTED: Final = (
    ("type", "must be empty to be structural"), ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"), ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"), (_PRESERVES, "must be false to be structural"),
    (_EMBEDDED, "must be false to be structural"), (_INT_OR_STRING, "must be false to be structural"),
    (_LIST_KEYS, "must be empty to be structural"), (_LIST_TYPE, "must be undefined to be structural"),
    (_MAP_TYPE, "must be undefined to be structural"), (_RULES, "must be empty to be structural"),
)  # fmt: skip


def _nested_faults(schema: Schema, level: str, path: str, *, skips_any_of: bool = False) -> Faults:
    """Yield the faults of a schema inside a junctor."""
    yield from _value_faults({**schema, "anyOf": ()} if skips_any_of else schema, level, path)
    if isinstance(items := schema.get("items"), Mapping):
        yield from _nested_faults(items, level, f"{path}.items")
    for name, inner in schema.get("properties", {}).items():
        yield from _nested_faults(inner, "field", f"{path}.properties[{name}]")
    if schema.get("additionalProperties") not in (None, False):
        yield forbidden(f"{path}.additionalProperties", "must be undefined to be structural")
    for name, why in _NOT_NESTED:
        if schema.get(name):
            yield forbidden(f"{path}.{name}", why)
    if "metadata" in schema.get("properties", {}):
        yield forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")


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
    for rule in (_unsupported_faults, _map_faults, _list_faults, _key_faults, _rule_faults):
        yield from rule(schema, path)
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


def _unsupported_faults(schema: Schema, path: str) -> Faults:
    kind = schema.get("type", "")
    if kind and kind not in _TYPES:
        yield unsupported(f"{path}.type", kind, _TYPES)
    for name in ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"):
        if name in schema:
            yield forbidden(f"{path}.{name}", f"{name} is not supported")
    if kind == "null":
        yield forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if isinstance(schema.get("items"), list):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    if schema.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{path}.uniqueItems", why)
    if schema.get(_PRESERVES) is False:
        yield invalid(f"{path}.{_PRESERVES}", False, "must be true or undefined")


def _wrong_type(path: str, kind: str, why: str) -> Fault:
    return invalid(f"{path}.type", kind, why) if kind else required(f"{path}.type", why)


def _map_faults(schema: Schema, path: str) -> Faults:
    map_type, kind = schema.get(_MAP_TYPE), schema.get("type", "")
    if map_type is not None and kind != "object":
        yield _wrong_type(path, kind, "must be object if x-kubernetes-map-type is specified")
    if map_type not in (None, "atomic", "granular"):
        yield unsupported(f"{path}.{_MAP_TYPE}", map_type, ("atomic", "granular"))


def _list_faults(schema: Schema, path: str) -> Faults:
    list_type, kind, items = schema.get(_LIST_TYPE), schema.get("type", ""), schema.get("items")
    if list_type is None:
        return
    if kind != "array":
        yield _wrong_type(path, kind, "must be array if x-kubernetes-list-type is specified")
    elif list_type == "set" and isinstance(items, Mapping):
        why = "must be atomic as item of a list with x-kubernetes-list-type=set"
        if items.get("type") == "array" and items.get(_LIST_TYPE, "atomic") != "atomic":
            yield invalid(f"{path}.items.{_LIST_TYPE}", items[_LIST_TYPE], why)
        if items.get("type") == "object" and items.get(_MAP_TYPE) != "atomic":
            yield invalid(f"{path}.items.{_MAP_TYPE}", items.get(_LIST_TYPE), why)
    if list_type not in {"atomic", "map", "set"}:
        yield unsupported(f"{path}.{_LIST_TYPE}", list_type, ("atomic", "set", "map"))
    if list_type in {"map", "set"} and isinstance(items, Mapping) and items.get("nullable"):
        yield forbidden(f"{path}.items.nullable", f"cannot be nullable when x-kubernetes-list-type is {list_type}")


def _key_faults(schema: Schema, path: str) -> Faults:
    keys, list_type, items = schema.get(_LIST_KEYS, ()), schema.get(_LIST_TYPE), schema.get("items")
    if keys and list_type != "map":
        why = "must be map if x-kubernetes-list-map-keys is non-empty"
        yield required(f"{path}.{_LIST_TYPE}", why) if list_type is None else invalid(f"{path}.{_LIST_TYPE}", list_type, why)
    if list_type != "map":
        return
    if not keys:
        yield required(f"{path}.{_LIST_KEYS}", "must not be empty if x-kubernetes-list-type is map")
    if items is None:
        yield required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
    elif not isinstance(items, Mapping):
        yield invalid(f"{path}.items", items, "must only have a single schema if x-kubernetes-list-type is map")
    elif items.get("type") != "object":
        why = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid(f"{path}.items.type", items.get("type", ""), why)
    else:
        yield from _item_key_faults(keys, items, path)


def _item_key_faults(keys: list[str], items: Schema, path: str) -> Faults:
    properties: Mapping[str, Schema] = items.get("properties", {})
    where = f"{path}.{_LIST_KEYS}"
    for i, key in enumerate(keys):
        held = f"{path}.items.properties[{key}]"
        found = properties.get(key)
        if found is None:
            yield invalid(where, keys, "entries must all be names of item properties")
        elif found.get("type") in {"array", "object"}:
            why = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield invalid(f"{held}.type", items.get("type"), why)
        if key in keys[:i]:
            yield invalid(where, keys, "must not contain duplicate entries")
        if found is None:
            continue
        if key not in items.get("required", ()) and found.get("default") is None:
            why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            yield required(f"{held}.default", why)
        if found.get("nullable"):
            yield forbidden(f"{held}.nullable", "this property is in x-kubernetes-list-map-keys, so it cannot be nullable")


_REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")


def _rule_faults(schema: Schema, path: str) -> Faults:
    """Yield the faults of the form of validation rules; their expressions are compiled elsewhere."""
    for i, one in enumerate(schema.get(_RULES, ())):
        where, rule, message = f"{path}.{_RULES}[{i}]", one.get("rule", "").strip(), one.get("message", "")
        if not rule:
            yield required(f"{where}.rule", "rule is not specified")
        elif message and not message.strip():
            yield invalid(f"{where}.message", message, "must be non-empty if specified")
        elif _has_newlines(message.strip()):
            yield invalid(f"{where}.message", message, "must not contain line breaks")
        elif _has_newlines(rule) and not message.strip():
            yield required(f"{where}.message", "message must be specified if rule contains line breaks")
        if one.get("messageExpression") and not one["messageExpression"].strip():
            yield required(f"{where}.messageExpression", "messageExpression must be non-empty if specified")
        if one.get("reason") is not None and one["reason"] not in _REASONS:
            yield unsupported(f"{where}.reason", one["reason"], _REASONS)
        yield from _rule_path_faults(one.get("fieldPath", ""), where)


def _rule_path_faults(path: str, where: str) -> Faults:
    if path and not path.strip():
        yield invalid(f"{where}.fieldPath", path, "must be non-empty if specified")
    if _has_newlines(path):
        yield invalid(f"{where}.fieldPath", path, "must not contain line breaks")


def _has_newlines(text: Any) -> bool:
    return "\n" in text or "\r" in text
