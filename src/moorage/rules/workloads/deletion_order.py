"""The order in which replicas are deleted when a controller scales down.

Source  kubernetes, pkg/controller/controller_utils.go, ActivePodsWithRanks
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cmp_to_key
from typing import Any, Final

from moorage.api.core import ENDED_PHASES
from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.api.quantity import parse_int64
from moorage.api.selectors import NOTHING, Selector, selector_from_map
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.ownership import claim, keys_by_owner, pod_of_template
from moorage.rules.workloads.steps import Create, DeleteStep, EventStep, Later, SetStatus, Step

_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}


def deletion_order(pods: Iterable[Document], related: Iterable[Document], now: float) -> list[Document]:
    """Return pods in the order of their deletion.

    ``related`` are active pods of the same application: a pod with many of them on its node is deleted earlier. Ages are
    compared by magnitude only, so that the UID decides between pods of similar age and spreads the losses over failure domains.
    """
    crowd = Counter(k8s.spec_of(pod).get("nodeName") or "" for pod in related)

    def rank(pod: Document) -> tuple[bool, int, bool, int, int]:
        node = k8s.spec_of(pod).get("nodeName") or ""
        return bool(node), _PHASES.get(k8s.phase_of(pod), 0), k8s.is_ready(pod), _cost(pod), -crowd[node]

    def compare(a: Document, b: Document) -> int:
        one, other = rank(a), rank(b)
        return _by_age(a, b, now) if one == other else -1 if one < other else 1

    return sorted(pods, key=cmp_to_key(compare))


def _cost(pod: Document) -> int:
    value = parse_int64(k8s.annotations_of(pod).get(_COST, ""))
    return 0 if value is None or abs(value) > 2**31 - 1 else value


def _by_age(a: Document, b: Document, now: float) -> int:
    ready = k8s.ready_since(a), k8s.ready_since(b)
    if ready[0] is not None and ready[1] is not None and ready[0] != ready[1]:
        return _magnitude(now - ready[0]) - _magnitude(now - ready[1]) or _by_uid(a, b)
    for more, fewer in zip(_restarts(b), _restarts(a), strict=True):
        if more != fewer:
            return more - fewer
    born = [k8s.seconds(pod["metadata"].get("creationTimestamp")) for pod in (a, b)]
    if born[0] != born[1]:
        return _magnitude(now - born[0]) - _magnitude(now - born[1]) or _by_uid(a, b)
    return 0


def _magnitude(age_s: float) -> int:
    return int(math.log2(age_s * 1e9)) if age_s > 0 else -1


def _by_uid(a: Document, b: Document) -> int:
    return -1 if k8s.uid_of(a) < k8s.uid_of(b) else 1


def _restarts(pod: Document) -> tuple[int, int]:
    """Return how often the container that restarted most has done so, and the sidecar that did."""
    inits: Sequence[Document] = k8s.spec_of(pod).get("initContainers") or ()
    sidecars = {one["name"] for one in inits if one.get("restartPolicy") == "Always"}
    own, of_inits = (k8s.status_of(pod).get(part) or () for part in ("containerStatuses", "initContainerStatuses"))
    counted = own, [one for one in of_inits if one.get("name", "") in sidecars]
    most, of_sidecars = (max((int(one.get("restartCount") or 0) for one in held), default=0) for held in counted)
    return most, of_sidecars


#: Maximum number of pods created or deleted in one reconcile; the next one follows immediately.
BURST: Final = 100
_FAILURE: Final = "ReplicaFailure"


class ReplicaSets:
    """Manages one of the two kinds, which differ in the form of their selector."""

    def __init__(self, kind: ServedKind) -> None:
        self.kind = kind
        self.name = "replicaset-controller" if kind.group else "replication-controller"

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        old, new = event.old, event.new
        if event.kind is k8s.PODS and old is not None and new is not None:
            is_managed = k8s.controller_of(old) is not None or k8s.controller_of(new) is not None
            if not is_managed and k8s.labels_of(old) == k8s.labels_of(new):
                return ()  # the change does not affect selectors
        return keys_by_owner(event, world, k8s.PODS, self.kind)

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        held = world.find(self.kind, key)
        if held is None:
            return
        claimed = claim(k8s.PODS, self.kind, held, self._selector(held), world)
        yield from claimed.steps
        active = [pod for pod in claimed.held if k8s.is_active(pod)]
        missing = int(k8s.spec_of(held).get("replicas", 1)) - len(active)
        if missing and not k8s.is_ending(held) and not (missing > 0 and world.is_closing(k8s.namespace_of(held))):
            # The changes here trigger the next reconcile, which updates the status.
            yield from self._adjust(held, claimed.held, active, missing, world, now)
        else:
            yield from self._status_steps(held, claimed.held, active, now)

    def _selector(self, held: Document) -> Selector:
        selector = k8s.spec_of(held).get("selector")
        if self.kind.group:
            return k8s.selector_of(selector)
        return selector_from_map(selector) if selector else NOTHING

    def _adjust(
        self, held: Document, pods: list[Document], active: list[Document], missing: int, world: ObjectIndex, now: float
    ) -> Iterator[Step]:
        status = _status(self.kind, held, pods, active, now)
        template = k8s.spec_of(held).get("template") or {}
        for _ in range(min(missing, BURST)):
            pod = pod_of_template(self.kind, held, template, generateName=f"{k8s.name_of(held)}-")
            yield Create(k8s.PODS, pod, owner=(self.kind, held), otherwise=lambda why: self._failed(held, status, why, now))
        if missing < 0:
            related = _related(self.kind, held, active, world)
            for pod in deletion_order(active, related, now)[: min(-missing, BURST)]:
                yield DeleteStep(k8s.PODS, pod)
                yield EventStep(self.kind, held, "Normal", "SuccessfulDelete", f"Deleted pod: {k8s.name_of(pod)}")
        if abs(missing) > BURST:
            yield Later(0)

    def _failed(self, held: Document, status: Document, why: str, now: float) -> SetStatus:
        """Return the status for a failed creation. The first message stays: later ones may differ only in generated names."""
        conditions = k8s.status_of(held).get("conditions") or []
        if (k8s.condition_of(held, _FAILURE) or {}).get("status") != "True":
            conditions = k8s.with_condition(conditions, _FAILURE, "True", now, "FailedCreate", why)
        return SetStatus(self.kind, held, {**status, "conditions": conditions})

    def _status_steps(self, held: Document, pods: list[Document], active: list[Document], now: float) -> Iterator[Step]:
        status = _status(self.kind, held, pods, active, now)
        if status != k8s.status_of(held):
            yield SetStatus(self.kind, held, status)
        least_s = int(k8s.spec_of(held).get("minReadySeconds") or 0)
        waits = [since + least_s - now for pod in active if least_s and (since := k8s.ready_since(pod)) is not None]
        if left := [wait for wait in waits if wait > 0]:
            yield Later(min(left))


def _related(kind: ServedKind, held: Document, active: list[Document], world: ObjectIndex) -> list[Document]:
    """Return the active pods of all replica sets of the same owner. Pods on nodes with many of them are deleted first."""
    owner = k8s.controller_of(held)
    if owner is None:
        return active
    siblings = (one for one in world.dependents(kind, owner["uid"]) if k8s.uid_of(one) != k8s.uid_of(held))
    others = (pod for one in siblings for pod in world.controlled(k8s.PODS, one) if k8s.is_active(pod))
    return [*active, *others]


def _status(kind: ServedKind, held: Document, pods: list[Document], active: list[Document], now: float) -> Document:
    wanted = ((k8s.spec_of(held).get("template") or {}).get("metadata") or {}).get("labels") or {}
    least_s = int(k8s.spec_of(held).get("minReadySeconds") or 0)
    ready = [since for pod in active if (since := k8s.ready_since(pod)) is not None]
    counted: dict[str, Any] = {
        "fullyLabeledReplicas": sum(wanted.items() <= k8s.labels_of(pod).items() for pod in active),
        "readyReplicas": len(ready),
        "availableReplicas": sum(now - since >= least_s for since in ready),
    }
    if kind.group:
        counted["terminatingReplicas"] = sum(k8s.is_ending(pod) and k8s.phase_of(pod) not in ENDED_PHASES for pod in pods)
    # Creation works again: drop the failure condition.
    conditions = [one for one in k8s.status_of(held).get("conditions") or () if one.get("type") != _FAILURE]
    kept = {"conditions": conditions} if conditions else {}
    return {
        "replicas": len(active),
        **{name: value for name, value in counted.items() if value or name == "terminatingReplicas"},
        "observedGeneration": held["metadata"].get("generation", 0),
        **kept,
    }
