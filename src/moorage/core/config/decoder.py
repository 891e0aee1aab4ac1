"""Decode plain data into frozen structs strictly, and report every fault with its path.

``msgspec`` stops at the first error. This decoder walks the data along the struct's type description instead: it records each
invalid value with its path and leaves it out, so that one reading reports all faults and the valid rest can still be checked.
Field names are case-sensitive. ``null`` means what it means to Go: absent for a field, the zero value in a list.

Source  sigs.k8s.io/json, decode.go, for the texts; encoding/json for nulls and numbers
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from moorage.api.durations import DurationError, duration_seconds
from moorage.api.quantity import INT64_MAX, INT64_MIN
from moorage.core.config import configuration
from moorage.errors import Fault
from moorage.framework.args import PluginArgs

# The Go names of the configuration types, which kube-scheduler's messages contain.

_NAMES: Final[dict[type, str]] = {
    configuration.ClientConnection: "v1alpha1.ClientConnectionConfiguration",
    configuration.Configuration: "v1.KubeSchedulerConfiguration",
    configuration.LeaderElection: "v1alpha1.LeaderElectionConfiguration",
    configuration.ManagedResource: "v1.ExtenderManagedResource",
    configuration.PluginRef: "v1.Plugin",
    configuration.KubeSchedulerProfile: "v1.KubeSchedulerProfile",
}


_PLAIN: Final[dict[type, str]] = {inspect.BoolType: "bool", inspect.BytesType: "[]uint8"}


def short_name(cls: type) -> str:
    """Return a struct's name in Go, without its package."""
    return _name(cls).rpartition(".")[2]


def _name(cls: type) -> str:
    if issubclass(cls, PluginArgs):
        return f"v1.{cls.__qualname__.split('.')[0].removesuffix('Args')}Args"
    return _NAMES.get(cls, f"v1.{cls.__name__}")


def go_type(kind: inspect.Type) -> str:
    """Return a type as Go writes it: ``int32``, ``[]v1.Plugin``, ``map[string]string``."""
    match kind:
        case inspect.Metadata(type=inner):
            return go_type(inner)
        case inspect.StructType(cls=cls):
            return _name(cls)
        case inspect.ListType(item_type=inner) | inspect.VarTupleType(item_type=inner):
            return f"[]{go_type(inner)}"
        case inspect.DictType(value_type=inner):
            return f"map[string]{go_type(inner)}"
        case inspect.IntType(le=most):
            return "int64" if most is None or most > 2**31 - 1 else "int32"
        case inspect.FloatType(le=most):
            return "float64" if most is None else "float32"
        case _:
            return _PLAIN.get(type(kind), "string")


T = TypeVar("T", bound=msgspec.Struct)


class _Bad:
    """The placeholder for an invalid value, whose fault is already recorded."""


_BAD: Final = _Bad()
_FLOAT32_MAX: Final = 3.4028234663852886e38
_RESIDUE = re.compile(r"(?P<why>.*) - at `\$\.?(?P<path>.*)`")


@dataclass(frozen=True, slots=True)
class _Place:
    """The walk's position: the path for messages, and Go's form of it (innermost struct, fields from the root)."""

    path: str
    root: int
    struct: str = ""
    fields: tuple[str, ...] = ()

    def field(self, name: str, struct: str) -> _Place:
        return _Place(f"{self.path}.{name}" if self.path else name, self.root, struct, (*self.fields, name))

    def item(self, index: int) -> _Place:
        return _Place(f"{self.path}[{index}]", self.root, self.struct, self.fields)

    def entry(self, key: str) -> _Place:
        return _Place(f"{self.path}[{key}]", self.root, self.struct, self.fields)

    @property
    def from_root(self) -> str:
        return self.path[self.root :].removeprefix(".")


#: Structs → fields by their names in documents.
Fields = Mapping[type[msgspec.Struct], Collection[str]]


