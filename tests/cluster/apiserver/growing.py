"""Objects of every served kind that grow in one place: a list or a map with so many items, and the requests that send them.

``fields`` finds the places by walking the schemas that the server itself has, so a field that is served tomorrow is found, too.
"""

import contextlib
import copy
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from moorage.api.documents.http_messages import HTTPRequest, User
from moorage.api.documents.records import Record
from moorage.api.documents.request_targets import Target
from moorage.api.documents.served_kinds import KINDS, Document, ServedKind
from moorage.api.documents.statuses import ApiError
from moorage.api.schema.field_types import ListOf, MapOf, Scalar, Struct, Type
from moorage.api.schema.schemas import kind_schema
from moorage.cluster.apiserver.http import write_requests
from moorage.rules.admission.strategy import set_defaults_and_decode
from moorage.rules.store.store import Store

ADMIN = User("admin", ("system:masters",))
_LABELS = {"matchLabels": {"app": "x"}}
_POD = {"containers": [{"name": "c", "image": "i"}]}
_TEMPLATE = {"metadata": {"labels": {"app": "x"}}, "spec": _POD}
_CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
_REQUESTS = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "d"}}]}}
_BARE_JOB = {"spec": {"template": {"spec": {**_POD, "restartPolicy": "Never"}}}}
_POOL = {"name": "p", "resourceSliceCount": 1, "generation": 1}
_ROLE = {"apiGroup": "rbac.authorization.k8s.io", "name": "r"}
#: What an object of a kind needs beside its name to be taken.
_CUSTOM: Document = {
    "group": "example.com", "scope": "Namespaced", "names": {"plural": "x", "kind": "X"},
    "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}],
}  # fmt: skip
SOUND: dict[str, Document] = {
    "CSIDriver": {"spec": {}},
    "CSINode": {"spec": {"drivers": []}},
    "CSIStorageCapacity": {"storageClassName": "s"},
    "ClusterRoleBinding": {"roleRef": {**_ROLE, "kind": "ClusterRole"}},
    "ControllerRevision": {"revision": 1},
    "CronJob": {"spec": {"schedule": "* * * * *", "jobTemplate": _BARE_JOB}},
    "CustomResourceDefinition": {"spec": _CUSTOM},
    "DaemonSet": {"spec": {"selector": _LABELS, "template": _TEMPLATE}},
    "Deployment": {"spec": {"selector": _LABELS, "template": _TEMPLATE}},
    "DeviceClass": {"spec": {}},
    "Event": {"involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}},
    "Ingress": {"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}},
    "Job": _BARE_JOB,
    "LimitRange": {"spec": {"limits": []}},
    "PersistentVolume": {"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "local": {"path": "/x"}}},
    "PersistentVolumeClaim": {"spec": _CLAIM},
    "Pod": {"spec": _POD},
    "PodDisruptionBudget": {"spec": {"selector": _LABELS}},
    "PodGroup": {"spec": {"schedulingPolicy": {"basic": {}}}},
    "PodTemplate": {"template": _TEMPLATE},
    "PriorityClass": {"value": 5},
    "ReplicaSet": {"spec": {"selector": _LABELS, "template": _TEMPLATE}},
    "ReplicationController": {"spec": {"selector": {"app": "x"}, "template": _TEMPLATE}},
    "ResourceClaim": {"spec": _REQUESTS},
    "ResourceClaimTemplate": {"spec": {"spec": _REQUESTS}},
    "ResourceSlice": {"spec": {"driver": "d", "allNodes": True, "pool": _POOL}},
    "RoleBinding": {"roleRef": {**_ROLE, "kind": "Role"}},
    "RuntimeClass": {"handler": "h"},
    "Service": {"spec": {"ports": [{"port": 80}]}},
    "StatefulSet": {"spec": {"selector": _LABELS, "template": _TEMPLATE, "serviceName": "x"}},
    "StorageClass": {"provisioner": "p"},
    "VolumeAttachment": {"spec": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "v"}}},
    "VolumeAttributesClass": {"driverName": "d", "parameters": {"a": "b"}},
    "Workload": {"spec": {"podGroupTemplates": [{"name": "t", "schedulingPolicy": {"basic": {}}}]}},
}  # fmt: skip
#: Valid values of enumerated fields, by name; other values contain a number.
_CHOICES = {
    "accessModes": "ReadWriteOnce", "effect": "NoSchedule", "operator": "Exists", "operation": "Update",
    "fieldsType": "FieldsV1", "protocol": "TCP", "status": "True", "whenUnsatisfiable": "ScheduleAnyway", "image": "i",
    "pathType": "Exact", "path": "/p", "restartPolicy": "Always", "manager": "m", "apiVersion": "v1", "ipFamilies": "IPv4",
}  # fmt: skip
_SCALARS: dict[str, Callable[[int], Any]] = {
    "s": lambda i: f"n{i}", "i": lambda i: 1 + i % 60_000, "b": lambda i: True, "f": lambda i: 0.5, "y": lambda i: "eA==",
    "T": lambda i: "2026-01-01T00:00:00Z", "U": lambda i: "2026-01-01T00:00:00.500000Z", "Q": lambda i: "1", "O": lambda i: 1,
    "D": lambda i: "5s", "R": lambda i: {"a": i}, "F": lambda i: {f"f:x{i}": {}}, "X": lambda i: [f"n{i}"],
    "P": lambda i: {"type": "string"},
}  # fmt: skip
_NAMES = frozenset(["containerPort", "exitCodes", "ip", "key", "mountPath", "name", "operator", "type", "weight"])


class Place(NamedTuple):
    """A field of a kind, by its path; ``owner`` is the struct that declares it."""

    kind: ServedKind
    path: tuple[str, ...]
    owner: str
    type: Type

    def __str__(self) -> str:
        return f"{self.kind.qualified}:{'.'.join(self.path)}"


def fields(kind: ServedKind) -> Iterator[Place]:
    """Yield every list and map field of a kind's objects, at any depth."""
    yield from _fields(kind, kind_schema(kind), (), ())


def texts(kind: ServedKind) -> Iterator[Place]:
    """Yield every field of a kind that is parsed from a string, at any depth."""
    yield from _fields(kind, kind_schema(kind), (), (), wanted=_is_text)


def _is_list(held: Type) -> bool:
    return isinstance(held, (ListOf, MapOf)) or (isinstance(held, Scalar) and held.letter in "RFX")


def _is_text(held: Type) -> bool:
    return isinstance(held, Scalar) and held.letter in "sQTUODy"


def _fields(
    kind: ServedKind, shape: Struct, path: tuple[str, ...], within: tuple[str, ...], wanted: Callable[[Type], bool] = _is_list
) -> Iterator[Place]:
    if shape.name in within:
        return
    within = (*within, shape.name)
    for field in shape.fields.values():
        if field.name in {"apiVersion", "kind"}:
            continue
        here, held = (*path, field.name), field.type
        if wanted(held):
            yield Place(kind, here, shape.name, held)
        inner = held.item if isinstance(held, (ListOf, MapOf)) else held
        if isinstance(inner, Struct):
            yield from _fields(kind, inner, here, within, wanted)


def sound(kind: ServedKind, name: str = "x") -> Document:
    """Return an object that the server accepts."""
    metadata = {"name": name, "namespace": "default"} if kind.namespaced else {"name": name}
    return {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata, **copy.deepcopy(SOUND.get(kind.kind, {}))}


def sample(shape: Type, name: str, number: int) -> Any:
    """Return a minimal value of a type, different for each number."""
    if isinstance(shape, Scalar):
        if name in _CHOICES and shape.letter == "s":
            return _CHOICES[name]
        if name == "weight":
            return 1 + number % 100
        if name == "ip" and shape.letter == "s":
            return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        return _SCALARS[shape.letter](number)
    if isinstance(shape, ListOf):
        return []
    if isinstance(shape, MapOf):
        return {}
    return {
        field.name: sample(field.type, field.name, number)
        for field in shape.fields.values()
        if field.is_required or (field.name in _NAMES and isinstance(field.type, Scalar))
    }


def items(place: Place, count: int, first: int = 0) -> Any:
    """Return a value with the given number of items, all different as far as their type allows."""
    held, name, numbers = place.type, place.path[-1], range(first, first + count)
    if isinstance(held, Scalar):
        if held.letter == "X":
            return [f"n{i}" for i in numbers]
        return {f"f:x{i}": {} for i in numbers} if held.letter == "F" else {f"x{i}": i for i in numbers}
    if isinstance(held, ListOf):
        return [_keyed(held, sample(held.item, name, i), i) for i in numbers]
    assert isinstance(held, MapOf)
    return {f"k{i}": sample(held.item, name, i) for i in numbers}


def _keyed(held: ListOf, item: Any, number: int) -> Any:
    """Return an item with unique keys."""
    if isinstance(held.item, Struct):
        for key in held.keys:
            if key not in {"protocol", "whenUnsatisfiable"}:
                item[key] = sample(held.item.fields[key].type, key if key == "ip" else "", number)
    return item


def grown(place: Place, count: int, name: str = "x", first: int = 0) -> Document:
    """Return an object with the given number of items at a place, and otherwise only required fields."""
    document = sound(place.kind, name)
    put(place, document, items(place, count, first))
    return document


def put(place: Place, document: Document, value: Any, shape: Type | None = None) -> None:
    """Set a value at a place, creating the structs and lists above it."""
    here: Any = document
    shape = shape or kind_schema(place.kind)
    for step in place.path[:-1]:
        assert isinstance(shape, Struct)
        shape = shape.fields[step].type
        if here.get(step) in (None, [], {}):
            here[step] = sample(shape, step, 0)
        here = here[step]
        if isinstance(shape, (ListOf, MapOf)):
            shape, is_map = shape.item, isinstance(shape, MapOf)
            if not here:
                made = sample(shape, step, 0)
                here.update(k=made) if is_map else here.append(made)
            here = here["k" if is_map and "k" in here else next(iter(here))] if is_map else here[0]
    here[place.path[-1]] = value


def pointer(place: Place) -> str:
    """Return the JSON pointer of a place in what ``put`` creates."""
    shape: Type = kind_schema(place.kind)
    steps: list[str] = []
    for step in place.path[:-1]:
        assert isinstance(shape, Struct)
        shape = shape.fields[step].type
        steps.append(step)
        if isinstance(shape, (ListOf, MapOf)):
            steps.append("0" if isinstance(shape, ListOf) else "k")
            shape = shape.item
    steps.append(place.path[-1])
    return "".join(f"/{step}" for step in steps)


# -- requests -----------------------------------------------------------------------------------------------------------

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
OPERATIONS = "application/json-patch+json"


class Asked(NamedTuple):
    """A request: method, object and body."""

    method: str
    name: str
    body: bytes
    form: str = JSON


class Bench:
    """A store with an object of each size for each place, and requests about them that change nothing."""

    def __init__(self) -> None:
        self.store = Store(lambda: 1_790_000_000.0, random.Random(3), b"k")

    def hold(self, kind: ServedKind, document: Document) -> None:
        """Store an object with its defaults without validation."""
        document["metadata"] |= {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
        with contextlib.suppress(ApiError):
            set_defaults_and_decode(kind, document)
        record = Record.of(kind, document, self.store.version + 1)
        held = self.store.find(kind, record.namespace, record.name)
        self.store._commit(kind, held, record)

    def ask(self, place: Place, asked: Asked) -> Any:
        """Handle a request up to the storage step; return its result."""
        kind = place.kind
        part = "status" if place.path[0] == "status" and kind.has_status and asked.method != "POST" else ""
        target = Target(kind, "default" if kind.namespaced else "", asked.name, part)
        query = {"dryRun": "All", "fieldManager": "me", "fieldValidation": "Strict"}
        if asked.form == APPLY:
            query["force"] = "true"
        request = HTTPRequest(asked.method, "/", query, "", asked.form, asked.body, ADMIN, "tests/1")
        carry_out = {"POST": write_requests.create, "PUT": write_requests.replace, "PATCH": write_requests.patch}[asked.method]
        try:
            return carry_out(self.store, request, target, None)
        except ApiError as refused:
            return refused


def requests(bench: Bench, place: Place, count: int) -> dict[str, Asked]:
    """Return the ways to send the given number of items, by name, and store the objects that they change."""
    kind, encode = place.kind, msgspec.json.encode
    base, full = sound(kind, "x"), grown(place, count, "full")
    put(place, base, items(place, 0))
    bench.hold(kind, copy.deepcopy(base))
    bench.hold(kind, copy.deepcopy(full))
    bare = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "x"}}

    def patch(name: str, first: int) -> bytes:
        made = {**bare, "metadata": {"name": name}}
        put(place, made, items(place, count, first))
        return encode(made)

    at = pointer(place)
    held = items(place, count)
    pairs = (
        [(f"{at}/{key}", value) for key, value in held.items()]
        if isinstance(held, dict)
        else [(f"{at}/-", one) for one in held]
    )
    operations = encode([{"op": "add", "path": path, "value": value} for path, value in pairs])
    changed = grown(place, count, "full", count // 2)
    return {
        "POST": Asked("POST", "", encode(grown(place, count, "new"))),
        "PUT": Asked("PUT", "full", encode(changed)),
        "JSON patch": Asked("PATCH", "x", operations, OPERATIONS),
        "merge patch": Asked("PATCH", "x", patch("x", 0), MERGE),
        "strategic merge patch": Asked("PATCH", "full", patch("full", count // 2), STRATEGIC),
        "apply": Asked("PATCH", "full", patch("full", count // 2), APPLY),
    }  # fmt: skip


def all_places() -> list[Place]:
    """Return the places of all kinds whose objects can be created."""
    return [place for kind in KINDS if "create" in kind.verbs for place in fields(kind)]
