"""The cluster as rows, kept up to date: the content of snapshots, and the changes since the last frame.

Rows are immutable. So a snapshot only copies the dicts, and another thread encodes it while the mirror goes on.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from moorage.api.core import Node, NodeSpec, NodeStatus
from moorage.interfaces.web.rows import BOUND, NodeRow, PodRow, WorkloadRow, node_row, seconds_of
from moorage.interfaces.web.stranded_shares import TypicalShape, stranded_shares, typical_shapes
from moorage.laboratory.node_groups import groups_by_node

#: Maximum number of causes to list; pods with other causes are counted together.
_MOST_CAUSES: Final = 50
#: Maximum number of workloads that lack pods to list.
_MOST_LACKING: Final = 50
#: Maximum number of attempts, and of deleted and ended pods, that are kept.
_MOST_ATTEMPTS: Final = 20_000
_MOST_GONE: Final = 5000
_OTHER_CAUSES: Final = "other causes"
#: Facts of a pod that are shown as they are.
_PLAIN: Final = ("key", "owner", "state", "priority", "cause", "arrived", "attempts")


class View(Struct, frozen=True, gc=False):
    """What a user may see: the pods of these namespaces; None stands for all."""

    namespaces: frozenset[str] | None = None

    def shows(self, key: str) -> bool:
        return self.namespaces is None or key.partition("/")[0] in self.namespaces


class SeenAttempt(Struct, frozen=True, gc=False):
    """The outcome of an attempt to schedule a pod."""

    pod: str
    at: float
    result: str
    node: str | None


class GonePod(Struct, frozen=True, gc=False):
    """The last row of a pod that was deleted or has ended, and the time when that happened."""

    row: PodRow
    at: float


#: The price of an hour of a node with these labels; None if it is unknown.
PriceOf: TypeAlias = Callable[[Mapping[str, str]], float | None]


class NodeLife(NamedTuple):
    """When a node came and went (Unix seconds), and what it costs in an hour; None: unknown."""

    born: float
    price: float | None
    end: float = inf


class Changes(Struct, frozen=True, gc=False):
    """The changes in one frame. ``nodes`` are JSON documents."""

    nodes: tuple[Mapping[str, Any], ...]
    nodes_gone: tuple[str, ...]
    pods: tuple[PodRow, ...]
    pods_gone: tuple[str, ...]
    attempts: tuple[SeenAttempt, ...]

    @property
    def size(self) -> int:
        return len(self.nodes) + len(self.nodes_gone) + len(self.pods) + len(self.pods_gone) + len(self.attempts)


class Mirror:
    """The rows of all nodes and of all pods that have not ended."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeRow] = {}
        self.pods: dict[str, PodRow] = {}
        #: The pods without a node.
        self.pending: dict[str, PodRow] = {}
        #: (namespace, cause) → number of those pods.
        self.causes: Counter[tuple[str, str]] = Counter()
        self.groups: Mapping[str, str] = {}
        self.used: dict[str, Counter[str]] = {}
        self.shapes: tuple[TypicalShape, ...] = ()
        self._grouped: dict[str, Node] = {}
        self._regroup = False
        self._nodes_changed: dict[str, None] = {}
        self._pods_changed: dict[str, None] = {}
        #: ``namespace/Kind/name`` → a workload that has fewer pods than it wants, or fewer that are ready.
        self.lacking: dict[str, WorkloadRow] = {}
        self._workloads_changed = False
        self._attempts: list[SeenAttempt] = []
        #: The latest attempts, and the latest deleted and ended pods.
        self.attempts: deque[SeenAttempt] = deque(maxlen=_MOST_ATTEMPTS)
        self.gone: deque[GonePod] = deque(maxlen=_MOST_GONE)
        #: Node → when it was created, and what it costs in an hour, if that is known; and the nodes that went, with the time.
        self.node_lives: dict[str, NodeLife] = {}
        self.nodes_gone: deque[NodeLife] = deque(maxlen=_MOST_GONE)
        #: Since when all changes are seen, in seconds since 1970; None: the objects tell the whole past.
        self.observed: float | None = None
        #: Returns what a node with these labels costs in an hour.
        self.price_of: PriceOf | None = None

    # -- following -----------------------------------------------------------------------------------------------------

    def put_node(self, node: Node) -> None:
        """Add a node, or replace it."""
        row, slim = node_row(node), _slim(node)
        self._regroup = self._regroup or self._grouped.get(node.name) != slim
        self._grouped[node.name] = slim
        if node.name not in self.node_lives:
            price = self.price_of(node.labels) if self.price_of is not None else None
            self.node_lives[node.name] = NodeLife(seconds_of(node.metadata.creation_timestamp), price)
        if self.nodes.get(node.name) != row:
            self.nodes[node.name] = row
            self._nodes_changed[node.name] = None

    def drop_node(self, name: str, now: float) -> None:
        life = self.node_lives.pop(name, None)
        if life is not None:
            self.nodes_gone.append(life._replace(end=now))
        if self.nodes.pop(name, None) is not None:
            self._grouped.pop(name, None)
            self._nodes_changed[name] = None
            self._regroup = True

    def put_workload(self, key: str, row: WorkloadRow | None) -> None:
        """Keep a workload while it lacks pods. None: it is gone, or its controller has not seen its latest change."""
        lacks = row if row is not None and min(row.existing, row.ready) < row.wanted else None
        if self.lacking.get(key) == lacks:
            return
        self._workloads_changed = True
        if lacks is None:
            del self.lacking[key]
        else:
            self.lacking[key] = lacks

    def put_pod(self, row: PodRow, now: float) -> None:
        """Add a pod, or replace it."""
        old = self.pods.get(row.key)
        if old == row:
            return
        self._note_attempt(old, row, now)
        self._use(old, -1)
        self._use(row, +1)
        self.pods[row.key] = row
        self._wait(old, row)
        self._pods_changed[row.key] = None

    def drop_pod(self, key: str, now: float) -> None:
        old = self.pods.pop(key, None)
        if old is not None:
            self.gone.append(GonePod(old, now))
            self._wait(old, None)
            self._use(old, -1)
            self._pods_changed[key] = None

    def _wait(self, old: PodRow | None, new: PodRow | None) -> None:
        """Count the causes of pending pods."""
        if old is not None and self.pending.pop(old.key, None) is not None:
            place = (old.key.partition("/")[0], old.cause)
            self.causes[place] -= 1
            if not self.causes[place]:
                del self.causes[place]
        if new is not None and new.node is None:
            self.pending[new.key] = new
            self.causes[new.key.partition("/")[0], new.cause] += 1

    def _use(self, row: PodRow | None, sign: int) -> None:
        if row is None or row.node is None:
            return
        used = self.used.get(row.node)
        if used is None:
            used = self.used[row.node] = Counter()
        for name, amount in row.requests.items():
            used[name] += sign * amount
        used["pods"] += sign
        if not used["pods"]:
            del self.used[row.node]
        if row.node in self.nodes:
            self._nodes_changed[row.node] = None

    def _note_attempt(self, old: PodRow | None, new: PodRow, now: float) -> None:
        if new.state == BOUND and old is not None and old.node is None:
            self._tried(SeenAttempt(new.key, now, "scheduled", new.node))
        elif new.node is None and new.cause and (old is None or (old.cause, old.attempts) != (new.cause, new.attempts)):
            self._tried(SeenAttempt(new.key, now, "unschedulable", None))

    def _tried(self, attempt: SeenAttempt) -> None:
        self._attempts.append(attempt)
        self.attempts.append(attempt)

    # -- reading -------------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Compute the groups of nodes again if nodes were added, removed or changed in a field that groups depend on."""
        if self._regroup:
            self._regroup = False
            groups = groups_by_node(self._grouped.values())
            for name, group in groups.items():
                if self.groups.get(name) != group:
                    self._nodes_changed[name] = None
            self.groups = groups

    def learn_shapes(self) -> None:
        """Compute the typical pods again; stranded resources are measured by them."""
        self.shapes = typical_shapes(row.requests for row in self.pods.values())

    def take(self, *, regroup: bool = True) -> Changes | None:
        """Return the changes since the last call; None without any. With ``regroup`` False, groups are not computed again."""
        if regroup:
            self.refresh()
        if not (self._nodes_changed or self._pods_changed or self._workloads_changed):
            return None
        self._workloads_changed = False
        names, keys, attempts = self._nodes_changed, self._pods_changed, self._attempts
        self._nodes_changed, self._pods_changed, self._attempts = {}, {}, []
        return Changes(
            tuple(self.node_documents(name for name in names if name in self.nodes)),
            tuple([name for name in names if name not in self.nodes]),
            tuple([self.pods[key] for key in keys if key in self.pods]),
            tuple([key for key in keys if key not in self.pods]),
            tuple(attempts),
        )

    def settle(self) -> None:
        """Drop the changes so far, as readers begin with a snapshot."""
        self.refresh()
        self._workloads_changed = False
        self._nodes_changed, self._pods_changed, self._attempts = {}, {}, []

    def node_documents(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Return nodes as JSON documents."""
        rows = [self.nodes[name] for name in names]
        used: list[Mapping[str, int]] = [self.used.get(row.name, {}) for row in rows]
        stranded = stranded_shares(self.shapes, [row.allocatable for row in rows], used)
        return [
            {
                "name": row.name, "zone": row.zone, "labels": row.labels, "group": self.groups.get(row.name, ""),
                "ready": row.ready, "cordoned": row.cordoned, "taints": row.taints, "allocatable": row.allocatable,
                "requested": {name: held.get(name, 0) for name in row.allocatable}, "stranded": share,
                "unready": row.unready, "since": row.since,
            }
            for row, held, share in zip(rows, used, stranded, strict=True)
        ]  # fmt: skip


def causes_of(causes: Mapping[tuple[str, str], int], view: View) -> list[dict[str, Any]]:
    """Return the causes why pods have no node, each with its number of pods, the most frequent first."""
    counts: Counter[str] = Counter()
    for (namespace, cause), count in causes.items():
        if view.namespaces is None or namespace in view.namespaces:
            counts[cause] += count
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    found = [{"text": text, "pods": count} for text, count in ordered[:_MOST_CAUSES]]
    rest = sum(count for _, count in ordered[_MOST_CAUSES:])
    return [*found, {"text": _OTHER_CAUSES, "pods": rest}] if rest else found


def lacking_of(lacking: Mapping[str, WorkloadRow], view: View) -> list[dict[str, Any]]:
    """Return the workloads that lack pods, those that lack most first."""
    shown = [one for one in lacking.values() if view.shows(one.key)]
    shown.sort(key=lambda one: (one.existing - one.wanted, one.ready - one.wanted, one.key))
    return [msgspec.structs.asdict(one) for one in shown[:_MOST_LACKING]]


def _slim(node: Node) -> Node:
    """Return a node with only the fields that its group depends on."""
    status = node.status
    return Node(
        metadata=node.metadata.replace(annotations={}, resource_version="", finalizers=()),
        spec=NodeSpec(taints=node.spec.taints),
        status=NodeStatus(capacity=status.capacity, allocatable=status.allocatable),
    )


# -- snapshot ----------------------------------------------------------------------------------------------------------
# The snapshot: all nodes and pods as columns.

_BYTES: Final = ("memory", "ephemeral-storage", "hugepages-")
_FIRST: Final = ("cpu", "memory", "pods")
_DENSE: Final = ("cpu", "memory")


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a snapshot that are not about nodes or pods.

    ``live``      whether changes will follow
    ``writable``  whether the interface may change the cluster
    ``asks``      whether questions are answered
    """

    release: str
    id: str
    at: str
    live: bool
    writable: bool
    user: str
    asks: bool = True
    notes: tuple[str, ...] = ()


class SnapshotRows(msgspec.Struct, frozen=True):
    """The rows of a mirror at one moment."""

    nodes: Mapping[str, NodeRow]
    pods: Mapping[str, PodRow]
    causes: Mapping[tuple[str, str], int]
    groups: Mapping[str, str]
    used: Mapping[str, Mapping[str, int]]
    shapes: Sequence[Any]
    lacking: Mapping[str, WorkloadRow] = {}

    @classmethod
    def of(cls, mirror: Mirror) -> SnapshotRows:
        """Return the rows of a mirror, with copies of the dicts that it changes in place."""
        used = {name: dict(held) for name, held in mirror.used.items()}
        return cls(
            dict(mirror.nodes), dict(mirror.pods), dict(mirror.causes), mirror.groups, used, mirror.shapes, dict(mirror.lacking)
        )


def snapshot_document(rows: SnapshotRows, header: Header, view: View) -> dict[str, Any]:
    """Return the document of a snapshot, with the pods that ``view`` shows."""
    nodes = list(rows.nodes.values())
    pods = list(rows.pods.values()) if view.namespaces is None else [one for one in rows.pods.values() if view.shows(one.key)]
    resources = _resources(nodes)
    return {
        "apiVersion": "moorage.dev/v1",
        "kind": "Snapshot",
        **msgspec.structs.asdict(header),
        "resources": resources,
        "unit": {name: "milli" if name == "cpu" else "bytes" if name.startswith(_BYTES) else "count" for name in resources},
        "nodes": _node_columns(nodes, rows, resources),
        "pods": _pod_columns(pods, {row.name: at for at, row in enumerate(nodes)}),
        "causes": causes_of(rows.causes, view),
        "lacking": lacking_of(rows.lacking, view),
    }


def _resources(nodes: Sequence[NodeRow]) -> list[str]:
    offered = {name for row in nodes for name in row.allocatable} | set(_FIRST)
    return [*_FIRST, *sorted(offered - set(_FIRST))]


def _node_columns(nodes: Sequence[NodeRow], rows: SnapshotRows, resources: Sequence[str]) -> dict[str, Any]:
    used = [rows.used.get(row.name, {}) for row in nodes]
    return {
        **{
            name: [getattr(row, name) for row in nodes]
            for name in ("name", "zone", "labels", "ready", "cordoned", "taints", "unready", "since")
        },
        "group": [rows.groups.get(row.name, "") for row in nodes],
        "allocatable": {name: [row.allocatable.get(name, 0) for row in nodes] for name in resources},
        "requested": {name: [held.get(name, 0) for held in used] for name in resources},
        "stranded": stranded_shares(rows.shapes, [row.allocatable for row in nodes], used),
    }


def _pod_columns(pods: Sequence[PodRow], index: Mapping[str, int]) -> dict[str, Any]:
    return {
        **{name: [getattr(row, name) for row in pods] for name in _PLAIN},
        "node": [-1 if row.node is None else index.get(row.node, -1) for row in pods],
        "requests": {**{name: [row.requests.get(name, 0) for row in pods] for name in _DENSE}, **_sparse(pods)},
        "recorded": _few([row.recorded for row in pods]),
        "requires": _few([row.requires for row in pods]),
    }


def _few(values: Sequence[str]) -> dict[str, list[Any]]:
    """Return the different texts of a column (``known``), and for the pods that have one (``index``) its place among them."""
    index = [at for at, text in enumerate(values) if text]
    place = {text: at for at, text in enumerate(dict.fromkeys(values[at] for at in index))}
    return {"known": list(place), "index": index, "value": [place[values[at]] for at in index]}


def _sparse(pods: Sequence[PodRow]) -> dict[str, dict[str, list[int]]]:
    """Return, for each resource other than cpu and memory, the indices and the requests of the few pods that request it."""
    found: dict[str, dict[str, list[int]]] = {}
    for at, row in enumerate(pods):
        if len(row.requests) <= len(_DENSE) and all(name in _DENSE for name in row.requests):
            continue
        for name, amount in row.requests.items():
            if name not in _DENSE and amount:
                column = found.setdefault(name, {"index": [], "value": []})
                column["index"].append(at)
                column["value"].append(amount)
    return found