def decode(
    data: Any, kind: type[T], path: str, name: str, lacks: Fields = MappingProxyType({})
) -> tuple[T | None, list[Fault]]:
    """Return the struct made of all valid values in the data, and the faults.

    ``path`` leads to the data; ``name`` is the struct's name in Go; ``lacks``: fields that the data cannot have. The struct is
    None if it cannot be built.
    """
    walk = _Walk(lacks)
    place = _Place(path, len(path), name)
    clean = walk.value(_described(kind), {} if data is None else data, place)
    if clean is _BAD:
        return None, walk.faults
    try:
        return msgspec.convert(clean, kind), walk.faults
    except msgspec.ValidationError as error:
        return None, walk.faults or [_residual_fault(str(error), path)]


def _residual_fault(message: str, path: str) -> Fault:
    """Turn an error that only ``msgspec`` finds (patterns, enumerations, …) into a fault with its path."""
    found = _RESIDUE.fullmatch(message)
    inner = found["path"] if found else ""
    where = path + inner if not path or inner.startswith("[") or not inner else f"{path}.{inner}"
    why = found["why"] if found else message
    return Fault("Invalid value", where, why[:1].lower() + why[1:], "…")


class _Walk:
    def __init__(self, lacks: Fields) -> None:
        self.faults: list[Fault] = []
        self._lacks = lacks

    def value(self, kind: inspect.Type, value: Any, place: _Place) -> Any:
        """Return the valid part of the value as plain data, or ``_BAD``."""
        match kind:
            case inspect.Metadata(type=inner):
                return self._duration(value, place) if is_duration(kind) else self.value(inner, value, place)
            case inspect.UnionType(types=types):
                return self._union(types, value, place)
            case inspect.StructType(tag=None, array_like=False):
                return self._struct(kind, value, place)
            case inspect.ListType(item_type=inner) | inspect.VarTupleType(item_type=inner):
                return self._list(kind, inner, value, place)
            case inspect.DictType(value_type=inner):
                return self._dict(kind, inner, value, place)
            case _:
                return self._scalar(kind, value, place)

    def _union(self, types: tuple[inspect.Type, ...], value: Any, place: _Place) -> Any:
        real = [one for one in types if not isinstance(one, inspect.NoneType)]
        if value is None and len(real) < len(types):
            return None
        return self.value(real[0], value, place) if len(real) == 1 else value

    def _struct(self, kind: inspect.StructType, value: Any, place: _Place) -> Any:
        if not isinstance(value, dict):
            return self._mismatch(kind, value, place)
        lacks = self._lacks.get(kind.cls, ())
        fields = {name: one for name, one in fields_of(kind.cls).items() if name not in lacks}
        struct = place.struct if not place.fields else short_name(kind.cls)
        clean: dict[str, Any] = {}
        for name, given in value.items():
            at = place.field(name, struct)
            if name not in fields:
                self._unknown(name, tuple(fields), at)
            elif given is not None or _holds_null(fields[name].type) or is_duration(fields[name].type):
                found = self.value(fields[name].type, given, at)
                if found is not _BAD:
                    clean[name] = found
        for name, one in fields.items():
            if one.required and value.get(name) is None and name not in clean:
                self.faults.append(Fault("Required value", place.field(name, struct).path))
        return clean

    def _unknown(self, name: str, known: tuple[str, ...], at: _Place) -> None:
        meant = next((one for one in known if one.lower() == name.lower()), None)
        if meant:
            hint = f'; names are case-sensitive, write "{meant}"'
        else:
            near = get_close_matches(name, known, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else f"; known here: {', '.join(known)}"
        self.faults.append(Fault("Strict decoding error", at.path, f'unknown field "{at.from_root}"{hint}'))

    def _list(self, kind: inspect.Type, inner: inspect.Type, value: Any, place: _Place) -> Any:
        if not isinstance(value, list):
            return self._mismatch(kind, value, place)
        # An invalid item is replaced by its zero value, so that the paths of later items stay correct.
        found = [
            _zero(inner) if one is None and not _holds_null(inner) else self.value(inner, one, place.item(i))
            for i, one in enumerate(value)
        ]
        return [_zero(inner) if one is _BAD else one for one in found]

    def _dict(self, kind: inspect.Type, inner: inspect.Type, value: Any, place: _Place) -> Any:
        if not isinstance(value, dict):
            return self._mismatch(kind, value, place)
        found = {
            key: _zero(inner) if one is None and not _holds_null(inner) else self.value(inner, one, place.entry(key))
            for key, one in value.items()
        }
        return {key: one for key, one in found.items() if one is not _BAD}

    def _scalar(self, kind: inspect.Type, value: Any, place: _Place) -> Any:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        match kind:
            case inspect.StrType() if isinstance(value, str):
                return value
            case inspect.BoolType() if isinstance(value, bool):
                return value
            case inspect.IntType() if is_number:
                return self._integer(kind, value, place)
            case inspect.FloatType() if is_number:
                return self._float(kind, value, place)
            case inspect.BytesType() if isinstance(value, str):
                return self._bytes(value, place)
            case inspect.StrType() | inspect.BoolType() | inspect.IntType() | inspect.FloatType() | inspect.BytesType():
                return self._mismatch(kind, value, place)
            case _:
                return value

    def _integer(self, kind: inspect.IntType, value: Any, place: _Place) -> Any:
        least, most = (INT64_MIN, INT64_MAX) if go_type(kind) == "int64" else (-(2**31), 2**31 - 1)
        if isinstance(value, float) or not least <= value <= most:
            return self._mismatch(kind, value, place, exact=True)
        return value

    def _float(self, kind: inspect.FloatType, value: float, place: _Place) -> Any:
        if go_type(kind) == "float32" and not -_FLOAT32_MAX <= value <= _FLOAT32_MAX:
            return self._mismatch(kind, value, place, exact=True)
        return value

    def _bytes(self, value: str, place: _Place) -> Any:
        plain = re.sub(r"[\r\n]", "", value)
        try:
            base64.b64decode(plain, validate=True)
        except (binascii.Error, ValueError):
            self.faults.append(Fault("Invalid value", place.path, "illegal base64 data", "…"))
            return _BAD
        return plain

    def _duration(self, value: Any, place: _Place) -> Any:
        if value is not None and not isinstance(value, str):
            text = f'json: cannot unmarshal {_found(value)} into Go value of type string; write a duration such as "15s"'
            self.faults.append(Fault("Invalid value", place.path, text, _shown(value)))
            return _BAD
        try:
            return duration_seconds(value or "")
        except DurationError as error:
            self.faults.append(Fault("Invalid value", place.path, f'{error}; write a duration such as "15s"', value))
            return _BAD

    def _mismatch(self, kind: inspect.Type, value: Any, place: _Place, *, exact: bool = False) -> _Bad:
        found = f"number {value}" if exact else _found(value)
        into = f"Go struct field {place.struct}.{'.'.join(place.fields)}" if place.fields else "Go value"
        text = f"json: cannot unmarshal {found} into {into} of type {go_type(kind)}"
        self.faults.append(Fault("Invalid value", place.path, text, _shown(value)))
        return _BAD


@lru_cache(maxsize=256)
def _described(cls: Hashable) -> inspect.Type:
    return inspect.type_info(cls)


def fields_of(cls: type) -> dict[str, inspect.Field]:
    """Return a struct's fields by wire name."""
    return _fields(cls)


@lru_cache(maxsize=256)
def _fields(cls: Hashable) -> dict[str, inspect.Field]:
    described = _described(cls)
    return {field.encode_name: field for field in described.fields} if isinstance(described, inspect.StructType) else {}


def _holds_null(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.Metadata):
        return _holds_null(kind.type)
    if isinstance(kind, inspect.UnionType):
        return any(_holds_null(one) for one in kind.types)
    return isinstance(kind, (inspect.NoneType, inspect.AnyType))


def is_duration(kind: inspect.Type) -> bool:
    """Return whether a type is seconds here and a Go duration on the wire."""
    if isinstance(kind, inspect.UnionType):
        return any(is_duration(one) for one in kind.types)
    return isinstance(kind, inspect.Metadata) and (kind.extra or {}).get("wire") == "duration"


def _zero(kind: inspect.Type) -> Any:
    match kind:
        case inspect.Metadata(type=inner):
            return _zero(inner)
        case inspect.StructType() | inspect.DictType():
            return {}
        case inspect.ListType() | inspect.VarTupleType():
            return []
        case inspect.BoolType():
            return False
        case inspect.IntType() | inspect.FloatType():
            return 0
        case _:
            return "" if isinstance(kind, (inspect.StrType, inspect.BytesType)) else None


def _found(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _shown(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str)) else "…"
