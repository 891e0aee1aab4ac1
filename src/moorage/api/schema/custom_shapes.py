"""The types of a custom kind's fields, for patches and field management, from the schema of its definition.

Source  kube-openapi, pkg/schemaconv/smd.go and openapi.go
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final
from weakref import WeakKeyDictionary

from moorage.api.documents.served_kinds import CustomVersion, Review, Schema, ServedKind
from moorage.api.schema.protobuf import FieldFlag, message_of, messages, origin_of
from moorage.api.schema.schemas import UNTYPED, Field, ListOf, MapOf, Scalar, Struct, Type, go_type
from moorage.basis import text_of

_SCALARS: Final = {
    "boolean": Scalar("b", "bool"), "integer": Scalar("i", "int64"), "number": Scalar("f", "float64"),
    "string": Scalar("s", "string"),
}  # fmt: skip
_INT_OR_STRING: Final = Scalar("R", "intstr.IntOrString")


def custom_shape(name: str, schema: Schema, head: Mapping[str, Field]) -> Struct:
    """Return the type of a custom kind's objects. ``head`` are the fields that every object has."""
    fields = {**_fields(schema), **head}
    return Struct(name, name, fields, rest=UNTYPED if _preserves(schema) else None)


def _fields(schema: Schema) -> dict[str, Field]:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    return {
        name: Field(name, _custom_type(inner), is_pointer=True, omits_empty=True, default=inner.get("default"))
        for name, inner in properties.items()
    }


def _preserves(schema: Schema) -> bool:
    return bool(schema.get("x-kubernetes-preserve-unknown-fields"))


def _custom_type(schema: Schema) -> Type:
    if schema.get("x-kubernetes-int-or-string"):
        return _INT_OR_STRING
    kind = schema.get("type")
    if kind == "array":
        return _list(schema)
    if kind in _SCALARS:
        return _SCALARS[kind]
    return _object(schema)


def _list(schema: Schema) -> ListOf:
    item = _custom_type(schema["items"])
    list_type = schema.get("x-kubernetes-list-type", "atomic")
    keys = tuple(schema.get("x-kubernetes-list-map-keys", ())) if list_type == "map" else ()
    return ListOf(item, "[]interface {}", keys, list_type == "set")


def _object(schema: Schema) -> Type:
    is_atomic = schema.get("x-kubernetes-map-type") == "atomic"
    additional = schema.get("additionalProperties")
    if "properties" in schema or schema.get("x-kubernetes-embedded-resource"):
        return Struct("", "map[string]interface {}", _fields(schema), is_atomic, UNTYPED if _preserves(schema) else None)
    if isinstance(additional, Mapping):
        return MapOf(_custom_type(additional), "map[string]interface {}", is_atomic)
    if not (_preserves(schema) or additional):
        return Struct("", "map[string]interface {}", {}, is_atomic)
    return MapOf(UNTYPED, "map[string]interface {}", is_atomic=True) if is_atomic else UNTYPED


_GO: Final = {
    "s": "string", "i": "int64", "b": "bool", "f": "float64", "y": "[]uint8", "T": "v1.Time", "U": "v1.MicroTime",
    "Q": "resource.Quantity", "O": "intstr.IntOrString", "D": "v1.Duration", "R": "runtime.RawExtension", "F": "v1.FieldsV1",
    "P": "v1.JSONSchemaProps", "X": "v1.ExtraValue",
}  # fmt: skip


@cache
def _rules() -> Mapping[str, Mapping[str, str]]:
    text = text_of("moorage.api.schema", "schema_rules.json")
    found: Mapping[str, Mapping[str, str]] = json.loads(text)
    return found


@cache
def _definition_rows() -> Mapping[str, Mapping[str, list[Any]]]:
    """Return type, flags and words of each field in a CustomResourceDefinition, by struct; "" is the kind itself."""
    text = text_of("moorage.api.schema", "definition_fields.json")
    found: Mapping[str, Mapping[str, list[Any]]] = json.loads(text)
    return found


_DEFINITION_STRUCTS: Final[dict[str, Struct]] = {}


