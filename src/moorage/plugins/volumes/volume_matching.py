"""Match the unbound claims of a pod with free volumes, node by node.

A claim that volumes are reserved for can only get one of those. Any other claim gets the smallest matching volume that the node
can access (see ``available_volumes`` and ``volume_candidates``). The claims of a pod choose in turn, smallest first; what one
takes on a row, the next cannot have there.

Source  component-helpers, storage/volume/pv_helpers.go, FindMatchingVolume;
        kube-scheduler 1.36, plugins/volumebinding/binder.go, findMatchingVolumes
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
import numpy as np

from moorage.api.core import NodeSelector
from moorage.api.quantity import parse
from moorage.api.requirements import SelectorError
from moorage.api.selectors import Selector, compile_label_selector
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim
from moorage.plugins.volumes.assume_cache import Assumptions
from moorage.plugins.volumes.indexed_objects import IndexedObjects
from moorage.plugins.volumes.volume_reach import Reach, rows_reaching
from moorage.rules.volumes.bindings import class_of_claim, class_of_volume, is_bound_to, requested_storage
from moorage.state.labels import LabelColumn
from moorage.state.view import BoolArray, IntArray, NodeView, Snapshot

# Volumes that claims can still get: free ones by class, reserved ones by claim. Bound volumes are never looked at.
#
# Each free volume gets a number, and each class logs which of its volumes are added and removed. A list of candidates for
# similar claims replays this log on demand, so the cost of a pod depends on what has changed since the last one.
#
# Source  component-helpers, storage/volume/pv_helpers.go, FindMatchingVolume

# Free volumes that match a claim, smallest first, grouped by the nodes that can access them.
#
# Most claims differ in nothing that decides which volumes match, so equal claims share one list, which is updated for each
# volume added or removed. From it follow the first volumes that each row can access. For volumes whose affinity requires one
# label to have one of some values, as for all local volumes, an array by the label's values is kept up to date value by
# value.

#: A volume's size in nano-bytes, for exact comparison, and its name.
Rank = tuple[int, str]
#: A volume by its rank, and its number.
Ranked = tuple[Rank, int]


class CandidateList:
    """Numbers of volumes, sorted by their ranks."""

    def __init__(self) -> None:
        self._all: list[Ranked] = []
        self._rank_of: dict[int, Rank] = {}
        self._everywhere: list[Ranked] = []
        self._by_label: dict[str, _ByValue] = {}
        self._otherwise: dict[NodeSelector, list[Ranked]] = {}

    def __len__(self) -> int:
        return len(self._all)

    @property
    def first(self) -> Ranked | None:
        """The smallest of all volumes, whatever nodes can access it."""
        return self._all[0] if self._all else None

    def add(self, volume: Ranked, reach: Reach) -> None:
        insort(self._all, volume)
        self._rank_of[volume[1]] = volume[0]
        if reach.required is not None:
            by_value = self._by_label.setdefault(reach.required.key, _ByValue())
            for value in dict.fromkeys(reach.required.values):
                by_value.add(value, volume)
        elif reach.affinity is None:
            insort(self._everywhere, volume)
        else:
            insort(self._otherwise.setdefault(reach.affinity, []), volume)

    def remove(self, volume: Ranked, reach: Reach) -> None:
        """Remove a volume that was added with the same reach."""
        _take(self._all, volume)
        del self._rank_of[volume[1]]
        if reach.required is not None:
            by_value = self._by_label[reach.required.key]
            for value in dict.fromkeys(reach.required.values):
                by_value.remove(value, volume)
            if not by_value:
                del self._by_label[reach.required.key]
        elif reach.affinity is None:
            _take(self._everywhere, volume)
        else:
            there = self._otherwise[reach.affinity]
            _take(there, volume)
            if not there:
                del self._otherwise[reach.affinity]

    def first_per_row(self, nodes: NodeView, depth: int) -> IntArray:
        """Return the first volumes that each row can access, in order; shape (depth, rows), -1 where there are no more."""
        sources = []
        if self._everywhere:
            sources.append(np.repeat(_firsts(self._everywhere, depth)[:, None], len(nodes), axis=1))
        for key, by_value in self._by_label.items():
            column = nodes.label(key)
            sources.append(by_value.firsts(column, depth)[:, nodes.ids(column)])
        for affinity, volumes in self._otherwise.items():
            sources.append(np.where(rows_reaching(affinity, nodes), _firsts(volumes, depth)[:, None], -1))
        if not sources:
            return np.full((depth, len(nodes)), -1, dtype=np.int64)
        return sources[0] if len(sources) == 1 else self._merged(sources, depth)

    def _merged(self, sources: Sequence[IntArray], depth: int) -> IntArray:
        """Merge several arrays of volumes and return the first ones, row by row."""
        stacked = np.concatenate(sources)
        found, at = np.unique(stacked, return_inverse=True)
        known = [number for number in found.tolist() if number >= 0]
        known.sort(key=self._rank_of.__getitem__)
        place_of = {number: place for place, number in enumerate(known)}
        places = np.array([place_of.get(number, len(known)) for number in found.tolist()], dtype=np.int64)
        best = np.sort(places[at.reshape(stacked.shape)], axis=0)[:depth]
        numbers: IntArray = np.array([*known, -1], dtype=np.int64)[best]
        return numbers


class _ByValue:
    """Volumes by the label value they require; and for a column of that label, the first volumes of each value id."""

    def __init__(self) -> None:
        self._at: dict[str, list[Ranked]] = {}
        self._column: LabelColumn | None = None
        #: How many values of the column are filled in. The array has shape (depth, values or more), -1 for no more volumes.
        self._known = 0
        self._firsts = np.full((1, 0), -1, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._at)

    def add(self, value: str, volume: Ranked) -> None:
        insort(self._at.setdefault(value, []), volume)
        self._changed(value)

    def remove(self, value: str, volume: Ranked) -> None:
        there = self._at[value]
        _take(there, volume)
        if not there:
            del self._at[value]
        self._changed(value)

    def firsts(self, column: LabelColumn, depth: int) -> IntArray:
        """Return the first volumes for each of the column's values; shape (depth, values)."""
        if column is not self._column or depth > len(self._firsts):
            self._column, self._known = column, 0
            self._firsts = np.full((depth, 0), -1, dtype=np.int64)
        values = column.values
        if len(values) > self._firsts.shape[1]:
            more = max(2 * self._firsts.shape[1], len(values)) - self._firsts.shape[1]
            self._firsts = np.concatenate([self._firsts, np.full((len(self._firsts), more), -1, dtype=np.int64)], axis=1)
        for value_id in range(self._known, len(values)):
            self._fill(value_id, values[value_id])
        self._known = len(values)
        return self._firsts[:depth, : self._known]

    def _changed(self, value: str) -> None:
        value_id = self._column.find(value) if self._column is not None else -1
        if 0 <= value_id < self._known:
            self._fill(value_id, value)

    def _fill(self, value_id: int, value: str | None) -> None:
        volumes = self._at.get(value, ()) if value is not None else ()
        self._firsts[:, value_id] = _firsts(volumes, len(self._firsts)) if volumes else -1


