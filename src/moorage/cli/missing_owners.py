"""Recreate replica sets that a dump leaves out, from the deployments and pods that refer to them.

Without its replica set a deployment would create all its pods again, in addition to the existing ones. The documents are not
validated yet: malformed ones are skipped here and rejected when they are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from moorage.api.core import ENDED_PHASES
from moorage.api.decode import decode
from moorage.api.workloads import Deployment
from moorage.apiserver.vocabulary.records import Document
from moorage.controllers.machinery.object_fields import bounds, spec_of
from moorage.controllers.workloads.missing_pods import POD_TEMPLATE_HASH, is_made_from
from moorage.controllers.workloads.replica_set import new_replica_set, revision_of
from moorage.errors import InputError

__all__ = ["missing_replica_sets"]

#: Namespace and name.
_Place = tuple[str, str]


def missing_replica_sets(documents: Sequence[Document]) -> Iterator[Document]:
    """Yield the replica set of each deployment that has none, with the name and UID in its pods' owner references.

    Where the pods name several replica sets, yield the one whose pods match the template best; the others are unknown.
    """
    there = {_place(one) for one in documents if one["kind"] == "ReplicaSet"}
    pods = _pods_by_replica_set(documents)
    for deployment in documents:
        if deployment["kind"] != "Deployment" or not deployment["metadata"].get("uid") or not _is_valid(deployment):
            continue
        space, name = _place(deployment)
        own = {place: held for place, held in pods.items() if place == (space, f"{name}-{_mark(held[0])}")}
        if own and not there.intersection(own):
            yield _replica_set(deployment, own)


def _pods_by_replica_set(documents: Sequence[Document]) -> dict[_Place, list[Document]]:
    pods: dict[_Place, list[Document]] = {}
    for pod in documents:
        owner = _controller(pod) if pod["kind"] == "Pod" else {}
        ended = _part(pod, "status").get("phase") in ENDED_PHASES or pod["metadata"].get("deletionTimestamp")
        if owner.get("kind") == "ReplicaSet" and not ended:
            pods.setdefault((_place(pod)[0], str(owner.get("name"))), []).append(pod)
    return pods


def _replica_set(deployment: Document, own: dict[_Place, list[Document]]) -> Document:
    """Return a deployment's current replica set, chosen among those that its pods name."""
    spec = {name: value for name, value in spec_of(deployment).items() if value is not None}
    template = spec.get("template") or {}
    fitting = {place: sum(is_made_from(pod, template) for pod in held) for place, held in own.items()}
    held = own[max(sorted(own), key=lambda place: (fitting[place], len(own[place])))]
    wanted = int(spec.get("replicas", 1))
    rolls = _part(spec, "strategy").get("type") != "Recreate"
    surge = bounds(_part(spec, "strategy", "rollingUpdate"), wanted).surge if rolls else 0
    revision = revision_of(deployment) or 1
    made = new_replica_set({**deployment, "spec": spec}, _mark(held[0]), revision, len(held), wanted + surge)
    made["metadata"]["uid"] = _controller(held[0]).get("uid")
    return made


def _is_valid(deployment: Document) -> bool:
    try:
        decode(deployment, Deployment, "")
    except InputError:
        return False
    return True


def _part(document: Any, *path: str) -> dict[str, Any]:
    """Return a nested object of a document; an empty one where the path does not lead to an object."""
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}


def _controller(document: Document) -> dict[str, Any]:
    owners = document["metadata"].get("ownerReferences")
    listed = owners if isinstance(owners, list) else []
    return next((one for one in listed if isinstance(one, dict) and one.get("controller") is True), {})


def _place(document: Document) -> _Place:
    metadata = document["metadata"]
    return str(metadata.get("namespace") or "default"), str(metadata.get("name"))


def _mark(pod: Document) -> str:
    return str(_part(pod, "metadata", "labels").get(POD_TEMPLATE_HASH, ""))
