"""Volumes that may still be had: free ones by class, promised ones by claim. What others have is never looked at.

Free volumes are numbered as they come, and what comes and goes is noted for each class. A line-up of the volumes that would do
for some claims catches up with these notes when it is asked for, so that a pod costs what has changed since the last one.

Source  component-helpers, storage/volume/pv_helpers.go, FindMatchingVolume
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from moorage.api.quantity import parse
from moorage.api.requirements import SelectorError
from moorage.api.selectors import Selector, compile_label_selector
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim
from moorage.plugins.volumes.claim_lookup import class_of_claim, class_of_volume, requested_storage
from moorage.plugins.volumes.indexed_objects import Filed
from moorage.plugins.volumes.volume_candidates import LineUp, Rank
from moorage.plugins.volumes.volume_reach import Reach
from moorage.state.cluster import Snapshot

__all__ = ["AvailableVolume", "AvailableVolumes", "CandidateVolumes", "MatchingError", "is_bound_to", "suiting", "suits"]

#: How many line-ups are kept of a class; claims differ in more than their sizes only here and there.
_MAX_LINES: Final = 64
#: How many dead numbers and notes are put up with.
_SLACK: Final = 1024


class MatchingError(Exception):
    """A claim that cannot be matched, because its selector makes no sense."""


class AvailableVolume(NamedTuple):
    """A volume on the shelf."""

    volume: PersistentVolume
    rank: Rank
    reach: Reach

    @classmethod
    def of(cls, volume: PersistentVolume) -> AvailableVolume:
        affinity = volume.spec.node_affinity
        size = parse(volume.spec.capacity.get("storage", 0))
        return cls(volume, (size, volume.name), Reach.of(None if affinity is None else affinity.required))


class CandidateVolumes(NamedTuple):
    """A line-up for a claim; ``offers`` are what its numbers stand for."""

    line_up: LineUp
    offers: list[AvailableVolume]


@dataclass(slots=True)
class _Kept:
    """A line-up, which offers belong to it, and how many notes it has heard."""

    suits: Callable[[AvailableVolume], bool]
    line_up: LineUp = field(default_factory=LineUp)
    heard: int = 0


@dataclass(slots=True)
class _Class:
    """The free volumes of one class: their sizes in order, and (number, has it come?) for each that came or went."""

    sizes: list[int] = field(default_factory=list)
    notes: list[tuple[int, bool]] = field(default_factory=list)
    lines: dict[Hashable, _Kept] = field(default_factory=dict)


class AvailableVolumes:
    """All free and promised volumes of a snapshot. ``hide`` it what is assumed of volumes before asking for lines."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._offers: list[AvailableVolume] = []
        self._number_of: dict[str, int] = {}
        self._hidden: dict[str, int] = {}
        self._classes: dict[str, _Class] = {}
        self._filed = Filed(snapshot, PersistentVolume, _place, AvailableVolume.of, self._refiled)

    def follow(self) -> None:
        """Bring the shelf up to date. Call before anything else."""
        if len(self._offers) > 2 * len(self._number_of) + _SLACK:
            self._number_anew()
        self._filed.follow()

    def promised(self, claim: PersistentVolumeClaim) -> Mapping[str, AvailableVolume]:
        """Return the volumes whose claim has this claim's name, by name."""
        return self._filed.at(("for", claim.key))

    def hide(self, assumed: Iterable[str]) -> None:
        """Take these volumes for no longer free, and all others that are stored as free for that."""
        names = dict.fromkeys(assumed)
        for name in [name for name in self._hidden if name not in names]:
            self._note(self._hidden.pop(name), True)
        for name in names:
            number = self._number_of.get(name)
            if number is not None and name not in self._hidden:
                self._hidden[name] = number
                self._note(number, False)

    def line(self, claim: PersistentVolumeClaim) -> CandidateVolumes | None:
        """Return the line-up of free volumes that would do for the claim; None if there is none.

        Raises  MatchingError if the claim's selector cannot be parsed
        """
        selector, of_class = _selector(claim), self._classes.get(class_of_claim(claim))
        size = None if of_class is None else _least(of_class.sizes, parse(requested_storage(claim)))
        if of_class is None or size is None:
            return None
        if len(of_class.notes) > 4 * len(of_class.sizes) + _SLACK:
            self._note_anew(of_class)
        shape = _shape(claim, size)
        kept = of_class.lines.get(shape)
        if kept is None:
            if len(of_class.lines) >= _MAX_LINES:
                del of_class.lines[next(iter(of_class.lines))]
            kept = of_class.lines[shape] = _Kept(_choosing(claim, size, selector))
        else:
            of_class.lines[shape] = of_class.lines.pop(shape)  # the one that was asked for last stands last
        self._catch_up(kept, of_class)
        return CandidateVolumes(kept.line_up, self._offers)

    def smallest(self, claim: PersistentVolumeClaim) -> AvailableVolume | None:
        """Return the smallest volume that is stored as free and would do, hidden or not, wherever it is reached from.

        Raises  MatchingError if the claim's selector cannot be parsed
        """
        line, wanted = self.line(claim), class_of_claim(claim)
        suits = _choosing(claim, parse(requested_storage(claim)), _selector(claim))
        hidden = [self._offers[number] for number in self._hidden.values()]
        found = [offer for offer in hidden if class_of_volume(offer.volume) == wanted and suits(offer)]
        if line is not None and line.line_up.first is not None:
            found.append(self._offers[line.line_up.first[1]])
        return min(found, key=lambda offer: offer.rank, default=None)

    # -- what comes and goes ----------------------------------------------------------------------------------------------

    def _refiled(self, name: str, old: AvailableVolume | None, new: AvailableVolume | None) -> None:
        number = self._number_of.pop(name, None)
        if number is not None and old is not None:
            if self._hidden.pop(name, None) is None:
                self._note(number, False)
            sizes = self._classes[class_of_volume(old.volume)].sizes
            del sizes[bisect_left(sizes, old.rank[0])]
        if new is not None and new.volume.spec.claim_ref is None:
            number = self._number_of[name] = len(self._offers)
            self._offers.append(new)
            insort(self._classes.setdefault(class_of_volume(new.volume), _Class()).sizes, new.rank[0])
            self._note(number, True)

    def _note(self, number: int, has_come: bool) -> None:
        self._classes[class_of_volume(self._offers[number].volume)].notes.append((number, has_come))

    def _catch_up(self, kept: _Kept, of_class: _Class) -> None:
        offers = self._offers
        for number, has_come in of_class.notes[kept.heard :]:
            offer = offers[number]
            if kept.suits(offer):
                change = kept.line_up.add if has_come else kept.line_up.remove
                change((offer.rank, number), offer.reach)
        kept.heard = len(of_class.notes)

    def _note_anew(self, of_class: _Class) -> None:
        """Forget what came and went; who asks next is told of what is there."""
        there: dict[int, None] = {}
        for number, has_come in of_class.notes:
            if has_come:
                there[number] = None
            else:
                del there[number]
        of_class.notes = [(number, True) for number in there]
        of_class.lines.clear()

    def _number_anew(self) -> None:
        """Forget the numbers of what is gone. Lines that somebody still holds keep theirs."""
        offers, self._offers, self._classes = self._offers, [], {}
        hidden = self._hidden
        self._hidden = {}
        for name, number in self._number_of.items():
            self._number_of[name] = len(self._offers)
            self._offers.append(offers[number])
            of_class = self._classes.setdefault(class_of_volume(offers[number].volume), _Class())
            insort(of_class.sizes, offers[number].rank[0])
            self._note(self._number_of[name], True)
        self.hide(hidden)


