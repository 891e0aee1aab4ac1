"""Decode pods from JSON, and keep equal parts in memory only once.

Most pods are copies of a template. The specs of two copies differ in the node and in the name of the volume that holds the
service account's token, ``kube-api-access-`` and five random characters. So a spec is looked up by its text without these two,
and decoded only if no pod had it before. Nothing reads the name of that volume, so all copies have the same one. Statuses,
labels and owners are decoded, and replaced by equal ones of an earlier pod.

The first pod of a text is decoded twice, to find out whether the two differences are where they are expected. If they are not,
pods with that text are decoded as they are.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import fields, force_setattr, replace

from moorage.api.core import ContainerStatus, Object, ObjectMeta, OwnerReference, Pod, PodCondition, PodSpec, PodStatus, Volume

K = TypeVar("K")
V = TypeVar("V")

#: How many different values of each part are cached (a few MiB). With more, the pods are not copies of few templates.
_MOST: Final = 2048
#: Up to this length, which is that of a pod without a node, a status is looked up by its text.
_SHORT_STATUS: Final = 256
_SHARED_NAME: Final = "kube-api-access"
#: The name that the API server gives to the token's volume, with the alphabet of Kubernetes' random suffixes.
_GIVEN_NAME: Final = re.compile(r"kube-api-access-[bcdfghjklmnpqrstvwxz2456789]{5}")
_NAME_TEXT: Final = re.compile(rb'"kube-api-access-[bcdfghjklmnpqrstvwxz2456789]{5}"')
_NAME_START: Final = b'"kube-api-access-'
_NAME_LENGTH: Final = len(_NAME_START) + 6
_NAME_QUOTED: Final = b'"kube-api-access"'
_NODE_FIELD: Final = b'"nodeName":'
_NODE_TEXT: Final = re.compile(rb'"nodeName": ?"([a-z0-9.-]+)"')
#: Replaces the node's name in the text of a spec. It cannot occur in a name or in valid JSON.
_NO_NODE: Final = b"\0"
_WITHOUT_NODE: Final = re.compile(rb",\s*\0|\0(?:\s*,\s*)?")
_PROBE: Final = "probe."
#: Every empty dictionary: the decoder makes one for each field.
_NOTHING: Final[dict[str, Any]] = {}
#: The status of every pod whose text has none. An encoder leaves out this object alone, not an equal one.
_NO_STATUS: Final[PodStatus] = Pod().status
_encode: Final = msgspec.msgpack.Encoder().encode
_read_spec: Final = msgspec.json.Decoder(PodSpec).decode
_read_status: Final = msgspec.json.Decoder(PodStatus).decode


class PodText(Object):
    """A pod whose spec and status are not decoded yet."""

    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw()


class PodDecoder:
    """Decodes pods. Pods from the same decoder share equal parts."""

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(PodText).decode
        #: Text of a spec → the spec; None if pods with this text share nothing.
        self._specs: dict[bytes, PodSpec | None] = {}
        self._short_statuses: dict[bytes, PodStatus] = {}
        self._containers: dict[bytes, tuple[ContainerStatus, ...]] = {}
        self._conditions: dict[bytes, tuple[PodCondition, ...]] = {}
        self._labels: dict[bytes, tuple[dict[str, str], tuple[OwnerReference, ...]]] = {}
        self._words: dict[str, str] = {}
        self._parts: dict[bytes, tuple[Any, ...]] = {}

    def text_of(self, text: bytes | msgspec.Raw) -> PodText:
        """Return the parts of a pod as texts, with its metadata decoded.

        Raises  msgspec.DecodeError, UnicodeDecodeError, RecursionError
        """
        return self._decode(text)

    def decode(self, text: bytes | msgspec.Raw) -> Pod:
        """Return the pod in a JSON text.

        Raises  msgspec.DecodeError, UnicodeDecodeError, RecursionError
        """
        return self.complete(self._decode(text))

    def complete(self, read: PodText) -> Pod:
        """Return the pod, with its spec and status decoded.

        Raises  msgspec.DecodeError, UnicodeDecodeError, RecursionError
        """
        self.share_metadata(read.metadata)
        spec, node = self.template(read)
        return Pod(metadata=read.metadata, spec=replace(spec, node_name=node) if node else spec, status=self.status(read))

    # -- the spec ------------------------------------------------------------------------------------------------------

    def template(self, read: PodText) -> tuple[PodSpec, str]:
        """Return the spec that all pods with this text share, without its node, and the node; or the pod's own spec, and "".

        Raises  msgspec.DecodeError, UnicodeDecodeError, RecursionError
        """
        text = key = bytes(read.spec)
        node = ""
        at = text.find(_NODE_FIELD)
        if at >= 0 and (found := _NODE_TEXT.match(text, at)) is not None:
            name = found[1].decode()
            key, node = b"".join((text[:at], _NO_NODE, text[found.end() :])), self._words.setdefault(name, name)
        at = key.find(_NAME_START)
        if at >= 0 and _NAME_TEXT.match(key, at) is not None:
            key = key.replace(key[at : at + _NAME_LENGTH], _NAME_QUOTED)
        shared = self._specs.get(key)
        if shared is None and key not in self._specs:
            shared = _remembered(self._specs, key, self._first(text, key, node))
        return (without_token_name(_read_spec(text)), "") if shared is None else (shared, node)

    def _first(self, text: bytes, key: bytes, node: str) -> PodSpec | None:
        """Return the spec, without its node, that pods with this key share; None if they differ in other fields."""
        spec = self._sharing_parts(without_token_name(_read_spec(text)))
        probe = _PROBE if node else ""
        probed = _read_spec(key.replace(_NO_NODE, f'"nodeName":"{probe}"'.encode(), 1))
        if spec.node_name != node or probed != replace(spec, node_name=probe):
            return None
        return self._unbound(key, replace(spec, node_name="")) if node else spec

    def _sharing_parts(self, spec: PodSpec) -> PodSpec:
        """Let a new spec share tolerations, ports and words with earlier ones that differ elsewhere."""
        parts = self._parts
        for one in (spec, *spec.containers, *[container.resources for container in spec.containers]):
            self._share_words(one)
        for holder, name in ((spec, "tolerations"), *[(container, "ports") for container in spec.containers]):
            if part := getattr(holder, name):
                force_setattr(holder, name, parts.get(key := _encode(part)) or _remembered(parts, key, part))
        return spec

    def _share_words(self, part: msgspec.Struct, *names: str) -> None:
        """Replace strings, and those in dictionaries, by equal ones of earlier objects, in these fields or in all.

        A default stays the object that it is, because that is how an encoder knows what to leave out.
        """
        defaults = _defaults(type(part))
        for name in names or defaults:
            value = getattr(part, name)
            if type(value) is str and value is not defaults[name]:
                force_setattr(part, name, self._words.setdefault(value, value))
            elif type(value) is dict:
                force_setattr(part, name, self._with_known_words(value))

    def _with_known_words(self, texts: dict[str, Any]) -> dict[str, Any]:
        word = self._words.setdefault
        return {key: word(text, text) if type(text) is str else text for key, text in texts.items()} or _NOTHING

    def _unbound(self, key: bytes, spec: PodSpec) -> PodSpec:
        """Return the spec that pods with the text of ``key`` have before their bind, so that it is the same object after it."""
        bare = _WITHOUT_NODE.sub(b"", key, 1)
        if bare not in self._specs and _read_spec(bare) == spec:
            _remembered(self._specs, bare, spec)
        held = self._specs.get(bare)
        return held if held == spec else spec

    # -- the rest ------------------------------------------------------------------------------------------------------

    def status(self, read: PodText) -> PodStatus:
        """Return the pod's status.

        Raises  msgspec.DecodeError, UnicodeDecodeError, RecursionError
        """
        text = bytes(read.status)
        if not text:
            return _NO_STATUS
        if len(text) > _SHORT_STATUS:
            return self._long_status(text)
        status = self._short_statuses.get(text)
        return status if status is not None else _remembered(self._short_statuses, text, self._long_status(text))

    def _long_status(self, text: bytes) -> PodStatus:
        read = _read_status(text)
        if read.conditions:
            key = _encode(read.conditions)
            force_setattr(read, "conditions", self._conditions.get(key) or self._first_conditions(key, read.conditions))
        if read.container_statuses:
            key = _encode(read.container_statuses)
            held = self._containers.get(key) or _remembered(self._containers, key, read.container_statuses)
            force_setattr(read, "container_statuses", held)
        self._share_words(read, "start_time")
        return read

    def _first_conditions(self, key: bytes, conditions: tuple[PodCondition, ...]) -> tuple[PodCondition, ...]:
        """Cache conditions that no earlier pod had, with strings shared with those of other pods."""
        for one in conditions:
            self._share_words(one, "type", "status", "last_transition_time")
        return _remembered(self._conditions, key, conditions)

    def share_metadata(self, metadata: ObjectMeta) -> None:
        """Replace parts of new metadata by equal parts of earlier pods, in place."""
        labels, owners = metadata.labels, metadata.owner_references
        if labels or owners:
            key = _encode((labels, owners))
            held = self._labels.get(key)
            if held is None:
                for one in owners:
                    self._share_words(one)
                held = _remembered(self._labels, key, (self._with_known_words(labels), owners))
            force_setattr(metadata, "labels", held[0])
            force_setattr(metadata, "owner_references", held[1])
        if len(self._words) > _MOST:
            self._words.clear()
        self._share_words(metadata, "namespace", "generate_name", "creation_timestamp")
        if not metadata.annotations:
            force_setattr(metadata, "annotations", _NOTHING)


@lru_cache
def _defaults(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {one.name: one.default for one in fields(kind)}


def _remembered(table: dict[K, V], key: K, value: V) -> V:
    if len(table) >= _MOST:
        table.clear()
    table[key] = value
    return value


def without_token_name(spec: PodSpec) -> PodSpec:
    """Return the spec with the same name for the token's volume in all pods."""
    found = [at for at, volume in enumerate(spec.volumes) if _GIVEN_NAME.fullmatch(volume.name)]
    if len(found) != 1 or spec.volumes[found[0]] != Volume(name=spec.volumes[found[0]].name):
        return spec
    at = found[0]
    if any(volume.name == _SHARED_NAME for volume in spec.volumes):
        return spec
    return replace(spec, volumes=(*spec.volumes[:at], Volume(name=_SHARED_NAME), *spec.volumes[at + 1 :]))
