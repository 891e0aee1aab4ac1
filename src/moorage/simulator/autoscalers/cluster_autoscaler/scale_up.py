"""Scale-up of cluster-autoscaler: which node group grows for pending pods, by how many nodes, and why not for the others.

Nodes are estimated by first fit, large pods first, with the Filter plugins alone, on copies of a group's template.

Source  cluster-autoscaler at 87d9c45c02^, core/scaleup/orchestrator/orchestrator.go, core/scaleup/equivalence/groups.go,
        estimator/binpacking_estimator.go, decreasing_pod_orderer.go, resourcequotas, simulator/node_info_utils.go,
        processors/nodegroupset/balancing_processor.go, compare_nodegroups.go, nodeinfosprovider, utils/taints/taints.go
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from moorage.api.core import Node, Pod
from moorage.api.pod_requests import amount, pod_requests
from moorage.api.workloads import DaemonSet, PodDisruptionBudget
from moorage.rules.workloads.daemon_set import runs_on
from moorage.simulator.autoscalers.cluster_autoscaler.flags import AutoscalerFlags, Expander, ExpansionOption, chosen, size_of
from moorage.simulator.autoscalers.cluster_autoscaler.packing import PackingSnapshot, likeness
from moorage.simulator.autoscalers.cluster_autoscaler.removal_rules import DELETED, is_daemon_pod
from moorage.simulator.autoscalers.instance_types import amounts
from moorage.simulator.autoscalers.providers import NO_PROVIDER, Provider, provider_of
from moorage.simulator.owners import controller_of, daemon_of, is_mirror
from moorage.state.pod_info import PodInfo

_HOSTNAME: Final = "kubernetes.io/hostname"
_IGNORED: Final = frozenset({
    _HOSTNAME, "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "beta.kubernetes.io/fluentd-ds-ready",
    "kops.k8s.io/instancegroup",
})  # fmt: skip
#: How far the memory, the allocatable and the free resources of similar groups may differ, as shares of the larger.
_MEMORY, _ALLOCATABLE, _FREE = 0.015, 0.05, 0.05
#: How many groups the pods of one controller form; each further pod that differs is a group of its own.
_MOST_GROUPS: Final = 10
_SPREAD: Final = "node(s) didn't match pod topology spread constraints"
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


# -- node groups -------------------------------------------------------------------------------------------------------


class NodeTemplate(Struct, frozen=True):
    """A node as a group would add it, with the pods that run on each of its nodes."""

    node: Node
    pods: tuple[Pod, ...] = ()

    def copy(self, name: str) -> NodeTemplate:
        """Return a node of another name, with its pods."""
        meta, pods = self.node.metadata, []
        node = self.node.replace(metadata=meta.replace(name=name, uid=name, labels={**meta.labels, _HOSTNAME: name}))
        for pod in self.pods:
            meta = pod.metadata.replace(name=f"{pod.name}-{name}", uid=f"{pod.metadata.uid}/{name}")
            pods.append(pod.replace(metadata=meta, spec=pod.spec.replace(node_name=name)))
        return NodeTemplate(node, tuple(pods))


@dataclass
class GroupSize:
    """A node group: its bounds, its target size, its template, and the price of one node for an hour."""

    name: str
    least: int
    most: int
    target: int
    template: NodeTemplate
    price: float = 1.0


@dataclass
class RoundView:
    """The cluster of a round.

    ``packed``    all nodes, with the pods that are placed on them or nominated for them
    ``waiting``   pods that the scheduler found no node for; ``born_s``: their creation by UID
    ``group_of``  node → the name of its group
    ``upcoming``  by group, nodes that were ordered and are not ready
    """

    packed: PackingSnapshot
    nodes: Sequence[Node]
    waiting: Sequence[Pod]
    groups: Sequence[GroupSize]
    group_of: Mapping[str, str]
    budgets: Sequence[PodDisruptionBudget] = ()
    upcoming: Mapping[str, int] = field(default_factory=dict)
    born_s: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def by_name(self) -> dict[str, GroupSize]:
        return {group.name: group for group in self.groups}

    def group(self, node: str) -> GroupSize | None:
        """Return the group of a node; None if it has none."""
        return self.by_name.get(self.group_of.get(node, ""))


class Templates:
    """The nodes that groups would add. It remembers those of nodes that were ready, for groups that have none any more."""

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
        open_ = (node for node in nodes if node.is_ready and not node.spec.unschedulable)
        good = next((node for node in open_ if all(taint.key != DELETED for taint in node.spec.taints)), None)
        if good is not None:
            self._known[group] = _template(name, good, pods_of(good.name), held, forced=False)
        if group in self._known:
            return self._known[group]
        if sketch is not None:
            return _template(name, sketch, (), held, forced=True)
        return _template(name, nodes[0], pods_of(nodes[0].name), held, forced=False) if nodes else None


def _template(name: str, node: Node, pods: Iterable[Pod], daemons: Iterable[DaemonSet], *, forced: bool) -> NodeTemplate:
    taints = tuple(one for one in node.spec.taints if one.key not in _CONDITIONS and not one.key.startswith(_TRANSIENT))
    meta = node.metadata.replace(name=name, uid=name, labels={**node.labels, _TEMPLATE: "true"})
    made = node.replace(metadata=meta, spec=node.spec.replace(taints=taints))
    held = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
    running = {owner.uid for pod in held if (owner := controller_of(pod.metadata)) is not None and owner.kind == "DaemonSet"}
    found = [pod for pod in held if is_daemon_pod(pod) or is_mirror(pod)]
    found += [
        daemon_of(one) for one in daemons
        if one.metadata.uid not in running and (forced or one.spec.template.spec.priority_class_name == _CRITICAL)
        and runs_on(one.spec.template.spec)(made)
    ]  # fmt: skip
    return NodeTemplate(made, tuple(found))


# -- estimates ---------------------------------------------------------------------------------------------------------


def pod_groups(pods: Iterable[Pod]) -> list[list[Pod]]:
    """Return the pods in groups that need the same: of one controller, with equal labels and specs."""
    found: list[list[Pod]] = []
    known: dict[bytes | None, list[Pod]] = {}
    counts = Counter[str]()
    for pod in pods:
        key, owner = likeness(pod), controller_of(pod.metadata)
        if key in known:
            known[key].append(pod)
            continue
        found.append([pod])
        if key is not None and owner is not None:
            counts[owner.uid] += 1
            if counts[owner.uid] <= _MOST_GROUPS:
                known[key] = found[-1]
    return found


def _share_of(pod: Pod, node: Node) -> float:
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
    packing, open_ = _BinPacking(packed, template, most), True
    with packed.trial():
        for group in sorted(groups, key=lambda pods: _share_of(pods[0], template.node), reverse=True):
            left = packing.on_new_nodes(group)
            open_ = open_ and packing.add_for(left)
        return len(packing.used), packing.placed


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
            if not self._took(pod, self._packed.place_anywhere(pod, self.names) if self.names else ""):
                return pods[at:]
        return ()

    def _took(self, pod: Pod, name: str) -> bool:
        """Note the node to which a pod went; return False if it went to none."""
        if name:
            self.used.add(name)
            self.placed.append(pod)
        return bool(name)

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
            return self._took(pod, self._newest)
        if _SPREAD not in refusal or all(one.topology_key != _HOSTNAME for one in pod.spec.topology_spread_constraints):
            return False
        return self._took(pod, self._packed.place_anywhere(pod, {*self._packed.order} - {self._newest}))


class ResourceBounds:
    """How much cpu and memory a cluster may still gain or lose.

    Source  cluster-autoscaler at 87d9c45c02^, resourcequotas/tracker.go
    """

    def __init__(self, nodes: Iterable[Node], flags: AutoscalerFlags, *, lowest: bool) -> None:
        sizes = [(0, 0), *map(_cores_and_memory, nodes)]
        bounds = (flags.cores_total, tuple(gib << 30 for gib in flags.memory_total))
        pairs = zip(map(sum, zip(*sizes, strict=True)), bounds, strict=True)
        self.left = [max(have - low if lowest else high - have, 0) for have, (low, high) in pairs]

    def allowed(self, node: Node, count: int) -> tuple[int, tuple[str, ...]]:
        """Return how many of ``count`` such nodes the bounds allow, and the resources that they exceed."""
        exceeded = []
        allowed = count
        for name, left, size in zip(("cpu", "memory"), self.left, _cores_and_memory(node), strict=True):
            if size > 0 and left < size * count:
                exceeded.append(name)
                allowed = min(allowed, left // size)
        return allowed, tuple(exceeded)

    def consume(self, node: Node, count: int) -> bool:
        """Count nodes in, if the bounds allow all of them."""
        if self.allowed(node, count)[0] != count:
            return False
        sizes = _cores_and_memory(node)
        self.left = [max(left - size * count, 0) for left, size in zip(self.left, sizes, strict=True)]
        return True


def _cores_and_memory(node: Node) -> tuple[int, int]:
    cpu, memory = size_of(node)
    return -(-cpu // 1000), memory


@dataclass
class ScaleUp:
    """What a scale-up does.

    ``options``  what was considered; ``more``: nodes to add by group; ``reasons``: for each pod (by UID) that no group
    helps, why each group does not, by group
    """

    options: list[ExpansionOption] = field(default_factory=list)
    more: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)


def scale_up(
    packed: PackingSnapshot, groups: Sequence[GroupSize], pods: Sequence[Pod], flags: AutoscalerFlags, expander: Expander,
    random: Random,
) -> ScaleUp:  # fmt: skip
    """Return how node groups grow for pods that fit on no node of ``packed``, which is left as it was."""
    growth = _Growth(packed, groups, pods, flags)
    growth.made.options += filter(None, map(growth.option, growth.fitting))
    if growth.made.options:
        growth.grow(chosen(growth.made.options, expander, growth.nodes, random))
    return growth.made


class _Growth:
    """One scale-up. ``fitting``: by group that may grow, the pods, by their place in ``alike``, that fit on a new node."""

    def __init__(
        self, packed: PackingSnapshot, groups: Sequence[GroupSize], pods: Sequence[Pod], flags: AutoscalerFlags
    ) -> None:
        nodes = [packed.node(name) for name in packed.order]
        self._packed, self._flags, self._alike, self.nodes = packed, flags, pod_groups(pods), len(nodes)
        self._groups, self._bounds = {group.name: group for group in groups}, ResourceBounds(nodes, flags, lowest=False)
        layer = provider_of(nodes, flags.cloud_provider)
        self._layer = replace(layer, ignored_labels=(*layer.ignored_labels, *flags.balancing_ignore_label))
        self.made, self.fitting = ScaleUp(), dict[str, list[int]]()
        skipped: dict[str, tuple[str, ...]] = {}
        refused: list[dict[str, tuple[str, ...]]] = [{} for _ in self._alike]
        for group in groups:
            exceeded = self._bounds.allowed(group.template.node, 1)[1]
            if group.target >= group.most:
                skipped[group.name] = ("max node group size reached",)
            elif exceeded:
                skipped[group.name] = (f'exceeded quota: "cluster-wide", resources: {", ".join(exceeded)}',)
            else:
                self.fitting[group.name] = self._fitting(group, refused)
        helped = {at for found in self.fitting.values() for at in found}
        for at, alike in enumerate(self._alike):
            if at not in helped:
                self.made.reasons |= {pod.metadata.uid: {**refused[at], **skipped} for pod in alike}

    def _fitting(self, group: GroupSize, refused: Sequence[dict[str, tuple[str, ...]]]) -> list[int]:
        """Return which pods fit on a new node of a group, and note why the others do not."""
        made = group.template.copy(f"{group.template.node.name}-sketch")
        with self._packed.trial():
            self._packed.add(made.node, made.pods)
            why = [self._packed.refusal(pods[0], made.node.name) for pods in self._alike]
        for texts, held in zip(why, refused, strict=True):
            if texts is not None:
                held[group.name] = texts
        return [at for at, texts in enumerate(why) if texts is None]

    def option(self, name: str) -> ExpansionOption | None:
        """Return what a group would add, and for which pods; None if it helps none."""
        group, flags = self._groups[name], self._flags
        if not self.fitting[name]:
            return None
        room = sum(max(one.most - one.target, 0) for one in (group, *self._similar(group)))
        limits = [flags.max_nodes_per_scaleup or room, room]
        if flags.max_nodes_total:
            limits.append(flags.max_nodes_total - self.nodes)
        alike = [self._alike[at] for at in self.fitting[name]]
        count, pods = estimate(self._packed, alike, group.template, max(min(limits), 0))
        if not count or not pods:
            return None
        return ExpansionOption(group.name, group.template.node, group.price, count, tuple(map(PodInfo, pods)))

    def _similar(self, group: GroupSize) -> list[GroupSize]:
        """Return the other groups whose nodes are like this one's and take the same pods."""
        fitting = self.fitting
        if not self._flags.balance_similar_node_groups or not fitting.get(group.name):
            return []
        likely = [self._groups[name] for name, found in fitting.items() if {*fitting[group.name]} <= {*found}]
        return [one for one in likely if one is not group and are_similar(group.template, one.template, self._layer)]

    def grow(self, option: ExpansionOption) -> None:
        """Spread the nodes of an option over its group and those like it."""
        best, bounds, count = self._groups[option.pool], self._bounds, option.count
        if self._flags.max_nodes_total:
            count = min(count, self._flags.max_nodes_total - self.nodes)
        if count < 1:
            return
        count = bounds.allowed(best.template.node, count)[0]
        within = [best, *(one for one in self._similar(best) if not bounds.allowed(one.template.node, 1)[1])]
        for name, more in balanced(within, count).items():
            node = self._groups[name].template.node
            allowed = bounds.allowed(node, more)[0]
            if allowed > 0:
                bounds.consume(node, allowed)
                self.made.more[name] = allowed


