"""Defaults and checks of fields that ``field_rules.json`` declares, for kinds that scheduling does not read.

The file has, by message and field:

    default     the value of an absent field, or of an empty one with ``empty``
    required    the field must not be absent or empty; the text of the fault
    enum        the supported values
    min, max    bounds of a number; ``why`` is the text of the fault, if it is not that of the bound
    format      label, subdomain, path (a segment), qualified (a name), cidr, url or quantity
    oneOf       of the message (field ""): fields of which exactly one is set, with the texts for none and for more

What crosses fields is checked by functions (``network_validation``).

Source  kubernetes, pkg/apis/{admissionregistration,autoscaling,certificates,discovery,flowcontrol,networking}: v1/defaults.go
        and validation/validation.go
"""

from __future__ import annotations

import copy
import ipaddress
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

from moorage.api.names import check_dns1123_label, check_dns1123_subdomain, check_qualified_name
from moorage.api.quantity import QuantityError, parse
from moorage.api.validation.faults import Faults, forbidden, invalid, named, required, unsupported
from moorage.api.validation.rbac import check_path_segment
from moorage.cluster.apiserver.schema.schemas import ListOf, MapOf, Struct, Type, kind_schema
from moorage.cluster.apiserver.vocabulary.records import Document
from moorage.cluster.apiserver.vocabulary.served_kinds import ServedKind

__all__ = ["declared_faults", "set_declared_defaults"]

_Rule = Mapping[str, Any]


@cache
def _rules() -> Mapping[str, Mapping[str, _Rule]]:
    text = resources.files("moorage.cluster.apiserver.admission").joinpath("field_rules.json").read_text(encoding="utf-8")
    found: Mapping[str, Mapping[str, _Rule]] = json.loads(text)
    return found


def _check_cidr(text: str) -> list[str]:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]
    return []


def _check_url(text: str) -> list[str]:
    return [] if text.startswith("https://") else ["'https' is the only allowed URL scheme"]


def _check_quantity(text: str) -> list[str]:
    try:
        return [] if parse(text) > 0 else ["must be positive"]
    except QuantityError as error:
        return [str(error)]


_FORMATS: Final[Mapping[str, Callable[[str], list[str]]]] = {
    "cidr": _check_cidr, "label": check_dns1123_label, "path": check_path_segment, "qualified": check_qualified_name,
    "quantity": _check_quantity, "subdomain": check_dns1123_subdomain, "url": _check_url,
}  # fmt: skip


def set_declared_defaults(kind: ServedKind, document: Document) -> None:
    """Set declared defaults in place."""
    for _, struct, value in _parts(_shape(kind), document, ""):
        for name, rule in _rules()[struct].items():
            if "default" in rule and (value.get(name) is None or (rule.get("empty") and not value[name])):
                value[name] = copy.deepcopy(rule["default"])


def declared_faults(kind: ServedKind, document: Document) -> Faults:
    """Yield the faults of a defaulted object that are declared."""
    for path, struct, value in _parts(_shape(kind), document, ""):
        for name, rule in _rules()[struct].items():
            if name:
                yield from _faults(rule, value.get(name), f"{path}.{name}".lstrip("."))
            else:
                yield from _choice_faults(rule, value, path)


def _faults(rule: _Rule, value: Any, path: str) -> Faults:
    if value is None or value in ("", 0, [], {}):
        if "required" in rule:
            yield required(path, rule["required"])
            return
        if not isinstance(value, int):
            return
    if "enum" in rule:
        for i, one in enumerate(value) if isinstance(value, list) else [(-1, value)]:
            if one not in rule["enum"]:
                yield unsupported(path if i < 0 else f"{path}[{i}]", one, rule["enum"])
    if "min" in rule and isinstance(value, int) and value < rule["min"]:
        yield invalid(path, value, rule.get("why") or f"must be greater than or equal to {rule['min']}")
    elif "max" in rule and isinstance(value, int) and value > rule["max"]:
        yield invalid(path, value, rule.get("why") or f"must be less than or equal to {rule['max']}")
    if "format" in rule:
        for i, one in enumerate(value) if isinstance(value, list) else [(-1, value)]:
            yield from named(path if i < 0 else f"{path}[{i}]", str(one), _FORMATS[rule["format"]])


def _choice_faults(rule: _Rule, value: Document, path: str) -> Faults:
    given = [name for name in rule["oneOf"] if value.get(name) is not None]
    if not given:
        yield required(path, rule["none"])
    for name in given[1:]:
        yield forbidden(f"{path}.{name}", rule["more"])


# -- messages with rules ------------------------------------------------------------------------------------------------


@cache
def _shape(kind: ServedKind) -> Type:
    return kind_schema(kind)


@cache
def _reaches(name: str) -> bool:
    """Return whether a message, or one that it holds, has rules. No message with rules holds itself."""
    return name in _rules() or any(_reaches(inner.name) for inner in _structs(name))


_SHAPES: Final[dict[str, Struct]] = {}


def _structs(name: str) -> list[Struct]:
    found = []
    for field in _SHAPES[name].fields.values():
        shape = field.type.item if isinstance(field.type, ListOf | MapOf) else field.type
        if isinstance(shape, Struct) and shape.name.partition(".")[0] not in {"core", "meta", "apiextensions"}:
            _SHAPES.setdefault(shape.name, shape)
            found.append(shape)
    return found


def _parts(shape: Type, value: Any, path: str) -> Iterator[tuple[str, str, Document]]:
    """Yield the path, the message and the value of each part whose message has rules."""
    if isinstance(shape, ListOf) and isinstance(value, list):
        for i, one in enumerate(value):
            yield from _parts(shape.item, one, f"{path}[{i}]")
    elif isinstance(shape, Struct) and isinstance(value, dict):
        _SHAPES.setdefault(shape.name, shape)
        if not _reaches(shape.name):
            return
        if shape.name in _rules():
            yield path, shape.name, value
        for name, field in shape.fields.items():
            if name in {"metadata", "status"}:
                continue
            inner = value.get(name)
            if inner is None and isinstance(field.type, Struct) and not field.is_pointer:
                inner = {}  # what Go makes of an absent struct
            yield from _parts(field.type, inner, f"{path}.{name}".lstrip("."))
