"""Scale-up of cluster-autoscaler: which node group grows for pending pods, by how many nodes, and why not for the others.

Source  cluster-autoscaler at 87d9c45c02^, core/scaleup/orchestrator/orchestrator.go, resourcequotas,
        processors/nodegroupset/balancing_processor.go, compare_nodegroups.go
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from msgspec import Struct

from moorage.api.core import Node, Pod
from moorage.simulator.autoscalers.cluster_autoscaler.estimator import NodeTemplate, estimate, pod_groups
from moorage.simulator.autoscalers.cluster_autoscaler.expanders import Expander, ExpansionOption, chosen, size_of
from moorage.simulator.autoscalers.cluster_autoscaler.packing import PackingSnapshot
from moorage.state.pod_info import PodInfo
from moorage.state.pod_requests import amount

__all__ = ["GroupSize", "ResourceBounds", "ScaleUp", "ScaleUpFlags", "least_sizes", "scale_up"]

_IGNORED: Final = frozenset({
    "kubernetes.io/hostname", "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "beta.kubernetes.io/fluentd-ds-ready",
    "kops.k8s.io/instancegroup",
})  # fmt: skip
#: How far the memory, the allocatable and the free resources of similar groups may differ, as shares of the larger.
_MEMORY, _ALLOCATABLE, _FREE = 0.015, 0.05, 0.05


class ScaleUpFlags(Struct, frozen=True, kw_only=True):
    """Flags of cluster-autoscaler, with its defaults.

    ``most_nodes``          --max-nodes-total; 0: no limit
    ``most_per_scale_up``   --max-nodes-per-scaleup
    ``cores``, ``memory``   --cores-total, --memory-total (bytes): the least and the most of the cluster
    ``balance``             --balance-similar-node-groups
    ``cutoff``              --expendable-pods-priority-cutoff
    ``enforce_least``       --enforce-node-group-min-size
    """

    most_nodes: int = 0
    most_per_scale_up: int = 1000
    cores: tuple[int, int] = (0, 320_000)
    memory: tuple[int, int] = (0, 6_400_000 << 30)
    balance: bool = False
    cutoff: int = -10
    enforce_least: bool = False


@dataclass
class GroupSize:
    """A node group: its bounds, its target size, its template, and the price of one node for an hour."""

    name: str
    least: int
    most: int
    target: int
    template: NodeTemplate
    price: float = 1.0


class ResourceBounds:
    """How much cpu and memory a cluster may still gain or lose.

    Source  cluster-autoscaler at 87d9c45c02^, resourcequotas/tracker.go
    """

    def __init__(self, nodes: Iterable[Node], flags: ScaleUpFlags, *, lowest: bool) -> None:
        sizes = [_cores_and_memory(node) for node in nodes]
        bounds = (flags.cores, flags.memory)
        used = (sum(size[0] for size in sizes), sum(size[1] for size in sizes))
        self.left = [max(have - low if lowest else high - have, 0) for have, (low, high) in zip(used, bounds, strict=True)]

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
    packed: PackingSnapshot, groups: Sequence[GroupSize], pods: Sequence[Pod], flags: ScaleUpFlags, expander: Expander,
    random: Random,
) -> ScaleUp:  # fmt: skip
    """Return how node groups grow for pods that fit on no node of ``packed``, which is left as it was."""
    made, alike, nodes = ScaleUp(), pod_groups(pods), [packed.node(name) for name in packed.order]
    bounds = ResourceBounds(nodes, flags, lowest=False)
    fitting = _fitting_by_group(packed, groups, alike, bounds, made)
    by_name = {group.name: group for group in groups}
    for name, found in fitting.items():
        option = _option(packed, by_name[name], by_name, fitting, alike, found, flags, len(nodes))
        if option is not None:
            made.options.append(option)
    if not made.options:
        return made
    best = by_name[chosen(made.options, expander, len(nodes), random).pool]
    count = next(option.count for option in made.options if option.pool == best.name)
    if flags.most_nodes:
        count = min(count, flags.most_nodes - len(nodes))
    if count < 1:
        return made
    count = bounds.allowed(best.template.node, count)[0]
    within = [best, *(one for one in _similar(best, by_name, fitting, flags) if not bounds.allowed(one.template.node, 1)[1])]
    for name, more in balanced(within, count).items():
        allowed = bounds.allowed(by_name[name].template.node, more)[0]
        if allowed > 0:
            bounds.consume(by_name[name].template.node, allowed)
            made.more[name] = allowed
    return made


def _fitting_by_group(
    packed: PackingSnapshot, groups: Iterable[GroupSize], alike: Sequence[Sequence[Pod]], bounds: ResourceBounds,
    made: ScaleUp,
) -> dict[str, list[int]]:  # fmt: skip
    """Return which groups of pods fit on a new node of each group that may grow, and note why no group helps the others."""
    skipped: dict[str, tuple[str, ...]] = {}
    fitting: dict[str, list[int]] = {}
    refused: list[dict[str, tuple[str, ...]]] = [{} for _ in alike]
    for group in groups:
        exceeded = bounds.allowed(group.template.node, 1)[1]
        if group.target >= group.most:
            skipped[group.name] = ("max node group size reached",)
        elif exceeded:
            skipped[group.name] = (f'exceeded quota: "cluster-wide", resources: {", ".join(exceeded)}',)
        else:
            fitting[group.name] = _fitting(packed, group, alike, refused)
    helped = {at for found in fitting.values() for at in found}
    for at, alike_pods in enumerate(alike):
        if at not in helped:
            made.reasons |= {pod.metadata.uid: {**refused[at], **skipped} for pod in alike_pods}
    return fitting


def _fitting(
    packed: PackingSnapshot, group: GroupSize, alike: Sequence[Sequence[Pod]], refused: Sequence[dict[str, tuple[str, ...]]]
) -> list[int]:
    """Return which groups of pods fit on a new node of a group, and note why the others do not."""
    found = []
    made = group.template.copy(f"{group.template.node.name}-sketch")
    packed.fork()
    packed.add(made.node, made.pods)
    for at, pods in enumerate(alike):
        why = packed.refusal(pods[0], made.node.name)
        if why is None:
            found.append(at)
        else:
            refused[at][group.name] = why
    packed.revert()
    return found


def _option(
    packed: PackingSnapshot, group: GroupSize, by_name: Mapping[str, GroupSize], fitting: Mapping[str, Sequence[int]],
    alike: Sequence[Sequence[Pod]], found: Sequence[int], flags: ScaleUpFlags, nodes: int,
) -> ExpansionOption | None:  # fmt: skip
    if not found:
        return None
    room = sum(max(one.most - one.target, 0) for one in (group, *_similar(group, by_name, fitting, flags)))
    limits = [flags.most_per_scale_up or room, room]
    if flags.most_nodes:
        limits.append(flags.most_nodes - nodes)
    count, pods = estimate(packed, [alike[at] for at in found], group.template, max(min(limits), 0))
    if not count or not pods:
        return None
    return ExpansionOption(group.name, group.template.node, group.price, count, tuple(map(PodInfo, pods)))


def _similar(
    group: GroupSize, by_name: Mapping[str, GroupSize], fitting: Mapping[str, Sequence[int]], flags: ScaleUpFlags
) -> list[GroupSize]:
    """Return the other groups whose nodes are like this one's and take the same pods."""
    if not flags.balance or not fitting.get(group.name):
        return []
    return [
        by_name[name] for name, found in fitting.items()
        if name != group.name and {*fitting[group.name]} <= {*found} and are_similar(group.template, by_name[name].template)
    ]  # fmt: skip


