"""A client that sends what client-go 1.36 sends, byte for byte as far as it matters, and reads answers as client-go does.

Bodies are protobuf as Go marshals it, with every field that is not a pointer, list or map, including empty ones. An answer is
decoded by its content type, and is an error for a type that client-go's scheme does not have.

Source  client-go, rest/request.go; component-base, config/v1alpha1/defaults.go; kubernetes, cmd/kube-scheduler/app/options
"""

import base64
import datetime
import http.client
import json
import struct
from urllib.parse import urlencode

from moorage.api.schema.protobuf import FieldFlag, messages, read_protobuf

PROTOBUF = "application/vnd.kubernetes.protobuf"
#: What kube-scheduler accepts, whose content type is said by its configuration, and what other typed clients of 1.36 do.
SCHEDULER, TYPED = f"{PROTOBUF}, */*", f"{PROTOBUF},application/json"
AGENT = "kube-scheduler/v1.36.2 (linux/amd64) kubernetes/2b2c4c6/scheduler"


# -- protobuf -----------------------------------------------------------------------------------------------------------


def varint(value):
    value &= 2**64 - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def part(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def marshal(message, document):
    """Return a document as Go's generated code marshals it."""
    out = b""
    for number, (name, holds, flags) in sorted(messages()[message].items()):
        value = document if not name else document.get(name)
        if flags & FieldFlag.MAP:
            entries = sorted((value or {}).items())
            out += b"".join(part(number, part(1, key) + part(2, scalar(holds, inner))) for key, inner in entries)
        elif flags & FieldFlag.REPEATED:
            out += b"".join(part(number, scalar(holds, one)) for one in value or ())
        elif value is not None or not flags & FieldFlag.POINTER:
            out += part(number, scalar(holds, value))
    return out


def scalar(holds, value):
    match holds:
        case "s":
            return value or ""
        case "i":
            return value or 0
        case "b":
            return int(value or False)
        case "y":
            return base64.b64decode(value or "")
        case "T" | "U":
            return moment(value)
        case "Q":
            return part(1, value or "0")
        case "O":
            return part(1, int(isinstance(value, str))) + part(2, value if isinstance(value, int) else 0) + part(
                3, value if isinstance(value, str) else "")  # fmt: skip
        case "R" | "F":
            return part(1, json.dumps(value)) if value is not None else b""
        case "X":
            return b"".join(part(1, one) for one in value or ())
        case _:
            return marshal(holds, value or {})


def moment(text):
    if not text:
        return b""
    when = datetime.datetime.fromisoformat(text)
    return part(1, int(when.timestamp())) + part(2, when.microsecond * 1000)


def in_protobuf(document):
    version, kind = document["apiVersion"], document["kind"]
    package = "meta" if kind == "DeleteOptions" else version.rpartition("/")[0].partition(".")[0] or "core"
    raw = marshal(f"{package}.{kind}", document)
    return b"k8s\0" + part(1, part(1, version) + part(2, kind)) + part(2, raw) + part(3, "") + part(4, "")


def fields(data):
    """Return a message's fields by number, each with its values: integers or bytes."""
    found, at = {}, 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = number()
        value = number()
        if tag & 7 == 2:
            value, at = data[at : at + value], at + value
            assert len(value) <= len(data)
        else:
            assert tag & 7 == 0, tag
        found.setdefault(tag >> 3, []).append(value)
    return found


def kind_of(data):
    """Return the version and kind of an object in protobuf, and its encoded content."""
    assert data[:4] == b"k8s\0", data[:20]
    envelope = fields(data[4:])
    said = fields(envelope[1][0])
    return said[1][0].decode(), said[2][0].decode(), envelope[2][0]


def of_protobuf(data):
    """Return a decoded protobuf response, with a list's items and version."""
    version, kind, raw = kind_of(data)
    package = version.rpartition("/")[0].partition(".")[0] or "core"
    if f"meta.{kind}" in messages() and kind != "PartialObjectMetadataList":
        wrapped = b"k8s\0" + part(1, part(1, "meta/v1") + part(2, kind)) + part(2, raw)
        return {**read_protobuf(wrapped), "apiVersion": version}
    if not kind.endswith("List"):
        return read_protobuf(data)
    held = fields(raw)
    item = ("meta" if version.startswith("meta") else package), kind.removesuffix("List")
    wrap = b"k8s\0" + part(1, part(1, f"{item[0] if item[0] != 'core' else ''}/v1".lstrip("/")) + part(2, item[1]))
    items = [read_protobuf(wrap + part(2, one)) for one in held.get(2, ())]
    metadata = fields(held[1][0])
    return {
        "apiVersion": version, "kind": kind, "items": items,
        "metadata": {"resourceVersion": metadata[2][0].decode(), "continue": metadata.get(3, [b""])[0].decode()},
    }  # fmt: skip


# -- requests -----------------------------------------------------------------------------------------------------------


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def type(self):
        return self.headers["Content-Type"]

    @property
    def document(self):
        """Return what client-go decodes, by the response's content type."""
        media_type = self.type.partition(";")[0]
        assert media_type in {"application/json", "application/yaml", PROTOBUF}, media_type
        return of_protobuf(self.body) if media_type == PROTOBUF else json.loads(self.body)

    @property
    def reason(self):
        """Return the reason that ``apierrors`` uses, which comes from a Status only."""
        status = self.document
        assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")
        assert status["code"] == self.status
        return status.get("reason", "")


class GoClient:
    """One keep-alive connection, like Go's transport."""

    def __init__(self, port, token, accept=SCHEDULER, context=None):
        kept = http.client.HTTPSConnection if context is not None else http.client.HTTPConnection
        self._line = kept("127.0.0.1", port, timeout=10, **({"context": context} if context is not None else {}))
        self._token, self.accept, self.port = token, accept, port

    @property
    def address(self):
        """Return the local address of the connection."""
        return self._line.sock.getsockname() if self._line.sock is not None else None

    def close(self):
        """Close the connection; the next request opens a new one."""
        self._line.close()

    def ask(self, method, path, document=None, *, form=PROTOBUF, accept=None, **query):
        response = self.open(method, path, document, form=form, accept=accept, **query)
        return Answer(response.status, response.headers, response.read())

    def open(self, method, path, document=None, *, form=PROTOBUF, accept=None, **query):
        if document is not None and not isinstance(document, bytes):
            document = in_protobuf(document) if form == PROTOBUF else json.dumps(document).encode()
        target = f"{path}?{urlencode(sorted(query.items()))}" if query else path
        line = self._line
        line.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        line.putheader("Host", f"127.0.0.1:{self.port}")
        line.putheader("User-Agent", AGENT)
        if document is not None:
            line.putheader("Content-Length", str(len(document)))
        line.putheader("Accept", accept or self.accept)
        if self._token:
            line.putheader("Authorization", f"Bearer {self._token}")
        if document is not None:
            line.putheader("Content-Type", form)
        line.endheaders(document)
        return line.getresponse()

    def events(self, path, *, accept=None, **query):
        """Yield a watch's events, decoded by the response's content type: lines of JSON, or length-prefixed protobuf."""
        response = self.open("GET", path, accept=accept, watch="true", **query)
        answer = Answer(response.status, response.headers, b"")
        if response.status != 200:
            raise AssertionError(response.read())
        try:
            while event := self._json(response) if answer.type == "application/json" else self._framed(response, answer.type):
                yield event
        finally:
            self._line.close()

    def _json(self, response):
        line = response.readline()
        read = json.loads(line) if line else {}
        return (read["type"], read["object"]) if read else None

    def _framed(self, response, media_type):
        assert media_type == f"{PROTOBUF};stream=watch", media_type
        head = response.read(4)
        if not head:
            return None
        event = fields(response.read(struct.unpack(">I", head)[0]))
        return event[1][0].decode(), of_protobuf(fields(event[2][0])[1][0])
