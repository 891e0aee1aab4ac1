"""Hollow nodes: any number of equal nodes spread over zones; and a default storage class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from moorage.api.documents.served_kinds import Document
from moorage.api.names import check_dns1123_subdomain
from moorage.api.quantity import QuantityError, sign
from moorage.cluster.controllers.nodes.node_lifecycle import with_old_labels
from moorage.errors import InputError
from moorage.rules.volumes.volumes import PRETENDED

#: The default storage class.
STANDARD_CLASS: Final[Document] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": PRETENDED,
    "reclaimPolicy": "Delete",
    "volumeBindingMode": "WaitForFirstConsumer",
}

#: Several times the number of nodes that Kubernetes supports.
MOST: Final = 50_000


@dataclass(frozen=True, slots=True)
class NodeShape:
    """The capacity of each node, as Kubernetes quantities, and the number of zones."""

    cpu: str = "8"
    memory: str = "32Gi"
    pods: int = 110
    zones: int = 3

    def check(self) -> None:
        """Validate the quantities.

        Raises  InputError
        """
        for flag, quantity in (("--node-cpu", self.cpu), ("--node-memory", self.memory)):
            try:
                positive = sign(quantity) > 0
            except QuantityError:
                raise InputError(f"{flag}: {quantity} is not a quantity; use for example 8, 500m or 32Gi") from None
            if not positive:
                raise InputError(f"{flag}: {quantity} must be positive")


def make_nodes(count: int, shape: NodeShape, name: str = "node") -> Iterator[Document]:
    """Yield ``count`` numbered nodes; zones alternate.

    Raises  InputError for an invalid shape or name
    """
    shape.check()
    if faults := check_dns1123_subdomain(name):
        raise InputError(f"--node-name: {name}: {faults[0]}")
    if count > MOST:
        raise InputError(f"--nodes: {count} exceeds the maximum of {MOST}")
    width = len(str(count))
    return (_node(f"{name}-{number:0{width}}", shape, number) for number in range(1, count + 1))


def _node(name: str, shape: NodeShape, number: int) -> Document:
    amounts = {"cpu": shape.cpu, "memory": shape.memory, "pods": str(shape.pods), "ephemeral-storage": "100Gi"}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    if shape.zones:
        labels["topology.kubernetes.io/region"] = "region-1"
        labels["topology.kubernetes.io/zone"] = f"zone-{(number - 1) % shape.zones + 1}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": with_old_labels(labels)},
        "status": {"capacity": amounts, "allocatable": dict(amounts)},
    }
