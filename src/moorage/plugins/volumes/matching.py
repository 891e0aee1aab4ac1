"""Which volume would a claim get on which node, of those that are there and free?

A volume that is promised to the claim already is the only one it may have; otherwise the smallest that suits. The volumes that
suit are lined up by size once for each claim, and the first that each row reaches is read off their affinities (``Nearest``).
A pod's claims choose one after the other, the smallest first; what one took on a row the next cannot have there.

Source  component-helpers, storage/volume/pv_helpers.go, FindMatchingVolume;
        kube-scheduler 1.36, plugins/volumebinding/binder.go, findMatchingVolumes
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from moorage.api.quantity import parse
from moorage.api.requirements import SelectorError
from moorage.api.selectors import Selector, compile_label_selector
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim
from moorage.plugins.volumes.assumed import Assumptions
from moorage.plugins.volumes.claims import class_of_claim, class_of_volume, requested_storage
from moorage.plugins.volumes.filed import Filed
from moorage.plugins.volumes.reach import Nearest, Reach, rows_reaching
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray, IntArray
from moorage.state.view import NodeView

__all__ = ["Chosen", "MatchingError", "Search", "VolumeShelf", "is_bound_to", "suits"]


class MatchingError(Exception):
    """A claim that cannot be matched, because its selector makes no sense."""


class Chosen(NamedTuple):
    """What claims get. ``which`` has shape (claims, rows): an index into ``volumes``, or -1 where a claim gets none."""

    claims: tuple[PersistentVolumeClaim, ...]
    volumes: tuple[PersistentVolume, ...]
    which: IntArray

    def at(self, position: int) -> list[tuple[PersistentVolumeClaim, PersistentVolume]]:
        """Return the pairs that were found for one row of the view."""
        which = self.which[:, position].tolist()
        return [(claim, self.volumes[index]) for claim, index in zip(self.claims, which, strict=True) if index >= 0]


class _Offer(NamedTuple):
    """A volume on the shelf. ``rank``: its size in nano-bytes, so that comparing is exact, and its name."""

    volume: PersistentVolume
    rank: tuple[int, str]
    reach: Reach

    @classmethod
    def of(cls, volume: PersistentVolume) -> _Offer:
        affinity = volume.spec.node_affinity
        size = parse(volume.spec.capacity.get("storage", 0))
        return cls(volume, (size, volume.name), Reach.of(None if affinity is None else affinity.required))


class _Choices:
    """What a claim could get: offers promised to it, or free ones, smallest first.

    ``depth``: its turn among the pod's claims, so that many offers are enough to find one that none before it took.
    """

    def __init__(self, claim: PersistentVolumeClaim, promised: Sequence[_Offer], free: Sequence[_Offer], depth: int) -> None:
        self.claim = claim
        self.promised = promised
        self.free = free
        self._depth = depth
        self._nearest: Nearest | None = None

    def nearest(self, nodes: NodeView) -> IntArray:
        """Return for each row the indices of the first free offers it reaches, shape (depth, rows); -1 where there are none."""
        if self._nearest is None:
            self._nearest = Nearest([offer.reach for offer in self.free], self._depth)
        return self._nearest.over(nodes)


class Search:
    """The search for the unbound claims of one pod, smallest claim first."""

    def __init__(self, choices: Sequence[_Choices]) -> None:
        self._choices = choices
        index: dict[str, int] = {}
        volumes: list[PersistentVolume] = []

        def number(offer: _Offer) -> int:
            at = index.setdefault(offer.rank[1], len(volumes))
            if at == len(volumes):
                volumes.append(offer.volume)
            return at

        #: for each claim, the volumes of its promised offers and of its free ones; what is not there stays -1
        self._promised = [[number(offer) for offer in one.promised] for one in choices]
        self._free = [np.array([*map(number, one.free), -1], dtype=np.int64) for one in choices]
        self._volumes = tuple(volumes)

    def over(self, nodes: NodeView) -> Chosen:
        """Return what each claim gets on each row of the view."""
        which = np.full((len(self._choices), len(nodes)), -1, dtype=np.int64)
        for at, one in enumerate(self._choices):
            open_rows = np.ones(len(nodes), dtype=bool)
            taken = which[:at]
            for offer, index in zip(one.promised, self._promised[at], strict=True):
                decided = open_rows & ~_among(index, taken)
                which[at, decided & rows_reaching(offer.reach.affinity, nodes)] = index
                open_rows &= ~decided
            for indices in self._free[at][one.nearest(nodes)] if one.free else ():
                got = open_rows & (indices >= 0) & ~_among(indices, taken)
                which[at, got] = indices[got]
                open_rows &= ~got
        return Chosen(tuple(one.claim for one in self._choices), self._volumes, which)


def _among(indices: IntArray | int, taken: IntArray) -> BoolArray:
    """Say for each row whether an index is taken there already."""
    found: BoolArray = np.any(taken == indices, axis=0)
    return found


class VolumeShelf:
    """Volumes that may still be had: free ones by class, promised ones by claim. What others have is never looked at.

    An index: ask ``Snapshot.index`` for it.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._assumed = snapshot.index(Assumptions).volumes
        self._filed = Filed(snapshot, PersistentVolume, _place, _Offer.of)

    def search(self, claims: Iterable[PersistentVolumeClaim]) -> Search:
        """Return the search for these claims.

        Raises  MatchingError if a claim's selector cannot be parsed
        """
        self._filed.follow()
        assumed = {name: _Offer.of(volume) for name, volume in self._assumed.all()}
        by_size = sorted(claims, key=lambda claim: parse(requested_storage(claim)))
        return Search([self._choices(claim, assumed, depth) for depth, claim in enumerate(by_size, start=1)])

    def best(self, claim: PersistentVolumeClaim, *, promised_only: bool) -> PersistentVolume | None:
        """Return the volume that a claim gets if every node will do, by what is stored alone; None if there is none.

        Raises  MatchingError if the claim's selector cannot be parsed
        """
        self._filed.follow()
        promised = self._promised(claim, {})
        offers = promised if promised or promised_only else self._free(claim, {})
        return offers[0].volume if offers else None

    def _choices(self, claim: PersistentVolumeClaim, assumed: Mapping[str, _Offer], depth: int) -> _Choices:
        return _Choices(claim, self._promised(claim, assumed), self._free(claim, assumed), depth)

    def _promised(self, claim: PersistentVolumeClaim, assumed: Mapping[str, _Offer]) -> tuple[_Offer, ...]:
        class_name, suits = class_of_claim(claim), _suiting(claim)
        stored = self._filed.at(("for", claim.key))
        known = [
            *(assumed.get(name, offer) for name, offer in stored.items()),
            *(assumed[n] for n in assumed if n not in stored),
        ]
        promised = [
            offer for offer in known if is_bound_to(offer.volume, claim) and class_of_volume(offer.volume) == class_name
        ]
        return tuple(filter(suits, promised))

    def _free(self, claim: PersistentVolumeClaim, assumed: Mapping[str, _Offer]) -> list[_Offer]:
        """Return the free offers that suit, smallest first."""
        suits, selector = _suiting(claim), _selector(claim)
        wanted = frozenset(claim.spec.access_modes)
        free: list[_Offer] = []
        for name, offer in self._filed.at(("free", class_of_claim(claim))).items():
            if name in assumed or not suits(offer) or not wanted.issubset(offer.volume.spec.access_modes):
                continue
            if selector is None or selector.matches(offer.volume.metadata.labels):
                free.append(offer)
        free.sort(key=lambda offer: offer.rank)
        return free


