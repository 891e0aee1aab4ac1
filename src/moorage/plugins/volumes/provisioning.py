"""On which nodes a volume can be provisioned for a claim: by the class's allowed topologies and the published capacity.

Source  kube-scheduler 1.36, plugins/volumebinding/binder.go, checkVolumeProvisions and hasEnoughCapacity;
        core/v1/helper/helpers.go, MatchTopologySelectorTerms
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from moorage.api import storage
from moorage.api.node_selectors import NodeTerm
from moorage.api.quantity import value
from moorage.api.requirements import Requirement, SelectorError, requirement_faults
from moorage.api.selectors import NOTHING, Selector, compile_label_selector
from moorage.plugins.volumes.indexed_objects import IndexedObjects
from moorage.plugins.volumes.volume_reach import first_matching
from moorage.rules.volumes.bindings import NOT_SUPPORTED, class_of_claim, requested_bytes
from moorage.state.node_matching import rows_matching_term
from moorage.state.view import BoolArray, IntArray, NodeView, Snapshot


class Provisioning(NamedTuple):
    """Where a volume can be provisioned for one claim. Arrays have one entry per row of the view.

    ``possible``  the class's topologies allow the row
    ``has_room``  and there is capacity for a volume of the size
    ``capacity``  the free bytes; -1 where the driver publishes no capacity
    """

    claim: storage.PersistentVolumeClaim
    possible: BoolArray
    has_room: BoolArray
    capacity: IntArray


class _Capacity(NamedTuple):
    """A CSIStorageCapacity: the nodes it covers, the largest possible volume (None: unknown), and the free bytes."""

    nodes: Selector
    limit: int | None
    capacity: int

    @classmethod
    def of(cls, room: storage.CSIStorageCapacity) -> _Capacity:
        try:
            nodes = compile_label_selector(room.node_topology)
        except SelectorError:
            nodes = NOTHING
        return cls(nodes, volume_limit(room), value(room.capacity) if room.capacity is not None else 0)


def volume_limit(room: storage.CSIStorageCapacity) -> int | None:
    """Return the largest possible volume in bytes; None if unknown. ``maximumVolumeSize`` overrides ``capacity``."""
    limit = room.capacity if room.maximum_volume_size is None else room.maximum_volume_size
    return None if limit is None else value(limit)


class Provisioner:
    """Checks claims whose volume must be provisioned. An index: get it from ``Snapshot.index``."""

    def __init__(self, snapshot: Snapshot) -> None:
        kind = storage.CSIStorageCapacity
        self._capacities = IndexedObjects(snapshot, kind, lambda room: room.storage_class_name, _Capacity.of)

    def check(self, claim: storage.PersistentVolumeClaim, nodes: NodeView, *, counted: bool = True) -> Provisioning:
        """Return where a volume can be provisioned for the claim. Its class must exist.

        ``counted``  consider the capacity that drivers publish; otherwise capacity is unlimited
        """
        storage_class = nodes.snapshot.objects(storage.StorageClass)[class_of_claim(claim)]
        unknown = nodes.zeros() - 1
        if storage_class.provisioner in {"", NOT_SUPPORTED}:
            return Provisioning(claim, nodes.false(), nodes.false(), unknown)
        possible = _rows_allowed(storage_class.allowed_topologies, nodes)
        asks = "storage" in claim.spec.resources.requests
        driver = nodes.snapshot.objects(storage.CSIDriver).get(storage_class.provisioner)
        if not counted or not asks or driver is None or not driver.spec.storage_capacity:
            return Provisioning(claim, possible, np.ones(len(nodes), dtype=bool), unknown)
        self._capacities.follow()
        size = requested_bytes(claim)
        rooms = [
            room for room in self._capacities.at(storage_class.name).values() if room.limit is not None and room.limit >= size
        ]
        which = first_matching([room.nodes for room in rooms], nodes)
        capacities = np.array([*(room.capacity for room in rooms), -1], dtype=np.int64)
        return Provisioning(claim, possible, which >= 0, capacities[which])


def _rows_allowed(terms: tuple[storage.TopologySelectorTerm, ...], nodes: NodeView) -> BoolArray:
    """Return for each row whether one of the terms allows it. No terms allow all rows; an empty term allows none."""
    if not terms:
        return np.ones(len(nodes), dtype=bool)
    allowed = nodes.false()
    for term in _compiled(terms):
        allowed |= rows_matching_term(term, nodes)
    return allowed


@lru_cache(maxsize=1024)
def _compiled(terms: tuple[storage.TopologySelectorTerm, ...]) -> tuple[NodeTerm, ...]:
    requirements = ([(one.key, one.values) for one in term.match_label_expressions] for term in terms)
    return tuple(
        NodeTerm(tuple(Requirement(key, "In", values) for key, values in term))
        for term in requirements
        if term and not any(requirement_faults(key, "In", values) for key, values in term)
    )
