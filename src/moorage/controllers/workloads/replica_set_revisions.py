"""A deployment's replica sets: find the new one, name it, and maintain the revision annotations.

Source  kubernetes, pkg/controller/deployment/sync.go and util/deployment_util.go
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from moorage.api.integers import parse_int64
from moorage.apiserver.vocabulary.records import Document
from moorage.controllers.machinery.kind_names import DEPLOYMENTS
from moorage.controllers.machinery.object_fields import age_order, annotations_of, name_of, namespace_of, reference_to, spec_of
from moorage.controllers.workloads.missing_pods import POD_TEMPLATE_HASH, REVISION, content_hash, revision_number

__all__ = [
    "DESIRED", "MAX", "find_new", "new_replica_set", "revision_of", "size_of",
    "template_hash", "updated_annotations", "with_sizes",
]  # fmt: skip

HISTORY: Final = "deployment.kubernetes.io/revision-history"
DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
MAX: Final = "deployment.kubernetes.io/max-replicas"
_NOT_COPIED: Final = frozenset(
    [
        "kubectl.kubernetes.io/last-applied-configuration",
        "deprecated.deployment.rollback.to",
        REVISION,
        HISTORY,
        DESIRED,
        MAX,
    ]
)
_HISTORY_CHARACTERS: Final = 2000


def template_hash(template: Document, collisions: int = 0) -> str:
    """Return a ten-character hash of a template; each name collision changes it."""
    return content_hash(template, str(collisions)) if collisions else content_hash(template)


def size_of(replica_set: Document) -> int:
    """Return the desired replicas of a replica set."""
    return int(spec_of(replica_set).get("replicas", 1))


def revision_of(one: Document) -> int:
    """Return the revision annotation of an object; 0 without one."""
    return revision_number(annotations_of(one))


def _bare(template: Document) -> Document:
    """Return a template without the hash label."""
    metadata = template.get("metadata") or {}
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if name != POD_TEMPLATE_HASH}
    kept = {name: value for name, value in metadata.items() if name != "labels" and value}
    return {**template, "metadata": {**kept, "labels": labels}}


def find_new(deployment: Document, sets: Iterable[Document]) -> Document | None:
    """Return the oldest replica set with the deployment's current template."""
    wanted = _bare(spec_of(deployment).get("template") or {})
    return next((one for one in sorted(sets, key=age_order) if _bare(spec_of(one).get("template") or {}) == wanted), None)


def new_replica_set(deployment: Document, mark: str, revision: int, replicas: int, most: int) -> Document:
    """Return a new replica set for the deployment's current template."""
    spec = spec_of(deployment)
    template = spec.get("template") or {}
    labels = {**((template.get("metadata") or {}).get("labels") or {}), POD_TEMPLATE_HASH: mark}
    selector = spec.get("selector") or {}
    annotations = {**_copied(annotations_of(deployment)), REVISION: str(revision)}
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
            "name": f"{name_of(deployment)}-{mark}",
            "namespace": namespace_of(deployment),
            "labels": dict(labels),
            "annotations": with_sizes(annotations, int(spec.get("replicas", 1)), most),
            "ownerReferences": [reference_to(DEPLOYMENTS, deployment)],
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
    held = annotations_of(replica_set)
    made = {**held, **_copied(annotations_of(deployment))}
    before = parse_int64(held.get(REVISION, "")) if held.get(REVISION) else 0
    if before is None or before >= revision:
        return made
    made[REVISION] = str(revision)
    if held.get(REVISION):
        made[HISTORY] = _longer(held.get(HISTORY, ""), held[REVISION])
    return made


def _copied(annotations: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in annotations.items() if name not in _NOT_COPIED}


def _longer(history: str, revision: str) -> str:
    parts = [*filter(None, history.split(",")), revision]
    while len(",".join(parts)) > _HISTORY_CHARACTERS and len(parts) > 1:
        del parts[0]
    return ",".join(parts)
