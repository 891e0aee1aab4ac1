"""Leave out of objects what scheduling does not read, by one list of fields for dumps, logs and redacted files.

``kept_fields.toml`` lists the fields whose texts stay. The list is compiled into a function for each type of struct, which
looks only at fields that may hold something else, so that most objects are returned as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import blake2b
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import inspect
from msgspec.structs import fields, replace

from moorage.basis import table_of

_TABLE: Final[Mapping[str, Any]] = table_of("moorage.basis.inputs", "kept_fields.toml")
_KEPT: Final = frozenset(_TABLE["kept"])
_DIGESTED: Final = frozenset(_TABLE["digested"])
_SOURCES: Final[Mapping[str, Mapping[str, list[str]]]] = _TABLE["sources"]
_CONTAINER, _METADATA, _CLAIM = (frozenset(_TABLE["templates"][one]) for one in ("container", "metadata", "claim"))
#: Parts of handles that every cluster of a provider has.
_COMMON: Final = frozenset(
    {
        "",
        "projects",
        "zones",
        "regions",
        "disks",
        "UNSPECIFIED",
        "subscriptions",
        "resourceGroups",
        "providers",
        "Microsoft.Compute",
    }
)
_SCHEME: Final = re.compile(r"[a-z]{2,12}:")
_EBS: Final = re.compile(r"vol-[0-9a-z]+")
_EMPTY: Final = msgspec.Raw(b"{}")

#: Returns what is kept of a value.
Keep: TypeAlias = Callable[[Any], Any]


def digest(value: str) -> str:
    """Return a text with a digest in the place of each part between slashes; parts that providers share stay."""
    return "/".join(one if one in _COMMON or _SCHEME.fullmatch(one) else _part(one) for one in value.split("/"))


def _part(value: str) -> str:
    made = blake2b(value.encode("utf-8", "surrogatepass"), digest_size=9).hexdigest()
    return f"vol-{made[:17]}" if _EBS.fullmatch(value) else f"d{made[:16]}"


def kept(obj: Any) -> Any:
    """Return an object with the fields that are kept."""
    own: Any = type(obj)
    keep = _of_struct(own)
    return obj if keep is None else keep(obj)


@cache
def _of_struct(kind: type[Any]) -> Keep | None:
    """Return what keeps the listed fields of a struct; None if it has no others."""
    found: dict[str, Keep] = {}
    for one in fields(kind):
        if not one.required and (keep := _of_field(one, kind)) is not None:
            found[one.name] = keep
    if not found:
        return None

    def keep_struct(value: Any) -> Any:
        changes = {}
        for name, keep in found.items():
            held = getattr(value, name)
            if held and (left := keep(held)) is not held:
                changes[name] = left
        return replace(value, **changes) if changes else value

    return keep_struct


def _of_field(one: msgspec.structs.FieldInfo, kind: type[Any]) -> Keep | None:
    name = one.encode_name
    if name in _SOURCES and _holds_plain(one.type):
        return lambda held: _source(name, held)
    if name in {"volumeClaimTemplate", "volumeClaimTemplates"}:
        return lambda held: tuple(map(claim_template, held)) if isinstance(held, list | tuple) else claim_template(held)
    if name in _DIGESTED:
        return _digested
    if name == "opaque":
        return _opaque
    inner = _of_type(inspect.type_info(one.type))
    if inner is None or (name in _KEPT and inner is _left_out):
        return None
    if inner is _left_out:
        default = one.default if one.default is not msgspec.NODEFAULT else one.default_factory()
        return lambda held: default if isinstance(default, str | tuple | dict | None) else _EMPTY
    return inner


def _holds_plain(kind: Any) -> bool:
    return "dict[str, typing.Any]" in str(kind) or str(kind).startswith("dict")


def _left_out(held: Any) -> Any:
    raise AssertionError(held)


def _of_type(info: inspect.Type) -> Keep | None:
    """Return what keeps the listed fields of a value; ``_left_out`` if it is a text, or may hold any."""
    match info:
        case inspect.StructType():
            return _of_struct(info.cls)
        case inspect.UnionType():
            return next((keep for one in info.types if (keep := _of_type(one)) is not None), None)
        case inspect.VarTupleType() | inspect.ListType():
            return _of_items(_of_type(info.item_type))
        case inspect.DictType():
            values = _of_type(info.value_type)
            return _left_out if values is None or values is _left_out else _of_values(values)
        case inspect.IntType() | inspect.FloatType() | inspect.BoolType() | inspect.NoneType():
            return None
        case inspect.DateTimeType() | inspect.EnumType() | inspect.LiteralType():
            return None
    return _left_out


def _of_items(keep: Keep | None) -> Keep | None:
    if keep is None or keep is _left_out:
        return keep

    def keep_items(held: Any) -> Any:
        left = tuple(map(keep, held))
        return held if all(one is other for one, other in zip(left, held, strict=True)) else left

    return keep_items


def _of_values(keep: Keep) -> Keep:
    return lambda held: {name: keep(one) for name, one in held.items()}


def _opaque(held: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a driver without its parameters, which are an object for it to read."""
    return {"driver": held.get("driver", ""), "parameters": {}}


# -- plain data --------------------------------------------------------------------------------------------------------


def _digested(held: Any) -> Any:
    if isinstance(held, list | tuple):
        return [digest(str(one)) for one in held]
    return digest(str(held))


def _source(name: str, held: Any) -> Any:
    """Return what is kept of a source of a volume, as plain data or as a struct."""
    if not isinstance(held, Mapping):
        return kept(held)
    rules = _SOURCES[name]
    made: dict[str, Any] = {}
    for field, value in held.items():
        if isinstance(value, bool | int) or field in rules.get("kept", ()) or field == "sizeLimit":
            made[field] = value
        elif field in rules.get("digested", ()):
            made[field] = _digested(value)
        elif field in rules.get("required", ()):
            made[field] = "/left-out" if field == "path" else "left-out"
    return made


def claim_template(template: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of the template of a claim, as plain data."""
    made = {name: template[name] for name in ("apiVersion", "kind") if name in template}
    if template.get("metadata"):
        made["metadata"] = template_metadata(template["metadata"])
    if template.get("spec"):
        made["spec"] = {name: held for name, held in template["spec"].items() if name in _CLAIM}
    return made


def template_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of metadata, as plain data."""
    return {name: held for name, held in metadata.items() if name in _METADATA}


def kept_of_custom(value: Any, key: str = "") -> Any:
    """Return what is kept of an object of a custom kind, as plain data: all but what no dump has of pods and volumes."""
    if isinstance(value, dict):
        if key in _SOURCES:
            return _source(key, value)
        return {name: _of_custom(name, held) for name, held in value.items() if name != "managedFields"}
    if isinstance(value, list):
        if key in {"containers", "initContainers", "ephemeralContainers"}:
            return [_container(one) for one in value]
        return [kept_of_custom(one, "") for one in value]
    return value


def _of_custom(name: str, held: Any) -> Any:
    if name in _DIGESTED and isinstance(held, str):
        return digest(held)
    return kept_of_custom(held, name)


def _container(one: Any) -> Any:
    return {name: held for name, held in one.items() if name in _CONTAINER} if isinstance(one, dict) else one
