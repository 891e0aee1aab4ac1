"""Match the unbound claims of a pod with free volumes, node by node.

A claim that volumes are reserved for can only get one of those. Any other claim gets the smallest matching volume that the node
can access (see ``available_volumes`` and ``volume_candidates``). The claims of a pod choose in turn, smallest first; what one
takes on a row, the next cannot have there.

Source  component-helpers, storage/volume/pv_helpers.go, FindMatchingVolume;
        kube-scheduler 1.36, plugins/volumebinding/binder.go, findMatchingVolumes
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from moorage.api.quantity import parse
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim
from moorage.plugins.volumes.assume_cache import Assumptions
from moorage.plugins.volumes.available_volumes import (
    AvailableVolume,
    AvailableVolumes,
    CandidateVolumes,
    MatchingError,
    is_bound_to,
    suiting,
    suits,
)
from moorage.plugins.volumes.pod_claims import class_of_claim, class_of_volume, requested_storage
from moorage.plugins.volumes.volume_reach import rows_reaching
from moorage.state.view import BoolArray, IntArray, NodeView, Snapshot

__all__ = ["Chosen", "MatchingError", "VolumeIndex", "VolumeSearch", "is_bound_to", "suits"]

#: Numbers of volumes reserved for a claim start here; numbers of free volumes stay below.
_RESERVED: Final = 1 << 40


class Chosen(NamedTuple):
    """The volumes that claims get. ``which``, shape (claims, rows): numbers of volumes, -1 where a claim gets none."""

    claims: tuple[PersistentVolumeClaim, ...]
    which: IntArray
    reserved: Sequence[AvailableVolume]
    free: Sequence[Sequence[AvailableVolume]]

    def at(self, position: int) -> list[tuple[PersistentVolumeClaim, PersistentVolume]]:
        """Return the claims and their volumes on one row of the view."""
        which = enumerate(self.which[:, position].tolist())
        return [(self.claims[turn], self._volume(turn, number)) for turn, number in which if number >= 0]

    def volumes_of(self, turn: int) -> tuple[list[PersistentVolume], IntArray]:
        """Return the volumes that one of the claims gets on any row, and the index into them for each row, or -1."""
        found, at = np.unique(self.which[turn], return_inverse=True)
        volumes = [self._volume(turn, number) for number in found.tolist() if number >= 0]
        return volumes, at.reshape(-1) - (len(found) - len(volumes))

    def _volume(self, turn: int, number: int) -> PersistentVolume:
        return (self.reserved[number - _RESERVED] if number >= _RESERVED else self.free[turn][number]).volume


class _Choices(NamedTuple):
    """The volumes a claim can get: those reserved for it, or free ones."""

    claim: PersistentVolumeClaim
    reserved: Sequence[AvailableVolume]
    free: CandidateVolumes | None


class VolumeSearch:
    """The search for the unbound claims of one pod, smallest claim first."""

    def __init__(self, choices: Sequence[_Choices]) -> None:
        self._choices = choices
        self._offers: list[AvailableVolume] = []
        number_of: dict[str, int] = {}
        for offer in (offer for one in choices for offer in one.reserved):
            if offer.volume.name not in number_of:
                number_of[offer.volume.name] = _RESERVED + len(self._offers)
                self._offers.append(offer)
        self._reserved = [[number_of[offer.volume.name] for offer in one.reserved] for one in choices]

    def over(self, nodes: NodeView) -> Chosen:
        """Return the volumes that each claim gets on each row of the view."""
        offers = [one.free.offers if one.free is not None else () for one in self._choices]
        which = self._of_only_claim(nodes)
        if which is None:
            which = self._in_turn(nodes)
        return Chosen(tuple([one.claim for one in self._choices]), which, self._offers, offers)

    def _of_only_claim(self, nodes: NodeView) -> IntArray | None:
        """Return the volumes for a pod with a single claim that has no reserved volumes; None for any other pod."""
        first = self._choices[0]
        if len(self._choices) > 1 or first.reserved or first.free is None:
            return None
        return first.free.candidates.first_per_row(nodes, 1)

    def _in_turn(self, nodes: NodeView) -> IntArray:
        """Let the claims choose one after the other."""
        which = np.full((len(self._choices), len(nodes)), -1, dtype=np.int64)
        for at, (_, reserved, free) in enumerate(self._choices):
            open_rows = np.ones(len(nodes), dtype=bool)
            taken = which[:at]
            for offer, number in zip(reserved, self._reserved[at], strict=True):
                decided = open_rows & ~_is_taken(number, taken)
                which[at, decided & rows_reaching(offer.reach.affinity, nodes)] = number
                open_rows &= ~decided
            # The claims before this one take at most ``at`` of these candidates, so one is left.
            for numbers in free.candidates.first_per_row(nodes, at + 1) if free is not None else ():
                got = open_rows & (numbers >= 0) & ~_is_taken(numbers, taken)
                which[at, got] = numbers[got]
                open_rows &= ~got
        return which


def _is_taken(numbers: IntArray | int, taken: IntArray) -> BoolArray:
    """Return for each row whether an earlier claim has taken the volume with this number there."""
    found: BoolArray = np.any(taken == numbers, axis=0)
    return found


class VolumeIndex:
    """The volumes that claims can still get, with assumptions applied. An index: get it from ``Snapshot.index``."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._assumed = snapshot.index(Assumptions).volumes
        self._available = AvailableVolumes(snapshot)

    def search(self, claims: Iterable[PersistentVolumeClaim]) -> VolumeSearch:
        """Return the search for these claims; it is valid until anything changes.

        Raises  MatchingError if a claim's selector cannot be parsed
        """
        self._available.follow()
        assumed = {name: AvailableVolume.of(volume) for name, volume in self._assumed.all()}
        self._available.hide(assumed)
        by_size = sorted(claims, key=lambda claim: parse(requested_storage(claim)))
        return VolumeSearch(
            [_Choices(claim, self._reserved(claim, assumed), self._available.candidates(claim)) for claim in by_size]
        )

    def best(self, claim: PersistentVolumeClaim, *, reserved_only: bool) -> PersistentVolume | None:
        """Return the volume that a claim gets if every node is feasible, without assumptions; None if there is none.

        Raises  MatchingError if the claim's selector cannot be parsed
        """
        self._available.follow()
        reserved = self._reserved(claim, {})
        if reserved or reserved_only:
            return reserved[0].volume if reserved else None
        smallest = self._available.smallest(claim)
        return None if smallest is None else smallest.volume

    def _reserved(self, claim: PersistentVolumeClaim, assumed: Mapping[str, AvailableVolume]) -> tuple[AvailableVolume, ...]:
        class_name, suits = class_of_claim(claim), suiting(claim)
        stored = self._available.reserved(claim)
        known = [
            *(assumed.get(name, offer) for name, offer in stored.items()),
            *(assumed[n] for n in assumed if n not in stored),
        ]
        reserved = [
            offer for offer in known if is_bound_to(offer.volume, claim) and class_of_volume(offer.volume) == class_name
        ]
        return tuple(filter(suits, reserved))
