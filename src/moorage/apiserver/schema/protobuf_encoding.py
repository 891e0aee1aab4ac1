"""Encode objects as protobuf, for clients that accept nothing else; the inverse of ``protobuf``, with the same table of
fields.

Clients that also accept JSON get JSON, whatever their preference, as objects are stored as JSON and Kubernetes clients
decode by the response's content type. Empty fields are not encoded. Go encodes some of them, which makes no difference to
readers.

Source  apimachinery, pkg/runtime/serializer/protobuf; pkg/apis/meta/v1 (watch.go, time_proto.go)
"""

from __future__ import annotations

import base64
import datetime
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from moorage.api.durations import parse_duration
from moorage.apiserver.schema.protobuf import FieldFlag, message_of, messages
from moorage.apiserver.schema.protobuf_wire import delimited, number, text, varint

__all__ = ["write_event", "write_list", "write_protobuf"]

_MAGIC: Final = b"k8s\x00"
_END: Final = text(3, "") + text(4, "")


def write_protobuf(document: Mapping[str, Any]) -> bytes:
    """Return the encoded body of an object, a list or a status that has ``apiVersion`` and ``kind``.

    Raises  LookupError if there is no message for it
    """
    message, kind = _named(document)
    if message in messages():
        body = _message(message, document)
    elif kind.endswith("List") and message.removesuffix("List") in messages():
        return b"".join(write_list(document, document.get("items") or ()))
    else:
        raise LookupError(message)
    return _start(document) + delimited(2, body) + _END


def write_list(head: Mapping[str, Any], items: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Yield a list in parts, equal to ``write_protobuf``. Parts are empty while items are being encoded, as the length
    comes first.

    Raises  LookupError if there is no message for it
    """
    item = _named(head)[0].removesuffix("List")
    if item not in messages():
        raise LookupError(item)
    parts = [delimited(1, _message("meta.ListMeta", head.get("metadata") or {}))]
    for one in items:
        parts.append(delimited(2, _message(item, one)))
        yield b""
    yield _start(head) + varint(2 << 3 | 2) + varint(sum(map(len, parts)))
    yield from parts
    yield _END


def _named(document: Mapping[str, Any]) -> tuple[str, str]:
    """Return the message name of a document, and its kind."""
    group, _, version = (document.get("apiVersion") or "v1").rpartition("/")
    kind = document["kind"]
    return f"meta.{kind}" if f"meta.{kind}" in messages() else message_of(group, version, kind), kind


def _start(document: Mapping[str, Any]) -> bytes:
    return _MAGIC + delimited(1, text(1, document.get("apiVersion") or "v1") + text(2, document["kind"]))


def write_event(kind: str, document: Mapping[str, Any]) -> bytes:
    """Return an encoded watch event: its length, the event type and the object."""
    event = text(1, kind) + delimited(2, delimited(1, write_protobuf(document)))
    return struct.pack(">I", len(event)) + event


def _message(message: str, document: Mapping[str, Any]) -> bytes:
    out: list[bytes] = []
    for field, (name, holds, flags) in messages()[message].items():
        if not name:
            out.append(delimited(field, _message(holds, document)))
            continue
        value = document.get(name)
        if value is None:
            continue
        if flags & FieldFlag.MAP:
            out += [delimited(field, text(1, key) + b"".join(_field(2, holds, inner))) for key, inner in value.items()]
        elif flags & FieldFlag.REPEATED:
            out += [part for one in value for part in _field(field, holds, one)]
        else:
            out += _field(field, holds, value)
    return b"".join(out)


def _field(field: int, holds: str, value: Any) -> Iterator[bytes]:
    match holds:
        case "i":
            yield number(field, value)
        case "b":
            yield number(field, int(value))
        case "f":
            yield varint(field << 3 | 1) + struct.pack("<d", value)
        case _:
            write = _WRITERS.get(holds)
            yield delimited(field, write(value) if write is not None else _message(holds, value or {}))


# -- types that JSON has no message for --------------------------------------------------------------------------------


def _moment(value: str) -> bytes:
    moment = datetime.datetime.fromisoformat(value)
    seconds = int(moment.replace(microsecond=0).timestamp())
    return number(1, seconds) + number(2, moment.microsecond * 1000)


def _int_or_text(value: int | str) -> bytes:
    if isinstance(value, str):
        return number(1, 1) + number(2, 0) + text(3, value)
    return number(1, 0) + number(2, value) + text(3, "")


_WRITERS: Final[Mapping[str, Callable[[Any], bytes]]] = {
    "s": str.encode,
    "y": base64.b64decode,
    "T": _moment,
    "U": _moment,
    "Q": lambda value: text(1, value),
    "D": lambda value: number(1, parse_duration(value)),
    "O": _int_or_text,
    "R": lambda value: delimited(1, msgspec.json.encode(value)),
    "F": lambda value: delimited(1, msgspec.json.encode(value)),
    "X": lambda value: b"".join([text(1, one) for one in value]),
}
