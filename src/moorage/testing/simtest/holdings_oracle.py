"""The oracle for volumes and devices: whose they are, and whether a pod had them before it was bound.

    S14 a pod is bound once its scheduler has been told that each of its claims has a volume which the node reaches
    S15 a volume is one claim's: the schedulers point none at a second one, nor at a claim that it does not suit
    S16 a device is one claim's
    S17 a pod is bound once each of its claims has devices of the node, and is kept for the pod

Each is judged by what the scheduler had been told, at some moment between its choice and the bind: nobody can know of a claim
whose volume was lost with an API server's last writes before being told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moorage.testing.simtest.held_objects import HeldObjects, claims_of, device_claims_of
from moorage.testing.simtest.recording import Lost, WriteRecord

__all__ = ["Holdings"]

Document = dict[str, Any]


@dataclass
class _Chosen:
    """A pod for which a node was chosen, and which of its claims nobody was told to have a volume there yet."""

    node: str
    missing: list[str]


class Holdings:
    """What is held, as it is and as each scheduler was told. ``say`` takes the promise, the time and what broke it."""

    def __init__(self, say: Callable[[str, float, str], None]) -> None:
        self._say = say
        self.truth = HeldObjects()
        self._told: dict[str, HeldObjects] = {}
        self._chosen: dict[tuple[str, str], _Chosen] = {}
        #: Pods, with their schedulers, for which a node was chosen; and those of them since when something was lost.
        self._on_their_way: set[tuple[str, str]] = set()
        self._in_doubt: set[tuple[str, str]] = set()
        #: (scheduler, claim) → the version the scheduler had been told of, which the API server then lost.
        self._told_in_vain: dict[tuple[str, str], int] = {}

    def told(self, actor: str) -> HeldObjects:
        """Return what a scheduler has been told."""
        return self._told.setdefault(actor, HeldObjects())

    def lost(self, entry: Lost) -> None:
        """Take note that what was written last never was."""
        self.truth.replace(entry.held)
        self._in_doubt.update(self._on_their_way)
        for actor, stock in self._told.items():
            for key, claim in stock.held["ResourceClaim"].items():
                left = self.truth.held["ResourceClaim"].get(key)
                if left is not None and _version(left) < _version(claim):
                    self._told_in_vain[actor, key] = _version(claim)

    def chose(self, actor: str, pod: Document, node: str, nodes: dict[str, Document]) -> None:
        """Take note of a choice: what the pod has on the node already was right then."""
        wanted = claims_of(pod)
        who = actor, pod["metadata"]["uid"]
        self._on_their_way.add(who)
        if self._relies_on_lost(actor, pod, nodes.get(node)):
            self._in_doubt.add(who)
        else:
            self._in_doubt.discard(who)
        if wanted:
            self._chosen[actor, pod["metadata"]["uid"]] = _Chosen(node, wanted)
            self.look(actor, nodes)

    def _relies_on_lost(self, actor: str, pod: Document, node: Document | None) -> bool:
        """Return True if a claim has devices for the pod by what the scheduler was last told, and no longer has them."""
        if node is None:
            return False
        told = self.told(actor)
        keys = device_claims_of(pod)
        return any(told.has_devices(key, pod, node) and not self.truth.has_devices(key, pod, node) for key in keys)

    def look(self, actor: str, nodes: dict[str, Document]) -> None:
        """See what pods on their way have got, by what their scheduler has just been told."""
        stock = self.told(actor)
        for (whose, _), chosen in self._chosen.items():
            node = nodes.get(chosen.node)
            if whose == actor and chosen.missing and node is not None:
                chosen.missing = [claim for claim in chosen.missing if not stock.has_volume(claim, node)]

    def bound(self, entry: WriteRecord, node: str, nodes: dict[str, Document], *, calm: bool) -> None:
        """S14 and S17, for a pod that a scheduler of ours bound."""
        if calm:
            self._check_devices(entry, nodes.get(node))
        chosen = self._chosen.pop((entry.actor, entry.uid), None)
        if chosen is not None and chosen.node == node and chosen.missing:
            text = f"{entry.key} was bound to {node}, and {entry.actor} was never told that it has {chosen.missing[0]} there"
            self._say("S14", entry.at_s, text)

    def _allocated(self, entry: WriteRecord) -> None:
        """S16: what a claim has, no other has."""
        mine = set(self.truth.devices_of(entry.document))
        for key, other in self.truth.held["ResourceClaim"].items():
            shared = mine.intersection(self.truth.devices_of(other)) if key != entry.key else ()
            if self._is_told_in_vain(entry.actor, key, other):
                continue  # the device was given back, which was told and then lost
            for _, _, device in sorted(shared):
                self._say("S16", entry.at_s, f"{device} is given to {entry.key} and to {key}")

    def _is_told_in_vain(self, actor: str, key: str, claim: Document) -> bool:
        """Return True if a scheduler's latest news of a claim was lost, whatever others have written to the claim since."""
        known = self.told(actor).held["ResourceClaim"].get(key)
        if known is None:
            return False
        return _version(known) > _version(claim) or self._told_in_vain.get((actor, key)) == _version(known)

    def _check_devices(self, entry: WriteRecord, node: Document | None) -> None:
        """S17, for a pod that was just bound; what was lost meanwhile nobody knew of yet."""
        if (entry.actor, entry.uid) in self._in_doubt or node is None:
            return
        told = self.told(entry.actor)
        for key in device_claims_of(entry.document):
            if not any(stock.has_devices(key, entry.document, node) for stock in (self.truth, told)):
                self._say("S17", entry.at_s, f"{entry.key} was bound, and {key} has no devices there that are kept for it")

    def _pointed(self, entry: WriteRecord, before: Document | None) -> None:
        """S15, for a volume that a scheduler of ours wrote."""
        to = entry.document["spec"].get("claimRef")
        was = before["spec"].get("claimRef") if before is not None else None
        if to is None or to == was:
            return
        owner = self.truth.held["PersistentVolumeClaim"].get(f"{was['namespace']}/{was['name']}") if was is not None else None
        if was is not None and owner is not None and owner["metadata"]["uid"] == was.get("uid"):
            self._say("S15", entry.at_s, f"{entry.key} was {was['name']}'s when {entry.actor} gave it to {to['name']}")
        key = f"{to['namespace']}/{to['name']}"
        claim = self.told(entry.actor).held["PersistentVolumeClaim"].get(key)
        if claim is not None and claim["spec"]["storageClassName"] != entry.document["spec"]["storageClassName"]:
            self._say("S15", entry.at_s, f"{entry.key} does not suit {key}, for which {entry.actor} took it")

    def written(self, entry: WriteRecord, *, ours: bool) -> None:
        """Take in a write of anything that is held; S15 for volumes that are taken and claims that are bound."""
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