def _definition_struct(name: str) -> Struct:
    """Return a struct of definitions. A schema contains schemas, so its type refers to itself."""
    if name not in _DEFINITION_STRUCTS:
        fields: dict[str, Field] = {}
        _DEFINITION_STRUCTS[name] = Struct(name, _short_name(name), fields)
        fields |= {
            field: _field(field, holds, flags, *rule) for field, (holds, flags, *rule) in _definition_rows()[name].items()
        }
    return _DEFINITION_STRUCTS[name]


@cache
def schema(name: str) -> Struct:
    """Return the schema of a ``protobuf`` message, such as ``core.Container``, or of a struct of definitions."""
    if name in _definition_rows():
        return _definition_struct(name)
    rules = _rules().get(name) or _rules().get(origin_of(name), {})
    fields: dict[str, Field] = {}
    for inner, holds, flags in messages()[name].values():
        if inner:
            fields[inner] = _field(inner, holds, flags, rules.get(inner, ""))
        else:
            for one, field in schema(holds).fields.items():
                fields[one] = replace(field, embedded=f"{_short_name(holds)}.{field.embedded}".strip("."))
    if name in _EMBEDDED_KINDS:
        fields = {**_TYPE_META, **fields}
    return Struct(name, _short_name(name), fields, is_atomic=rules.get("") == "atomic")


def _short_name(name: str) -> str:
    return name.rpartition(".")[2]


def _field(name: str, holds: str, flags: int, rule: str = "") -> Field:
    words = dict(word.partition(":")[::2] for word in rule.split())
    is_pointer, omits_empty = bool(flags & FieldFlag.POINTER), bool(flags & FieldFlag.OMIT_EMPTY)
    return Field(
        name, _type(holds, flags, words), is_pointer, omits_empty, "required" in words, words.get("default"),
        merges="merge" in words, merge_key=words.get("merge", ""), retains="retain" in words, keeps_empty="kept" in words,
        gate=words.get("gate", ""),
    )  # fmt: skip


def _type(holds: str, flags: int, words: Mapping[str, str]) -> Type:
    scalar = _GO.get(holds)
    go = scalar or go_type(holds)
    item: Scalar | Struct = Scalar(holds, go) if scalar else schema(holds)
    if flags & FieldFlag.MAP:
        return MapOf(item, words.get("go", f"map[string]{go}"), "atomic" in words)
    if flags & FieldFlag.REPEATED:
        keys = tuple(words["keys"].split(",")) if "keys" in words else ()
        if scalar and words.get("go", "").startswith("[]"):
            item = Scalar(holds, words["go"][2:])
        return ListOf(item, words.get("go", f"[]{go}"), keys, "set" in words)
    if isinstance(item, Scalar):
        return replace(item, go=words.get("go", go))
    return replace(item, is_atomic="atomic" in words) if words.keys() & {"atomic", "granular"} else item


_TYPE_META: Final = {name: Field(name, Scalar("s", "string"), omits_empty=True) for name in ("apiVersion", "kind")}
#: Kinds embedded in other objects that carry kind and API version there: the claim templates of a stateful set.
_EMBEDDED_KINDS: Final = frozenset(["core.PersistentVolumeClaim"])


_CUSTOM_SHAPES: Final[WeakKeyDictionary[CustomVersion, Struct]] = WeakKeyDictionary()


def kind_schema(kind: ServedKind | Review) -> Struct:
    """Return the schema of a kind's objects."""
    if isinstance(kind, Review) or kind.custom is None:
        return _built_in_schema(kind)
    found = _CUSTOM_SHAPES.get(kind.custom)
    if found is None:
        head = {**_TYPE_META, "metadata": Field("metadata", schema("meta.ObjectMeta"), omits_empty=True)}
        found = _CUSTOM_SHAPES[kind.custom] = custom_shape(kind.kind, kind.custom.schema, head)
    return found


@cache
def _built_in_schema(kind: ServedKind | Review) -> Struct:
    found = schema(message_of(kind.group, kind.version, kind.kind))
    more = _definition_struct("").fields if kind.kind == "CustomResourceDefinition" else {}
    return replace(found, fields={**_TYPE_META, **found.fields, **more})
