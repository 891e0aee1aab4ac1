"""The stateful set controller: pods with ordinals, created and deleted in order, each with persistent claims.

Source  kubernetes, pkg/controller/statefulset: stateful_set_control.go and stateful_set_utils.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document, ServedKind
from moorage.rules.workloads.missing_pods import ordinal_of, stateful_claim_name, stateful_labels
from moorage.rules.workloads.object_index import ObjectIndex
from moorage.rules.workloads.ownership import pod_of_template
from moorage.rules.workloads.steps import EventStep, Step, Update

# The pods of a stateful set and their claims: names, ordinals, and the retention of claims.
#
# Source  kubernetes, pkg/controller/statefulset/stateful_set_utils.go

# kube-controller-manager's own text, "manging" and all: people search their events for it.
_CONFLICT: Final = (
    "PersistentVolumeClaim {} has a conflicting OwnerReference that acts as a manging controller, "
    "the retention policy is ignored for this claim"
)


def claims_of(held: Document, number: int) -> Iterator[tuple[ServedKind, Document]]:
    """Yield the claims of one of the set's pods, as they are created."""
    selector = k8s.spec_of(held).get("selector") or {}
    for template in k8s.spec_of(held).get("volumeClaimTemplates") or ():
        made = k8s.copied(template)
        metadata = made.get("metadata") or {}
        made["metadata"] = {
            "annotations": metadata.get("annotations") or {},
            "name": stateful_claim_name(_name_in(template), k8s.name_of(held), number),
            "namespace": k8s.namespace_of(held),
            "labels": {**(metadata.get("labels") or {}), **(selector.get("matchLabels") or {})},
        }
        made |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
        made.pop("status", None)
        yield k8s.CLAIMS, made


def _name_in(template: Document) -> str:
    """Return the name of a claim template; "" if it has none, which the API allows."""
    return str((template.get("metadata") or {}).get("name") or "")


def kept_claims(held: Document, pod: Document, world: ObjectIndex, *, leaves: bool) -> Iterator[Step]:
    """Yield updates of the claims' owner references for the set's retention policy.

    ``leaves`` is True for a pod that a scale-down removes.
    """
    policy = k8s.spec_of(held).get("persistentVolumeClaimRetentionPolicy") or {}
    number = ordinal_of(k8s.name_of(held), k8s.name_of(pod))
    if not policy or number is None:
        return
    with_set = policy.get("whenDeleted") == "Delete" and not (leaves and policy.get("whenScaled") == "Delete")
    with_pod = leaves and policy.get("whenScaled") == "Delete"
    for _, made in claims_of(held, number):
        there = world.get(k8s.CLAIMS, k8s.namespace_of(held), k8s.name_of(made))
        if there is not None:
            yield from _tied(there, held, pod, with_set=with_set, with_pod=with_pod)


def _tied(there: Document, held: Document, pod: Document, *, with_set: bool, with_pod: bool) -> Iterator[Step]:
    """Yield the update of a claim's owner references; skip claims with another controller or with owners of the same name."""
    before = there["metadata"].get("ownerReferences") or []
    others = [ref for ref in before if not (_names(ref, k8s.STATEFUL_SETS, held) or _names(ref, k8s.PODS, pod))]
    stale = any(ref not in others and ref.get("uid") not in {k8s.uid_of(held), k8s.uid_of(pod)} for ref in before)
    policy = set((k8s.spec_of(held).get("persistentVolumeClaimRetentionPolicy") or {}).values())
    conflict = "Delete" in policy and (stale or any(ref.get("controller") for ref in others))
    refs: list[dict[str, Any]] = list(others)
    if not conflict:
        refs += [k8s.reference_to(k8s.STATEFUL_SETS, held)] if with_set else []
        refs += [k8s.reference_to(k8s.PODS, pod)] if with_pod else []
    changes = refs != before and not stale
    if conflict and (changes or k8s.phase_of(pod) == "Pending"):
        yield EventStep(k8s.STATEFUL_SETS, held, "Warning", "ConflictingController", _CONFLICT.format(k8s.name_of(there)))
    if changes:
        yield Update(k8s.CLAIMS, k8s.revised(there, ownerReferences=refs))


def _names(ref: Mapping[str, Any], kind: ServedKind, owner: Document) -> bool:
    return (ref.get("apiVersion"), ref.get("kind"), ref.get("name")) == (kind.api_version, kind.kind, k8s.name_of(owner))


def has_stale_claims(held: Document, number: int, world: ObjectIndex) -> bool:
    """Return whether a claim for a new pod is still owned by the deleted pod of the same name."""
    policy = k8s.spec_of(held).get("persistentVolumeClaimRetentionPolicy") or {}
    if policy.get("whenScaled") != "Delete":
        return False
    pod = {"metadata": {"name": f"{k8s.name_of(held)}-{number}"}}
    there = [world.get(k8s.CLAIMS, k8s.namespace_of(held), k8s.name_of(made)) for _, made in claims_of(held, number)]
    return any(_names(ref, k8s.PODS, pod) for one in there if one for ref in one["metadata"].get("ownerReferences") or ())


def stateful_pod(held: Document, template: Document, revision: str, number: int) -> Document:
    """Return a new pod of a set, with its name, network identity and volumes."""
    name = f"{k8s.name_of(held)}-{number}"
    pod = pod_of_template(k8s.STATEFUL_SETS, held, template, name=name, generateName=f"{k8s.name_of(held)}-")
    pod["metadata"]["labels"] = {**pod["metadata"].get("labels", {}), **stateful_labels(name, number, revision)}
    pod["spec"]["hostname"] = name
    if service := k8s.spec_of(held).get("serviceName"):
        pod["spec"]["subdomain"] = service
    templates = [_name_in(one) for one in k8s.spec_of(held).get("volumeClaimTemplates") or ()]
    if templates:
        claims = {volume: {"claimName": stateful_claim_name(volume, k8s.name_of(held), number)} for volume in templates}
        own = [{"name": volume, "persistentVolumeClaim": source} for volume, source in claims.items()]
        kept = [one for one in pod["spec"].get("volumes") or () if one.get("name") not in templates]
        pod["spec"]["volumes"] = [*own, *kept]
    return pod
