"""Read fields of documents, for all controllers. No function here modifies a document.

Documents come from the store, which has validated and defaulted them.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from moorage.api.core import ENDED_PHASES
from moorage.api.decode import decode
from moorage.api.meta import LabelSelector
from moorage.api.selectors import NOTHING, Selector, SelectorError, compile_label_selector
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import ServedKind
from moorage.errors import InputError

__all__ = [
    "age_order", "annotations_of", "condition_of", "controller_of", "copied", "is_active", "is_ending", "is_ready", "key_of",
    "labels_of", "name_of", "namespace_of", "phase_of", "ready_since", "reference_to", "revised", "seconds", "selector_of",
    "spec_of", "stamp", "status_of", "uid_of", "with_condition",
]  # fmt: skip

_encode = msgspec.json.Encoder(order="deterministic").encode
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


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


def copied(document: Document) -> Document:
    """Return a deep copy of a document."""
    copy: Document = msgspec.json.decode(msgspec.json.encode(document))
    return copy


def revised(document: Document, **metadata: Any) -> Document:
    """Return the document with changed metadata; it shares everything else."""
    return {**document, "metadata": {**document["metadata"], **metadata}}


# -- time ---------------------------------------------------------------------------------------------------------------


def stamp(epoch_s: float) -> str:
    """Return a timestamp as objects store it: whole seconds, UTC."""
    return _stamp(int(epoch_s))


@lru_cache(maxsize=1024)
def _stamp(epoch: int) -> str:
    return datetime.datetime.fromtimestamp(epoch, tz=datetime.UTC).strftime(_TIME)


@lru_cache(maxsize=65_536)
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


def condition_of(document: Document, name: str) -> dict[str, Any] | None:
    """Return a condition of an object's status."""
    for one in status_of(document).get("conditions") or ():
        if one.get("type") == name:
            found: dict[str, Any] = one
            return found
    return None


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
