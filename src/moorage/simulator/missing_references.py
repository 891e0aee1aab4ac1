"""References to objects that the input lacks: claims without volumes, pods on nodes that are not listed.

A dump is rarely complete, and the result for an incomplete one is easily misread. Finished pods are ignored;
``moorage.simulator.admission`` checks the priority classes of new pods.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from moorage.api.admission import SYSTEM_PRIORITY_CLASSES
from moorage.api.core import ENDED_PHASES, Object, Pod
from moorage.basis.printable import counted, some
from moorage.simulator.cluster_input import ClusterInput


@dataclass(frozen=True, slots=True)
class MissingReference:
    """Objects of one kind that refer to objects of another kind which are not in the input."""

    kind: str
    target_kind: str
    #: The referring objects, in input order.
    referrers: tuple[str, ...]
    #: The missing objects, sorted.
    targets: tuple[str, ...]

    def __str__(self) -> str:
        verb = "refers" if len(self.referrers) == 1 else "refer"
        referrers = counted(len(self.referrers), self.kind, _plural(self.kind))
        targets = counted(len(self.targets), self.target_kind, _plural(self.target_kind))
        return f"{referrers} {verb} to {targets} not in the input: {some(self.targets)}"


def find_missing(cluster: ClusterInput) -> tuple[MissingReference, ...]:
    """Return the missing references, by kind. Call this after expanding workloads."""
    known = {
        "Node": _names(cluster.nodes),
        "PersistentVolumeClaim": _names(cluster.persistent_volume_claims),
        "PersistentVolume": _names(cluster.persistent_volumes),
        "StorageClass": _names(cluster.storage_classes),
        "PriorityClass": _names(cluster.priority_classes) | set(SYSTEM_PRIORITY_CLASSES),
        "ResourceClaim": _names(cluster.resource_claims),
        "ResourceClaimTemplate": _names(cluster.resource_claim_templates),
        "DeviceClass": _names(cluster.device_classes),
    }
    referrers: dict[tuple[str, str], dict[str, None]] = {}
    targets: dict[tuple[str, str], set[str]] = {}
    for kind, referrer, target_kind, target in _references(cluster, known["Node"]):
        if target not in known[target_kind]:
            referrers.setdefault((kind, target_kind), {})[referrer] = None
            targets.setdefault((kind, target_kind), set()).add(target)
    return tuple(
        MissingReference(kind, target_kind, tuple(names), tuple(sorted(targets[kind, target_kind])))
        for (kind, target_kind), names in referrers.items()
    )


def _references(cluster: ClusterInput, nodes: Collection[str]) -> Iterator[tuple[str, str, str, str]]:
    """Yield references: kind and name of the referring object, kind and name of the target.

    Pods that refer to nothing but one of these nodes are left out.
    """
    for pod in cluster.pods:
        spec, status = pod.spec, pod.status
        if status.phase in ENDED_PHASES:
            continue
        lacks_class = spec.priority is None and spec.priority_class_name
        refers = spec.volumes or lacks_class or spec.resource_claims or status.resource_claim_statuses
        if refers or (spec.node_name and spec.node_name not in nodes):
            for target_kind, target in _of_pod(pod):
                yield "Pod", pod.key, target_kind, target
    yield from _of_storage(cluster)
    yield from _of_devices(cluster)


def _of_storage(cluster: ClusterInput) -> Iterator[tuple[str, str, str, str]]:
    for claim in cluster.persistent_volume_claims:
        if claim.spec.volume_name:
            yield "PersistentVolumeClaim", claim.key, "PersistentVolume", claim.spec.volume_name
        elif claim.spec.storage_class_name:
            yield "PersistentVolumeClaim", claim.key, "StorageClass", claim.spec.storage_class_name
    for csi_node in cluster.csi_nodes:
        yield "CSINode", csi_node.name, "Node", csi_node.name
    for attachment in cluster.volume_attachments:
        if volume := attachment.spec.source.persistent_volume_name:
            yield "VolumeAttachment", attachment.metadata.name, "PersistentVolume", volume


def _of_devices(cluster: ClusterInput) -> Iterator[tuple[str, str, str, str]]:
    for claim in cluster.resource_claims:
        for request in claim.spec.devices.requests:
            for asked in (request.exactly, *request.first_available):
                if asked is not None and asked.device_class_name:
                    yield "ResourceClaim", claim.key, "DeviceClass", asked.device_class_name
    for resource_slice in cluster.resource_slices:
        if resource_slice.spec.node_name:
            yield "ResourceSlice", resource_slice.name, "Node", resource_slice.spec.node_name


def _of_pod(pod: Pod) -> Iterator[tuple[str, str]]:
    spec = pod.spec
    if spec.node_name:
        yield "Node", spec.node_name
    if spec.priority_class_name and spec.priority is None and pod.metadata.creation_timestamp is not None:
        yield "PriorityClass", spec.priority_class_name
    for volume in spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield "PersistentVolumeClaim", f"{pod.namespace}/{volume.persistent_volume_claim.claim_name}"
    made = {status.name for status in pod.status.resource_claim_statuses}
    for asked in spec.resource_claims:
        if asked.resource_claim_name:
            yield "ResourceClaim", f"{pod.namespace}/{asked.resource_claim_name}"
        elif asked.resource_claim_template_name and asked.name not in made:
            yield "ResourceClaimTemplate", f"{pod.namespace}/{asked.resource_claim_template_name}"
    for status in pod.status.resource_claim_statuses:
        if status.resource_claim_name:
            yield "ResourceClaim", f"{pod.namespace}/{status.resource_claim_name}"


def _names(objects: Iterable[Object]) -> set[str]:
    return {one.key for one in objects}


def _plural(kind: str) -> str:
    return f"{kind}es" if kind.endswith("s") else f"{kind}s"
