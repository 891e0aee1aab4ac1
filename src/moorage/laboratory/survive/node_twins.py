"""Nodes whose loss has the same consequences apart from names: of several such nodes, only one loss is computed.

Two nodes are equal if they have the same labels (except those with their own name), taints, amounts and images, and pods of the
same shapes, and if no node selector, affinity or volume in the cluster names one of them. Pods of a StatefulSet and pods with
claims are never equal to others. kube-scheduler may still break ties differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from moorage.api.core import Node, NodeSelectorTerm, Pod
from moorage.api.storage import PersistentVolume
from moorage.laboratory.trial.recorded_simulation import RecordedSimulation
from moorage.simulator.owners import controller_of

__all__ = ["pod_shape", "twins_of"]

_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
#: Labels to which controllers give a different value on each pod.
_OWN_LABELS: Final = frozenset(["statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"])


def twins_of(simulation: RecordedSimulation, on_node: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return for each node, by name, the name of the first node that is equal to it."""
    table = simulation.scheduler.cluster.table
    named = _named(simulation)
    first: dict[bytes, str] = {}
    found: dict[str, str] = {}
    shapes: dict[str, bytes | None] = {}
    for node in table.nodes:
        key = None if node.name in named else _key(node, [simulation.pods[uid] for uid in on_node.get(node.name, ())], shapes)
        found[node.name] = node.name if key is None else first.setdefault(key, node.name)
    return found


def _key(node: Node, pods: Iterable[Pod], shapes: dict[str, bytes | None]) -> bytes | None:
    """Return a key that is the same for equal nodes; None for a node that is equal to no other."""
    held = []
    for pod in pods:
        if pod.uid not in shapes:
            shapes[pod.uid] = pod_shape(pod)
        shape = shapes[pod.uid]
        if shape is None:
            return None
        held.append(shape)
    labels = {key: value for key, value in node.labels.items() if value != node.name}
    status = node.status
    return _ENCODER.encode(
        [labels, node.spec.taints, node.spec.unschedulable, status.allocatable, status.images, status.declared_features,
         sorted(held)]
    )  # fmt: skip


def pod_shape(pod: Pod) -> bytes | None:
    """Return a key that is the same for interchangeable pods; None for a pod that has claims or an identity of its own."""
    owner = controller_of(pod.metadata)
    if (owner is not None and owner.kind == "StatefulSet") or _OWN_LABELS & pod.labels.keys():
        return None
    spec = pod.spec
    if spec.resource_claims or any(volume.persistent_volume_claim or volume.ephemeral for volume in spec.volumes):
        return None
    about = (owner.kind, owner.uid or owner.name) if owner is not None else None
    leaving = pod.metadata.deletion_timestamp is not None
    return _ENCODER.encode([pod.namespace, pod.labels, about, leaving, pod.status.phase, spec.replace(node_name="")])


def _named(simulation: RecordedSimulation) -> set[str]:
    """Return the names, and all other values, by which pods and volumes select nodes."""
    found: set[str] = set()
    seen: set[int] = set()
    for pod in simulation.pods.values():
        found.update(pod.spec.node_selector.values())
        affinity = pod.spec.affinity
        if affinity is None or affinity.node_affinity is None or id(affinity) in seen:
            continue
        seen.add(id(affinity))
        wanted = affinity.node_affinity
        required = wanted.required_during_scheduling_ignored_during_execution
        terms = list(required.node_selector_terms) if required is not None else []
        terms += [one.preference for one in wanted.preferred_during_scheduling_ignored_during_execution]
        found.update(_values(terms))
    for volume in simulation.scheduler.cluster.objects(PersistentVolume).values():
        if volume.spec.node_affinity is not None and volume.spec.node_affinity.required is not None:
            found.update(_values(volume.spec.node_affinity.required.node_selector_terms))
    return found


def _values(terms: Iterable[NodeSelectorTerm]) -> Iterable[str]:
    for term in terms:
        for one in (*term.match_expressions, *term.match_fields):
            yield from one.values
