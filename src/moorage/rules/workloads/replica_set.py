"""The controller of replica sets and replication controllers: keep the number of pods, and report their state.

Source  kubernetes, pkg/controller/replicaset/replica_set.go and replica_set_utils.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from moorage.api.core import ENDED_PHASES
from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.api.quantity import parse_int64
from moorage.api.selectors import NOTHING, Selector, selector_from_map
from moorage.rules.workloads.deletion_order import deletion_order
from moorage.rules.workloads.missing_pods import POD_TEMPLATE_HASH, REVISION, content_hash, revision_number
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.ownership import claim, keys_by_owner, pod_of_template
from moorage.rules.workloads.steps import Create, DeleteStep, EventStep, Later, SetStatus, Step

# A deployment's replica sets: find the new one, name it, and maintain the revision annotations.
#
# Source  kubernetes, pkg/controller/deployment/sync.go and util/deployment_util.go

HISTORY: Final = "deployment.kubernetes.io/revision-history"
DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
MAX: Final = "deployment.kubernetes.io/max-replicas"
_NOT_COPIED: Final = frozenset([
    "kubectl.kubernetes.io/last-applied-configuration", "deprecated.deployment.rollback.to", REVISION, HISTORY, DESIRED, MAX,
])  # fmt: skip
_HISTORY_CHARACTERS: Final = 2000


def template_hash(template: Document, collisions: int = 0) -> str:
    """Return a ten-character hash of a template; each name collision changes it."""
    return content_hash(template, str(collisions)) if collisions else content_hash(template)


def size_of(replica_set: Document) -> int:
    """Return the desired replicas of a replica set."""
    return int(k8s.spec_of(replica_set).get("replicas", 1))


def revision_of(one: Document) -> int:
    """Return the revision annotation of an object; 0 without one."""
    return revision_number(k8s.annotations_of(one))


def _bare(template: Document) -> Document:
    """Return a template without the hash label."""
    metadata = template.get("metadata") or {}
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if name != POD_TEMPLATE_HASH}
    kept = {name: value for name, value in metadata.items() if name != "labels" and value}
    return {**template, "metadata": {**kept, "labels": labels}}


def find_new(deployment: Document, sets: Iterable[Document]) -> Document | None:
    """Return the oldest replica set with the deployment's current template."""
    wanted = _bare(k8s.spec_of(deployment).get("template") or {})
    return next(
        (one for one in sorted(sets, key=k8s.age_order) if _bare(k8s.spec_of(one).get("template") or {}) == wanted), None
    )


def new_replica_set(deployment: Document, mark: str, revision: int, replicas: int, most: int) -> Document:
    """Return a new replica set for the deployment's current template."""
    spec = k8s.spec_of(deployment)
    template = spec.get("template") or {}
    labels = {**((template.get("metadata") or {}).get("labels") or {}), POD_TEMPLATE_HASH: mark}
    selector = spec.get("selector") or {}
    annotations = {**_copied(k8s.annotations_of(deployment)), REVISION: str(revision)}
    made: dict[str, Any] = {
        "replicas": replicas,
        "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), POD_TEMPLATE_HASH: mark}},
        "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}},
    }
    if least_s := spec.get("minReadySeconds"):
        made["minReadySeconds"] = least_s
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{k8s.name_of(deployment)}-{mark}",
            "namespace": k8s.namespace_of(deployment),
            "labels": dict(labels),
            "annotations": with_sizes(annotations, int(spec.get("replicas", 1)), most),
            "ownerReferences": [k8s.reference_to(k8s.DEPLOYMENTS, deployment)],
        },
        "spec": made,
    }


def with_sizes(annotations: Mapping[str, str], wanted: int, most: int) -> dict[str, str]:
    """Return a replica set's annotations with the deployment's desired and maximum replicas."""
    return {**annotations, DESIRED: str(wanted), MAX: str(most)}


def updated_annotations(deployment: Document, replica_set: Document, revision: int) -> dict[str, str]:
    """Return the annotations that the new replica set of a deployment should have.

    After a rollback the replica set gets the next revision, and its earlier ones are kept in the history.
    """
    held = k8s.annotations_of(replica_set)
    made = {**held, **_copied(k8s.annotations_of(deployment))}
    before = parse_int64(held.get(REVISION, "")) if held.get(REVISION) else 0
    if before is None or before >= revision:
        return made
    made[REVISION] = str(revision)
    if held.get(REVISION):
        parts = [*filter(None, held.get(HISTORY, "").split(",")), held[REVISION]]
        while len(",".join(parts)) > _HISTORY_CHARACTERS and len(parts) > 1:
            del parts[0]
        made[HISTORY] = ",".join(parts)
    return made


def _copied(annotations: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in annotations.items() if name not in _NOT_COPIED}


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
