"""The shape of every served kind, field by field: what a field holds, and how its lists and maps are merged.

One table serves everything that has to know fields by name: reading what clients send, patches that merge lists item by
item, who manages which field, and the OpenAPI documents. What fields hold stands in ``protobuf_fields.json``; the rest is in
``schema_rules.json``, some words for a field:

    keys:A,B    a list of things named by these fields      set        a list that holds each value once
    atomic      a map or a struct that is one value         required   never absent
    merge:K     merged by K in strategic patches            retain     … keeping only the fields that the patch names
    default:V   what stands for it when it is absent        go:T       its type in Go, where that is not to be guessed

Source  the tags of api and apimachinery 1.36 (types.go); client-go, applyconfigurations/internal
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Final, TypeAlias

from moorage.apiserver.schema.protobuf import FieldFlag, message_of, messages
from moorage.apiserver.vocabulary.served_kinds import Review, ServedKind

__all__ = ["Field", "ListOf", "MapOf", "Scalar", "Struct", "Type", "kind_schema", "schema"]


@dataclass(frozen=True, slots=True)
class Scalar:
    """``letter`` is that of ``protobuf``; ``go`` is the name of its type in the texts of refusals."""

    letter: str
    go: str


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list: of things with names (``keys``), of values each once (``is_set``), or one value as a whole."""

    item: Type
    go: str
    keys: tuple[str, ...] = ()
    is_set: bool = False

    @property
    def is_atomic(self) -> bool:
        return not self.keys and not self.is_set


@dataclass(frozen=True, slots=True)
class MapOf:
    item: Type
    go: str
    is_atomic: bool = False


@dataclass(frozen=True, slots=True)
class Struct:
    """``name`` is that of its message; ``go`` is without its package."""

    name: str
    go: str
    fields: Mapping[str, Field]
    is_atomic: bool = False

    @property
    def full_go(self) -> str:
        """Its name in Go with its package, as refusals have it."""
        return _go(self.name)


Type: TypeAlias = Scalar | ListOf | MapOf | Struct


@dataclass(frozen=True, slots=True)
class Field:
    """A field that ``is_pointer`` and holds nothing is not the same as none; one that ``is_left_out`` is not written then.

    ``embedded`` is the struct of Go in whose stead the field stands here, if so; refusals name it.
    ``merges`` and ``merge_key`` are for strategic merge patches, as is ``retains``.
    """

    name: str
    type: Type
    is_pointer: bool = False
    is_left_out: bool = False
    is_required: bool = False
    default: str | None = None
    merges: bool = False
    merge_key: str = ""
    retains: bool = False
    embedded: str = ""


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
    """Return the shape of a message of ``protobuf``, such as ``core.Container``."""
    rules = _rules().get(name, {})
    fields: dict[str, Field] = {}
    for inner, holds, flags in messages()[name].values():
        if inner:
            fields[inner] = _field(inner, holds, flags, rules.get(inner, ""))
        else:
            spread = _last(holds)
            fields |= {
                name: replace(field, embedded=f"{spread}.{field.embedded}".strip("."))
                for name, field in schema(holds).fields.items()
            }
    if name in _KINDS_WITHIN:
        fields = {**_TYPE_META, **fields}
    return Struct(name, _last(name), fields, is_atomic=rules.get("") == "atomic")


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _go(name: str) -> str:
    """Return what Go calls a struct: its package is named after the API's version."""
    package, _, own = name.rpartition(".")
    return f"{package.partition('.')[2] or 'v1'}.{own}"


def _field(name: str, holds: str, flags: int, rule: str) -> Field:
    words = dict(word.partition(":")[::2] for word in rule.split())
    return Field(
        name,
        _type(holds, flags, words),
        is_pointer=bool(flags & FieldFlag.POINTER),
        is_left_out=bool(flags & FieldFlag.OMIT_EMPTY),
        is_required="required" in words,
        default=words.get("default"),
        merges="merge" in words,
        merge_key=words.get("merge", ""),
        retains="retain" in words,
    )


def _type(holds: str, flags: int, words: Mapping[str, str]) -> Type:
    scalar = _GO.get(holds)
    go = scalar or _go(holds)
    item: Scalar | Struct = Scalar(holds, go) if scalar else schema(holds)
    if flags & FieldFlag.MAP:
        return MapOf(item, words.get("go", f"map[string]{go}"), "atomic" in words)
    if flags & FieldFlag.REPEATED:
        keys = tuple(words["keys"].split(",")) if "keys" in words else ()
        return ListOf(item, words.get("go", f"[]{go}"), keys, "set" in words)
    if isinstance(item, Scalar):
        return replace(item, go=words.get("go", go))
    return replace(item, is_atomic=True) if "atomic" in words else item


_TYPE_META: Final = {name: Field(name, _TEXT, is_left_out=True) for name in ("apiVersion", "kind")}
#: Kinds that stand within others, and say there what they are, too: the claims of a stateful set.
_KINDS_WITHIN: Final = frozenset(["core.PersistentVolumeClaim"])


@cache
def kind_schema(kind: ServedKind | Review) -> Struct:
    """Return the shape of a kind's objects."""
    found = schema(message_of(kind.group, kind.version, kind.kind))
    return replace(found, fields={**_TYPE_META, **found.fields})