def are_similar(one: NodeTemplate, other: NodeTemplate, layer: Provider = NO_PROVIDER) -> bool:
    """Return True if nodes have the same capacity and labels, but for small differences, the zone and the host's name.

    ``layer``  the provider, whose own labels do not count
    """
    if any(one.node.labels.get(key) and one.node.labels[key] == other.node.labels.get(key) for key in layer.pools):
        return True
    ignored = _IGNORED.union(layer.ignored_labels)
    (labels, *mine), (its_labels, *its) = _compared(one, ignored), _compared(other, ignored)
    shares = ({"memory": _MEMORY}, dict.fromkeys(mine[1], _ALLOCATABLE), dict.fromkeys(mine[2], _FREE))
    return labels == its_labels and all(
        left.keys() == right.keys()
        and all(abs(held - right[name]) <= max(held, right[name]) * share.get(name, 0.0) for name, held in left.items())
        for left, right, share in zip(mine, its, shares, strict=True)
    )


def _compared(
    held: NodeTemplate, ignored: Collection[str]
) -> tuple[dict[str, str], dict[str, int], dict[str, int], dict[str, int]]:
    """Return a node's labels that count, its capacity, what it offers, and what its pods leave of that."""
    status, labels = held.node.status, {key: value for key, value in held.node.labels.items() if key not in ignored}
    capacity, offered = amounts(status.capacity, held.node.name), amounts(status.allocatable, held.node.name)
    asked: Counter[str] = Counter({"cpu": 0, "memory": 0})
    for pod in held.pods:
        asked.update(PodInfo(pod).requests)
    return labels, capacity, offered, {name: offered.get(name, 0) - value for name, value in asked.items()}


