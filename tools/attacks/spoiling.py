"""Mutate valid documents: their values, their structure, their text and their bytes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, Final

from moorage.api.documents.served_kinds import Document
from moorage.api.schema.field_types import ListOf, MapOf, Scalar, Struct, Type
from moorage.api.schema.protobuf import write_protobuf

__all__ = ["HOSTILE", "distorted", "hostile", "operations", "protobuf_of", "spoil", "text_of"]

#: Values that fields do not expect.
HOSTILE: Final[tuple[Any, ...]] = (
    None, True, False, -1, 0, 1, 1.5, -0.0, 2**31, 2**31 - 1, 2**63, -(2**63) - 1, 10**400, float("nan"), float("inf"), 1e300,
    "", " ", "x", "A_b", "1Gi", "-5", "50%", "200%", "9" * 40, "1e400", "1e-400", "0x10", "NaN", "\n", "\0", "\ud800", "é",
    "\u202e", "\x1b[2J", "../..", "%2e%2e", "<script>", "${HOME}", "x" * 300, "x/" * 130,
    ".", "..", "a.b/c", "2026-01-01T00:00:00Z",
    "0000-00-00T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "1h", "-1h", "All", "*", "10.96.0.1", "::1", "1/2/3", [], {},
    [[]], [None], [{}], [1, "x"], {"": ""}, {"a": None}, {"$patch": "delete"}, ["x", "x"],
)  # fmt: skip


def hostile(rng: random.Random) -> Any:
    """Return one of ``HOSTILE``, as a copy that may be changed."""
    return deepcopy(rng.choice(HOSTILE))


_NAMES: Final = (
    "",
    "x",
    "$patch",
    "$retainKeys",
    "metadata",
    "name",
    "namespace",
    "uid",
    "status",
    "kind",
    "é",
    "\0",
    "a" * 400,
)
_SCALARS: Final[dict[str, tuple[Any, ...]]] = {
    "s": (
        "",
        "x",
        "a-b",
        "a.b/c",
        "A_b",
        "x" * 64,
        "x" * 254,
        "seeded",
        "open",
        "closed",
        "Always",
        "Never",
        "IPv4",
        "None",
        "80",
    ),
    "i": (0, 1, -1, 7, 80, 65536, 2**31 - 1, 2**31, 2**63 - 1, -(2**63)),
    "b": (True, False),
    "f": (0.0, -1.5, 1e300),
    "y": ("", "YQ==", "!"),
    "T": ("2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "x"),
    "U": ("2026-01-01T00:00:00.000000Z", "0001-01-01T00:00:00.000000Z"),
    "Q": ("0", "1", "-1", "1Gi", "1m", "1n", "1e3", "9" * 30, "1Ei", "0.1", "100E"),
    "O": (0, 1, -1, "50%", "web", "101%", "x"),
    "D": ("1s", "0s", "-1s", "9999999h"),
    "R": ({}, {"a": "b"}, None),
    "F": ({"f:metadata": {"f:labels": {".": {}}}}, {"x": {}}, {}),
    "X": (["x"], []),
}
_DEPTH: Final = 4


def spoil(rng: random.Random, document: Document, shape: Struct) -> None:
    """Change one to three places of a document, to values of the right type or of any other type."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        if rng.random() < 0.65:
            _fill(rng, document, shape)
        else:
            _break(rng, document)


def _fill(rng: random.Random, document: Document, shape: Struct) -> None:
    """Set a field that exists in the schema to a value of its type."""
    home, within = document, shape
    for _ in range(rng.randint(0, 5)):
        below = [name for name, field in within.fields.items() if isinstance(_item(field.type), Struct) and name in home]
        if not below:
            break
        name = rng.choice(below)
        inner, found = _item(within.fields[name].type), home[name]
        found = rng.choice(found) if isinstance(found, list) and found else found
        if not (isinstance(found, dict) and isinstance(inner, Struct)):
            break
        home, within = found, inner
    if not within.fields:
        return
    name = rng.choice([*within.fields])
    home[name] = _value(rng, within.fields[name].type, _DEPTH)


def _item(of: Type) -> Type:
    return of.item if isinstance(of, ListOf) else of


def _value(rng: random.Random, of: Type, depth: int) -> Any:
    match of:
        case Scalar(letter):
            return rng.choice(_SCALARS[letter]) if letter in _SCALARS else hostile(rng)
        case ListOf(item):
            return [_value(rng, item, depth - 1) for _ in range(rng.choice((0, 1, 1, 2)))] if depth > 0 else []
        case MapOf(item):
            return {rng.choice(("a", "a.b/c", "cpu", "")): _value(rng, item, depth - 1)} if depth > 0 else {}
    chosen = [name for name, field in of.fields.items() if field.is_required or rng.random() < 3 / len(of.fields)]
    return {name: _value(rng, of.fields[name].type, depth - 1) for name in chosen} if depth > 0 else {}