def _place(volume: PersistentVolume) -> Hashable | None:
    claim = volume.spec.claim_ref
    if volume.metadata.deletion_timestamp is not None:
        return None
    if claim is not None:
        return ("for", f"{claim.namespace}/{claim.name}")
    return ("free", class_of_volume(volume)) if volume.status.phase == "Available" else None


def _least(sizes: list[int], wanted: int) -> int | None:
    """Return the smallest size that is large enough: claims that need the same one are served by the same line."""
    at = bisect_left(sizes, wanted)
    return sizes[at] if at < len(sizes) else None


def _shape(claim: PersistentVolumeClaim, size: int) -> Hashable:
    """Return all of a claim that decides which volumes of its class would do."""
    spec = claim.spec
    selector = b"" if spec.selector is None else msgspec.json.encode(spec.selector, order="deterministic")
    mode, attributes = spec.volume_mode or "Filesystem", spec.volume_attributes_class_name or ""
    return size, mode, attributes, frozenset(spec.access_modes), selector


def _choosing(claim: PersistentVolumeClaim, size: int, selector: Selector | None) -> Callable[[AvailableVolume], bool]:
    """Return whether a free offer would do for the claim if it asked for this size."""
    is_like, modes = _like(claim, size), frozenset(claim.spec.access_modes)

    def would_do(offer: AvailableVolume) -> bool:
        if not is_like(offer) or not modes.issubset(offer.volume.spec.access_modes):
            return False
        return selector is None or selector.matches(offer.volume.metadata.labels)

    return would_do


def suiting(claim: PersistentVolumeClaim) -> Callable[[AvailableVolume], bool]:
    """Return whether an offer is large enough for the claim, and of its mode and attributes."""
    return _like(claim, parse(requested_storage(claim)))


def _like(claim: PersistentVolumeClaim, size: int) -> Callable[[AvailableVolume], bool]:
    mode = claim.spec.volume_mode or "Filesystem"
    attributes = claim.spec.volume_attributes_class_name or ""

    def suits(offer: AvailableVolume) -> bool:
        spec = offer.volume.spec
        same = (spec.volume_mode or "Filesystem") == mode and (spec.volume_attributes_class_name or "") == attributes
        return same and offer.rank[0] >= size

    return suits


def suits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Say whether the claim may have a volume that it asks for by name; its selector does not count then."""
    modes = set(claim.spec.access_modes)
    same_class = class_of_volume(volume) == class_of_claim(claim)
    return same_class and modes.issubset(volume.spec.access_modes) and suiting(claim)(AvailableVolume.of(volume))


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