def balanced(groups: Sequence[GroupSize], count: int) -> dict[str, int]:
    """Return how many nodes each group gets: one by one to the smallest, up to its maximum."""
    open_ = sorted((group for group in groups if group.target != group.most), key=lambda group: group.target)
    sizes = [group.target for group in open_]
    count = min(count, sum(max(group.most - group.target, 0) for group in open_))
    first = at = 0
    while count > 0:
        now = sizes[at]
        if now < open_[at].most:
            sizes[at] += 1
            count -= 1
            now += 1
        else:
            open_[first], open_[at] = open_[at], open_[first]
            sizes[first], sizes[at] = sizes[at], sizes[first]
            first += 1
        at = at + 1 if at < len(open_) - 1 and sizes[at] > sizes[at + 1] else first
    return {group.name: size - group.target for group, size in zip(open_, sizes, strict=True) if size != group.target}


def least_sizes(groups: Iterable[GroupSize], nodes: Iterable[Node], flags: AutoscalerFlags) -> dict[str, int]:
    """Return how many nodes groups get that are below their minimum."""
    bounds = ResourceBounds(nodes, flags, lowest=False)
    found = {}
    for group in groups:
        more = group.least - group.target
        if more > 0 and (allowed := bounds.allowed(group.template.node, more)[0]) > 0:
            found[group.name] = allowed
    return found
