"""Claim shapes, and each node's answer to them.

Claims of the pods of a workload request the same: they have one *shape*. A node's answer to a shape is computed on demand and
stays valid until a device of the node's pools is allocated or released. So the cost of a pod depends on what has changed since
the pod before it, not on the size of the cluster.

Source  kube-scheduler 1.36: plugins/dynamicresources/dynamicresources.go, Filter
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Final

import msgspec
import numpy as np

from moorage.api.core import Node
from moorage.api.devices import DeviceClass, ResourceClaimSpec
from moorage.plugins.devices.allocated_devices import Ledger
from moorage.plugins.devices.allocator import BudgetError, DeviceSearch, FlawedPoolsError, FoundDevices
from moorage.plugins.devices.claim_requests import AskError, ClaimAsk, DeviceGates, OverspentError, parse_claim
from moorage.plugins.devices.meter import Meter, Selectors
from moorage.plugins.devices.pools import NodePools
from moorage.plugins.devices.slice_catalog import Catalog
from moorage.state.cluster import Snapshot
from moorage.state.columns import IntArray
from moorage.state.table import NodeTable

__all__ = ["CANNOT_ALLOCATE", "AnswerColumn", "DeviceState", "Shape", "ShapeAnswer", "Shapes"]

# kube-scheduler's own texts.
CANNOT_ALLOCATE: Final = "cannot allocate all claims"

_encode = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True)
class ShapeAnswer:
    """A node's answer: the devices found, the reason why not, or an error that ends the attempt.

    ``overspent``: the selectors cost too much, which ends the attempt at once.
    """

    found: FoundDevices | None = None
    reason: str = ""
    error: AskError | None = None
    out_of_budget: bool = False

    @property
    def overspent(self) -> bool:
        return isinstance(self.error, OverspentError)


@dataclass(slots=True)
class _CachedAnswer:
    node: Node
    pools: NodePools
    tick: int
    answer: ShapeAnswer
    effort: int

    def is_enough(self, budget: int) -> bool:
        """Return True if a search with this budget would give the same answer."""
        return not self.answer.out_of_budget or self.effort >= budget


class AnswerColumn:
    """The answers of a shape by row: 0 unknown, 1 the devices are there, from 2 on the number of a reason why not.

    A row becomes unknown when its node or its pods change. ``unknown`` and ``refused`` are the rows of these kinds; like
    ``answers`` they are for reading only.
    """

    def __init__(self) -> None:
        self._table: NodeTable | None = None
        self._layout = -1
        self._position = 0
        self.answers: IntArray = np.zeros(0, dtype=np.int64)
        self.unknown: set[int] = set()
        self.refused: set[int] = set()
        self._numbers: dict[str, int] = {}
        self._reasons: list[str] = []

    def follow(self, table: NodeTable) -> None:
        """Forget the answers of rows that changed since the last call."""
        changes = table.changes
        changed = changes.since(self._position)
        if table is not self._table or self._layout < 0 or changed is None:
            self._table = table
            self.answers = np.zeros(len(table), dtype=np.int64)
            self.unknown, self.refused = set(range(len(table))), set()
        else:
            if changes.layout != self._layout:
                self._resize(len(table))
            self._forget(changed)
        self._position, self._layout = changes.position, changes.layout

    def _resize(self, rows: int) -> None:
        """Follow nodes that were added or removed; rows that have another node now are among those that changed."""
        before = self.answers
        self.answers = np.zeros(rows, dtype=np.int64)
        self.answers[: len(before)] = before[:rows]
        gone = range(rows, len(before))
        self.unknown.difference_update(gone)
        self.refused.difference_update(gone)

    def set(self, row: int, reason: str | None) -> None:
        """Keep the answer of a row; None: the devices are there."""
        number = 1
        if reason is not None:
            if reason not in self._numbers:
                self._numbers[reason] = len(self._reasons) + 2
                self._reasons.append(reason)
            number = self._numbers[reason]
            self.refused.add(row)
        self.answers[row] = number
        self.unknown.discard(row)

    def reason(self, number: int) -> str:
        return self._reasons[number - 2]

    def forget(self, nodes: Iterable[str] | None = None) -> None:
        """Forget the answers of some nodes, or of all."""
        if nodes is None or self._table is None:
            self._layout = -1
            return
        if self._layout != self._table.changes.layout:
            self.follow(self._table)
        row_of = self._table.row_of
        self._forget([row_of[name] for name in nodes if name in row_of])

    def _forget(self, rows: list[int]) -> None:
        rows = [row for row in rows if row < len(self.answers)]
        for row in rows:
            self.answers[row] = 0
        self.unknown.update(rows)
        self.refused.difference_update(rows)


@dataclass(slots=True)
class Shape:
    """Claims with equal requests, and the nodes' answers to them."""

    asks: tuple[ClaimAsk, ...]
    classes: Mapping[str, DeviceClass | None]
    options: DeviceGates
    _cache: dict[str, _CachedAnswer] = field(default_factory=dict)
    #: Nodes whose answers are valid for the versions in ``_as_of``: of the catalog and the ledger.
    _valid: set[str] = field(default_factory=set)
    _as_of: tuple[int, int] = (-1, -1)
    #: The answer of every node if selectors cost too much, with the version of the catalog it holds for.
    _overspent: tuple[int, ShapeAnswer] | None = None
    _column: AnswerColumn = field(default_factory=AnswerColumn)

    def has_classes(self, classes: Mapping[str, DeviceClass]) -> bool:
        """Return whether these are the classes of the shape."""
        for name, known in self.classes.items():  # noqa: SIM110 (a generator costs more than the comparing)
            if classes.get(name) is not known:
                return False
        return True

    def known(self, table: NodeTable, catalog: Catalog, ledger: Ledger) -> AnswerColumn | None:
        """Return the answers of the table's rows; ``answer`` has to be called where they are unknown. None: on every row."""
        if self._as_of != (catalog.version, ledger.tick):
            self._invalidate(catalog, ledger)
        if self._overspent is not None and self._overspent[0] == catalog.version:
            return None
        self._column.follow(table)
        return self._column

    def note(self, row: int, answer: ShapeAnswer) -> None:
        """Keep an answer that ``answer`` just gave for ``known``, if it does not depend on the budget."""
        if answer.error is None and not answer.out_of_budget:
            self._column.set(row, answer.reason if answer.found is None else None)

    def answer(self, node: Node, catalog: Catalog, ledger: Ledger, budget: int, meter: Meter) -> tuple[ShapeAnswer, int]:
        """Return a node's answer, and how many devices were examined for it now. ``meter`` pays for selectors."""
        if self._overspent is not None and self._overspent[0] == catalog.version:
            return self._overspent[1], 0
        if self._as_of != (catalog.version, ledger.tick):
            self._invalidate(catalog, ledger)
        name = node.metadata.name
        cached = self._cache.get(name)
        if cached is not None and name in self._valid and cached.node is node and cached.is_enough(budget):
            return cached.answer, 0
        return self._recheck(cached, node, catalog, ledger, budget, meter)

    def _invalidate(self, catalog: Catalog, ledger: Ledger) -> None:
        """Invalidate answers: of nodes where a device was allocated or released, or of all if slices changed."""
        version, tick = self._as_of
        if version != catalog.version:
            self._valid.clear()
            self._column.forget()
        else:
            for pool in ledger.changed_since(tick):
                nodes = catalog.nodes_of(pool)
                self._valid.difference_update(nodes)
                self._column.forget(nodes)
        self._as_of = (catalog.version, ledger.tick)

    def _recheck(
        self, cached: _CachedAnswer | None, node: Node, catalog: Catalog, ledger: Ledger, budget: int, meter: Meter
    ) -> tuple[ShapeAnswer, int]:
        pools = catalog.pools_of(node, self.options.partitions, self.options.pool_rule)
        self._valid.add(node.name)
        if (
            cached is not None
            and cached.pools is pools
            and ledger.last_change(pools.ids) <= cached.tick
            and cached.is_enough(budget)
        ):
            cached.node = node
            return cached.answer, 0
        search = DeviceSearch(self.asks, pools, ledger, self.options, budget, meter)
        answer = _outcome(search)
        if answer.overspent:
            self._valid.discard(node.name)
            self._overspent = (catalog.version, answer)
            return answer, search.examined
        self._cache[node.name] = _CachedAnswer(node, pools, ledger.tick, answer, budget)
        return answer, search.examined

    def drop_deleted(self, snapshot: Snapshot) -> None:
        """Drop answers of deleted nodes once there are many."""
        known = snapshot.table.row_of
        if len(self._cache) > 64 + 2 * len(known):
            self._cache = {name: cached for name, cached in self._cache.items() if name in known}
            self._valid &= self._cache.keys()


