"""Logs without names: each object is redacted before it is written, and equal names have equal tokens in all of them.

An object whose texts would still have words of its names is left out of the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from moorage.api.core import Object, Pod
from moorage.api.custom_objects import CustomObject
from moorage.api.kinds import KIND_OF_TYPE
from moorage.api.storage import PersistentVolumeClaim
from moorage.api.workloads import StatefulSet
from moorage.basis.change_recorder import ObjectEncoder, kind_in_log
from moorage.basis.inputs.components import COMPANION_KINDS
from moorage.errors import InputError
from moorage.laboratory.cluster_objects import read_given
from moorage.laboratory.redact.redaction import compared_keys, redact_cluster
from moorage.laboratory.redact.redaction_tokens import Tokens
from moorage.simulator.cluster_input import SLOTS, ClusterInput

#: Facts of comparisons that hold no names.
_PLAIN: Final = frozenset({"at", "state", "verdict", "plugins", "margin"})


class RedactingEncoder(ObjectEncoder):
    """Makes the JSON of objects with tokens in the place of names.

    A claim of a stateful set gets the token of its set, if the set was seen before. ``compared``: label keys whose values pods
    compare as numbers, and that therefore stay; those of pods that come later do not count.
    Raises  InputError for a key that is too short
    """

    def __init__(self, key: bytes) -> None:
        super().__init__()
        Tokens(key)
        self._key = key
        self._sets: dict[str, StatefulSet] = {}
        self._compared: set[str] = set()
        self._last: tuple[Object | None, str, bytes] = None, "", b""

    def learn(self, obj: Object) -> None:
        """Look at an object before any is written."""
        if isinstance(obj, StatefulSet):
            self._sets[obj.key] = obj
        elif isinstance(obj, Pod) and obj.spec.affinity is not None and obj.spec.affinity.node_affinity is not None:
            self._compared |= compared_keys(msgspec.to_builtins(obj.spec.affinity.node_affinity))

    def key(self, obj: Object) -> str:
        return self._redacted(obj)[0]

    def json(self, obj: Object) -> bytes:
        return self._redacted(obj)[1]

    def facts(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the facts of a comparison without names and texts."""
        tokens = Tokens(self._key)
        made = {name: value for name, value in facts.items() if name in _PLAIN}
        if "pod" not in facts:
            return made
        space, _, name = str(facts.get("pod", "")).rpartition("/")
        made["pod"] = f"{tokens.name('Namespace', space)}/{tokens.name('Pod', name)}"
        return made | {name: tokens.name("Node", str(facts[name])) for name in ("node", "ours") if facts.get(name)}

    def _redacted(self, obj: Object) -> tuple[str, bytes]:
        if self._last[0] is not obj:
            self._last = (obj, *self._made(obj))
        return self._last[1:]

    def _made(self, obj: Object) -> tuple[str, bytes]:
        """Return key and JSON; without text for an object that is left out."""
        self.learn(obj)
        if isinstance(obj, CustomObject):
            return self._made_of_custom(obj)
        kind = KIND_OF_TYPE[type(obj)]
        bare = self._cleaner.cleaned(replace(obj, metadata=replace(obj.metadata, resource_version="")))
        slot = kind.slot if kind.slot in SLOTS else "others"
        sets = tuple(one for one in self._sets.values() if one.namespace == obj.namespace)
        beside: dict[str, Any] = {"stateful_sets": sets} if isinstance(obj, PersistentVolumeClaim) else {}
        try:
            made = redact_cluster(ClusterInput(**{**beside, slot: (bare,)}), self._key, compared=self._compared).objects
        except InputError:
            return f"withheld/{Tokens(self._key).name(kind.name, obj.key)}", b""
        document = next(one for one in made if one["kind"] == kind.name)
        metadata = document["metadata"]
        space = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
        return f"{space}{metadata['name']}", msgspec.json.encode(document)

    def _made_of_custom(self, obj: CustomObject) -> tuple[str, bytes]:
        """Return key and JSON of an object of a companion; without text for one that has nothing to keep without names."""
        kind = kind_in_log(obj)
        key = Tokens(self._key).name(str(kind), obj.key)
        try:
            made = redact_cluster(read_given([self.custom(obj)], custom=COMPANION_KINDS), self._key).objects
        except InputError:
            return key, b""
        found = [one for one in made if one["kind"] != "Namespace"]  # reading adds the namespace default
        return key, msgspec.json.encode(found[0]) if found else b""
