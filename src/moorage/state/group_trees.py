"""Trees of pod groups: composite groups, the groups that name them as their parents, and the pods of the leaves.

A pod group without a parent is a tree of its own. Only the gate CompositePodGroup makes parents count. PlacementGenerate and
PlacementScore plugins are asked about a group and sets of nodes to confine it to.

Source  kube-scheduler 1.37, backend/queue/workload_forest.go; plugins/gangscheduling/hierarchy_tracker.go
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from moorage.api.pod_groups import CompositePodGroup, PodGroup
from moorage.state.cluster import Snapshot
from moorage.state.pod_groups import GroupPods, group_key
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeView

AnyGroup = PodGroup | CompositePodGroup

#: Begins the key of a composite group, since a pod group may have the same name.
_COMPOSITE = "composite "


@dataclass(frozen=True, slots=True)
class GroupNode:
    """A group, and the groups below a composite one, by kind and name."""

    group: AnyGroup
    children: tuple[GroupNode, ...] = ()

    @property
    def entry(self) -> str:
        return entry_key(self.group)

    @property
    def needed(self) -> int:
        """The minimum number of pods, or of groups below, to schedule together; 1 if the group is no gang."""
        return 1 if self.group.min_count is None else self.group.min_count

    def nodes(self) -> Iterator[GroupNode]:
        """Yield this group and all below, parents first."""
        yield self
        for child in self.children:
            yield from child.nodes()

    def leaves(self) -> Iterator[PodGroup]:
        """Yield the pod groups of the tree."""
        for node in self.nodes():
            if isinstance(node.group, PodGroup):
                yield node.group

    def pods(self, snapshot: Snapshot) -> Iterator[GroupPods]:
        """Yield the pods of each pod group of the tree that has any."""
        for leaf in self.leaves():
            known = snapshot.group(leaf.key)
            if known is not None:
                yield known

    def is_ready(self, snapshot: Snapshot, *, placed: bool = False) -> bool:
        """Return whether enough pods exist in enough of the groups below; ``placed``: are assumed or bound."""
        if isinstance(self.group, PodGroup):
            known = snapshot.group(self.group.key)
            return known is not None and (known.scheduled_count if placed else len(known)) >= self.needed
        return sum(child.is_ready(snapshot, placed=placed) for child in self.children) >= self.needed


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group that is being scheduled, with the pods that this attempt places.

    ``tree`` is the group with those below, since 1.37; only with the gate CompositePodGroup may it be a composite group.
    """

    namespace: str
    name: str
    pods: tuple[PodInfo, ...]
    tree: GroupNode | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A named set of nodes; the name "" stands for all nodes."""

    name: str
    nodes: NodeView


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """The result of trying a group on a placement: each pod that fits there, with its node."""

    placement: Placement
    assigned: tuple[tuple[PodInfo, str], ...]


def entry_key(group: AnyGroup) -> str:
    """Return the key of a group among all groups of both kinds; that of a pod group is ``namespace/name``."""
    return f"{_COMPOSITE}{group.key}" if isinstance(group, CompositePodGroup) else group.key


def is_composite(entry: str) -> bool:
    """Return whether this is an ``entry_key`` of a composite group."""
    return entry.startswith(_COMPOSITE)


def root_of(group: AnyGroup, snapshot: Snapshot) -> AnyGroup | None:
    """Return the group without a parent above this one; None if one in between is unknown, or above itself."""
    composites = snapshot.objects(CompositePodGroup)
    passed = set()
    while group.parent_key is not None:
        above = composites.get(group.parent_key)
        if above is None or above.key in passed:
            return None
        passed.add(above.key)
        group = above
    return group


def tree_of(pod: PodInfo, snapshot: Snapshot) -> GroupNode | None:
    """Return the whole tree of a pod's group; None if its group, or one above, is unknown."""
    group = snapshot.objects(PodGroup).get(group_key(pod) or "")
    root = None if group is None else root_of(group, snapshot)
    return None if root is None else below(root, snapshot)


def below(group: AnyGroup, snapshot: Snapshot) -> GroupNode:
    """Return a group with all groups below it, those created first before others.

    Source  kube-scheduler 1.37, framework/types.go, GetChildren
    """
    if isinstance(group, PodGroup):
        return GroupNode(group)
    return GroupNode(group, tuple(below(one, snapshot) for one in snapshot.index(_Children).of(group.key)))


class _Children:
    """The groups below each composite group; follows the changes of groups."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._read: dict[type[AnyGroup], int] = {}
        self._parents: dict[tuple[type[AnyGroup], str], str] = {}
        self._below: dict[str, dict[tuple[type[AnyGroup], str], AnyGroup]] = {}

    def of(self, key: str) -> list[AnyGroup]:
        """Return the groups directly below a composite group, by age; of one age, composite groups first, and by name."""
        self._follow(CompositePodGroup)
        self._follow(PodGroup)
        return sorted(self._below.get(key, {}).values(), key=_by_age)

    def _follow(self, kind: type[AnyGroup]) -> None:
        journal, known = self._snapshot.changes_of(kind), self._snapshot.objects(kind)
        before = self._read.get(kind)
        if before == journal.position:
            return
        changed = None if before is None else journal.since(before)
        for name in [*known, *(name for of, name in self._parents if of is kind)] if changed is None else changed:
            group: AnyGroup | None = known.get(name)
            self._below.get(self._parents.pop((kind, name), ""), {}).pop((kind, name), None)
            if group is not None and (parent := group.parent_key) is not None:
                self._parents[kind, name] = parent
                self._below.setdefault(parent, {})[kind, name] = group
        self._read[kind] = journal.position


def _by_age(group: AnyGroup) -> tuple[str, bool, str]:
    return group.metadata.creation_timestamp or "", isinstance(group, PodGroup), group.name
