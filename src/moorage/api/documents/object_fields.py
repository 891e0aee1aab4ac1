"""Read fields of documents, for all controllers. No function here modifies a document.

Documents come from the store, which has validated and defaulted them.
"""

from __future__ import annotations

import datetime
import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid5

import msgspec

from moorage.api.core import ENDED_PHASES, LabelSelector
from moorage.api.decode import decode
from moorage.api.documents import records
from moorage.api.documents.served_kinds import Document, ServedKind, served
from moorage.api.selectors import NOTHING, Selector, SelectorError, compile_label_selector
from moorage.errors import InputError

_encode = msgspec.json.Encoder(order="deterministic").encode


def name_of(document: Document) -> str:
    """Return the name of an object."""
    name: str = document["metadata"]["name"]
    return name


def namespace_of(document: Document) -> str:
    """Return the namespace of an object; empty if its kind has none."""
    return document["metadata"].get("namespace") or ""


def key_of(document: Document) -> str:
    """Return the key of an object in the work queue: ``namespace/name``, or ``/name`` for cluster-scoped kinds."""
    return f"{namespace_of(document)}/{name_of(document)}"


def uid_of(document: Document) -> str:
    """Return the uid of an object."""
    return document["metadata"].get("uid") or ""


def labels_of(document: Document) -> dict[str, str]:
    """Return the labels of an object."""
    return document["metadata"].get("labels") or {}


def annotations_of(document: Document) -> dict[str, str]:
    """Return the annotations of an object."""
    return document["metadata"].get("annotations") or {}


def spec_of(document: Document) -> dict[str, Any]:
    """Return the spec of an object."""
    return document.get("spec") or {}


def status_of(document: Document) -> dict[str, Any]:
    """Return the status of an object."""
    return document.get("status") or {}


def is_ending(document: Document) -> bool:
    """Return True for an object that is being deleted."""
    return bool(document["metadata"].get("deletionTimestamp"))


def copied(document: Any) -> Document:
    """Return a deep copy of a document, or the document of an object."""
    copy: Document = msgspec.json.decode(msgspec.json.encode(document))
    return copy


def revised(document: Document, **metadata: Any) -> Document:
    """Return the document with changed metadata; it shares everything else."""
    return {**document, "metadata": {**document["metadata"], **metadata}}


# -- time ---------------------------------------------------------------------------------------------------------------


stamp: Final = records.timestamp


@lru_cache(maxsize=2048)  # each renewal of a lease has a new time
def _parsed(text: str) -> float:
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def seconds(text: Any) -> float:
    """Return a timestamp of an object in seconds since 1970; 0 if it is missing or invalid."""
    return _parsed(text) if isinstance(text, str) and text else 0.0


def age_order(document: Document) -> tuple[str, str]:
    """Return a sort key: the oldest first, then by name."""
    return document["metadata"].get("creationTimestamp") or "", name_of(document)


# -- owners and selectors -----------------------------------------------------------------------------------------------


