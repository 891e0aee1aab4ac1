"""Raw fields: JSON that an API server keeps as the bytes that a client sent, and compares as such.

The opaque parameters of a claim are such a field, and its spec is immutable. So an update that encodes them again, with other
white space, escapes or numbers, is refused by a real API server although it says the same. Documents here hold decoded values;
the bytes of what was created in JSON are kept beside them while the process lives, and an update in JSON must have the same.

Source  apimachinery, runtime.RawExtension; pkg/apis/resource/validation, ValidateResourceClaimUpdate
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from moorage.api.documents.records import Record
from moorage.api.documents.served_kinds import ServedKind
from moorage.rules.store.watches import StoreChange

#: Kinds with an immutable spec that holds opaque parameters, and the path from the object to its devices.
_FROZEN: Final = {"ResourceClaim": ("spec", "devices"), "ResourceClaimTemplate": ("spec", "spec", "devices")}
_JSON: Final = "application/json"


class RawFields:
    """The bytes of the opaque parameters of objects that were created in JSON, by the UID of the object."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[bytes, ...]] = {}

    def created(self, kind: str, made: Record, media_type: str, body: bytes) -> None:
        """Note what an object was created with."""
        if kind in _FROZEN and media_type == _JSON and (texts := tuple(_parameters(kind, body))):
            self._texts[_uid(made)] = texts

    def differ(self, kind: str, held: Record, media_type: str, body: bytes) -> bool:
        """Return whether a body has other bytes than the object was created with, as far as both are known."""
        if kind not in _FROZEN or media_type != _JSON:
            return False
        texts = self._texts.get(_uid(held))
        return texts is not None and tuple(_parameters(kind, body)) != texts

    def forget(self, kind: ServedKind, change: StoreChange) -> None:
        """Forget an object that is deleted."""
        if change.gone and kind.native in _FROZEN:
            self._texts.pop(_uid(change.after), None)


def _uid(record: Record) -> str:
    return str(record.document()["metadata"]["uid"])


def _parameters(kind: str, body: bytes) -> Iterator[bytes]:
    try:
        devices: Any = msgspec.Raw(body)
        for name in _FROZEN[kind]:
            devices = msgspec.json.decode(devices, type=dict[str, msgspec.Raw])[name]
        configs = msgspec.json.decode(devices, type=dict[str, msgspec.Raw])["config"]
        for config in msgspec.json.decode(configs, type=list[dict[str, msgspec.Raw]]):
            opaque = msgspec.json.decode(config["opaque"], type=dict[str, msgspec.Raw])
            yield bytes(opaque["parameters"])
    except (KeyError, msgspec.MsgspecError, ValueError):
        return
