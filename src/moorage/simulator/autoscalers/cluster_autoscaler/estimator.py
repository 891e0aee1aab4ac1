"""How many nodes of a group pending pods need: first fit, large pods first, with the Filter plugins alone.

Source  cluster-autoscaler at 87d9c45c02^, estimator/binpacking_estimator.go, decreasing_pod_orderer.go,
        core/scaleup/equivalence/groups.go
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from moorage.api.core import Node, Pod
from moorage.simulator.autoscalers.cluster_autoscaler.packing import PackingSnapshot, likeness
from moorage.simulator.owners import controller_of
from moorage.state.pod_requests import amount, pod_requests

__all__ = ["NodeTemplate", "estimate", "pod_groups"]

_HOSTNAME: Final = "kubernetes.io/hostname"
#: How many groups the pods of one controller form; each further pod that differs is a group of its own.
_MOST_GROUPS: Final = 10
_SPREAD: Final = "node(s) didn't match pod topology spread constraints"


class NodeTemplate(Struct, frozen=True):
    """A node as a group would add it, with the pods that run on each of its nodes."""

    node: Node
    pods: tuple[Pod, ...] = ()

    def copy(self, name: str) -> NodeTemplate:
        """Return a node of another name, with its pods."""
        meta = self.node.metadata
        node = replace(self.node, metadata=replace(meta, name=name, uid=name, labels={**meta.labels, _HOSTNAME: name}))
        return NodeTemplate(node, tuple(_renamed(pod, name) for pod in self.pods))


def _renamed(pod: Pod, node: str) -> Pod:
    name = f"{pod.name}-{node}"
    meta = replace(pod.metadata, name=name, uid=f"{pod.metadata.uid}/{node}")
    return replace(pod, metadata=meta, spec=replace(pod.spec, node_name=node))


def pod_groups(pods: Iterable[Pod]) -> list[list[Pod]]:
    """Return the pods in groups that need the same: of one controller, with equal labels and specs."""
    found: list[list[Pod]] = []
    known: dict[bytes, list[Pod]] = {}
    counts: dict[str, int] = {}
    for pod in pods:
        key, owner = likeness(pod), controller_of(pod.metadata)
        if key is None or owner is None:
            found.append([pod])
        elif key in known:
            known[key].append(pod)
        else:
            found.append([pod])
            counts[owner.uid] = counts.get(owner.uid, 0) + 1
            if counts[owner.uid] <= _MOST_GROUPS:
                known[key] = found[-1]
    return found


def size_of(pod: Pod, node: Node) -> float:
    """Return the sum of a pod's shares of a node's cpu and memory."""
    asked, offers = pod_requests(pod).requests, node.status.allocatable
    shares = (asked.get(name, 0) / offered for name in ("cpu", "memory") if (offered := amount(name, offers.get(name, 0))) > 0)
    return float(sum(shares))


def estimate(
    packed: PackingSnapshot, groups: Sequence[Sequence[Pod]], template: NodeTemplate, most: int | None
) -> tuple[int, list[Pod]]:
    """Return how many nodes like the template hold pods of these groups, and the pods.

    ``most``  nodes to try at most; None: any number. Nothing of it remains in ``packed``
    """
    packing = _BinPacking(packed, template, most)
    packed.fork()
    try:
        open_ = True
        for group in sorted(groups, key=lambda pods: size_of(pods[0], template.node), reverse=True):
            left = packing.on_new_nodes(group)
            open_ = open_ and packing.add_for(left)
        return len(packing.used), packing.placed
    finally:
        packed.revert()


class _BinPacking:
    """``names`` are the nodes that were added, ``used`` those that pods went to, also if they existed before."""

    def __init__(self, packed: PackingSnapshot, template: NodeTemplate, most: int | None) -> None:
        self._packed, self._template, self._most = packed, template, most
        self.names: dict[str, None] = {}
        self.used: set[str] = set()
        self.placed: list[Pod] = []
        self._newest = ""

    def on_new_nodes(self, pods: Sequence[Pod]) -> Sequence[Pod]:
        """Place pods on the nodes that were added, up to the first that does not fit. Return the others."""
        for at, pod in enumerate(pods):
            name = self._packed.place_anywhere(pod, self.names) if self.names else ""
            if not name:
                return pods[at:]
            self._took(pod, name)
        return ()

    def _took(self, pod: Pod, name: str) -> None:
        self.used.add(name)
        self.placed.append(pod)

    def add_for(self, pods: Sequence[Pod]) -> bool:
        """Place pods on the newest node, or on one that is added. Return False at the limit of nodes."""
        for pod in pods:
            if self._newest and self._on_newest(pod):
                continue
            if self._newest and self._newest not in self.used:
                return True  # a node that stays empty helps no pod that is not on it
            if self._most is not None and len(self.names) >= self._most:
                return False
            made = self._template.copy(f"{self._template.node.name}-e-{len(self.names)}")
            self._newest = made.node.name
            self._packed.add(made.node, made.pods)
            self.names[self._newest] = None
            if self._packed.place_on(pod, self._newest) is not None:
                return True
            self._took(pod, self._newest)
        return True

    def _on_newest(self, pod: Pod) -> bool:
        refusal = self._packed.place_on(pod, self._newest)
        if refusal is None:
            self._took(pod, self._newest)
            return True
        if _SPREAD not in refusal or all(one.topology_key != _HOSTNAME for one in pod.spec.topology_spread_constraints):
            return False
        name = self._packed.place_anywhere(pod, {*self._packed.order} - {self._newest})
        if name:
            self._took(pod, name)
        return bool(name)
