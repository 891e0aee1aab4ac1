"""Shared counters: partitions of one device consume the counters of the whole device.

Source  kube-scheduler 1.36: structured/internal/incubating/allocator_incubating.go, checkAvailableCounters
"""

from __future__ import annotations

from moorage.plugins.devices.allocated_devices import Ledger
from moorage.plugins.devices.pools import DeviceCandidate, Pool

__all__ = ["Counters"]

_Counts = dict[str, dict[str, int]]


class Counters:
    """The counters left in each pool, and those consumed in one search. Keyed by the pool's name: see ``allocator``."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._left: dict[str, _Counts] = {}
        self._taken: dict[str, _Counts] = {}

    def take(self, candidate: DeviceCandidate) -> bool:
        """Consume the counters that a device needs; return False, and consume nothing, if the pool has too little left."""
        name = candidate.pool.id[1]
        left = self._left.get(name)
        if left is None:
            left = self._left[name] = self._left_in(candidate.pool)
        taken = self._taken.setdefault(name, {})
        for set_name, counters in candidate.offer.counters.items():
            in_set = taken.setdefault(set_name, {})
            for counter, amount in counters.items():
                in_set[counter] = in_set.get(counter, 0) + amount
        for set_name, counters in left.items():
            in_set = taken.get(set_name, {})
            if any(amount < in_set.get(counter, 0) for counter, amount in counters.items()):
                self.release(candidate)
                return False
        return True

    def release(self, candidate: DeviceCandidate) -> None:
        """Undo a successful ``take``."""
        taken = self._taken.get(candidate.pool.id[1], {})
        for set_name, counters in candidate.offer.counters.items():
            in_set = taken.setdefault(set_name, {})
            for counter, amount in counters.items():
                in_set[counter] = in_set.get(counter, 0) - amount

    def _left_in(self, pool: Pool) -> _Counts:
        """Return the pool's counters minus those of devices in use; below zero if these consume more than there is."""
        left = {set_name: dict(counters) for set_name, counters in pool.counter_sets.items()}
        for offer in (*pool.offers, *pool.others):
            if offer.device.consumes_counters and self._ledger.is_used(offer.id):
                for set_name, counters in offer.counters.items():
                    in_set = left.get(set_name, {})
                    for counter, amount in counters.items():
                        if counter in in_set:
                            in_set[counter] -= amount
        return left
