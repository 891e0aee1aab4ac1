"""Scores of nodes by how full the storage of a pod's claims would be there.

Each storage class scores by the requested share of its capacity, along a piecewise linear function; a node gets the mean.

Source  kube-scheduler 1.36, plugins/volumebinding: scorer.go; volume_binding.go, Score
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from moorage.api.quantity import value
from moorage.plugins.volumes.provisioning import Provisioning
from moorage.plugins.volumes.volume_matching import Chosen
from moorage.plugins.volumes.volume_reasons import ProvisioningGroup, VolumeFindings
from moorage.rules.volumes.bindings import class_of_claim, requested_bytes
from moorage.state.columns import BoolArray, IntArray


def capacity_scores(findings: VolumeFindings, table: IntArray, rows: int) -> IntArray:
    """Return a score for each of ``rows`` rows. ``table``: score by percent of use, shape (101,).

    Rows with matching volumes score by the volumes' sizes, rows where all volumes are provisioned by the published capacity.
    Rounds  percents down; the mean to the nearest, half up
    """
    total = _Total(table, rows)
    any_found = np.zeros(rows, dtype=bool)
    if findings.chosen is not None:
        any_found = np.any(findings.chosen.which >= 0, axis=0)
        _add_matched(findings.chosen, total)
    for group in findings.groups:
        _add_provisioned(group, findings.provisionings, ~any_found[group.positions], total)
    return total.mean()


class _Use(NamedTuple):
    """The requested and the available amount of a storage class on each row, and whether the class counts there."""

    asked: IntArray
    offered: IntArray
    counts: BoolArray


class _Total:
    """The use of each storage class, by name, on each row."""

    def __init__(self, table: IntArray, rows: int) -> None:
        self._table = table
        self._rows = rows
        self._uses: dict[str, _Use] = {}

    def of(self, name: str) -> _Use:
        use = self._uses.get(name)
        if use is None:
            asked, offered = np.zeros((2, self._rows), dtype=np.int64)
            use = self._uses[name] = _Use(asked, offered, np.zeros(self._rows, dtype=bool))
        return use

    def mean(self) -> IntArray:
        """Return the mean of the classes' scores on each row; 0 where none counts."""
        scores = np.zeros(self._rows, dtype=np.int64)
        classes = np.zeros(self._rows, dtype=np.int64)
        for asked, offered, counts in self._uses.values():
            full = (offered == 0) | (asked > offered)
            percent = np.where(full, 100, asked * 100 // np.maximum(offered, 1))
            scores += np.where(counts, self._table[np.clip(percent, 0, 100)], 0)
            classes += counts
        mean: IntArray = (2 * scores + classes) // np.maximum(2 * classes, 1)
        return mean


def _add_matched(chosen: Chosen, total: _Total) -> None:
    """Add the requests of claims and the sizes of the volumes they match, by the volumes' classes."""
    for turn, claim in enumerate(chosen.claims):
        volumes, which = chosen.volumes_of(turn)
        names = np.array([*(volume.spec.storage_class_name for volume in volumes), ""], dtype=object)
        sizes = np.array([*(value(volume.spec.capacity.get("storage", 0)) for volume in volumes), 0], dtype=np.int64)
        for name in sorted(set(names[np.unique(which[which >= 0])].tolist())):
            here = (which >= 0) & (names[which] == name)
            use = total.of(name)
            use.asked[here] += requested_bytes(claim)
            use.offered[here] += sizes[which[here]]
            use.counts[here] = True


def _add_provisioned(
    group: ProvisioningGroup, provisionings: Mapping[str, Provisioning], rows: BoolArray, total: _Total
) -> None:
    """Add the requests of a class's claims; they share its capacity, which therefore is not summed."""
    at = group.positions[rows]
    for claim in group.to_provision:
        capacity = provisionings[claim.key].capacity[at]
        known = at[capacity >= 0]
        use = total.of(class_of_claim(claim))
        use.asked[known] += requested_bytes(claim)
        use.offered[known] = capacity[capacity >= 0]
        use.counts[known] = True
