"""The schema of every served kind: the types of its fields, and how its lists and maps are merged.

Decoding, strategic merge patches, field management and the OpenAPI documents all use this table. Field types come from
``protobuf_fields.json``, everything else from ``schema_rules.json``, as words for each field:

    keys:A,B    an associative list with these keys         set        a list with distinct values
    atomic      a map or struct that is one value           required   a required field
    merge:K     merged by K in strategic merge patches      retain     with the retainKeys patch strategy
    default:V   the default of the field                    go:T       its type in Go, if it cannot be derived

Source  the tags of api and apimachinery 1.36 (types.go); client-go, applyconfigurations/internal
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Final
from weakref import WeakKeyDictionary

from moorage.apiserver.schema.custom_shapes import custom_shape
from moorage.apiserver.schema.definition_shapes import DEFINITION_FIELDS
from moorage.apiserver.schema.field_types import Field, ListOf, MapOf, Scalar, Struct, Type, go_type
from moorage.apiserver.schema.protobuf import FieldFlag, message_of, messages
from moorage.apiserver.vocabulary.custom_versions import CustomVersion
from moorage.apiserver.vocabulary.served_kinds import Review, ServedKind

__all__ = ["Field", "ListOf", "MapOf", "Scalar", "Struct", "Type", "kind_schema", "schema"]


_GO: Final = {
    "s": "string", "i": "int64", "b": "bool", "f": "float64", "y": "[]uint8", "T": "v1.Time", "U": "v1.MicroTime",
    "Q": "resource.Quantity", "O": "intstr.IntOrString", "D": "v1.Duration", "R": "runtime.RawExtension", "F": "v1.FieldsV1",
    "X": "v1.ExtraValue",
}  # fmt: skip
_TEXT: Final = Scalar("s", "string")


@cache
def _rules() -> Mapping[str, Mapping[str, str]]:
    text = resources.files("moorage.apiserver.schema").joinpath("schema_rules.json").read_text(encoding="utf-8")
    found: Mapping[str, Mapping[str, str]] = json.loads(text)
    return found


@cache
def schema(name: str) -> Struct:
    """Return the schema of a ``protobuf`` message, such as ``core.Container``."""
    rules = _rules().get(name, {})
    fields: dict[str, Field] = {}
    for inner, holds, flags in messages()[name].values():
        if inner:
            fields[inner] = _field(inner, holds, flags, rules.get(inner, ""))
        else:
            spread = _short_name(holds)
            fields |= {
                name: replace(field, embedded=f"{spread}.{field.embedded}".strip("."))
                for name, field in schema(holds).fields.items()
            }
    if name in _EMBEDDED_KINDS:
        fields = {**_TYPE_META, **fields}
    return Struct(name, _short_name(name), fields, is_atomic=rules.get("") == "atomic")


def _short_name(name: str) -> str:
    return name.rpartition(".")[2]


def _field(name: str, holds: str, flags: int, rule: str) -> Field:
    words = dict(word.partition(":")[::2] for word in rule.split())
    return Field(
        name,
        _type(holds, flags, words),
        is_pointer=bool(flags & FieldFlag.POINTER),
        omits_empty=bool(flags & FieldFlag.OMIT_EMPTY),
        is_required="required" in words,
        default=words.get("default"),
        merges="merge" in words,
        merge_key=words.get("merge", ""),
        retains="retain" in words,
    )


def _type(holds: str, flags: int, words: Mapping[str, str]) -> Type:
    scalar = _GO.get(holds)
    go = scalar or go_type(holds)
    item: Scalar | Struct = Scalar(holds, go) if scalar else schema(holds)
    if flags & FieldFlag.MAP:
        return MapOf(item, words.get("go", f"map[string]{go}"), "atomic" in words)
    if flags & FieldFlag.REPEATED:
        keys = tuple(words["keys"].split(",")) if "keys" in words else ()
        return ListOf(item, words.get("go", f"[]{go}"), keys, "set" in words)
    if isinstance(item, Scalar):
        return replace(item, go=words.get("go", go))
    return replace(item, is_atomic=True) if "atomic" in words else item


_TYPE_META: Final = {name: Field(name, _TEXT, omits_empty=True) for name in ("apiVersion", "kind")}
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
    more = DEFINITION_FIELDS if kind.kind == "CustomResourceDefinition" else {}
    return replace(found, fields={**_TYPE_META, **found.fields, **more})