def controller_of(document: Document) -> dict[str, Any] | None:
    """Return the owner reference of the controller that manages an object; None without one."""
    for owner in document["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            found: dict[str, Any] = owner
            return found
    return None


def reference_to(kind: ServedKind, owner: Document) -> dict[str, Any]:
    """Return the owner reference to a controller."""
    return {
        "apiVersion": kind.api_version, "kind": kind.kind, "name": name_of(owner), "uid": uid_of(owner),
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip


@lru_cache(maxsize=4096)
def _compiled(body: bytes) -> Selector:
    try:
        return compile_label_selector(decode(body, LabelSelector, ""))
    except (InputError, SelectorError):
        return NOTHING


def selector_of(selector: Any) -> Selector:
    """Return a compiled label selector; a missing, empty or invalid one matches nothing, as in controllers."""
    return _compiled(_encode(selector)) if isinstance(selector, dict) and any(selector.values()) else NOTHING


# -- conditions and pods ------------------------------------------------------------------------------------------------


condition_of: Final = records.condition_of
is_condition_true: Final = records.is_condition_true


def with_condition(
    conditions: Iterable[Mapping[str, Any]], name: str, status: str, now: float, reason: str = "", message: str = "",
    **more: Any,
) -> list[dict[str, Any]]:  # fmt: skip
    """Return conditions with one of them set; its transition time changes only with its status."""
    made: dict[str, Any] = {"type": name, "status": status, "lastTransitionTime": stamp(now), **more}
    made |= {key: value for key, value in (("reason", reason), ("message", message)) if value}
    kept = []
    for held in conditions:
        if held.get("type") != name:
            kept.append(dict(held))
        elif held.get("status") == status:
            made["lastTransitionTime"] = held.get("lastTransitionTime") or made["lastTransitionTime"]
    return [*kept, made]


def phase_of(pod: Document) -> str:
    """Return the phase of a pod, volume or claim."""
    return status_of(pod).get("phase") or "Pending"


def claim_names(pod: Document) -> Iterator[str]:
    """Yield the names of the persistent volume claims that a pod mounts, its own claims included."""
    for volume in spec_of(pod).get("volumes") or ():
        if source := volume.get("persistentVolumeClaim"):
            yield source.get("claimName", "")
        elif "ephemeral" in volume:
            yield f"{name_of(pod)}-{volume['name']}"


def is_active(pod: Document) -> bool:
    """Return True for a pod that counts as a replica: it neither ended nor is being deleted."""
    return phase_of(pod) not in ENDED_PHASES and not is_ending(pod)


def ready_since(pod: Document) -> float | None:
    """Return the time since when a pod is ready, in seconds since 1970; None while it is not."""
    ready = condition_of(pod, "Ready")
    return seconds(ready.get("lastTransitionTime")) if ready is not None and ready.get("status") == "True" else None


def is_ready(pod: Document) -> bool:
    """Return True for a pod that is ready."""
    return ready_since(pod) is not None


# -- generated names ---------------------------------------------------------------------------------------------------
# Names and UIDs that a real cluster generates at random, derived from their inputs: equal inputs give equal names.
#
# Suffixes use the API server's alphabet without vowels and look-alike characters, so that they form no words.
#
# Source  apimachinery, pkg/util/rand/rand.go; apiserver, pkg/storage/names/generate.go

SAFE_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH: Final = 5
#: A generated name is truncated so that it fits into a label.
_MAX_BASE: Final = 63 - _SUFFIX_LENGTH
_SPACE: Final = UUID("5f1ff0f4-6b2c-5b57-9a3c-3a1d7c0c6a55")


def stable_uid(kind: str, namespace: str, name: str) -> str:
    """Return a UID for an object without one: always the same for the same kind, namespace and name."""
    return str(uuid5(_SPACE, f"{kind}/{namespace}/{name}"))


def stable_suffix(*parts: str, length: int = _SUFFIX_LENGTH) -> str:
    """Return the suffix for ``parts``, instead of a random one."""
    number = int.from_bytes(hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest(), "big")
    drawn = []
    for _ in range(length):
        number, index = divmod(number, len(SAFE_ALPHABET))
        drawn.append(SAFE_ALPHABET[index])
    return "".join(drawn)


def generated_name(base: str, *parts: str) -> str:
    """Return a name for an object with ``generateName: base``; ``parts`` make it unique."""
    return base[:_MAX_BASE] + stable_suffix(base, *parts)


# -- proportions -------------------------------------------------------------------------------------------------------
# Arithmetic of rollouts: counts given as a number or a percentage, and rounding.
#
# Source  apimachinery, pkg/util/intstr/intstr.go; kubernetes, pkg/controller/deployment/util/deployment_util.go


def scaled(value: Any, total: int, *, up: bool) -> int:
    """Return a count, or a percentage of ``total`` rounded up or down; 0 for an invalid value."""
    if isinstance(value, str) and value.endswith("%") and value[:-1].isdecimal():
        share = int(value[:-1]) * total / 100
        return math.ceil(share) if up else math.floor(share)
    return value if isinstance(value, int) else 0


def rounded(value: float) -> int:
    """Round to the nearest whole number, halves away from zero."""
    return int(value - 0.5) if value < 0 else int(value + 0.5)


class Bounds(NamedTuple):
    """How many pods a rollout may have above the desired number, and how many may be unavailable."""

    surge: int
    unavailable: int


def bounds(rolling: dict[str, Any], wanted: int) -> Bounds:
    """Return the bounds of a rolling update; where both are 0, one pod may be unavailable."""
    surge = scaled(rolling.get("maxSurge", 0), wanted, up=True)
    unavailable = scaled(rolling.get("maxUnavailable", 0), wanted, up=False)
    return Bounds(surge, unavailable or (0 if surge else 1))


# -- kind names --------------------------------------------------------------------------------------------------------
# The kinds that controllers use, by name.

PODS: Final = served("pods")
NODES: Final = served("nodes")
NAMESPACES: Final = served("namespaces")
EVENTS: Final = served("events")
CONFIG_MAPS: Final = served("configmaps")
CONTROLLERS: Final = served("replicationcontrollers")
VOLUMES: Final = served("persistentvolumes")
CLAIMS: Final = served("persistentvolumeclaims")
CONTROLLER_REVISIONS: Final = served("controllerrevisions", "apps")
DAEMON_SETS: Final = served("daemonsets", "apps")
DEPLOYMENTS: Final = served("deployments", "apps")
REPLICA_SETS: Final = served("replicasets", "apps")
STATEFUL_SETS: Final = served("statefulsets", "apps")
JOBS: Final = served("jobs", "batch")
CRON_JOBS: Final = served("cronjobs", "batch")
LEASES: Final = served("leases", "coordination.k8s.io")
DISRUPTION_BUDGETS: Final = served("poddisruptionbudgets", "policy")
RESOURCE_CLAIMS: Final = served("resourceclaims", "resource.k8s.io")
RESOURCE_CLAIM_TEMPLATES: Final = served("resourceclaimtemplates", "resource.k8s.io")
CSI_NODES: Final = served("csinodes", "storage.k8s.io")
STORAGE_CLASSES: Final = served("storageclasses", "storage.k8s.io")
ATTRIBUTES_CLASSES: Final = served("volumeattributesclasses", "storage.k8s.io")
POD_GROUPS: Final = served("podgroups", "scheduling.k8s.io", "v1alpha2")
WORKLOADS: Final = served("workloads", "scheduling.k8s.io", "v1alpha2")
