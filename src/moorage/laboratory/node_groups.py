"""Node groups: nodes that a provider makes alike, such as the nodes of one node pool.

A node belongs to the pool that its labels name. Without such a label, nodes of one machine type (or, without a type, of one
capacity) with equal taints are a group, named after the common beginning of their names.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from moorage.api.core import Node
from moorage.framework.change_values import taint_text
from moorage.state.pod_requests import amount

__all__ = ["GroupOfNodes", "group_nodes", "groups_by_node", "pool_of"]

#: Labels by which providers and autoscalers name the pool of a node.
POOL_LABELS: Final = (
    "karpenter.sh/nodepool", "cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup", "alpha.eksctl.io/nodegroup-name",
    "kubernetes.azure.com/agentpool", "agentpool", "kops.k8s.io/instancegroup",
)  # fmt: skip
_TYPE_LABELS: Final = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
#: Taints with this prefix come and go with a node's condition.
_CONDITION: Final = "node.kubernetes.io/"
_SEPARATORS: Final = "-_. "
_GI: Final = 1 << 30


class GroupOfNodes(NamedTuple):
    """A group by name, with its nodes in the given order."""

    name: str
    nodes: tuple[Node, ...]


def group_nodes(nodes: Iterable[Node]) -> list[GroupOfNodes]:
    """Return the groups of nodes, in the order of their first nodes. Names differ."""
    held: dict[Hashable, list[Node]] = {}
    for node in nodes:
        held.setdefault(_identity(node), []).append(node)
    names: list[str] = []
    for members in held.values():
        names.append(_free(_name(members), names))
    return [GroupOfNodes(name, tuple(members)) for name, members in zip(names, held.values(), strict=True)]


def groups_by_node(nodes: Iterable[Node]) -> Mapping[str, str]:
    """Return the name of the group of each node, by the node's name."""
    return {node.name: group.name for group in group_nodes(nodes) for node in group.nodes}


def pool_of(node: Node) -> str:
    """Return the pool that a node's labels name; "" if they do not."""
    return next((node.labels[key] for key in POOL_LABELS if node.labels.get(key)), "")


def _type(node: Node) -> str:
    return next((node.labels[key] for key in _TYPE_LABELS if node.labels.get(key)), "")


def _identity(node: Node) -> Hashable:
    pool = pool_of(node)
    if pool:
        return ("pool", pool)
    taints = tuple(sorted(taint_text(one) for one in node.spec.taints if not one.key.startswith(_CONDITION)))
    return ("type", _type(node), _size(node), taints)


def _size(node: Node) -> tuple[tuple[str, int], ...]:
    """Return the capacity by resource. Memory and storage in GiB: nodes of one machine type differ by a few MiB."""
    held = node.status.capacity or node.status.allocatable
    sizes = {name: amount(name, held[name]) for name in sorted(held)}
    return tuple((name, round(size / _GI) if name in {"memory", "ephemeral-storage"} else size) for name, size in sizes.items())


def _name(members: Sequence[Node]) -> str:
    pool = pool_of(members[0])
    if pool:
        return pool
    common = _common_start([node.name for node in members])
    if len(members) == 1:
        common = common.rpartition("-")[0]
    elif any(len(node.name) > len(common) and common[-1:] not in _SEPARATORS for node in members):
        common = common[: max((common.rfind(one) for one in _SEPARATORS), default=-1) + 1] or common
    return common.rstrip(_SEPARATORS) or _type(members[0]) or members[0].name


def _common_start(names: Sequence[str]) -> str:
    first, last = min(names), max(names)
    return next((first[:at] for at, letter in enumerate(first) if last[at : at + 1] != letter), first)


def _free(name: str, taken: Sequence[str]) -> str:
    """Return the name, with a number appended if another group has it."""
    if name not in taken:
        return name
    return next(free for number in range(2, len(taken) + 3) if (free := f"{name} ({number})") not in taken)
