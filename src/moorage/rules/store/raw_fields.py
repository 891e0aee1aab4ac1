"""Raw fields: JSON that an API server keeps as the bytes that a client sent, and compares as such.

The opaque parameters of a claim are such a field, and its spec is immutable; the data of a controller revision is another. So
an update that encodes them again, with other white space, escapes or numbers, is refused by a real API server although it says
the same. Documents here hold decoded values; the bytes of what was created in JSON are kept beside them while the process
lives, and an update in JSON must have the same. A patch encodes the object again: a JSON or merge patch without white space and
with the escapes of HTML, the others also with sorted keys and Go's numbers. What was created otherwise cannot be patched.

Source  apimachinery, runtime.RawExtension; encoding/json, Compact and Marshal; pkg/apis/resource/validation,
        ValidateResourceClaimUpdate; pkg/apis/apps/validation, ValidateControllerRevisionUpdate
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from moorage.api.documents.records import Record
from moorage.api.documents.served_kinds import ServedKind
from moorage.errors import Bare, Fault
from moorage.rules.store.watches import StoreChange

#: Kinds with an immutable spec that holds opaque parameters, and the path from the object to its devices.
_FROZEN: Final = {"ResourceClaim": ("spec", "devices"), "ResourceClaimTemplate": ("spec", "spec", "devices")}
_FIXED: Final = "field is immutable"
_REVISION: Final = "ControllerRevision"
_KINDS: Final = frozenset({*_FROZEN, _REVISION})
_JSON: Final = "application/json"
#: A text, or white space between tokens.
_TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[ \t\r\n]+', re.DOTALL)
_ESCAPES: Final = str.maketrans({one: f"\\u{ord(one):04x}" for one in "<>&\u2028\u2029"})
#: From here on, Go writes floats with an exponent.
_WRITTEN_WHOLE: Final = 1e21


class RawFields:
    """The bytes of the raw fields of objects that were created in JSON, by the UID of the object."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[bytes, ...]] = {}

    def created(self, kind: str, made: Record, media_type: str, body: bytes) -> None:
        """Note what an object was created with."""
        if kind in _KINDS and media_type == _JSON and (texts := tuple(_raw_texts(kind, body))):
            self._texts[_uid(made)] = texts

    def fault(self, kind: str, held: Record, media_type: str, body: bytes) -> Fault | None:
        """Return the fault of a body, or of a patch, after which the object has other bytes than it was created with."""
        texts = self._texts.get(_uid(held)) if kind in _KINDS else None
        if texts is None:
            return None
        if media_type == _JSON:
            after = tuple(_raw_texts(kind, body))
        elif media_type in _PATCHES:
            after = tuple(map(_PATCHES[media_type], texts))
        else:
            return None
        if after == texts:
            return None
        if kind == _REVISION:
            return Fault("Invalid value", "data", _FIXED, Bare(_compact(after[0] if after else b"null").decode()))
        return Fault("Invalid value", "spec", _FIXED)

    def forget(self, kind: ServedKind, change: StoreChange) -> None:
        """Forget an object that is deleted."""
        if change.gone and kind.native in _KINDS:
            self._texts.pop(_uid(change.after), None)


def _uid(record: Record) -> str:
    return str(record.document()["metadata"]["uid"])


def _raw_texts(kind: str, body: bytes) -> Iterator[bytes]:
    """Yield the raw fields in an object's text, as far as they can be found."""
    try:
        if kind == _REVISION:
            yield bytes(msgspec.json.decode(body, type=dict[str, msgspec.Raw])["data"])
            return
        devices: Any = msgspec.Raw(body)
        for name in _FROZEN[kind]:
            devices = msgspec.json.decode(devices, type=dict[str, msgspec.Raw])[name]
        configs = msgspec.json.decode(devices, type=dict[str, msgspec.Raw])["config"]
        for config in msgspec.json.decode(configs, type=list[dict[str, msgspec.Raw]]):
            opaque = msgspec.json.decode(config["opaque"], type=dict[str, msgspec.Raw])
            yield bytes(opaque["parameters"])
    except (KeyError, msgspec.MsgspecError, ValueError):
        return


def _compact(text: bytes) -> bytes:
    """Return JSON without white space, and with the characters escaped that HTML gives a meaning."""
    plain = _TOKENS.sub(lambda token: token[0].translate(_ESCAPES) if token[0][0] == '"' else "", text.decode())
    return plain.encode()


def _sorted(text: bytes) -> bytes:
    """Return JSON as Go writes the values that it reads from it."""
    written = json.dumps(_go_numbers(json.loads(text)), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return _compact(written.encode())


def _go_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _go_numbers(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_go_numbers(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < _WRITTEN_WHOLE else value


#: The form of a patch → what it makes of the text of a raw field.
_PATCHES: Final = {
    "application/json-patch+json": _compact,
    "application/merge-patch+json": _compact,
    "application/strategic-merge-patch+json": _sorted,
    "application/apply-patch+yaml": _sorted,
}
