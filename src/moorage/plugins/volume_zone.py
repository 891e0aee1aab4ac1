"""VolumeZone: reject nodes outside the zones and regions that the labels of the pod's volumes name.

Reads     the pod's claims (except of ephemeral volumes), the zone and region labels of their volumes and of nodes
Rejects   nodes with zone or region labels that a volume's labels exclude; the pod, while a claim, its volume or its class is
          missing, or an immediate claim is unbound. Preemption never helps
Wakes on  nodes added or relabelled; the pod's claims; volumes added or with changed zones; WaitForFirstConsumer classes added
Source    kube-scheduler 1.36, plugins/volumezone/volume_zone.go; cloud-provider, volume/helpers/zones.go
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Final, NamedTuple

import numpy as np

from moorage.api.requirements import quoted
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.framework.changes import Detail, RefusingPlugin, Remedies
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.points import PreFilterPlugin, Reuse, Scope
from moorage.framework.verdicts import SKIP, Hold, Reject, Skip
from moorage.plugins.volumes.pod_claims import claim_not_found, class_not_found, names_claim, volume_not_found, volume_signature
from moorage.plugins.volumes.volume_reasons import why_zone
from moorage.plugins.volumes.volume_remedies import remedies_of_volumes
from moorage.rules.volumes.bindings import class_of_claim
from moorage.state.view import BoolArray, NodeView, PodInfo, Snapshot

# kube-scheduler's own texts, kept word for word: people search their events for them.
CONFLICT: Final = "node(s) had no available volume zone"
NO_CLAIM_NAME: Final = "PersistentVolumeClaim had no name"
NO_CLASS: Final = "PersistentVolumeClaim had no pv name and storageClass name"
NO_VOLUME: Final = "PersistentVolume had no name"

_BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
_BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
_ZONE: Final = "topology.kubernetes.io/zone"
_REGION: Final = "topology.kubernetes.io/region"
#: Topology labels of a volume, in the order they are checked → the label that replaces it on nodes without it.
LABELS: Final = {_BETA_ZONE: _ZONE, _BETA_REGION: _REGION, _ZONE: _ZONE, _REGION: _REGION}


class ZoneRequirement(NamedTuple):
    """A label of a volume; a node must have one of the values."""

    key: str
    values: frozenset[str]


class VolumeZone(PreFilterPlugin[tuple[ZoneRequirement, ...]], RefusingPlugin[tuple[ZoneRequirement, ...]]):
    name = "VolumeZone"
    reuse = Reuse(Scope.NODE, signature=volume_signature, signature_reads=())

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> tuple[ZoneRequirement, ...] | Skip | Hold:
        wanted = wanted_zones(pod, snapshot)
        return Hold.because(wanted, unresolvable=True) if isinstance(wanted, str) else tuple(wanted) or SKIP

    def filter(self, wanted: tuple[ZoneRequirement, ...], nodes: NodeView) -> Iterator[Reject]:
        elsewhere = nodes.false()
        for requirement in dict.fromkeys(wanted):
            elsewhere |= ~self.rows_at(requirement, nodes)
        if elsewhere.any():
            yield Reject(elsewhere & with_zone_label(nodes), CONFLICT, unresolvable=True)

    def rows_at(self, requirement: ZoneRequirement, nodes: NodeView) -> BoolArray:
        """Return for each row whether its label, or if absent the newer label of the same meaning, has one of the values."""
        at, newer = rows_labelled(requirement.key, requirement.values, nodes), LABELS[requirement.key]
        if newer == requirement.key:
            return at
        lacking = nodes.ids(nodes.label(requirement.key)) == 0
        return np.where(lacking, rows_labelled(newer, requirement.values, nodes), at)

    def why(self, wanted: tuple[ZoneRequirement, ...], pod: PodInfo, node: NodeView) -> Detail | None:
        return why_zone(wanted, node.first)

    def remedies(self, wanted: object, pod: PodInfo, node: NodeView) -> Iterator[Remedies]:
        return remedies_of_volumes(pod, node)

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(ClusterEvent(Resource.STORAGE_CLASS, Action.ADD), waits_for_consumer)
        yield Wake(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL))
        yield Wake(ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD | Action.UPDATE), names_claim)
        yield Wake(ClusterEvent(Resource.PERSISTENT_VOLUME, Action.ADD | Action.UPDATE), changed_zone)


def with_zone_label(nodes: NodeView) -> BoolArray:
    """Return for each row whether it has any zone or region label."""
    labelled = nodes.false()
    for key in LABELS:
        labelled |= np.not_equal(nodes.ids(nodes.label(key)), 0)
    return labelled


def rows_labelled(key: str, values: Container[object], nodes: NodeView) -> BoolArray:
    """Return for each row whether a label has one of the values."""
    column = nodes.label(key)
    return column.spread(nodes.ids(column), values.__contains__)


def wanted_zones(pod: PodInfo, snapshot: Snapshot) -> list[ZoneRequirement] | str:
    """Return the requirements of the volumes of a pod; or the text why it fits nowhere."""
    found: list[ZoneRequirement] = []
    for use in pod.volumes.claims if pod.volumes is not None else ():
        volume = None if use.ephemeral else volume_of(use.name, use.key, snapshot)
        if isinstance(volume, str):
            return volume
        found += zone_requirements(volume) if volume is not None else ()
    return found


def volume_of(name: str, key: str, snapshot: Snapshot) -> PersistentVolume | str | None:
    """Return a claim's volume; None if the claim waits for its first consumer; or the text why the pod fits nowhere."""
    if not name:
        return NO_CLAIM_NAME
    claim = snapshot.objects(PersistentVolumeClaim).get(key)
    if claim is None:
        return claim_not_found(name)
    if claim.spec.volume_name:
        volume = snapshot.objects(PersistentVolume).get(claim.spec.volume_name)
        return volume_not_found(claim.spec.volume_name) if volume is None else volume
    class_name = class_of_claim(claim)
    if not class_name:
        return NO_CLASS
    storage_class = snapshot.objects(StorageClass).get(class_name)
    if storage_class is None:
        return class_not_found(class_name)
    if storage_class.volume_binding_mode is None:
        return f"VolumeBindingMode not set for StorageClass {quoted(class_name)}"
    return None if storage_class.volume_binding_mode == "WaitForFirstConsumer" else NO_VOLUME


def zone_requirements(volume: PersistentVolume) -> tuple[ZoneRequirement, ...]:
    """Return the requirements of a volume's topology labels; a label with an empty zone in it is ignored."""
    labels = volume.metadata.labels
    zones = [(key, [zone.strip() for zone in labels[key].split("__")]) for key in LABELS if key in labels]
    return tuple(ZoneRequirement(key, frozenset(values)) for key, values in zones if all(values))


# -- hints --------------------------------------------------------------------------------------------------------------


def waits_for_consumer(pod: PodInfo, old: StorageClass | None, new: StorageClass) -> bool:
    """Return whether an added class binds its volumes only when a pod needs them."""
    return new.volume_binding_mode == "WaitForFirstConsumer"


def changed_zone(pod: PodInfo, old: PersistentVolume | None, new: PersistentVolume) -> bool:
    """Return whether a volume is new, or its topology labels changed."""
    return old is None or zone_requirements(old) != zone_requirements(new)
