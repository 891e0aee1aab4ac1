"""Strategic merge patch: a merge patch that knows which of Kubernetes' lists are sets of named things.

Such a list is merged item by item, by its merge key; any other is replaced. Directives in the patch say what a tree alone
cannot: ``$patch: delete`` and ``replace``, ``$deleteFromPrimitiveList/…``, ``$setElementOrder/…`` and ``$retainKeys``.

The merge keys are those of the served kinds, by the name of the list and, where names collide, by what it stands in.

Source  apimachinery, pkg/util/strategicpatch/patch.go; api, the ``patchMergeKey`` tags of types.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moorage.apiserver.kinds import Kind
from moorage.apiserver.statuses import bad_request

__all__ = ["strategic_merge"]

_KEYS: Final[Mapping[str, str]] = {
    "conditions": "type",
    "containers": "name",
    "drivers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "hostIPs": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "ports": "containerPort",
    "reservedFor": "uid",
    "resourceClaimStatuses": "name",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "secrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
#: Lists whose merge key depends on the kind they are in.
_KEYS_OF_KIND: Final[Mapping[str, Mapping[str, str]]] = {
    "Node": {"addresses": "type", "taints": "key"},
    "Service": {"ports": "port"},
}
#: Lists of plain values that are sets.
_SETS: Final = frozenset(["finalizers", "podCIDRs"])

_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"


def strategic_merge(kind: Kind, document: Any, patch: Any) -> Any:
    """Return a document with a strategic merge patch applied.

    Raises  ApiError 400 for a patch that contradicts itself or the shape of what it patches
    """
    if not isinstance(patch, dict):
        raise bad_request("the patch must be an object")
    keys = {**_KEYS, **_KEYS_OF_KIND.get(kind.kind, {})}
    return _merge_map(document, patch, keys)


def _merge_map(here: Any, patch: dict[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    directive = patch.get("$patch", "merge")
    if directive == "delete":
        return {}
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive != "merge":
        raise bad_request(f"unknown patch type found: {directive}")
    merged = dict(here) if isinstance(here, dict) else {}
    if isinstance(retained := patch.get("$retainKeys"), list):
        merged = {key: value for key, value in merged.items() if key in retained}
    for key, value in patch.items():
        if key.startswith(_DELETE_FROM):
            name = key.removeprefix(_DELETE_FROM)
            merged[name] = [one for one in merged.get(name) or [] if one not in _list(value, key)]
        elif key.startswith("$"):
            continue
        elif value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge_value(key, merged.get(key), value, keys)
    _set_orders(merged, here if isinstance(here, dict) else {}, patch, keys)
    return merged


def _list(value: Any, key: str) -> list[Any]:
    if not isinstance(value, list):
        raise bad_request(f"{key} must be a list")
    return value


def _merge_value(key: str, here: Any, value: Any, keys: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return _merge_map(here, value, keys)
    if not isinstance(value, list):
        return value
    held = here if isinstance(here, list) else []
    if key in _SETS and all(isinstance(one, str) for one in value):
        return held + [one for one in value if one not in held]
    if key in keys and (not value or isinstance(value[0], dict)):
        return _merge_list(held, value, keys[key], keys)
    return value


def _merge_list(here: list[Any], patch: list[Any], by: str, keys: Mapping[str, str]) -> list[Any]:
    """Merge a list of named things, whatever their order."""
    if any(isinstance(one, dict) and one.get("$patch") == "replace" and by not in one for one in patch):
        return [one for one in patch if not (isinstance(one, dict) and "$patch" in one)]
    merged = list(here)
    for item in patch:
        if not isinstance(item, dict) or by not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {by}")
        at = next((i for i, one in enumerate(merged) if isinstance(one, dict) and one.get(by) == item[by]), None)
        if item.get("$patch") == "delete":
            merged = [one for one in merged if not (isinstance(one, dict) and one.get(by) == item[by])]
        elif at is None:
            merged.append(_merge_map({}, item, keys))
        else:
            merged[at] = _merge_map(merged[at], item, keys)
    return merged


def _set_orders(merged: dict[str, Any], before: dict[str, Any], patch: dict[str, Any], keys: Mapping[str, str]) -> None:
    """Put the items of merged lists into the order that the patch names them in, or has them in."""
    orders = {key: value for key, value in patch.items() if isinstance(value, list) and not key.startswith("$")}
    orders |= {key.removeprefix(_ORDER): _list(value, key) for key, value in patch.items() if key.startswith(_ORDER)}
    for name, order in orders.items():
        held = before.get(name)
        if isinstance(held, list) and isinstance(merged.get(name), list) and (name in keys or name in _SETS):
            merged[name] = _ordered(merged[name], order, held, keys.get(name))


def _ordered(items: list[Any], order: list[Any], before: list[Any], by: str | None) -> list[Any]:
    """Merge the items that the patch names with those only the server has; where both were there before, as they stood."""

    def name(item: Any) -> Any:
        return item.get(by) if by and isinstance(item, dict) else item

    wanted, stood = [name(one) for one in order], [name(one) for one in before]
    named = sorted((one for one in items if name(one) in wanted), key=lambda one: wanted.index(name(one)))
    others = [one for one in items if name(one) not in wanted]
    merged: list[Any] = []
    while named and others:
        left, right = name(others[0]), name(named[0])
        first = left in stood and right in stood and stood.index(left) < stood.index(right)
        merged.append((others if first else named).pop(0))
    return merged + named + others
