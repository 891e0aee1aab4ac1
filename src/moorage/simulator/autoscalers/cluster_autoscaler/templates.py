"""The node that a group would add: like one of its nodes, or like a given template, with the pods of each fresh node.

Source  cluster-autoscaler at 87d9c45c02^, simulator/node_info_utils.go, processors/nodeinfosprovider, utils/taints/taints.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from moorage.api.core import Node, Pod
from moorage.api.meta import ObjectMeta
from moorage.api.workloads import DaemonSet
from moorage.cluster.controllers.workloads.daemon_set import runs_on
from moorage.simulator.autoscalers.cluster_autoscaler.drain_rules import is_daemon_pod
from moorage.simulator.autoscalers.cluster_autoscaler.estimator import NodeTemplate
from moorage.simulator.autoscalers.cluster_autoscaler.scale_down import DELETED, is_ready
from moorage.simulator.owners import controller_of, is_mirror, owner_reference

__all__ = ["Templates"]

_TEMPLATE: Final = "cluster-autoscaler.kubernetes.io/template-node"
#: Taints that say something of one node, and not of its group.
_CONDITIONS: Final = frozenset({
    DELETED, "DeletionCandidateOfClusterAutoscaler",
    *(f"node.kubernetes.io/{name}" for name in (
        "not-ready", "unreachable", "unschedulable", "memory-pressure", "disk-pressure", "network-unavailable", "pid-pressure",
    )),
    "node.cloudprovider.kubernetes.io/uninitialized", "node.cloudprovider.kubernetes.io/shutdown",
})  # fmt: skip
_TRANSIENT: Final = (
    "startup-taint.cluster-autoscaler.kubernetes.io/", "status-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
)  # fmt: skip
_CRITICAL: Final = "system-node-critical"


class Templates:
    """Templates by group. It remembers those of nodes that were ready, for groups that have none any more."""

    def __init__(self) -> None:
        self._known: dict[str, NodeTemplate] = {}
        #: As in cluster-autoscaler, a template has another name each time, so pods are not remembered for its copies.
        self._made = 0

    def of(
        self, group: str, nodes: Sequence[Node], sketch: Node | None, pods_of: Callable[[str], Iterable[Pod]],
        daemons: Iterable[DaemonSet],
    ) -> NodeTemplate | None:  # fmt: skip
        """Return the template of a group: like a node that takes pods, like one that did, like ``sketch``, like any other.

        ``pods_of``  the pods of a node, by its name
        """
        held = list(daemons)
        self._made += 1
        name = f"template-node-for-{group}-{self._made}"
        good = next((node for node in nodes if _is_good(node)), None)
        if good is not None:
            self._known[group] = _template(name, good, pods_of(good.name), held, forced=False)
            return self._known[group]
        if group in self._known:
            return self._known[group]
        if sketch is not None:
            return _template(name, sketch, (), held, forced=True)
        return _template(name, nodes[0], pods_of(nodes[0].name), held, forced=False) if nodes else None


def _is_good(node: Node) -> bool:
    return is_ready(node) and not node.spec.unschedulable and all(taint.key != DELETED for taint in node.spec.taints)


def _template(name: str, node: Node, pods: Iterable[Pod], daemons: Iterable[DaemonSet], *, forced: bool) -> NodeTemplate:
    taints = tuple(one for one in node.spec.taints if one.key not in _CONDITIONS and not one.key.startswith(_TRANSIENT))
    meta = replace(node.metadata, name=name, uid=name, labels={**node.labels, _TEMPLATE: "true"})
    made = replace(node, metadata=meta, spec=replace(node.spec, taints=taints))
    held = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
    running = {owner.uid for pod in held if (owner := controller_of(pod.metadata)) is not None and owner.kind == "DaemonSet"}
    found = [pod for pod in held if is_daemon_pod(pod) or is_mirror(pod)]
    found += [
        _pod_of(one) for one in daemons
        if one.metadata.uid not in running and (forced or one.spec.template.spec.priority_class_name == _CRITICAL)
        and runs_on(one.spec.template.spec)(made)
    ]  # fmt: skip
    return NodeTemplate(made, tuple(found))


def _pod_of(daemon: DaemonSet) -> Pod:
    meta, template = daemon.metadata, daemon.spec.template
    made = ObjectMeta(
        name=meta.name, namespace=meta.namespace, uid=f"daemon of {meta.namespace}/{meta.name}",
        labels=template.metadata.labels, owner_references=(owner_reference("apps/v1", "DaemonSet", meta),),
    )  # fmt: skip
    return Pod(metadata=made, spec=template.spec)
