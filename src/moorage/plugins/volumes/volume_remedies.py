"""Changes that lift a rejection by a volume plugin: another claim, a new volume, or evictions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from moorage.api.selectors import compile_node_selector
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.framework.changes import Change, Remedies
from moorage.plugins.shared.evictions import can_be_evicted, evict, evict_all
from moorage.rules.volumes.bindings import class_of_claim
from moorage.state.view import NodeInfo, NodeView, PodInfo, Snapshot

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_ZONE_LABELS: Final = frozenset(
    f"{group}/{name}"
    for group in ("topology.kubernetes.io", "failure-domain.beta.kubernetes.io")
    for name in ("zone", "region")
)
#: The most claims, or pods to evict, that are offered.
MOST: Final = 8


def other_claims(pod: PodInfo, node: NodeView) -> Iterator[Change]:
    """Offer other claims of the namespace that the node can use, for each claim that it cannot."""
    claims = node.snapshot.objects(PersistentVolumeClaim)
    used = {use.key for use in pod.volumes.claims} if pod.volumes is not None else set()
    free = [claim for claim in claims.values() if claim.metadata.namespace == pod.namespace and claim.key not in used]
    usable = [claim for claim in free if _is_usable(claim, node.snapshot, node.first)]
    for volume in pod.spec.volumes:
        source = volume.persistent_volume_claim
        held = claims.get(f"{pod.namespace}/{source.claim_name}") if source is not None else None
        if source is not None and (held is None or not _is_usable(held, node.snapshot, node.first)):
            for claim in usable[:MOST]:
                old, new = source.claim_name, claim.metadata.name
                yield Change("pod", "claim", f"pod/{pod.key}", f"volumes.{volume.name}", old, new)


def _is_usable(claim: PersistentVolumeClaim, snapshot: Snapshot, node: NodeInfo) -> bool:
    """Return whether a claim is bound to a volume that the node can access, or waits for its first consumer."""
    if not claim.spec.volume_name:
        kind = snapshot.objects(StorageClass).get(class_of_claim(claim))
        if kind is None or kind.provisioner == _NO_PROVISIONER:
            return False
        return kind.volume_binding_mode == "WaitForFirstConsumer"
    volume = snapshot.objects(PersistentVolume).get(claim.spec.volume_name)
    if volume is None:
        return False
    if not all(node.labels.get(key, value) in value.split("__") for key, value in _zones(volume)):
        return False
    required = volume.required_affinity
    return required is None or compile_node_selector(required).matches(node.labels, node.name)


def _zones(volume: PersistentVolume) -> list[tuple[str, str]]:
    """Return the zone and region labels of a volume; several values are joined by ``__``."""
    return [(key, value) for key, value in volume.metadata.labels.items() if key in _ZONE_LABELS]


def remedies_of_volumes(pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
    """Offer to create a volume on this node for each unbound claim; or other claims."""
    claims = node.snapshot.objects(PersistentVolumeClaim)
    wanted = [claims[use.key] for use in pod.volumes.claims if use.key in claims] if pod.volumes is not None else []
    unbound = [claim for claim in wanted if not claim.spec.volume_name]
    if unbound:
        yield tuple(
            Change("cluster", "volume", f"persistentvolumeclaim/{claim.key}", "spec.volumeName", None, node.first.name)
            for claim in unbound
        )
    yield from other_claims(pod, node)


def remedies_of_holders(pod: PodInfo, node: NodeView, clashes: Iterator[PodInfo], alone: frozenset[str]) -> Iterator[Remedies]:
    """Offer to evict the ``clashes``, which use the pod's disks here, and all pods that use its claims ``alone``.

    ``alone`` are the names of the pod's ReadWriteOncePod claims.
    """
    yield from evict_all(((other, node.first.name) for other in clashes), "disk")
    if alone:
        table = node.table
        users = (
            (other, table.nodes[row].name)
            for row in range(len(table))
            for other in table.pods[row].values()
            if other.namespace == pod.namespace and other.volumes is not None
            and any(use.name in alone for use in other.volumes.claims)
        )  # fmt: skip
        yield from evict_all(users, "claim")


def remedies_of_full_attachments(node: NodeView) -> Iterator[Remedies]:
    """Offer to evict one pod with volumes from a node that can attach no more."""
    held = (pod for pod in node.first.pods if pod.volumes is not None and can_be_evicted(pod))
    yield from (evict(pod, node.first.name) for pod in islice(held, MOST))
