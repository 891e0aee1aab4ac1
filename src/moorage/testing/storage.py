"""Concise builders of claims, volumes and CSI nodes for tests. As in ``builders``, arguments are spelled as in a manifest.

a_claim("data", storageClassName="fast")           an unbound claim
a_bound_claim("data", "pv-1")                      a bound claim
a_volume("pv-1", size="10Gi", nodeAffinity=on_hosts("n1"))
a_pod(volumes=standing_on("data"))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from moorage.api.meta import Object
from moorage.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.rules.volumes.bindings import BIND_COMPLETED
from moorage.state.cluster import ClusterState


def a_claim(
    name: str = "claim",
    *,
    namespace: str = "default",
    size: str = "1Gi",
    metadata: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> PersistentVolumeClaim:
    """Return a claim of this size. Its UID is ``namespace/name`` unless ``metadata`` sets another."""
    named = {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}", **(metadata or {})}
    asked = {"resources": {"requests": {"storage": size}}, "accessModes": ["ReadWriteOnce"], **spec}
    return msgspec.convert({"metadata": named, "spec": asked, "status": dict(status or {})}, PersistentVolumeClaim)


def a_bound_claim(name: str, volume: str, **rest: Any) -> PersistentVolumeClaim:
    """Return a claim that is bound to a volume."""
    metadata = dict(rest.pop("metadata", {}))
    metadata["annotations"] = {BIND_COMPLETED: "yes", **metadata.get("annotations", {})}
    return a_claim(name, volumeName=volume, metadata=metadata, **rest)


def a_volume(
    name: str = "volume",
    labels: Mapping[str, str] | None = None,
    *,
    size: str = "1Gi",
    phase: str = "Available",
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> PersistentVolume:
    """Return a volume of this size, by default Available."""
    named = {"name": name, "labels": dict(labels or {}), **(metadata or {})}
    offered = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], **spec}
    return msgspec.convert({"metadata": named, "spec": offered, "status": {"phase": phase}}, PersistentVolume)


def a_class(name: str = "fast", **fields: Any) -> StorageClass:
    """Return a storage class that provisions volumes with the driver ``csi.example.com`` for the first consumer."""
    ways = {"provisioner": "csi.example.com", "volumeBindingMode": "WaitForFirstConsumer", **fields}
    return msgspec.convert({"metadata": {"name": name}, **ways}, StorageClass)


def a_csi_node(name: str = "node", limits: Mapping[str, int | None] | None = None, *, migrated: Iterable[str] = ()) -> CSINode:
    """Return a CSINode: the volume limit of each driver, and the in-tree plugins migrated to CSI."""
    drivers = [
        {"name": driver, **({} if limit is None else {"allocatable": {"count": limit}})}
        for driver, limit in (limits or {}).items()
    ]
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": ",".join(migrated)}
    return msgspec.convert({"metadata": {"name": name, "annotations": annotations}, "spec": {"drivers": drivers}}, CSINode)


def on_nodes_labelled(key: str, *values: str) -> dict[str, Any]:
    """Return the node affinity of a volume that can be reached from nodes with one of these values of a label."""
    asked = {"key": key, "operator": "In", "values": list(values)}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [asked]}]}}


def on_hosts(*names: str) -> dict[str, Any]:
    """Return the node affinity of a volume on these hosts, by their label ``kubernetes.io/hostname``."""
    return on_nodes_labelled("kubernetes.io/hostname", *names)


def standing_on(*claims: str) -> list[dict[str, Any]]:
    """Return the volumes of a pod that uses these claims."""
    return [{"name": f"v{at}", "persistentVolumeClaim": {"claimName": claim}} for at, claim in enumerate(claims)]


def with_objects(cluster: ClusterState, *objects: Object) -> ClusterState:
    """Add objects to a cluster and return it."""
    for obj in objects:
        cluster.set_object(obj)
    return cluster
