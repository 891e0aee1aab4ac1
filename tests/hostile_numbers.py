"""Objects with a hostile number in one numeric field: the field of every kind, and numbers that JSON or Go cannot hold."""

from __future__ import annotations

import copy
import json

from msgspec import inspect

from moorage.basis.inputs.simulated_kinds import KINDS

#: Name → the token as it stands in the JSON text.
NUMBERS = {
    "max": str(2**63 - 1),
    "beyond": str(2**63),
    "wide": "1" + "0" * 30,
    "minus": "-1",
    "infinite": "1e400",
    "nan": "NaN",
}
_MARK = "@number@"
_TEMPLATE = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
}
_SELECTED = {"selector": {"matchLabels": {"app": "web"}}, "template": _TEMPLATE}
_CLAIM = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
_SIZES = {"cpu": "4", "memory": "8Gi", "pods": "110"}
_DEVICES = [{"name": "d0", "attributes": {"k": {"int": 1}}, "capacity": {"m": {"value": "1Gi"}}}]
#: Kind → what an object of it has beside its name.
BASES = {
    "Node": {"status": {"allocatable": _SIZES, "capacity": _SIZES, "images": [{"names": ["i"], "sizeBytes": 5}]}},
    "Pod": {
        "spec": {
            "containers": [{**_TEMPLATE["spec"]["containers"][0], "ports": [{"containerPort": 80}]}],
            "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute"}],
        }
    },
    "Deployment": {"spec": _SELECTED},
    "ReplicaSet": {"spec": _SELECTED},
    "StatefulSet": {"spec": {**_SELECTED, "serviceName": "web"}},
    "DaemonSet": {"spec": _SELECTED},
    "ReplicationController": {"spec": {"selector": {"app": "web"}, "template": _TEMPLATE}},
    "Job": {"spec": {"template": {"spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}}}},
    "CronJob": {
        "spec": {
            "schedule": "* * * * *",
            "jobTemplate": {"spec": {"template": {"spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}}}},
        }
    },
    "DeviceClass": {"spec": {"config": [{"opaque": {"driver": "d.example.com", "parameters": {"n": 1}}}]}},
    "ResourceClaim": {
        "spec": {
            "devices": {
                **_CLAIM["devices"],
                "config": [{"opaque": {"driver": "d.example.com", "parameters": {"n": 1, "deep": [{"n": 2}]}}}],
            }
        }
    },
    "ResourceClaimTemplate": {"spec": {"spec": _CLAIM}},
    "ResourceSlice": {
        "spec": {
            "driver": "d.example.com", "nodeName": "n1", "devices": _DEVICES,
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        }
    },
    "PersistentVolume": {
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": {"driver": "d", "volumeHandle": "h"}}
    },
    "PersistentVolumeClaim": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
    "PodDisruptionBudget": {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}},
    "PriorityClass": {"value": 5},
    "LimitRange": {"spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}},
    "ResourceQuota": {"spec": {"hard": {"pods": "100"}}},
    "RuntimeClass": {"handler": "h", "overhead": {"podFixed": {"cpu": "1m"}}},
    "PodGroup": {"spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}},
    "CSINode": {"spec": {"drivers": [{"name": "d", "nodeID": "x", "allocatable": {"count": 3}}]}},
    "CSIStorageCapacity": {"storageClassName": "s", "capacity": "1Gi"},
    "CSIDriver": {"spec": {}},
    "StorageClass": {"provisioner": "p"},
    "VolumeAttachment": {"spec": {"attacher": "d", "nodeName": "n1", "source": {"persistentVolumeName": "v"}}},
}  # fmt: skip
_BY_NAME = {kind.name: kind for kind in KINDS}
#: Fields that the structs do not have, as scheduling does not read them.
_MORE = {
    "Pod": [("spec", "securityContext", "runAsUser"), ("spec", "containers", 0, "livenessProbe", "periodSeconds")],
    "DeviceClass": [("spec", "config", 0, "opaque", "parameters", "n")],
    "ResourceClaim": [
        ("spec", "devices", "config", 0, "opaque", "parameters", "n"),
        ("spec", "devices", "config", 0, "opaque", "parameters", "deep", 0, "n"),
    ],
}  # fmt: skip


def fields(kind):
    """Return the numeric fields of a kind, as paths; 0 is an item of a list, "k" a key of a map."""
    found = dict.fromkeys([*_walk(inspect.type_info(_BY_NAME[kind].type), (), ()), *_MORE.get(kind, ())])
    return [path for path in found if path[-1] != "opaque"]


def _walk(kind, path, seen):
    match kind:
        case inspect.Metadata(type=inner):
            yield from _walk(inner, path, seen)
        case inspect.IntType() | inspect.FloatType() | inspect.AnyType():
            yield path
        case inspect.UnionType(types=types):
            for one in types:
                yield from _walk(one, path, seen)
        case inspect.StructType(cls=cls) if cls not in seen:
            for field in kind.fields:
                yield from _walk(field.type, (*path, field.encode_name), (*seen, cls))
        case inspect.ListType(item_type=inner) | inspect.VarTupleType(item_type=inner):
            yield from _walk(inner, (*path, 0), seen)
        case inspect.DictType(value_type=inner):
            yield from _walk(inner, (*path, "k"), seen)


def document(kind, path, number):
    """Return an object of a kind as JSON text, with a number in one of its fields."""
    known = _BY_NAME[kind]
    made = {
        "apiVersion": known.api_version,
        "kind": kind,
        "metadata": {"name": "hostile"},
        **copy.deepcopy(BASES.get(kind, {})),
    }
    if known.namespaced:
        made["metadata"]["namespace"] = "default"
    at = made
    for step, after in zip(path, [*path[1:], None], strict=True):
        key = _key(at, step)
        if after is None:
            at[key] = _MARK
        else:
            held = at[key] if isinstance(at, list) and key < len(at) else at.get(key) if isinstance(at, dict) else None
            if not isinstance(held, list if after == 0 else dict):
                held = [] if after == 0 else {}
                if isinstance(at, list):
                    at[key:] = [held]
                else:
                    at[key] = held
            at = held
    return json.dumps(made).replace(f'"{_MARK}"', NUMBERS[number])


def _key(at, step):
    """Return where a step leads; a step into an empty list appends to it."""
    if step == 0 and isinstance(at, list) and not at:
        at.append(None)
    if step == "k" and isinstance(at, dict):
        return next(iter(at), "cpu")
    return step


def every():
    """Yield every kind, field and number."""
    for kind in _BY_NAME:
        for path in fields(kind):
            for number in NUMBERS:
                yield kind, path, number
