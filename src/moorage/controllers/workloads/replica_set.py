"""The controller of replica sets and replication controllers: keep the number of pods, and report their state.

Source  kubernetes, pkg/controller/replicaset/replica_set.go and replica_set_utils.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from moorage.api.core import ENDED_PHASES
from moorage.api.selectors import NOTHING, Selector, selector_from_map
from moorage.apiserver.vocabulary.records import Document
from moorage.apiserver.vocabulary.served_kinds import ServedKind
from moorage.controllers.machinery.kind_names import PODS
from moorage.controllers.machinery.object_fields import (
    condition_of,
    controller_of,
    is_active,
    is_ending,
    labels_of,
    name_of,
    namespace_of,
    phase_of,
    ready_since,
    selector_of,
    spec_of,
    status_of,
    uid_of,
    with_condition,
)
from moorage.controllers.machinery.object_index import ObjectChange, ObjectIndex
from moorage.controllers.machinery.ownership import claim, keys_by_owner, pod_of_template
from moorage.controllers.machinery.steps import Create, DeleteStep, EventStep, Later, SetStatus, Step
from moorage.controllers.workloads.deletion_order import deletion_order

__all__ = ["ReplicaSets"]

#: Maximum number of pods created or deleted in one reconcile; the next one follows immediately.
BURST: Final = 100
_FAILURE: Final = "ReplicaFailure"


class ReplicaSets:
    """Manages one of the two kinds, which differ in the form of their selector."""

    def __init__(self, kind: ServedKind) -> None:
        self.kind = kind
        self.name = "replicaset-controller" if kind.group else "replication-controller"

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        if event.kind is PODS and event.old is not None and controller_of(event.latest) is None and not self._selects(event):
            return ()
        return keys_by_owner(event, world, PODS, self.kind)

    @staticmethod
    def _selects(event: ObjectChange) -> bool:
        """Return False for a change of an unmanaged pod that does not affect selectors."""
        old, new = event.old, event.new
        return old is None or new is None or controller_of(old) is not None or labels_of(old) != labels_of(new)

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        held = world.find(self.kind, key)
        if held is None:
            return
        claimed = claim(PODS, self.kind, held, self._selector(held), world)
        yield from claimed.steps
        active = [pod for pod in claimed.held if is_active(pod)]
        missing = int(spec_of(held).get("replicas", 1)) - len(active)
        if missing and not is_ending(held) and not (missing > 0 and world.is_closing(namespace_of(held))):
            # The changes here trigger the next reconcile, which updates the status.
            yield from self._adjust(held, claimed.held, active, missing, world, now)
        else:
            yield from self._status_steps(held, claimed.held, active, now)

    def _selector(self, held: Document) -> Selector:
        selector = spec_of(held).get("selector")
        if self.kind.group:
            return selector_of(selector)
        return selector_from_map(selector) if selector else NOTHING

    def _adjust(
        self, held: Document, pods: list[Document], active: list[Document], missing: int, world: ObjectIndex, now: float
    ) -> Iterator[Step]:
        status = _status(self.kind, held, pods, active, now)
        template = spec_of(held).get("template") or {}
        for _ in range(min(missing, BURST)):
            pod = pod_of_template(self.kind, held, template, generateName=f"{name_of(held)}-")
            yield Create(PODS, pod, owner=(self.kind, held), otherwise=lambda why: self._failed(held, status, why, now))
        if missing < 0:
            related = _related(self.kind, held, active, world)
            for pod in deletion_order(active, related, now)[: min(-missing, BURST)]:
                yield DeleteStep(PODS, pod)
                yield EventStep(self.kind, held, "Normal", "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")
        if abs(missing) > BURST:
            yield Later(0)

    def _failed(self, held: Document, status: Document, why: str, now: float) -> SetStatus:
        """Return the status for a failed creation. The first message stays: later ones may differ only in generated names."""
        conditions = status_of(held).get("conditions") or []
        if (condition_of(held, _FAILURE) or {}).get("status") != "True":
            conditions = with_condition(conditions, _FAILURE, "True", now, "FailedCreate", why)
        return SetStatus(self.kind, held, {**status, "conditions": conditions})

    def _status_steps(self, held: Document, pods: list[Document], active: list[Document], now: float) -> Iterator[Step]:
        status = _status(self.kind, held, pods, active, now)
        if status != status_of(held):
            yield SetStatus(self.kind, held, status)
        waits = _until_available(held, active, now)
        if waits is not None:
            yield Later(waits)


def _related(kind: ServedKind, held: Document, active: list[Document], world: ObjectIndex) -> list[Document]:
    """Return the active pods of all replica sets of the same owner. Pods on nodes with many of them are deleted first."""
    owner = controller_of(held)
    if owner is None:
        return active
    siblings = (one for one in world.dependents(kind, owner["uid"]) if uid_of(one) != uid_of(held))
    others = (pod for one in siblings for pod in world.controlled(PODS, one) if is_active(pod))
    return [*active, *others]


def _status(kind: ServedKind, held: Document, pods: list[Document], active: list[Document], now: float) -> Document:
    wanted = ((spec_of(held).get("template") or {}).get("metadata") or {}).get("labels") or {}
    least_s = int(spec_of(held).get("minReadySeconds") or 0)
    ready = [since for pod in active if (since := ready_since(pod)) is not None]
    counted: dict[str, Any] = {
        "fullyLabeledReplicas": sum(wanted.items() <= labels_of(pod).items() for pod in active),
        "readyReplicas": len(ready),
        "availableReplicas": sum(now - since >= least_s for since in ready),
    }
    if kind.group:
        counted["terminatingReplicas"] = sum(is_ending(pod) and phase_of(pod) not in ENDED_PHASES for pod in pods)
    # Creation works again: drop the failure condition.
    conditions = [one for one in status_of(held).get("conditions") or () if one.get("type") != _FAILURE]
    kept = {"conditions": conditions} if conditions else {}
    return {
        "replicas": len(active),
        **{name: value for name, value in counted.items() if value or name == "terminatingReplicas"},
        "observedGeneration": held["metadata"].get("generation", 0),
        **kept,
    }


def _until_available(held: Document, active: list[Document], now: float) -> float | None:
    """Return in how many seconds the next ready pod becomes available; None without one."""
    least_s = int(spec_of(held).get("minReadySeconds") or 0)
    waits = [since + least_s - now for pod in active if least_s and (since := ready_since(pod)) is not None]
    return min((wait for wait in waits if wait > 0), default=None)