def are_similar(one: NodeTemplate, other: NodeTemplate) -> bool:
    """Return True if nodes have the same capacity and labels, but for small differences, the zone and the host's name."""
    if _labels(one.node) != _labels(other.node):
        return False
    capacities = [_amounts(held.node.status.capacity) for held in (one, other)]
    allocatables = [_amounts(held.node.status.allocatable) for held in (one, other)]
    free = [_free(held, offered) for held, offered in zip((one, other), allocatables, strict=True)]
    if capacities[0].keys() != capacities[1].keys():
        return False
    for name in capacities[0]:
        share = _MEMORY if name == "memory" else 0.0
        if not _within(capacities[0][name], capacities[1][name], share):
            return False
    return _all_within(allocatables, _ALLOCATABLE) and _all_within(free, _FREE)


def _labels(node: Node) -> dict[str, str]:
    return {key: value for key, value in node.labels.items() if key not in _IGNORED}


def _amounts(given: Mapping[str, object]) -> dict[str, int]:
    return {name: amount(name, str(text)) for name, text in given.items()}


def _free(template: NodeTemplate, offered: Mapping[str, int]) -> dict[str, int]:
    asked: dict[str, int] = {"cpu": 0, "memory": 0}
    for pod in template.pods:
        for name, value in PodInfo(pod).requests.items():
            asked[name] = asked.get(name, 0) + value
    return {name: offered.get(name, 0) - value for name, value in asked.items()}


def _all_within(pair: Sequence[Mapping[str, int]], share: float) -> bool:
    return pair[0].keys() == pair[1].keys() and all(_within(held, pair[1][name], share) for name, held in pair[0].items())


def _within(one: int, other: int, share: float) -> bool:
    return max(one, other) - min(one, other) <= max(one, other) * share


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


def least_sizes(groups: Iterable[GroupSize], nodes: Iterable[Node], flags: ScaleUpFlags) -> dict[str, int]:
    """Return how many nodes groups get that are below their minimum."""
    bounds = ResourceBounds(nodes, flags, lowest=False)
    found = {}
    for group in groups:
        more = group.least - group.target
        if more > 0 and (allowed := bounds.allowed(group.template.node, more)[0]) > 0:
            found[group.name] = allowed
    return found
