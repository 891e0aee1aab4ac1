"""Objects as protobuf, for clients that read nothing else: the way back of ``protobuf``, by the same table of fields.

Clients that take JSON, too, are sent JSON whatever they like best, as that is how objects are kept; every client of
Kubernetes reads what it is sent, not what it asked for. A field that holds nothing is not written. Go writes some of those;
whoever reads them sees no difference.

Source  apimachinery, pkg/runtime/serializer/protobuf; pkg/apis/meta/v1 (watch.go, time_proto.go)
"""

from __future__ import annotations

import base64
import datetime
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from moorage.api.durations import parse_duration
from moorage.apiserver.schema.protobuf import Flag, message_of, messages
from moorage.apiserver.schema.protobuf_wire import delimited, number, text, varint

__all__ = ["write_event", "write_protobuf"]

_MAGIC: Final = b"k8s\x00"


def write_protobuf(document: Mapping[str, Any]) -> bytes:
    """Return an object, a list of objects or a status, with its ``apiVersion`` and ``kind``, as it stands in a body.

    Raises  LookupError for what has no such form
    """
    api_version, kind = document.get("apiVersion") or "v1", document["kind"]
    group, _, version = api_version.rpartition("/")
    message = f"meta.{kind}" if f"meta.{kind}" in messages() else message_of(group, version, kind)
    if message in messages():
        body = _message(message, document)
    elif kind.endswith("List") and message.removesuffix("List") in messages():
        body = _list(message.removesuffix("List"), document)
    else:
        raise LookupError(message)
    return _MAGIC + delimited(1, text(1, api_version) + text(2, kind)) + delimited(2, body) + text(3, "") + text(4, "")


def write_event(kind: str, document: Mapping[str, Any]) -> bytes:
    """Return a watch's event: its length, what happened, and the object as in ``write_protobuf``."""
    event = text(1, kind) + delimited(2, delimited(1, write_protobuf(document)))
    return struct.pack(">I", len(event)) + event


def _list(item: str, document: Mapping[str, Any]) -> bytes:
    metadata = delimited(1, _message("meta.ListMeta", document.get("metadata") or {}))
    return metadata + b"".join([delimited(2, _message(item, one)) for one in document.get("items") or ()])


def _message(message: str, document: Mapping[str, Any]) -> bytes:
    out: list[bytes] = []
    for field, (name, holds, flags) in messages()[message].items():
        if not name:
            out.append(delimited(field, _message(holds, document)))
            continue
        value = document.get(name)
        if value is None:
            continue
        if flags & Flag.MAP:
            out += [delimited(field, text(1, key) + b"".join(_field(2, holds, inner))) for key, inner in value.items()]
        elif flags & Flag.REPEATED:
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


# -- what is no message of its own in JSON -------------------------------------------------------------------------------


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
