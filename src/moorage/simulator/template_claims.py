"""Claims that belong to pods: of ephemeral volumes, and of resource claim templates.

Source  kubernetes, pkg/controller/volume/ephemeral/controller.go; pkg/controller/resourceclaim/controller.go
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace as with_fields

from msgspec.structs import replace

from moorage.api.core import Pod, PodResourceClaim, PodResourceClaimStatus, Volume
from moorage.api.decode import decode
from moorage.api.devices import ResourceClaim, ResourceClaimTemplate
from moorage.api.meta import ObjectMeta
from moorage.api.storage import PersistentVolumeClaim, PersistentVolumeClaimTemplate
from moorage.controllers.machinery.object_fields import generated_name, stable_uid
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.owners import is_active, owner_reference

__all__ = ["add_claims", "with_device_claims"]

_POD_CLAIM = "resource.kubernetes.io/pod-claim-name"


def add_claims(cluster: ClusterInput, more: Iterable[PersistentVolumeClaim] = ()) -> ClusterInput:
    """Add ``more`` claims to the cluster, and create missing claims for ephemeral volumes and for resource claim templates.

    A pod whose resource claim is created here gets the claim's name in its status, as from the real controller.
    Raises  InputError for a claim template that cannot be read
    """
    held = {claim.key: claim for claim in cluster.persistent_volume_claims}
    for claim in more:
        held.setdefault(claim.key, claim)
    templates = {template.key: template for template in cluster.resource_claim_templates}
    devices = {claim.key: claim for claim in cluster.resource_claims}
    pods = []
    for pod in cluster.pods:
        waiting = is_active(pod)
        if waiting and pod.spec.volumes:
            for claim in _ephemeral_claims(pod):
                held.setdefault(claim.key, claim)
        pods.append(with_device_claims(pod, templates, devices) if waiting and pod.spec.resource_claims else pod)
    return with_fields(
        cluster,
        pods=tuple(pods),
        persistent_volume_claims=tuple(held.values()),
        resource_claims=tuple(devices.values()),
    )


def _ephemeral_claims(pod: Pod) -> Iterator[PersistentVolumeClaim]:
    for index, volume in enumerate(pod.spec.volumes):
        if volume.ephemeral is not None and volume.ephemeral.volume_claim_template is not None:
            yield _ephemeral_claim(pod, volume, volume.ephemeral.volume_claim_template, index)


def _ephemeral_claim(pod: Pod, volume: Volume, template: dict[str, object], index: int) -> PersistentVolumeClaim:
    where = f"Pod {pod.key}: spec.volumes[{index}].ephemeral.volumeClaimTemplate"
    made = decode(template, PersistentVolumeClaimTemplate, where)
    name = f"{pod.name}-{volume.name}"
    metadata = ObjectMeta(
        name=name,
        namespace=pod.namespace,
        uid=stable_uid("PersistentVolumeClaim", pod.namespace, name),
        labels=made.metadata.labels,
        annotations=made.metadata.annotations,
        owner_references=(owner_reference("v1", "Pod", pod.metadata),),
    )
    return PersistentVolumeClaim(metadata=metadata, spec=made.spec)


def with_device_claims(pod: Pod, templates: Mapping[str, ResourceClaimTemplate], devices: dict[str, ResourceClaim]) -> Pod:
    """Create the claims for a pod's resource claim templates, and record their names in its status."""
    known = {status.name: status for status in pod.status.resource_claim_statuses}
    for asked in pod.spec.resource_claims:
        template = templates.get(f"{pod.namespace}/{asked.resource_claim_template_name}")
        if asked.name in known or not asked.resource_claim_template_name or template is None:
            continue
        claim = _device_claim(pod, asked, template)
        devices.setdefault(claim.key, claim)
        known[asked.name] = PodResourceClaimStatus(name=asked.name, resource_claim_name=claim.metadata.name)
    if len(known) == len(pod.status.resource_claim_statuses):
        return pod
    return replace(pod, status=replace(pod.status, resource_claim_statuses=tuple(known.values())))


def _device_claim(pod: Pod, asked: PodResourceClaim, template: ResourceClaimTemplate) -> ResourceClaim:
    made = template.spec.metadata
    name = generated_name(f"{pod.name}-{asked.name}-", pod.namespace)
    metadata = ObjectMeta(
        name=name,
        namespace=pod.namespace,
        uid=stable_uid("ResourceClaim", pod.namespace, f"{name}/{pod.uid}"),
        labels=made.labels,
        annotations={**made.annotations, _POD_CLAIM: asked.name},
        owner_references=(owner_reference("v1", "Pod", pod.metadata),),
    )
    return ResourceClaim(metadata=metadata, spec=template.spec.spec)
