"""Which fields of an object a change of the cluster sets, and which of them keeps its pods pending."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from moorage.api.core import Object

#: Names of fields and numbers of items, from an object to a value in it.
FieldPath: TypeAlias = tuple[str | int, ...]

#: Plugin → the fields of a pod, or of its workload, that it reads.
_READ: Final[Mapping[str, Sequence[str]]] = {
    "NodeResourcesFit": ("resources", "replicas", "overhead", "containers", "initContainers"),
    "NodeAffinity": ("nodeSelector", "nodeAffinity"),
    "NodeName": ("nodeName",),
    "NodePorts": ("ports", "hostNetwork"),
    "TaintToleration": ("tolerations",),
    "NodeUnschedulable": ("tolerations",),
    "PodTopologySpread": ("topologySpreadConstraints", "replicas"),
    "InterPodAffinity": ("podAffinity", "podAntiAffinity", "replicas"),
    "SchedulingGates": ("schedulingGates",),
    "DynamicResources": ("resourceClaims", "claims"),
    "VolumeBinding": ("volumes", "volumeClaimTemplates"),
    "VolumeZone": ("volumes", "volumeClaimTemplates"),
    "VolumeRestrictions": ("volumes",),
    "NodeVolumeLimits": ("volumes", "volumeClaimTemplates"),
}
#: What an object says of itself, on which no placement depends.
_ASIDE: Final = ("metadata", "status")


def changed_fields(before: Object | None, after: Object) -> list[FieldPath]:
    """Return the fields that differ, and those that are gone; of a new object, all fields that it has."""
    old = {} if before is None else msgspec.to_builtins(before)
    return list(_differences(old, msgspec.to_builtins(after), ()))


def _differences(old: Any, new: Any, path: FieldPath) -> Iterator[FieldPath]:
    """Yield the paths to the values that differ: the deepest that both sides have, and what only one side has as a whole."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys((*new, *old)):
            if name in new and name in old:
                yield from _differences(old[name], new[name], (*path, name))
            else:
                yield from _leaves(new.get(name), (*path, name))
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        for at, (left, right) in enumerate(zip(old, new, strict=True)):
            yield from _differences(left, right, (*path, at))
    elif old != new:
        yield path


def _leaves(value: Any, path: FieldPath) -> Iterator[FieldPath]:
    """Yield the paths to the values in what only one side has; a list, and a value alone, is one."""
    if isinstance(value, dict) and value:
        for name, held in value.items():
            yield from _leaves(held, (*path, name))
    elif isinstance(value, list | tuple) and value and isinstance(value[0], dict):
        for at, held in enumerate(value):
            yield from _leaves(held, (*path, at))
    else:
        yield path


def field_at_fault(changed: Sequence[FieldPath], plugins: Sequence[str]) -> FieldPath:
    """Return the changed field that these plugins read, up to its name; else the first one that is no metadata; else ()."""
    for plugin in plugins:
        for name in _READ.get(plugin, ()):
            for path in changed:
                if name in path and path[0] not in _ASIDE:
                    return path if name in {"resources", "containers"} else path[: path.index(name) + 1]
    return next((path for path in changed if path[0] not in _ASIDE and len(path) > 1), ())
