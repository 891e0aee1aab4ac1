"""Decode protobuf request bodies of client-go's typed clients to the JSON documents of the same objects.

``protobuf_encoding`` is the inverse. ``protobuf_fields.json`` lists the fields of all messages: for each message and field
number the JSON name (empty for an embedded message), its type, and flags. Messages of versions other than v1 include the
version in their name. Go encodes empty fields; JSON omits most of them, and so does this module.

The type of a field is a message name or a letter: s string, i integer, b boolean, f float, y bytes, T time, U time with
microseconds, Q quantity, O integer or string, D duration, R embedded document, F managed fields, X list of strings; in schemas
of definitions, A a schema or a list of schemas, B a schema or a boolean, C a schema or a list of names.

Source  the protobuf and json tags of api, apimachinery and apiextensions-apiserver 1.36 and 1.37;
        apimachinery, pkg/runtime/serializer/protobuf
"""

from __future__ import annotations

import base64
import datetime
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any, Final, NamedTuple

import msgspec

from moorage.api.documents.served_kinds import VERSIONS, ServedKind
from moorage.api.documents.statuses import bad_request
from moorage.api.durations import format_duration, parse_duration
from moorage.api.wire_format import delimited, number, text, varint
from moorage.basis import text_of

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"

_MAGIC: Final = b"k8s\x00"
_MAX_DEPTH: Final = 60


class FieldFlag:
    """Properties of a field, as bits. ``OMIT_EMPTY`` fields are omitted from JSON when empty."""

    POINTER: Final = 1
    REPEATED: Final = 2
    MAP: Final = 4
    OMIT_EMPTY: Final = 8


class _Malformed(Exception):  # noqa: N818 - never leaves this module
    """Bytes that do not decode to their message."""


class _Field(NamedTuple):
    name: str
    holds: str
    flags: int


@cache
def messages() -> Mapping[str, Mapping[int, _Field]]:
    """Return the fields of all messages, by message name and field number."""
    rows = json.loads(text_of("moorage.api.schema", "protobuf_fields.json"))
    found = {message: {int(number): _Field(*field) for number, field in fields.items()} for message, fields in rows.items()}
    for kind in VERSIONS:
        _add_version(found, kind)
    return found


def _add_version(table: dict[str, dict[int, _Field]], kind: ServedKind) -> None:
    """Add the messages of another version of a kind that the table lacks: those of the stored version under its name."""
    stored = message_of(kind.storage.group, kind.storage.version, kind.kind).removesuffix(kind.kind)
    own = message_of(kind.group, kind.version, kind.kind).removesuffix(kind.kind)
    waiting, seen = [kind.kind], {kind.kind}
    while waiting:
        name = waiting.pop()
        if own + name not in table:
            _ORIGINS[own + name] = stored + name
            table[own + name] = {
                number: field._replace(holds=own + field.holds.removeprefix(stored)) if _is_in(stored, field.holds) else field
                for number, field in table[stored + name].items()
            }
        inner = {field.holds.removeprefix(own) for field in table[own + name].values() if _is_in(own, field.holds)}
        waiting += inner - seen
        seen |= inner


def _is_in(package: str, message: str) -> bool:
    return message.startswith(package) and "." not in message.removeprefix(package)


#: A message of another version → the message of the stored version that has the same fields.
_ORIGINS: Final[dict[str, str]] = {}


def origin_of(message: str) -> str:
    """Return the message of a stored version that has the same fields; the message itself if it is none of another version."""
    messages()
    return _ORIGINS.get(message, message)


def message_of(group: str, version: str, kind: str) -> str:
    """Return the message name of a kind: ``core.Pod``, or with the version if it is not v1 (except for metrics)."""
    package = group.partition(".")[0] or "core"
    return f"{package}.{kind}" if version == "v1" or package == "metrics" else f"{package}.{version}.{kind}"