def _firsts(volumes: Sequence[Ranked], depth: int) -> IntArray:
    numbers = [number for _, number in volumes[:depth]]
    return np.array([*numbers, *[-1] * (depth - len(numbers))], dtype=np.int64)


def _take(volumes: list[Ranked], volume: Ranked) -> None:
    del volumes[bisect_left(volumes, volume)]


# -- available volumes -------------------------------------------------------------------------------------------------

#: How many candidate lists are cached per class; claims rarely differ in more than their sizes.
_MAX_LISTS: Final = 64
#: How many stale numbers and log entries are tolerated before they are compacted.
_SLACK: Final = 1024


class MatchingError(Exception):
    """A claim cannot be matched because its selector is invalid."""


class AvailableVolume(NamedTuple):
    """A volume with its sort key and the nodes that can access it."""

    volume: PersistentVolume
    rank: Rank
    reach: Reach

    @classmethod
    def of(cls, volume: PersistentVolume) -> AvailableVolume:
        size = parse(volume.spec.capacity.get("storage", 0))
        return cls(volume, (size, volume.name), Reach.of(volume.required_affinity))


class CandidateVolumes(NamedTuple):
    """The candidates for a claim; their numbers are indexes into ``offers``."""

    candidates: CandidateList
    offers: list[AvailableVolume]


