"""Prepare objects of custom kinds for create and update, and validate them.

Source  apiextensions-apiserver, pkg/registry/customresource: strategy.go, status_strategy.go, validator.go
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, Final

from moorage.api.documents.served_kinds import CustomVersion, Document, Schema, ServedKind
from moorage.api.meta import Object
from moorage.api.names import check_dns1035_label
from moorage.api.schema.custom_kinds import embedded_resources, field_schema, inner_schemas
from moorage.api.schema.field_types import ListOf, MapOf, Struct, Type
from moorage.api.schema.normalization import path_of
from moorage.api.schema.schemas import kind_schema
from moorage.api.validation.faults import Faults, duplicate, invalid, required
from moorage.api.validation.metadata import object_meta
from moorage.api.validation.rule_tables import field_of
from moorage.errors import Fault
from moorage.rules.admission.custom_resource_rules import custom_rule_faults
from moorage.rules.admission.pod_checks import RULES
from moorage.rules.admission.schema_validation import ABSENT, SchemaCheck, field_path

CustomFaults = Iterator[Fault]
_INT32_MAX: Final = 2**31 - 1
#: How many keys of items of a list are compared, over all its items.
MAX_KEYS: Final = 400_000


def prepare_custom(kind: ServedKind, document: Document) -> None:
    """Turn a document into a new object, in place. If the kind has a status subresource, drop the status."""
    if kind.has_status:
        document.pop("status", None)
    document["metadata"]["generation"] = 1


def keep_all_but_status(old: Document, new: Document) -> None:
    """Revert everything but the status in an update, in place."""
    status, metadata = new.get("status", ABSENT), {**old["metadata"]}
    for name in ("managedFields", "resourceVersion"):
        metadata.pop(name, None)
        if new["metadata"].get(name) is not None:
            metadata[name] = new["metadata"][name]
    new.clear()
    new.update(copy.deepcopy(old))
    new["metadata"] = metadata
    if status is ABSENT:
        new.pop("status", None)
    else:
        new["status"] = status


def is_custom_changed(old: Document, new: Document) -> bool:
    """Return True for a change that increments ``generation``: of anything but metadata."""
    return {**old, "metadata": None} != {**new, "metadata": None}


def custom_faults(
    kind: ServedKind, decoded: Object, old: Document | None, new: Document, *, subresource: str = ""
) -> CustomFaults:
    """Yield the faults of an object of a custom kind. ``decoded`` is its metadata, ``old`` the version that it replaces."""
    version = kind.custom
    assert version is not None
    yield from _checked_by_rules(version, old, new, _own_faults(kind, version, decoded, old, new, subresource))


def version_faults(version: CustomVersion, document: Document) -> CustomFaults:
    """Yield the faults of a new object, its metadata apart."""
    own = chain(SchemaCheck().faults(version.schema, document), _list_faults(version.schema, document, ""))
    yield from _checked_by_rules(version, None, document, own)


def _own_faults(
    kind: ServedKind, version: CustomVersion, decoded: Object, old: Document | None, new: Document, subresource: str
) -> CustomFaults:
    """Yield the faults of an object apart from those that rules find."""
    yield from object_meta(decoded.metadata, kind.namespaced, kind.check_name)
    if subresource == "status":
        below = version.schema.get("properties", {}).get("status")
        if below is not None and "status" in new:
            for fault in SchemaCheck().faults(below, new["status"], "", (old or {}).get("status", ABSENT)):
                yield Fault(fault.kind, field_path("status", fault.field), fault.detail, fault.value)
    else:
        yield from SchemaCheck().faults(version.schema, new, "", ABSENT if old is None else old)
        yield from _replica_faults(version, new)
        for place, resource in embedded_resources(version.schema, new):
            yield from _embedded_faults(resource, path_of(place))
    if old is None or next(_list_faults(version.schema, old, ""), None) is None:
        yield from _list_faults(version.schema, new, "")


def _checked_by_rules(version: CustomVersion, old: Document | None, new: Document, faults: CustomFaults) -> CustomFaults:
    """Yield ``faults`` and, unless one of them prevents checking rules, the faults that the kind's rules find."""
    is_blocked = False
    for fault in faults:
        is_blocked = is_blocked or fault.kind in _BLOCKING or " in body must be of type " in fault.detail
        yield fault
    if not _has_rules(version.schema):
        return
    if is_blocked:
        why = "some validation rules were not checked because the object was invalid; "
        yield invalid("<nil>", None, why + "correct the existing errors to complete validation")
    else:
        yield from custom_rule_faults(version, ABSENT if old is None else old, new)


#: Kinds of faults after which rules are not checked.
_BLOCKING: Final = frozenset(["Required value", "Too long", "Too many", "Unsupported value"])


def _has_rules(schema: Schema) -> bool:
    return bool(schema.get("x-kubernetes-validations")) or any(map(_has_rules, inner_schemas(schema)))