def _break(rng: random.Random, document: Document) -> None:
    """Replace, remove, repeat or rename an existing field."""
    home, key = rng.choice([*_places(document)] or [(document, "kind")])
    match rng.randrange(6):
        case 0 if isinstance(home, dict):
            del home[key]
        case 1 if isinstance(home, list):
            home.append(home[key])
        case 2 if isinstance(home, dict):
            home[rng.choice(_NAMES)] = home.pop(key)
        case 3:
            home[key] = [home[key]]
        case _:
            home[key] = hostile(rng)


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    items = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for key, inner in items:
        yield document, key
        yield from _places(inner)


def operations(rng: random.Random, document: Document) -> list[Any]:
    """Return operations of a JSON patch on existing and missing paths."""
    pointers = ["", "/", "/-", "/spec/-", "/a~b", "/a~2", "/metadata/name", "/metadata/uid", *_pointers(document, "")]
    verbs = ("add", "remove", "replace", "move", "copy", "test", "", "ADD", 5)
    made: list[Any] = []
    for _ in range(rng.randint(1, 4)):
        one = {
            "op": rng.choice(verbs),
            "path": rng.choice(pointers),
            "from": rng.choice(pointers),
            "value": hostile(rng),
        }
        for name in [*one]:
            if rng.random() < 0.1:
                del one[name]
        made.append(one if rng.random() < 0.95 else hostile(rng))
    return made


def _pointers(document: Any, at: str) -> Iterator[str]:
    items = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for key, inner in items:
        yield f"{at}/{key}"
        yield from _pointers(inner, f"{at}/{key}")


# -- text ---------------------------------------------------------------------------------------------------------------


def text_of(document: Any) -> bytes:
    """Return a document as JSON, including NaN and lone surrogates."""
    return json.dumps(document).encode()


def protobuf_of(document: Document) -> bytes:
    """Return a document as protobuf, or bytes with a protobuf prefix where that is impossible."""
    try:
        return write_protobuf(document)
    except Exception:  # mutated documents may not be encodable
        return b"k8s\0" + text_of(document)


def distorted(rng: random.Random, text: bytes) -> bytes:
    """Return a text that is hard to parse."""
    return rng.choice(_DISTORTIONS)(rng, text)


def _cut(rng: random.Random, text: bytes) -> bytes:
    return text[: rng.randint(0, len(text))]


def _flip(rng: random.Random, text: bytes) -> bytes:
    changed = bytearray(text or b"x")
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _insert(rng: random.Random, text: bytes) -> bytes:
    at = rng.randint(0, len(text))
    return (
        text[:at]
        + rng.choice((b"\xff", b"\0", b"\xed\xa0\x80", b"\\u12", b'"', b"}", b"[", b"1e999", b"\n---\n", b"#"))
        + text[at:]
    )


def _twice(rng: random.Random, text: bytes) -> bytes:
    """Repeat a field: insert another value before the existing one."""
    field = rng.choice((b'"kind":"Other",', b'"metadata":{"name":"other"},', b'"spec":null,', b'"apiVersion":"v2",'))
    return text.replace(b"{", b"{" + field, 1)


def _nested(rng: random.Random, text: bytes) -> bytes:
    depth = rng.choice((50, 150, 1000, 20_000))
    opened, closed = rng.choice(((b'{"a":', b"}"), (b"[", b"]")))
    return b'{"metadata":{"annotations":' + opened * depth + b"1" + closed * depth + b"}}"


def _aliases(rng: random.Random, text: bytes) -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 8)}]" for i in range(1, rng.choice((2, 9)))]
    return "\n".join([*lines, "metadata: &m {name: seeded, annotations: *m}" if rng.random() < 0.3 else "x: 1"]).encode()


def _odd(rng: random.Random, text: bytes) -> bytes:
    return rng.choice(_ODD)


_ODD: Final = (
    b"", b" ", b"null", b"[]", b"1", b'"x"', b"{}", b"{", b"\xef\xbb\xbf{}", b"\xff\xfe{\0}\0", b"NaN", b"k8s\0",
    b"k8s\0\x0a\xff\xff",
    b"--- \n--- \n", b"!!python/object:os.system {}", b"{a: !!binary x}", b"? {a: b}\n: c", b"<<: *x", b"&a [*a]",
    b"%YAML 9.9\n---\nx",
    b"- " * 500, b'{"items":[{}]}', b'{"kind":"List","apiVersion":"v1","items":[]}', b'{"kind":"Status","code":200}', b"{}{}",
    b"9" * 5000, b'{"metadata":{"name":' + b"9" * 5000 + b"}}", b"k8s\0" + b"\x12\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
)  # fmt: skip
_DISTORTIONS: Final[tuple[Callable[[random.Random, bytes], bytes], ...]] = (
    _cut, _flip, _flip, _insert, _twice, _nested, _aliases, _odd, _odd,
)  # fmt: skip
