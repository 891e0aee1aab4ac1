"""Scores of nodes by how full the storage would be that a pod's claims get there.

Each storage class is scored by the share of its capacity that is asked for, along a broken line; a node gets the mean.

Source  kube-scheduler 1.36, plugins/volumebinding: scorer.go; volume_binding.go, Score
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from moorage.api.quantity import value
from moorage.plugins.volumes.claims import class_of_claim, requested_bytes
from moorage.plugins.volumes.findings import Findings, Share
from moorage.plugins.volumes.matching import Match
from moorage.plugins.volumes.provisioning import Provisioning
from moorage.state.columns import IntArray

__all__ = ["capacity_scores"]


def capacity_scores(findings: Findings, table: IntArray, rows: int) -> IntArray:
    """Return a score for each of ``rows`` rows. ``table``: score by percent of use, shape (101,).

    Where volumes were found they count; where all are to be made, those of drivers that report what room they have.
    Rounds  percents down; the mean to the nearest, half up
    """
    scores = np.zeros(rows, dtype=np.int64)
    for share in findings.shares:
        if share.match.bindings:
            scores[share.positions] = _of_found(share.match, table)
        else:
            scores[share.positions] = _of_made(share, findings.provisionings, table)
    return scores


def _of_found(match: Match, table: IntArray) -> int:
    asked: dict[str, int] = {}
    offered: dict[str, int] = {}
    for claim, volume in match.bindings:
        name = volume.spec.storage_class_name
        asked[name] = asked.get(name, 0) + requested_bytes(claim)
        offered[name] = offered.get(name, 0) + value(volume.spec.capacity.get("storage", 0))
    scores = [_score(asked[name], offered[name], table) for name in asked]
    return _mean(sum(scores), len(scores))


def _of_made(share: Share, provisionings: Mapping[str, Provisioning], table: IntArray) -> IntArray:
    """Claims of one class share its room, so what they ask for adds up and what is offered does not."""
    count = len(share.positions)
    asked: dict[str, IntArray] = {}
    offered: dict[str, IntArray] = {}
    counted: dict[str, IntArray] = {}
    for claim in share.to_make:
        name, capacity = class_of_claim(claim), provisionings[claim.key].capacity[share.positions]
        known = capacity >= 0
        zeros = np.zeros(count, dtype=np.int64)
        asked[name] = asked.get(name, zeros) + np.where(known, requested_bytes(claim), 0)
        offered[name] = np.where(known, capacity, offered.get(name, zeros))
        counted[name] = counted.get(name, zeros) | known
    total = np.zeros(count, dtype=np.int64)
    classes = np.zeros(count, dtype=np.int64)
    for name, amount in asked.items():
        full = (offered[name] == 0) | (amount > offered[name])
        percent = np.where(full, 100, amount * 100 // np.maximum(offered[name], 1))
        total += np.where(counted[name] != 0, table[np.clip(percent, 0, 100)], 0)
        classes += counted[name]
    scores: IntArray = (2 * total + classes) // np.maximum(2 * classes, 1)
    return scores


def _score(asked: int, offered: int, table: IntArray) -> int:
    return int(table[100 if offered == 0 or asked > offered else asked * 100 // offered])


def _mean(total: int, count: int) -> int:
    return (2 * total + count) // (2 * count)
