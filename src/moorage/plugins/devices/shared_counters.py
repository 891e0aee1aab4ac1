"""Shared counters: partitions of one device consume the counters of the whole device.

Source  kube-scheduler 1.36: structured/internal/incubating/allocator_incubating.go, checkAvailableCounters
"""

from __future__ import annotations

from functools import partial

from moorage.plugins.devices.allocated_devices import Ledger
from moorage.plugins.devices.pools import DeviceCandidate

__all__ = ["Counters"]

_Counts = dict[str, dict[str, int]]


class Counters:
    """The counters left in each pool, and those consumed in one search. Keyed by ``_place``: see ``allocator``.

    ``charges_shares``  counters of devices that others hold by shares are in use
    """

    def __init__(self, ledger: Ledger, *, charges_shares: bool) -> None:
        self._is_charged = ledger.is_used if charges_shares else partial(ledger.is_held, shares=True)
        self._left: dict[str, _Counts] = {}
        self._taken: dict[str, _Counts] = {}

    def take(self, candidate: DeviceCandidate) -> bool:
        """Consume the counters that a device needs; return False, and consume nothing, if there is too little left."""
        name = _place(candidate)
        left = self._left.get(name)
        if left is None:
            left = self._left[name] = self._left_for(candidate)
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
        taken = self._taken.get(_place(candidate), {})
        for set_name, counters in candidate.offer.counters.items():
            in_set = taken.setdefault(set_name, {})
            for counter, amount in counters.items():
                in_set[counter] = in_set.get(counter, 0) - amount

    def _left_for(self, candidate: DeviceCandidate) -> _Counts:
        """Return the counters minus those of devices in use; below zero if these consume more than there is."""
        pool, source = candidate.pool, candidate.offer.source
        counter_sets, offers = pool.counter_sets, (*pool.offers, *pool.others)
        if pool.by_slice is not None:
            counter_sets = pool.by_slice[source.metadata.name]
            offers = tuple(offer for offer in offers if offer.source is source)
        left = {set_name: dict(counters) for set_name, counters in counter_sets.items()}
        for offer in offers:
            if offer.device.consumes_counters and self._is_charged(offer.id):
                for set_name, counters in offer.counters.items():
                    in_set = left.get(set_name, {})
                    for counter, amount in counters.items():
                        if counter in in_set:
                            in_set[counter] -= amount
        return left


def _place(candidate: DeviceCandidate) -> str:
    """Return what counters are kept for: a pool, or a slice where devices consume only the counters of their own."""
    return candidate.pool.id[1] if candidate.pool.by_slice is None else candidate.offer.source.metadata.name