# -- scale -------------------------------------------------------------------------------------------------------------


_GO_TYPES: Final = {bool: "bool", str: "string", float: "float64", list: "[]interface {}", dict: "map[string]interface {}"}


def _replica_faults(version: CustomVersion, document: Document) -> CustomFaults:
    """Yield the faults of the replica counts that the scale subresource shows."""
    if version.scale is None:
        return
    for path in (version.scale.wanted, version.scale.current):
        value = field_of(document, path.removeprefix("."))
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            found = _GO_TYPES.get(type(value), "int64")
            yield invalid(path, 0, f"{path} accessor error: {value} is of the type {found}, expected int64")
        elif value < 0:
            yield invalid(path, value, "should be a non-negative integer")
        elif value > _INT32_MAX:
            yield invalid(path, value, f"should be less than or equal to {_INT32_MAX}")


def _embedded_faults(resource: Document, path: str) -> CustomFaults:
    for name in ("apiVersion", "kind"):
        value = resource.get(name)
        if name not in resource:
            yield required(f"{path}.{name}")
        elif not value:
            yield invalid(f"{path}.{name}", value, "must not be empty")
        elif name == "apiVersion" and value.count("/") > 1:
            yield invalid(f"{path}.{name}", value, f"unexpected GroupVersion string: {value}")
        elif name == "kind" and (why := check_dns1035_label(value.lower())):
            mixed = "may have mixed case, but should otherwise match: "
            yield invalid(f"{path}.{name}", value, mixed + ",".join(why))


# -- lists -------------------------------------------------------------------------------------------------------------


def _list_faults(schema: Schema, value: Any, path: str) -> CustomFaults:
    """Yield a fault for each item that occurs twice in a set, and for each key that occurs twice in an associative list."""
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        for name, inner in value.items():
            below = field_schema(schema, name)
            if below is not None:
                yield from _list_faults(below, inner, field_path(path, name) if name in properties else f"{path}[{name}]")
    elif isinstance(value, list):
        match schema.get("x-kubernetes-list-type"):
            case "set":
                yield from (duplicate(f"{path}[{i}]", value[i]) for i in _repeated(value))
            case "map":
                yield from _key_faults(schema["x-kubernetes-list-map-keys"], value, path)
        if isinstance(items := schema.get("items"), Mapping):
            for i, inner in enumerate(value):
                yield from _list_faults(items, inner, f"{path}[{i}]")


def _key_faults(names: Sequence[str], value: list[Any], path: str) -> CustomFaults:
    wrong = next((i for i, one in enumerate(value) if one is not None and not isinstance(one, dict)), None)
    if wrong is not None:
        yield invalid(f"{path}[{wrong}]", value[wrong], "must be an object for an array of list-type map")
        return
    if len(names) * len(value) > MAX_KEYS:
        yield invalid(path, len(value), f"the list has too many items to compare by {len(names)} keys")
        return
    keys = [{name: one[name] for name in names if name in one} for one in ({} if one is None else one for one in value)]
    yield from (duplicate(f"{path}[{i}]", keys[i]) for i in _repeated(keys))


def _repeated(values: list[Any]) -> Iterator[int]:
    """Yield the index of the second occurrence of each value that occurs more than once."""
    counts: dict[str, int] = {}
    for i, value in enumerate(values):
        text = json.dumps(value, sort_keys=True)
        counts[text] = counts.get(text, 0) + 1
        if counts[text] == 2:
            yield i


# -- declared rules ----------------------------------------------------------------------------------------------------
# Checks of fields of kinds that scheduling does not read, by the messages that an object holds.
#
# The checks stand in the tables of rules under the names of messages. What crosses messages stands under the names of kinds.
#
# Source  kubernetes, pkg/apis/{admissionregistration,autoscaling,certificates,discovery,flowcontrol,networking}:
#         validation/validation.go


def declared_faults(kind: ServedKind, document: Document) -> Faults:
    """Yield the faults of a defaulted object that are declared."""
    for path, struct, value in _parts(kind_schema(kind), document, ""):
        yield from RULES.faults(struct, value, path)


# -- messages with rules ------------------------------------------------------------------------------------------------


@cache
def _reaches(name: str) -> bool:
    """Return whether a message, or one that it holds, has rules. No message with rules holds itself."""
    return RULES.has(name) or any(_reaches(inner.name) for inner in _structs(name))


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
        if RULES.has(shape.name):
            yield path, shape.name, value
        for name, field in shape.fields.items():
            if name in {"metadata", "status"}:
                continue
            inner = value.get(name)
            if inner is None and isinstance(field.type, Struct) and not field.is_pointer:
                inner = {}  # what Go makes of an absent struct
            yield from _parts(field.type, inner, f"{path}.{name}".lstrip("."))
