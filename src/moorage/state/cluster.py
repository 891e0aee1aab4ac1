"""The scheduler's cache of the cluster: nodes, placed pods, and all other objects that plugins look up.

``ClusterState`` takes events (a node was added, a pod was bound) and the scheduler's assumptions (a pod will be on a node), in
any order, and keeps the node table current. An assumed pod stays until it is confirmed, forgotten or deleted; it never expires.
``Snapshot`` is the read-only interface for plugins.

Pods are identified by UID. A pod on an unknown node is kept aside and counted once the node is added.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from moorage.api.core import Namespace, Node, Object, Service
from moorage.api.selectors import NOTHING, Selector, selector_from_map
from moorage.errors import StateError
from moorage.state.journal import Journal
from moorage.state.pod_groups import PodGroups
from moorage.state.pod_info import PodInfo
from moorage.state.selector_index import SelectorIndex, narrowest
from moorage.state.table import NodeTable, terms_held_by
from moorage.state.view import Snapshot

__all__ = ["ClusterState", "Snapshot"]


# Place copies of one pod: what depends on the pod's shape alone is looked up once, instead of for each copy.


class PodCopies:
    """Places copies of a placed pod, with the same result as ``ClusterState.place_on``.

    Ask ``may_place`` before each copy. Copies have no volumes and no group.
    """

    __slots__ = (
        "_add_terms", "_changes", "_class", "_placed", "_pods", "_ports", "_position", "_sums", "_table",
    )  # fmt: skip

    def __init__(self, table: NodeTable, placed: dict[str, tuple[PodInfo, str]], pod: PodInfo) -> None:
        """``placed``: UID → each placed or assumed pod with its node."""
        self._table = table
        self._placed = placed
        self._pods = table.pods
        self._changes = table.changes
        self._position = table.changes.position
        self._sums = [(column.cells, count) for column, count in table.shifts_of(pod.needs)]
        self._class = table.counted.class_of(pod)
        self._add_terms = [terms.adder(held) for terms, held in terms_held_by(table, pod)]
        self._ports = pod.host_ports

    def may_place(self, uid: str) -> bool:
        """Return whether a copy is new, and nothing else has changed a node or its pods since this object was made."""
        return self._changes.position == self._position and uid not in self._placed

    def place(self, pod: PodInfo, node: str, row: int) -> None:
        """Count a copy on a node that is at this row."""
        uid = pod.uid
        self._placed[uid] = (pod, node)
        self._pods[row][uid] = pod
        for cells, count in self._sums:
            try:
                cells[row] += count
            except ValueError:  # int64 overflows in an array
                np.asarray(cells)[row] += count
        self._changes.note(row)
        self._position = self._changes.position
        for port in self._ports:
            self._table.claim(row, port, 1)
        if self._class is None:
            self._table.counted.add(row, pod)
        else:
            rows, counted_by = self._class
            rows[row] = rows.get(row, 0) + 1
            for counted in counted_by.values():
                counted.shift(row, 1)
        for add_term in self._add_terms:
            add_term(row)


K = TypeVar("K", bound=Object)
T = TypeVar("T")
_EMPTY: Mapping[str, str] = {}
#: How many namespace selectors are cached with their namespaces; more than any cluster uses.
_SELECTORS_REMEMBERED = 1024


class ClusterState:
    """The mutable cluster state."""

    def __init__(self, *, keep_groups: bool = False) -> None:
        self.table = NodeTable()
        #: Pods by the group they name, where groups are kept.
        self.groups: PodGroups | None = PodGroups() if keep_groups else None
        self.namespaces: dict[str, Namespace] = {}
        #: Custom kinds that plugins name; None where these are not known, and ``custom`` accepts any.
        self.custom_kinds: frozenset[str] | None = None
        #: How often an object other than a node or a pod was added, updated or deleted.
        self.objects_changed = 0
        self._selected: dict[Selector, frozenset[str]] = {}
        #: Label → the namespaces that have it; None until it is needed, and after a namespace changed.
        self._by_label: dict[tuple[str, str], list[str]] | None = None
        self._objects: dict[type[Object], dict[str, Any]] = {}
        self._journals: dict[type[Object], Journal] = {}
        self._indexes: dict[Any, Any] = {}
        self._services = SelectorIndex[str]()
        self._placed: dict[str, tuple[PodInfo, str]] = {}
        self._assumed: dict[str, str] = {}
        self._nowhere: dict[str, dict[str, PodInfo]] = {}
        self.snapshot = Snapshot(self)

    # -- nodes --------------------------------------------------------------------------------------------------------

    def set_node(self, node: Node) -> Node | None:
        """Add or replace a node. Return its earlier version, if any."""
        row = self.table.row_of.get(node.name)
        if row is not None:
            old = self.table.nodes[row]
            self.table.update_node(node)
            return old
        row = self.table.add_node(node)
        for pod in self._nowhere.pop(node.name, {}).values():
            self.table.add_pod(row, pod)
        return None

    def remove_node(self, name: str) -> Node | None:
        """Remove a node and return it, if it is known. Keep its pods, in case it is added again before they are deleted."""
        row = self.table.row_of.get(name)
        if row is None:
            return None
        node = self.table.nodes[row]
        left = self.table.remove_node(name)
        if left:
            self._nowhere[name] = {pod.uid: pod for pod in left}
        return node

    # -- pods ---------------------------------------------------------------------------------------------------------

    def pods_without_node(self, name: str) -> Collection[str]:
        """Return the UIDs of the pods on a node that does not exist."""
        return self._nowhere.get(name, {}).keys()

    def place(self, pod: PodInfo, node: str) -> PodInfo | None:
        """Record that a pod is bound to a node, as the API server reports: added, confirmed after an assumption, or updated.

        Return its earlier info, if any; for a pod that only confirms its assumption, the pod itself.

        Raises  QuantityError if the pod's requests cannot be parsed; nothing is changed then
        """
        if self._assumed.get(pod.uid) == node and self._confirm(pod, node):
            del self._assumed[pod.uid]
            if self.groups is not None:
                self.groups.put(pod, node)
            return pod
        pod.needs  # noqa: B018 (raises before anything is changed)
        self._assumed.pop(pod.uid, None)
        before = self._take(pod.uid)
        self._put(pod, node)
        return before

    def place_assumed(self, pod: PodInfo, node: str) -> bool:
        """Do the same as ``place`` for a pod that only confirms its assumption on this node. Return False for any other."""
        if self.groups is not None or not self._confirm(pod, node):
            return False
        del self._assumed[pod.uid]
        return True

    def place_all(self, pods: Iterable[PodInfo]) -> None:
        """Do the same as ``place`` for many pods with unknown UIDs whose requests can be parsed, each on its spec's node."""
        row_of, found = self.table.row_of, []
        for pod in pods:
            node = pod.spec.node_name
            self._placed[pod.uid] = (pod, node)
            if self.groups is not None:
                self.groups.put(pod, node)
            row = row_of.get(node)
            if row is None:
                self._nowhere.setdefault(node, {})[pod.uid] = pod
            else:
                found.append((row, pod))
        self.table.add_pods(found)

    def _confirm(self, pod: PodInfo, node: str) -> bool:
        """Replace the assumed pod by the confirmed one, if both have equal requests and rank equally as victims."""
        assumed = self._placed[pod.uid][0]
        row = self.table.row_of.get(node)
        alike = pod.priority == assumed.priority and pod.status.start_time == assumed.status.start_time
        if row is None or not alike or not pod.takes_over(assumed):
            return False
        self._placed[pod.uid] = (pod, node)
        self.table.pods[row][pod.uid] = pod
        return True

    def assume(self, pod: PodInfo, node: str) -> None:
        """Count the pod on the node before it is bound there.

        Raises  StateError if a pod of that UID is placed or assumed already
        """
        if pod.uid in self._placed:
            held_by = self._placed[pod.uid][1]
            raise StateError(f"pod {pod.key} ({pod.uid}) is on {held_by} already; it cannot be assumed on {node}")
        self._put(pod, node)
        self._assumed[pod.uid] = node

    def assume_on(self, pod: PodInfo, node: str, row: int) -> None:
        """Assume a pod of no group that is neither placed nor assumed, on a node that is at this row."""
        self._placed[pod.uid] = (pod, node)
        self._assumed[pod.uid] = node
        self.table.add_pod(row, pod)

    def assume_placed(self, uid: str, node: str) -> None:
        """Record that a pod which ``copies_of`` has placed on a node is only assumed there."""
        self._assumed[uid] = node

    def confirm(self, pod: PodInfo, row: int) -> None:
        """Replace the assumed pod on this row by its bound version, which counts the same."""
        self._placed[pod.uid] = (pod, self._assumed.pop(pod.uid))
        self.table.pods[row][pod.uid] = pod

    def place_on(self, bound: PodInfo, node: str, row: int) -> None:
        """Assume a pod as ``assume_on`` does, and confirm its bound version as ``confirm`` does."""
        self._placed[bound.uid] = (bound, node)
        self.table.add_pod(row, bound)

    def copies_of(self, pod: PodInfo) -> PodCopies:
        """Return what places copies of a pod that ``place_on`` placed."""
        return PodCopies(self.table, self._placed, pod)

    def forget(self, uid: str) -> PodInfo | None:
        """Undo an assumption. Return the pod, or None if it is not assumed (confirmed or deleted meanwhile)."""
        if self._assumed.pop(uid, None) is None:
            return None
        return self._take(uid)

    def remove_pod(self, uid: str) -> PodInfo | None:
        """Remove a pod, placed or assumed. Return its last info, if it was known."""
        self._assumed.pop(uid, None)
        return self._take(uid)

    def is_assumed(self, uid: str) -> bool:
        return uid in self._assumed

    def node_of(self, uid: str) -> str | None:
        placed = self._placed.get(uid)
        return None if placed is None else placed[1]

    def pod(self, uid: str) -> PodInfo | None:
        placed = self._placed.get(uid)
        return None if placed is None else placed[0]

    @property
    def uids(self) -> Set[str]:
        """UIDs of all pods that are placed or assumed, on known and unknown nodes."""
        return self._placed.keys()

    @property
    def pod_count(self) -> int:
        """How many pods are placed or assumed."""
        return len(self._placed)

    @property
    def assumed(self) -> Mapping[str, str]:
        """UID to node name of every pod that is assumed and not confirmed yet."""
        return self._assumed

    def _put(self, pod: PodInfo, node: str) -> None:
        self._placed[pod.uid] = (pod, node)
        if self.groups is not None:
            self.groups.put(pod, node)
        row = self.table.row_of.get(node)
        if row is None:
            self._nowhere.setdefault(node, {})[pod.uid] = pod
        else:
            self.table.add_pod(row, pod)

    def _take(self, uid: str) -> PodInfo | None:
        placed = self._placed.pop(uid, None)
        if placed is None:
            return None
        pod, node = placed
        if self.groups is not None:
            self.groups.take(pod)
        row = self.table.row_of.get(node)
        if row is not None:
            self.table.remove_pod(row, pod)
        else:
            waiting = self._nowhere[node]
            del waiting[uid]
            if not waiting:
                del self._nowhere[node]
        return pod

    @contextmanager
    def what_if(self, row: int) -> Iterator[NodeTable]:
        """Let the block add and remove pods on one row of the table; restore the row afterwards."""
        with self.table.what_if(row):
            yield self.table

    # -- everything else ----------------------------------------------------------------------------------------------

    def set_namespace(self, namespace: Namespace) -> Namespace | None:
        old = self.namespaces.get(namespace.metadata.name)
        self.namespaces[namespace.metadata.name] = namespace
        self._namespaces_changed(namespace.metadata.name)
        return old

    def remove_namespace(self, name: str) -> Namespace | None:
        self._namespaces_changed(name)
        return self.namespaces.pop(name, None)

    def _namespaces_changed(self, name: str) -> None:
        self._selected.clear()
        self._by_label = None
        self._note(Namespace, name)

    def _note(self, kind: type[Object], key: str) -> None:
        self.objects_changed += 1
        self.changes_of(kind).note(key)

    def namespaces_selected(self, selector: Selector) -> frozenset[str]:
        """Return the names of the namespaces that the selector matches; cached until a namespace changes."""
        names = self._selected.get(selector)
        if names is None:
            if len(self._selected) >= _SELECTORS_REMEMBERED:
                self._selected.clear()
            found = ((name, self.namespaces[name]) for name in self._namespaces_to_try(selector))
            names = frozenset(name for name, namespace in found if selector.matches(namespace.metadata.labels))
            self._selected[selector] = names
        return names

    def _namespaces_to_try(self, selector: Selector) -> Iterable[str]:
        """Return the namespaces with a label that the selector requires; all namespaces if it requires none."""
        asked = narrowest(selector)
        if asked is None:
            return self.namespaces
        if self._by_label is None:
            self._by_label = {}
            for name, namespace in self.namespaces.items():
                for label in namespace.metadata.labels.items():
                    self._by_label.setdefault(label, []).append(name)
        by_label = self._by_label
        return [name for value in asked.values for name in by_label.get((asked.key, value), ())]

    def services_selecting(self, pod: PodInfo) -> list[Service]:
        """Return the services that select the pod. A service without a selector selects nothing."""
        services = self.objects(Service)
        found = (services[key] for key in self._services.candidates(pod.namespace, pod.labels))
        labels = pod.labels.items()
        return [service for service in found if service.spec.selector.items() <= labels]

    def objects(self, kind: type[K]) -> dict[str, K]:
        return self._objects.setdefault(kind, {})

    @property
    def kinds(self) -> Collection[type[Object]]:
        """The kinds of which objects were added or looked up, other than nodes, pods and namespaces."""
        return self._objects.keys()

    def changes_of(self, kind: type[Object]) -> Journal:
        journal = self._journals.get(kind)
        if journal is None:
            journal = self._journals[kind] = Journal()
        return journal

    def index(self, kind: Callable[[Snapshot], T]) -> T:
        found: T | None = self._indexes.get(kind)
        if found is None:
            found = self._indexes[kind] = kind(self.snapshot)
        return found

    def set_object(self, obj: Object) -> Object | None:
        """Add or replace an object of any other kind. Return the one it replaced, if any."""
        held = self._objects.setdefault(type(obj), {})
        key = obj.key
        old: Object | None = held.get(key)
        held[key] = obj
        self._note(type(obj), key)
        self._refile(key, old, obj)
        return old

    def remove_object(self, obj: Object) -> Object | None:
        key = obj.key
        removed: Object | None = self._objects.get(type(obj), {}).pop(key, None)
        self._note(type(obj), key)
        self._refile(key, removed, None)
        return removed

    def _refile(self, key: str, old: Object | None, new: Object | None) -> None:
        if isinstance(old, Service):
            self._services.remove(key, *_filed_under(old))
        if isinstance(new, Service):
            self._services.add(key, *_filed_under(new))


def _filed_under(service: Service) -> tuple[frozenset[str], Selector]:
    selector = selector_from_map(service.spec.selector) if service.spec.selector else NOTHING
    return frozenset([service.metadata.namespace]), selector
