"""The controller of replica sets and replication controllers: keep the number of pods, and report their state.

Source  kubernetes, pkg/controller/replicaset/replica_set.go and replica_set_utils.go
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document
from moorage.api.quantity import parse_int64
from moorage.rules.workloads.missing_pods import POD_TEMPLATE_HASH, REVISION, content_hash, revision_number

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