@dataclass(slots=True)
class _CachedList:
    """A cached candidate list, which volumes belong to it, and how many log entries it has replayed."""

    suits: Callable[[AvailableVolume], bool]
    candidates: CandidateList = field(default_factory=CandidateList)
    replayed: int = 0


@dataclass(slots=True)
class _Class:
    """The free volumes of one class: their sizes, sorted, and the log of (number, added?)."""

    sizes: list[int] = field(default_factory=list)
    log: list[tuple[int, bool]] = field(default_factory=list)
    candidate_lists: dict[Hashable, _CachedList] = field(default_factory=dict)


class AvailableVolumes:
    """All free and reserved volumes of a snapshot. Call ``hide`` with the assumed volumes before ``candidates``."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._offers: list[AvailableVolume] = []
        self._number_of: dict[str, int] = {}
        self._hidden: dict[str, int] = {}
        self._classes: dict[str, _Class] = {}
        self._filed = IndexedObjects(snapshot, PersistentVolume, _place, AvailableVolume.of, self._refiled)

    def follow(self) -> None:
        """Apply the changes since the last call. Call this first."""
        if len(self._offers) > 2 * len(self._number_of) + _SLACK:
            self._renumber()
        self._filed.follow()

    def reserved(self, claim: PersistentVolumeClaim) -> Mapping[str, AvailableVolume]:
        """Return the volumes, by name, whose ``claimRef`` names this claim."""
        return self._filed.at(("for", claim.key))

    def hide(self, assumed: Iterable[str]) -> None:
        """Treat exactly these volumes as no longer free, although they are stored as free."""
        names = dict.fromkeys(assumed)
        for name in [name for name in self._hidden if name not in names]:
            self._log(self._hidden.pop(name), True)
        for name in names:
            number = self._number_of.get(name)
            if number is not None and name not in self._hidden:
                self._hidden[name] = number
                self._log(number, False)

    def candidates(self, claim: PersistentVolumeClaim) -> CandidateVolumes | None:
        """Return the free volumes that match the claim; None if there is none.

        Raises  MatchingError if the claim's selector cannot be parsed
        """
        selector, of_class = _selector(claim), self._classes.get(class_of_claim(claim))
        size = None if of_class is None else _least(of_class.sizes, parse(requested_storage(claim)))
        if of_class is None or size is None:
            return None
        if len(of_class.log) > 4 * len(of_class.sizes) + _SLACK:
            self._compact(of_class)
        shape = _shape(claim, size)
        kept = of_class.candidate_lists.get(shape)
        if kept is None:
            if len(of_class.candidate_lists) >= _MAX_LISTS:
                del of_class.candidate_lists[next(iter(of_class.candidate_lists))]
            kept = of_class.candidate_lists[shape] = _CachedList(_matching(claim, size, selector))
        else:
            of_class.candidate_lists[shape] = of_class.candidate_lists.pop(shape)  # the most recently used comes last
        self._catch_up(kept, of_class)
        return CandidateVolumes(kept.candidates, self._offers)

    def smallest(self, claim: PersistentVolumeClaim) -> AvailableVolume | None:
        """Return the smallest matching volume that is stored as free, hidden or not, regardless of its nodes.

        Raises  MatchingError if the claim's selector cannot be parsed
        """
        candidates, wanted = self.candidates(claim), class_of_claim(claim)
        suits = _matching(claim, parse(requested_storage(claim)), _selector(claim))
        hidden = [self._offers[number] for number in self._hidden.values()]
        found = [offer for offer in hidden if class_of_volume(offer.volume) == wanted and suits(offer)]
        if candidates is not None and candidates.candidates.first is not None:
            found.append(self._offers[candidates.candidates.first[1]])
        return min(found, key=lambda offer: offer.rank, default=None)

    # -- changes ----------------------------------------------------------------------------------------------------------

    def _refiled(self, name: str, old: AvailableVolume | None, new: AvailableVolume | None) -> None:
        number = self._number_of.pop(name, None)
        if number is not None and old is not None:
            if self._hidden.pop(name, None) is None:
                self._log(number, False)
            sizes = self._classes[class_of_volume(old.volume)].sizes
            del sizes[bisect_left(sizes, old.rank[0])]
        if new is not None and new.volume.spec.claim_ref is None:
            number = self._number_of[name] = len(self._offers)
            self._offers.append(new)
            insort(self._classes.setdefault(class_of_volume(new.volume), _Class()).sizes, new.rank[0])
            self._log(number, True)

    def _log(self, number: int, is_added: bool) -> None:
        self._classes[class_of_volume(self._offers[number].volume)].log.append((number, is_added))

    def _catch_up(self, kept: _CachedList, of_class: _Class) -> None:
        offers = self._offers
        for number, is_added in of_class.log[kept.replayed :]:
            offer = offers[number]
            if kept.suits(offer):
                change = kept.candidates.add if is_added else kept.candidates.remove
                change((offer.rank, number), offer.reach)
        kept.replayed = len(of_class.log)

    def _compact(self, of_class: _Class) -> None:
        """Compact the log to the volumes that are free now; candidate lists are rebuilt from it."""
        present: dict[int, None] = {}
        for number, is_added in of_class.log:
            if is_added:
                present[number] = None
            else:
                del present[number]
        of_class.log = [(number, True) for number in present]
        of_class.candidate_lists.clear()

    def _renumber(self) -> None:
        """Renumber the volumes without those removed. Candidate lists already returned keep their numbers."""
        offers, self._offers, self._classes = self._offers, [], {}
        hidden = self._hidden
        self._hidden = {}
        for name, number in self._number_of.items():
            self._number_of[name] = len(self._offers)
            self._offers.append(offers[number])
            of_class = self._classes.setdefault(class_of_volume(offers[number].volume), _Class())
            insort(of_class.sizes, offers[number].rank[0])
            self._log(self._number_of[name], True)
        self.hide(hidden)


def _place(volume: PersistentVolume) -> Hashable | None:
    claim = volume.spec.claim_ref
    if volume.metadata.deletion_timestamp is not None:
        return None
    if claim is not None:
        return ("for", f"{claim.namespace}/{claim.name}")
    return ("free", class_of_volume(volume)) if volume.status.phase == "Available" else None


def _least(sizes: list[int], wanted: int) -> int | None:
    """Return the smallest size that is large enough: claims that need the same size share a candidate list."""
    at = bisect_left(sizes, wanted)
    return sizes[at] if at < len(sizes) else None


def _shape(claim: PersistentVolumeClaim, size: int) -> Hashable:
    """Return a key for a claim: claims with equal keys match the same volumes of their class."""
    spec = claim.spec
    selector = b"" if spec.selector is None else msgspec.json.encode(spec.selector, order="deterministic")
    mode, attributes = spec.volume_mode or "Filesystem", spec.volume_attributes_class_name or ""
    return size, mode, attributes, frozenset(spec.access_modes), selector


def _matching(claim: PersistentVolumeClaim, size: int, selector: Selector | None) -> Callable[[AvailableVolume], bool]:
    """Return the predicate for free volumes that match the claim if it requested this size."""
    is_like, modes = _like(claim, size), frozenset(claim.spec.access_modes)

    def matches(offer: AvailableVolume) -> bool:
        if not is_like(offer) or not modes.issubset(offer.volume.spec.access_modes):
            return False
        return selector is None or selector.matches(offer.volume.metadata.labels)

    return matches


def suiting(claim: PersistentVolumeClaim) -> Callable[[AvailableVolume], bool]:
    """Return the predicate for volumes large enough for the claim, with its mode and attributes."""
    return _like(claim, parse(requested_storage(claim)))


def _like(claim: PersistentVolumeClaim, size: int) -> Callable[[AvailableVolume], bool]:
    mode = claim.spec.volume_mode or "Filesystem"
    attributes = claim.spec.volume_attributes_class_name or ""

    def suits(offer: AvailableVolume) -> bool:
        spec = offer.volume.spec
        same = (spec.volume_mode or "Filesystem") == mode and (spec.volume_attributes_class_name or "") == attributes
        return same and offer.rank[0] >= size

    return suits


def _selector(claim: PersistentVolumeClaim) -> Selector | None:
    if claim.spec.selector is None:
        return None
    try:
        return compile_label_selector(claim.spec.selector)
    except SelectorError as error:
        raise MatchingError(f"error creating internal label selector for claim: {claim.key}: {error}") from error


# -- matching volumes --------------------------------------------------------------------------------------------------

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