def _place(volume: PersistentVolume) -> Hashable | None:
    claim = volume.spec.claim_ref
    if volume.metadata.deletion_timestamp is not None:
        return None
    if claim is not None:
        return ("for", f"{claim.namespace}/{claim.name}")
    return ("free", class_of_volume(volume)) if volume.status.phase == "Available" else None


def _suiting(claim: PersistentVolumeClaim) -> Callable[[_Offer], bool]:
    """Return whether an offer is large enough for the claim, and of its mode and attributes."""
    size = parse(requested_storage(claim))
    mode = claim.spec.volume_mode or "Filesystem"
    attributes = claim.spec.volume_attributes_class_name or ""

    def suits(offer: _Offer) -> bool:
        spec = offer.volume.spec
        same = (spec.volume_mode or "Filesystem") == mode and (spec.volume_attributes_class_name or "") == attributes
        return same and offer.rank[0] >= size

    return suits


def suits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Say whether the claim may have a volume that it asks for by name; its selector does not count then."""
    modes = set(claim.spec.access_modes)
    same_class = class_of_volume(volume) == class_of_claim(claim)
    return same_class and modes.issubset(volume.spec.access_modes) and _suiting(claim)(_Offer.of(volume))


def _selector(claim: PersistentVolumeClaim) -> Selector | None:
    if claim.spec.selector is None:
        return None
    try:
        return compile_label_selector(claim.spec.selector)
    except SelectorError as error:
        raise MatchingError(f"error creating internal label selector for claim: {claim.key}: {error}") from error


def is_bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Say whether the volume is promised to this claim, by name alone or for good."""
    ref = volume.spec.claim_ref
    if ref is None or (ref.name, ref.namespace) != (claim.metadata.name, claim.metadata.namespace):
        return False
    return not ref.uid or ref.uid == claim.metadata.uid