def _outcome(search: DeviceSearch) -> ShapeAnswer:
    try:
        found = search.run()
    except AskError as error:
        return ShapeAnswer(error=error)
    except BudgetError:
        return ShapeAnswer(out_of_budget=True)
    except FlawedPoolsError as flawed:
        return ShapeAnswer(reason=str(flawed))
    return ShapeAnswer(found) if found is not None else ShapeAnswer(reason=CANNOT_ALLOCATE)


class Shapes:
    """The shapes in use; at capacity, the least recently used is dropped."""

    def __init__(self, capacity: int = 256) -> None:
        self._capacity = capacity
        self._shapes: dict[tuple[bytes, ...], Shape] = {}
        #: The specs and gates of the last call with their key: pods of a template share their specs.
        self._last: tuple[Sequence[ResourceClaimSpec], DeviceGates | None, tuple[bytes, ...]] = (), None, ()

    def of(self, specs: Sequence[ResourceClaimSpec], snapshot: Snapshot, options: DeviceGates) -> Shape:
        """Return the shape of claims with these specs and the present versions of their device classes."""
        key = self._key(specs, options)
        classes = snapshot.objects(DeviceClass)
        shape = self._shapes.pop(key, None)
        if shape is None or not shape.has_classes(classes):
            asks = tuple([parse_claim(spec, classes, options) for spec in specs])
            shape = Shape(asks, {name: classes.get(name) for spec in specs for name in _class_names(spec)}, options)
            if len(self._shapes) >= self._capacity:
                del self._shapes[next(iter(self._shapes))]
        self._shapes[key] = shape
        shape.drop_deleted(snapshot)
        return shape

    def _key(self, specs: Sequence[ResourceClaimSpec], options: DeviceGates) -> tuple[bytes, ...]:
        before, gates, key = self._last
        if gates is not options or len(before) != len(specs) or not all(map(is_, before, specs)):
            key = (*map(_encode, specs), _encode(options))
            self._last = specs, options, key
        return key


def _class_names(spec: ResourceClaimSpec) -> list[str]:
    names = []
    for request in spec.devices.requests:
        if request.exactly is not None:
            names.append(request.exactly.device_class_name)
        names += [alternative.device_class_name for alternative in request.first_available]
    return names


class DeviceState:
    """The device state of one cluster: catalog of slices, ledger of allocations, shapes and compiled selectors."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.catalog = Catalog(snapshot)
        self.ledger = Ledger(snapshot)
        self.shapes = Shapes()
        self.selectors = Selectors()

    def follow(self) -> None:
        """Apply the changes since the last call."""
        self.catalog.follow()
        self.ledger.follow()