def read_protobuf(body: bytes) -> dict[str, Any]:
    """Return the object in a body, with its ``apiVersion`` and ``kind``.

    Raises  ApiError 400 for bytes that are not an object of a known kind
    """
    if not body.startswith(_MAGIC):
        raise bad_request("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    if body == _MAGIC:
        raise bad_request("empty body")
    try:
        envelope = dict(_fields(body[len(_MAGIC) :]))
        api_version, kind = (_string(dict(_fields(_bytes(envelope.get(1, b"")))).get(number, b"")) for number in (1, 2))
        message = _message_of(api_version, kind)
        return {"apiVersion": api_version, "kind": kind, **_read(message, _bytes(envelope.get(2, b"")), 0)}
    except _Malformed as error:
        raise bad_request(str(error)) from None


def _message_of(api_version: str, kind: str) -> str:
    group, _, version = api_version.rpartition("/")
    # Options of a deletion exist in every version of every group.
    is_meta = kind == "DeleteOptions" or (api_version, kind) == ("v1", "Status")
    message = f"meta.{kind}" if is_meta else _WITH_OTHER_VERSIONS.get((api_version, kind)) or message_of(group, version, kind)
    if message not in messages():
        raise _Malformed(f'no kind "{kind}" is registered for version "{api_version}"')
    return message


#: Kinds of bodies that are also read in another version, which has the same fields.
_WITH_OTHER_VERSIONS: Final = {("policy/v1beta1", "Eviction"): "policy.Eviction"}


# -- wire format -------------------------------------------------------------------------------------------------------


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the numbers and raw values of a message's fields."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        match tag & 7:
            case 0:
                value, at = _varint(data, at)
                yield tag >> 3, value
            case 2:
                size, at = _varint(data, at)
                yield tag >> 3, _slice(data, at, size)
                at += size
            case 1 | 5 as wire:
                size = 8 if wire == 1 else 4
                yield tag >> 3, _slice(data, at, size)
                at += size
            case wire:
                raise _Malformed(f"illegal wireType {wire}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        if at >= len(data):
            raise _Malformed("unexpected EOF")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
        shift += 7
    raise _Malformed("integer overflow")


def _slice(data: bytes, at: int, size: int) -> bytes:
    if size > len(data) - at:
        raise _Malformed("unexpected EOF")
    return data[at : at + size]


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise _Malformed("wrong wireType")
    return value


def _string(value: int | bytes) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError:
        raise _Malformed("a string is not UTF-8") from None


def _integer(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise _Malformed("wrong wireType")
    return value - 2**64 if value >= 2**63 else value


# -- messages ----------------------------------------------------------------------------------------------------------


def _read(message: str, data: bytes, depth: int) -> dict[str, Any]:
    if depth > _MAX_DEPTH:
        raise _Malformed(f"nested deeper than {_MAX_DEPTH} levels")
    fields = messages()[message]
    document: dict[str, Any] = {}
    for which, raw in _fields(data):
        field = fields.get(which)
        if field is None:
            continue  # a field of a later release; servers drop unknown fields
        if field.flags & FieldFlag.MAP:
            entry = dict(_fields(_bytes(raw)))
            key = _string(entry.get(1, b""))
            document.setdefault(field.name, {})[key] = _value(field.holds, entry.get(2, b""), depth)
            continue
        value = _value(field.holds, raw, depth)
        if not field.name:
            document.update(value)
        elif field.flags & FieldFlag.REPEATED:
            document.setdefault(field.name, []).append(value)
        elif not _is_omitted(field, value):
            document[field.name] = value
    return document


def _is_omitted(field: _Field, value: Any) -> bool:
    omits_empty = field.flags & FieldFlag.OMIT_EMPTY and not field.flags & FieldFlag.POINTER
    return value is None or bool(omits_empty and value in ("", 0, False, {}, []))


def _value(holds: str, raw: int | bytes, depth: int) -> Any:
    if holds in _ALTERNATIVES:
        return _alternative(holds, _bytes(raw), depth)
    reader = _READERS.get(holds)
    return reader(raw) if reader is not None else _read(holds, _bytes(raw), depth + 1)


_SCHEMA: Final = "apiextensions.JSONSchemaProps"
#: Parts of a schema that are of one of two forms: the fields of the schema and of the other form.
_ALTERNATIVES: Final[Mapping[str, tuple[int, int]]] = {"A": (1, 2), "B": (2, 1), "C": (1, 2)}


def _alternative(holds: str, data: bytes, depth: int) -> Any:
    """Return a schema or, if there is none, a list of schemas, a boolean, or a list of names."""
    schema, other = _ALTERNATIVES[holds]
    fields = [*_fields(data)]
    found = [raw for number, raw in fields if number == schema]
    if found:
        return _read(_SCHEMA, _bytes(found[-1]), depth + 1)
    rest = [raw for number, raw in fields if number == other]
    if holds == "B":
        return bool(rest and _integer(rest[-1]))
    return [_read(_SCHEMA, _bytes(raw), depth + 1) if holds == "A" else _string(raw) for raw in rest]


def _written_alternative(holds: str, value: Any) -> bytes:
    schema, other = _ALTERNATIVES[holds]
    if isinstance(value, dict):
        allows = number(other, 1) if holds == "B" else b""
        return allows + delimited(schema, _message(_SCHEMA, value))
    if holds == "B":
        return number(other, int(bool(value)))
    return b"".join(delimited(other, _message(_SCHEMA, one)) if holds == "A" else text(other, one) for one in value)


def _float(raw: int | bytes) -> float:
    value: float = struct.unpack("<d", _bytes(raw))[0] if len(_bytes(raw)) == 8 else 0.0
    return value


def _moment(raw: int | bytes, precision: str) -> str | None:
    held = dict(_fields(_bytes(raw)))
    if not held:
        return None
    seconds, nanos = _integer(held.get(1, 0)), _integer(held.get(2, 0))
    try:
        moment = datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC).replace(microsecond=nanos // 1000)
    except (ValueError, OverflowError, OSError):
        raise _Malformed("a time is out of range") from None
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")


def _int_or_string(raw: int | bytes) -> int | str:
    held = dict(_fields(_bytes(raw)))
    return _string(held.get(3, b"")) if _integer(held.get(1, 0)) else _integer(held.get(2, 0))


def _only(raw: int | bytes, absent: int | bytes) -> int | bytes:
    """Return the field of a message that has one field."""
    return dict(_fields(_bytes(raw))).get(1, absent)


def _embedded(raw: int | bytes) -> Any:
    inner = _bytes(_only(raw, b""))
    try:
        return json.loads(inner) if inner else None
    except (ValueError, RecursionError):
        raise _Malformed("an embedded document is not JSON") from None


_READERS: Final[Mapping[str, Callable[[int | bytes], Any]]] = {
    "s": _string,
    "i": _integer,
    "b": lambda raw: bool(_integer(raw)),
    "f": _float,
    "y": lambda raw: base64.b64encode(_bytes(raw)).decode(),
    "T": lambda raw: _moment(raw, "seconds"),
    "U": lambda raw: _moment(raw, "microseconds"),
    "Q": lambda raw: _string(_only(raw, b"")) or "0",
    "O": _int_or_string,
    "D": lambda raw: format_duration(_integer(_only(raw, 0))),
    "R": _embedded,
    "F": _embedded,
    "X": lambda raw: [_string(value) for number, value in _fields(_bytes(raw)) if number == 1],
}


# -- protobuf encoding -------------------------------------------------------------------------------------------------
# Encode objects as protobuf, for clients that accept nothing else; the inverse of ``protobuf``, with the same table of
# fields.
#
# Clients that also accept JSON get JSON, whatever their preference, as objects are stored as JSON and Kubernetes clients
# decode by the response's content type. Empty fields are not encoded. Go encodes some of them, which makes no difference to
# readers.
#
# Source  apimachinery, pkg/runtime/serializer/protobuf; pkg/apis/meta/v1 (watch.go, time_proto.go)

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
    api_version, kind = document.get("apiVersion") or "v1", document["kind"]
    group, _, version = api_version.rpartition("/")
    other = _WITH_OTHER_VERSIONS.get((api_version, kind))
    return f"meta.{kind}" if f"meta.{kind}" in messages() else other or message_of(group, version, kind), kind


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
            write = partial(_written_alternative, holds) if holds in _ALTERNATIVES else _WRITERS.get(holds)
            yield delimited(field, write(value) if write is not None else _message(holds, value or {}))


# -- types that JSON has no message for --------------------------------------------------------------------------------


def _encoded_moment(value: str) -> bytes:
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
    "T": _encoded_moment,
    "U": _encoded_moment,
    "Q": lambda value: text(1, value),
    "D": lambda value: number(1, parse_duration(value)),
    "O": _int_or_text,
    "R": lambda value: delimited(1, msgspec.json.encode(value)),
    "F": lambda value: delimited(1, msgspec.json.encode(value)),
    "X": lambda value: b"".join([text(1, one) for one in value]),
}
