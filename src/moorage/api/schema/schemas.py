"""The schema of every served kind: the types of its fields, and how its lists and maps are merged.

Decoding, strategic merge patches, field management and the OpenAPI documents all use this table. Field types come from
``protobuf_fields.json``, everything else from ``schema_rules.json``, as words for each field. The fields of custom resource
definitions, which are not sent as protobuf, are in ``definition_fields.json`` with their words:

    keys:A,B    an associative list with these keys         set        a list with distinct values
    atomic      a map or struct that is one value           required   a required field
    granular    a struct that is atomic elsewhere
    merge:K     merged by K in strategic merge patches      retain     with the retainKeys patch strategy
    default:V   the default of the field                    go:T       its type in Go, if it cannot be derived
    kept        an empty list prevents the default

Source  the tags of api, apimachinery and apiextensions-apiserver 1.36 (types.go, types_jsonschema.go); client-go,
        applyconfigurations/internal
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final
from weakref import WeakKeyDictionary

from moorage.api.documents.served_kinds import CustomVersion, Review, ServedKind
from moorage.api.schema.custom_shapes import custom_shape
from moorage.api.schema.field_types import UNTYPED, Field, ListOf, MapOf, Scalar, Struct, Type, go_type
from moorage.api.schema.protobuf import FieldFlag, message_of, messages, origin_of
from moorage.basis import text_of

# The types of fields: scalars, lists, maps and structs, with what patches and field management need to know of them.


object.__setattr__(UNTYPED, "item", UNTYPED)


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
    if name in _UNFINISHED:  # its own fields refer to it
        return _UNFINISHED[name]
    rules = _rules().get(name) or _rules().get(origin_of(name), {})
    fields: dict[str, Field] = {}
    made = _UNFINISHED[name] = Struct(name, _short_name(name), fields, is_atomic=rules.get("") == "atomic")
    for inner, holds, flags in messages()[name].values():
        if inner:
            fields[inner] = _field(inner, holds, flags, rules.get(inner, ""))
        else:
            for one, field in schema(holds).fields.items():
                fields[one] = replace(field, embedded=f"{_short_name(holds)}.{field.embedded}".strip("."))
    if name in _EMBEDDED_KINDS:
        inner_fields = {**fields}
        fields.clear()
        fields |= {**_TYPE_META, **inner_fields}
    del _UNFINISHED[name]
    return made


#: The schemas that are under way.
_UNFINISHED: Final[dict[str, Struct]] = {}


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
