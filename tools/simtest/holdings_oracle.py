"""The oracle for volumes and devices: their owners, and whether a pod had them before it was bound.

        S14 a pod is bound only after its scheduler has seen that each of its claims has a volume that the node can reach
        S15 a volume has one claim: schedulers bind it to no second one, nor to a claim that it does not suit, nor to one that
            has another volume
        S16 a device has one claim
        S17 a pod is bound only when each of its claims has devices of the node and is reserved for the pod

The reference is what the scheduler had seen at some moment between its decision and the bind: a scheduler cannot know that a
claim's volume was lost with an API server's last writes before it sees that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tools.simtest.held_objects import HeldObjects, claims_of, device_claims_of
from tools.simtest.recording import Lost, WriteRecord

__all__ = ["Holdings"]

Document = dict[str, Any]


@dataclass
class _Chosen:
    """A pod with a decision, and its claims whose volumes its scheduler has not seen yet.

    ``reserved``  the volumes that its scheduler had seen reserved for each of its claims, when it decided
    """

    node: str
    missing: list[str]
    reserved: dict[str, frozenset[str]]


class Holdings:
    """The real state of volumes and devices, and each scheduler's view. ``say`` is called with the invariant, time and text."""

    def __init__(self, say: Callable[[str, float, str], None]) -> None:
        self._say = say
        self.truth = HeldObjects()
        self._seen: dict[str, HeldObjects] = {}
        self._chosen: dict[tuple[str, str], _Chosen] = {}
        #: Pods, with their schedulers, that have a decision; and those of them for which writes were lost since.
        self._decided: set[tuple[str, str]] = set()
        self._in_doubt: set[tuple[str, str]] = set()
        #: (scheduler, claim) → the version that the scheduler saw and the API server then lost.
        self._seen_then_lost: dict[tuple[str, str], int] = {}

    def seen_by(self, actor: str) -> HeldObjects:
        """Return the objects as a scheduler has seen them."""
        return self._seen.setdefault(actor, HeldObjects())

    def lost(self, entry: Lost) -> None:
        """Record that the last writes were lost."""
        self.truth.replace(entry.held)
        self._in_doubt.update(self._decided)
        for actor, stock in self._seen.items():
            for key, claim in stock.held["ResourceClaim"].items():
                left = self.truth.held["ResourceClaim"].get(key)
                if left is not None and _version(left) < _version(claim):
                    self._seen_then_lost[actor, key] = _version(claim)

    def chose(self, actor: str, pod: Document, node: str, nodes: dict[str, Document]) -> None:
        """Record a decision. What the pod has on the node at that time is valid."""
        wanted = claims_of(pod)
        who = actor, pod["metadata"]["uid"]
        self._decided.add(who)
        if self._relies_on_lost(actor, pod, nodes.get(node)):
            self._in_doubt.add(who)
        else:
            self._in_doubt.discard(who)
        if wanted:
            self._chosen[who] = _Chosen(node, wanted, self._reserved_as_seen_by(actor, wanted))
            self.look(actor, nodes)

    def _reserved_as_seen_by(self, actor: str, claims: list[str]) -> dict[str, frozenset[str]]:
        seen = self.seen_by(actor)
        known = seen.held["PersistentVolumeClaim"]
        return {key: seen.reserved_for(known[key]) for key in claims if key in known}

    def _relies_on_lost(self, actor: str, pod: Document, node: Document | None) -> bool:
        """Return True if a claim had devices for the pod when the scheduler last saw it, and has them no longer."""
        if node is None:
            return False
        seen = self.seen_by(actor)
        keys = device_claims_of(pod)
        return any(seen.has_devices(key, pod, node) and not self.truth.has_devices(key, pod, node) for key in keys)

    def look(self, actor: str, nodes: dict[str, Document]) -> None:
        """Update which claims of decided pods have volumes, as their scheduler now sees them."""
        stock = self.seen_by(actor)
        for (whose, _), chosen in self._chosen.items():
            node = nodes.get(chosen.node)
            if whose == actor and chosen.missing and node is not None:
                chosen.missing = [claim for claim in chosen.missing if not stock.has_volume(claim, node)]

    def bound(self, entry: WriteRecord, node: str, nodes: dict[str, Document], *, calm: bool) -> None:
        """Check S14 and S17 for a pod that one of the schedulers bound."""
        if calm:
            self._check_devices(entry, nodes.get(node))
        chosen = self._chosen.pop((entry.actor, entry.uid), None)
        if chosen is not None and chosen.node == node and chosen.missing:
            text = f"{entry.key} was bound to {node}, but {entry.actor} has not seen {chosen.missing[0]} bound there"
            self._say("S14", entry.at_s, text)

    def _allocated(self, entry: WriteRecord) -> None:
        """Check S16: a device of a claim belongs to no other claim."""
        mine = set(self.truth.devices_of(entry.document))
        for key, other in self.truth.held["ResourceClaim"].items():
            shared = mine.intersection(self.truth.devices_of(other)) if key != entry.key else ()
            if self._has_lost_view(entry.actor, key, other):
                continue  # the scheduler saw the deallocation, which was lost afterwards
            for _, _, device in sorted(shared):
                self._say("S16", entry.at_s, f"{device} is allocated to {entry.key} and to {key}")

    def _has_lost_view(self, actor: str, key: str, claim: Document) -> bool:
        """Return True if the version of a claim that a scheduler saw last was lost, even if others have written to it since."""
        known = self.seen_by(actor).held["ResourceClaim"].get(key)
        if known is None:
            return False
        return _version(known) > _version(claim) or self._seen_then_lost.get((actor, key)) == _version(known)

    def _check_devices(self, entry: WriteRecord, node: Document | None) -> None:
        """Check S17 for a pod that was just bound, except if writes were lost after its decision."""
        if (entry.actor, entry.uid) in self._in_doubt or node is None:
            return
        seen = self.seen_by(entry.actor)
        for key in device_claims_of(entry.document):
            if not any(stock.has_devices(key, entry.document, node) for stock in (self.truth, seen)):
                self._say("S17", entry.at_s, f"{entry.key} was bound, but {key} has no devices there that are reserved for it")

    def _pointed(self, entry: WriteRecord, before: Document | None) -> None:
        """Check S15 for a volume that one of the schedulers wrote."""
        to = entry.document["spec"].get("claimRef")
        was = before["spec"].get("claimRef") if before is not None else None
        if to is None or to == was:
            return
        owner = self.truth.held["PersistentVolumeClaim"].get(f"{was['namespace']}/{was['name']}") if was is not None else None
        if was is not None and owner is not None and owner["metadata"]["uid"] == was.get("uid"):
            self._say("S15", entry.at_s, f"{entry.key} belonged to {was['name']} when {entry.actor} bound it to {to['name']}")
        key = f"{to['namespace']}/{to['name']}"
        claim = self.seen_by(entry.actor).held["PersistentVolumeClaim"].get(key)
        if claim is not None and claim["spec"]["storageClassName"] != entry.document["spec"]["storageClassName"]:
            self._say("S15", entry.at_s, f"{entry.key} does not suit {key}, but {entry.actor} bound it")
        mine = [one for (actor, _), one in self._chosen.items() if actor == entry.actor]
        reserved = [one.reserved[key] for one in mine if key in one.reserved]
        if reserved and all(names and entry.key not in names for names in reserved):
            self._say("S15", entry.at_s, f"{key} had {min(reserved[-1])}, but {entry.actor} bound it to {entry.key} as well")

    def written(self, entry: WriteRecord, *, ours: bool) -> None:
        """Record a write of an object; check S15 for bound volumes and claims."""
        known = self.truth.held[entry.kind]
        before = known.get(entry.key)
        self.truth.put(entry.kind, entry.key, None if entry.change == "DELETED" else entry.document)
        if entry.kind == "ResourceClaim" and entry.change != "DELETED":
            self._allocated(entry)
        if entry.kind == "PersistentVolume" and ours:
            self._pointed(entry, before)
        if entry.kind == "PersistentVolumeClaim" and self.truth.volume_of(entry.key) is not None:
            name = entry.document["spec"]["volumeName"]
            others = [key for key, one in known.items() if one["spec"].get("volumeName") == name and key != entry.key]
            for key in others:
                self._say("S15", entry.at_s, f"{name} is bound to {entry.key} and to {key}")


def _version(document: Document) -> int:
    return int(document["metadata"].get("resourceVersion") or 0)
