"""VolumeZone: keep a pod in the zones and regions that its volumes' labels name.

Reads     the pod's claims (ephemeral volumes' not), their volumes' zone and region labels; the nodes' labels of the same
Rejects   nodes with zone or region labels that a volume's labels do not take; the pod, while a claim, its volume or its
          class is missing, or the claim should be bound and is not. Eviction never helps
Wakes on  nodes and their labels; the pod's claims; volumes that come or change their zones; classes that wait for a consumer
Source    kube-scheduler 1.36, plugins/volumezone/volume_zone.go; cloud-provider, volume/helpers/zones.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from moorage.api.requirements import quoted
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.points import Depends, Signature
from moorage.framework.verdicts import SKIP, Hold, Reject, Skip
from moorage.plugins.volumes.claim_lookup import claim_not_found, class_not_found, class_of_claim, names_claim, volume_not_found
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

__all__ = ["CONFLICT", "LABELS", "VolumeZone", "ZoneRequirement", "is_elsewhere", "places", "volume_of", "waits_for_consumer"]

# kube-scheduler's own texts, kept word for word: people search their events for them.
CONFLICT: Final = "node(s) had no available volume zone"
NO_CLAIM_NAME: Final = "PersistentVolumeClaim had no name"
NO_CLASS: Final = "PersistentVolumeClaim had no pv name and storageClass name"
NO_VOLUME: Final = "PersistentVolume had no name"

_BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
_BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
_ZONE: Final = "topology.kubernetes.io/zone"
_REGION: Final = "topology.kubernetes.io/region"
#: Labels that say where a volume is, in the order they are looked at → the label that may stand in for it on a node.
LABELS: Final = {_BETA_ZONE: _ZONE, _BETA_REGION: _REGION, _ZONE: _ZONE, _REGION: _REGION}


class ZoneRequirement(NamedTuple):
    """A label of a volume: nodes must have one of these values."""

    key: str
    values: frozenset[str]


class VolumeZone:
    """See the module's description."""

    name = "VolumeZone"
    depends = Depends.NODES
    signs_by = ()

    def sign(self, pod: PodInfo) -> Signature | None:
        """Pods with volumes that matter are judged each for itself."""
        return {} if pod.volumes is None else None

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> tuple[ZoneRequirement, ...] | Skip | Hold:
        found: list[ZoneRequirement] = []
        for use in pod.volumes.claims if pod.volumes is not None else ():
            if use.ephemeral:
                continue
            volume = volume_of(use.name, use.key, snapshot)
            if isinstance(volume, str):
                return Hold.because(volume, unresolvable=True)
            found += places(volume) if volume is not None else ()
        return tuple(found) or SKIP

    def filter(self, wanted: tuple[ZoneRequirement, ...], nodes: NodeView) -> Iterator[Reject]:
        elsewhere = nodes.false()
        for place in dict.fromkeys(wanted):
            elsewhere |= ~_rows_at(place, nodes)
        if elsewhere.any():
            somewhere = nodes.false()
            for key in LABELS:
                somewhere |= np.not_equal(nodes.ids(nodes.label(key)), 0)
            yield Reject(elsewhere & somewhere, CONFLICT, unresolvable=True)

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(ClusterEvent(Resource.STORAGE_CLASS, Action.ADD), waits_for_consumer)
        yield Wake(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL))
        yield Wake(ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD | Action.UPDATE), names_claim)
        yield Wake(ClusterEvent(Resource.PERSISTENT_VOLUME, Action.ADD | Action.UPDATE), is_elsewhere)


def volume_of(name: str, key: str, snapshot: Snapshot) -> PersistentVolume | str | None:
    """Return a claim's volume; None if it is still to be found or made; or why the pod cannot go anywhere."""
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


def places(volume: PersistentVolume) -> tuple[ZoneRequirement, ...]:
    """Return where a volume's labels say it is; a label with an empty zone in it is passed over."""
    labels = volume.metadata.labels
    zones = [(key, [zone.strip() for zone in labels[key].split("__")]) for key in LABELS if key in labels]
    return tuple(ZoneRequirement(key, frozenset(values)) for key, values in zones if all(values))


def _rows_at(place: ZoneRequirement, nodes: NodeView) -> BoolArray:
    """Say for each row whether its label, or where it has none the newer label of the same meaning, is among the values."""
    column = nodes.label(place.key)
    ids = nodes.ids(column)
    at = column.spread(ids, lambda label: label in place.values)
    newer = LABELS[place.key]
    if newer != place.key:
        column = nodes.label(newer)
        at = np.where(ids == 0, column.spread(nodes.ids(column), lambda label: label in place.values), at)
    return at


# -- hints --------------------------------------------------------------------------------------------------------------


def waits_for_consumer(pod: PodInfo, old: StorageClass | None, new: StorageClass) -> bool:
    """Say whether a class that came leaves its volumes unbound until a pod needs them."""
    del pod, old
    return new.volume_binding_mode == "WaitForFirstConsumer"


def is_elsewhere(pod: PodInfo, old: PersistentVolume | None, new: PersistentVolume) -> bool:
    """Say whether a volume is new, or is now said to be in other places than before."""
    del pod
    return old is None or places(old) != places(new)
