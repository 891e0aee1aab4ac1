"""Which volume would a claim get on which node, of those that are there and free?

A volume that is promised to the claim already is the only one it may have; otherwise the smallest that suits. Nodes from which
the same volumes are reached get the same answer, so the search is made once for each such group of nodes.

Source  component-helpers, storage/volume/pv_helpers.go, FindMatchingVolume;
        kube-scheduler 1.36, plugins/volumebinding/binder.go, findMatchingVolumes
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from moorage.api.core import NodeSelector
from moorage.api.quantity import parse
from moorage.api.requirements import SelectorError
from moorage.api.selectors import Selector, compile_label_selector
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim
from moorage.plugins.volumes.assumed import Assumed
from moorage.plugins.volumes.claims import class_of_claim, class_of_volume, requested_storage
from moorage.plugins.volumes.filed import Filed
from moorage.plugins.volumes.reach import Positions, row_classes
from moorage.state.cluster import Snapshot
from moorage.state.view import NodeView

__all__ = ["Match", "MatchingError", "Search", "VolumeShelf", "is_bound_to"]


class MatchingError(Exception):
    """A claim that cannot be matched, because its selector makes no sense."""


class Match(NamedTuple):
    """What claims get on some nodes: the pairs that were found, and the claims for which a volume would have to be made."""

    bindings: tuple[tuple[PersistentVolumeClaim, PersistentVolume], ...] = ()
    unbound: tuple[PersistentVolumeClaim, ...] = ()


class _Offer(NamedTuple):
    """A volume on the shelf. ``size`` in nano-bytes, so that comparing is exact; ``affinity`` as the shelf numbers them."""

    volume: PersistentVolume
    size: int
    affinity: int

    @property
    def rank(self) -> tuple[int, str]:
        return self.size, self.volume.name


class _Choices(NamedTuple):
    """What a claim could get: offers that are promised to it, or free ones by affinity, smallest first."""

    claim: PersistentVolumeClaim
    promised: tuple[_Offer, ...]
    free: Mapping[int, list[_Offer]]

    def pick(self, reached: frozenset[int], taken: Mapping[str, object]) -> PersistentVolume | None:
        """Return the best volume that is reached and not taken."""
        for offer in self.promised:
            if offer.volume.name not in taken:
                return offer.volume if offer.affinity in reached else None
        near = (self.free[a] for a in self.free if a in reached) if len(self.free) < len(reached) else map(self._at, reached)
        heads = (next((offer for offer in offers if offer.volume.name not in taken), None) for offers in near)
        least = min((offer for offer in heads if offer is not None), key=lambda offer: offer.rank, default=None)
        return None if least is None else least.volume

    def _at(self, affinity: int) -> list[_Offer]:
        return self.free.get(affinity, [])


class Search:
    """The search for the unbound claims of one pod, smallest claim first."""

    def __init__(self, choices: Iterable[_Choices], affinities: Sequence[NodeSelector | None]) -> None:
        self._choices = tuple(choices)
        used: dict[int, None] = {}
        for one in self._choices:
            used |= dict.fromkeys(offer.affinity for offer in one.promised)
            used |= dict.fromkeys(one.free)
        self._numbers = tuple(used)
        self._affinities = [affinities[number] for number in used]

    def over(self, nodes: NodeView) -> Iterator[tuple[Match, Positions]]:
        """Yield what the claims get, and on which rows of the view; every row is in one of the groups."""
        for reached, positions in row_classes(self._affinities, nodes):
            yield self._match(frozenset(self._numbers[index] for index in reached)), positions

    def _match(self, reached: frozenset[int]) -> Match:
        taken: dict[str, None] = {}
        bindings: list[tuple[PersistentVolumeClaim, PersistentVolume]] = []
        unbound: list[PersistentVolumeClaim] = []
        for one in self._choices:
            volume = one.pick(reached, taken)
            if volume is None:
                unbound.append(one.claim)
            else:
                taken[volume.name] = None
                bindings.append((one.claim, volume))
        return Match(tuple(bindings), tuple(unbound))


class VolumeShelf:
    """Volumes that may still be had: free ones by class, promised ones by claim. What others have is never looked at."""

    #: Distinct affinities that are numbered before the shelf is sorted anew.
    remembered = 65_536

    def __init__(self, assumed: Assumed[PersistentVolume]) -> None:
        self._assumed = assumed
        self._sort_anew()

    def _sort_anew(self) -> None:
        self._affinities: list[NodeSelector | None] = [None]
        self._number_of: dict[NodeSelector | None, int] = {None: 0}
        self._filed = Filed[PersistentVolume, _Offer](PersistentVolume, _place, self._offer)

    def _offer(self, volume: PersistentVolume) -> _Offer:
        affinity = None if volume.spec.node_affinity is None else volume.spec.node_affinity.required
        number = self._number_of.get(affinity)
        if number is None:
            number = self._number_of[affinity] = len(self._affinities)
            self._affinities.append(affinity)
        return _Offer(volume, parse(volume.spec.capacity.get("storage", 0)), number)

    def search(self, claims: Iterable[PersistentVolumeClaim], snapshot: Snapshot) -> Search:
        """Return the search for these claims.

        Raises  MatchingError if a claim's selector cannot be parsed
        """
        if len(self._affinities) > self.remembered:
            self._sort_anew()
        self._filed.follow(snapshot)
        assumed = {name: self._offer(volume) for name, volume in self._assumed.all(snapshot)}
        by_size = sorted(claims, key=lambda claim: parse(requested_storage(claim)))
        return Search([self._choices(claim, assumed) for claim in by_size], self._affinities)

    def _choices(self, claim: PersistentVolumeClaim, assumed: Mapping[str, _Offer]) -> _Choices:
        class_name, suits = class_of_claim(claim), _suiting(claim)
        stored = self._filed.at(("for", claim.key))
        known = [
            *(assumed.get(name, offer) for name, offer in stored.items()),
            *(assumed[n] for n in assumed if n not in stored),
        ]
        promised = [
            offer for offer in known if is_bound_to(offer.volume, claim) and class_of_volume(offer.volume) == class_name
        ]
        selector = _selector(claim)
        wanted = frozenset(claim.spec.access_modes)
        free: dict[int, list[_Offer]] = {}
        for name, offer in self._filed.at(("free", class_name)).items():
            if name in assumed or not suits(offer) or not wanted.issubset(offer.volume.spec.access_modes):
                continue
            if selector is None or selector.matches(offer.volume.metadata.labels):
                free.setdefault(offer.affinity, []).append(offer)
        for offers in free.values():
            offers.sort(key=lambda offer: offer.rank)
        return _Choices(claim, tuple(filter(suits, promised)), free)


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
        return same and offer.size >= size

    return suits


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
