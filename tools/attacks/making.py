"""Generate attacks: single requests that are hostile in path, parameters, headers, framing or body."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from moorage.api.documents.served_kinds import Document, Review, ServedKind
from moorage.api.schema.protobuf import PROTOBUF
from moorage.api.schema.schemas import kind_schema
from moorage.cluster.apiserver.schema.request_bodies import APPLY, OBJECT_TYPES, PATCH_TYPES
from tools.attacks.objects import valid_object, valid_part, valid_review
from tools.attacks.routes import CLOSED, MADE, OPEN, SEEDED, Combination
from tools.attacks.spoiling import HOSTILE, distorted, hostile, operations, protobuf_of, spoil, text_of

__all__ = ["USERS", "Attack", "make"]

#: The users that attack. All but the first have a token; only the last is an administrator.
USERS: Final = ("anonymous", "user", "robot", "admin")

_PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "allowWatchBookmarks": ("1", "true", "x"),
    "continue": ("", "x", "e30", "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ", "A" * 4000),
    "dryRun": ("All", "All", "", "all", "All,All"),
    "fieldManager": ("", "me", "m" * 129, "\n", "é"),
    "fieldSelector": ("metadata.name=seeded", "metadata.name!=x,status.phase=", "=", "a", "spec.x=1", "a=b\\,c", ","),
    "fieldValidation": ("Strict", "Warn", "Ignore", "x"),
    "force": ("true", "1", "x"),
    "gracePeriodSeconds": ("0", "-1", "1", "x", "9" * 30, "1.5"),
    "includeObject": ("None", "Object", "x"),
    "labelSelector": ("app=x", "app in (x,y)", "!app", "app notin ()", "(((", "a" * 3000, "a=b,a!=b", "app>1", "=", "/=x"),
    "limit": ("1", "0", "-1", "x", "9" * 30, "1e3", " 1"),
    "orphanDependents": ("true", "x"),
    "pretty": ("true", "1", "x"),
    "propagationPolicy": ("Orphan", "Background", "Foreground", "x"),
    "resourceVersion": ("0", "1", "-1", "x", "9" * 19, "9" * 40, "1.0", " 1"),
    "resourceVersionMatch": ("Exact", "NotOlderThan", "x"),
    "sendInitialEvents": ("true", "false", "x"),
    "timeout": ("1s", "0", "-1s", "x", "9" * 20 + "s"),
    "timeoutSeconds": ("0", "1", "-1", "x", "9" * 30),
    "verbose": ("", "1"), "exclude": ("ping", "x"), "container": ("c", "x"), "x": ("y",), "": ("",),
    "watch": ("true", "1", "false", "x", "0"),
}  # fmt: skip
_ACCEPTS: Final = (
    "application/json", "application/json", "*/*", "application/yaml", PROTOBUF, f"{PROTOBUF},application/json",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    f"{PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=Other;v=v1;g=meta.k8s.io", "text/html", ";;;,,,=", "application/json;q=x", "application/json;q=0",
    "application/json;stream=watch", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "a" * 5000, "*",
    ", ".join(["text/x"] * 500), "application/vnd.kubernetes.protobuf;stream=watch", "\xff",
)  # fmt: skip
_HEADERS: Final = (
    ("Accept-Encoding", "gzip, br;q=x"), ("Authorization", "Bearer second"), ("Connection", "close"), ("Connection", "Upgrade"),
    ("Content-Encoding", "gzip"), ("Content-Type", "application/json"), ("Content-Type", "application/yaml; charset=x"),
    ("Cookie", "a=b"), ("Expect", "100-continue"), ("Expect", "x"), ("Host", "evil.example"), ("If-None-Match", "*"),
    ("Impersonate-User", "admin"), ("Impersonate-Group", "system:masters"), ("Impersonate-Extra-%zz", "x"),
    ("Impersonate-Uid", "1"),
    ("Origin", "https://evil.example"), ("Range", "bytes=0-"), ("Sec-Fetch-Site", "cross-site"), ("TE", "trailers"),
    ("Upgrade", "websocket"), ("User-Agent", ""), ("User-Agent", "\xff" * 300), ("User-Agent", "x" * 60_000),
    ("X-Forwarded-For", "127.0.0.1"), ("X-HTTP-Method-Override", "DELETE"), ("X-Original-URL", "/api/v1/secrets"),
    ("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters"), ("X-Long", "x" * 70_000), ("X-A", "\t"), ("X A", "b"),
)  # fmt: skip
#: Ways to frame a body, apart from "" for the correct one.
_FRAMINGS: Final = (
    "chunked", "chunked", "both", "two lengths", "too long", "too short", "negative", "none", "bad chunk",
    "endless chunk", "HTTP/1.0",
)  # fmt: skip
_METHODS: Final = ("OPTIONS", "TRACE", "CONNECT", "get", "PRI", "PROPFIND", "G T", "X" * 50)


@dataclass(frozen=True)
class Attack:
    """One request. ``what`` is the combination that it was derived from; ``is_plain``: path and framing were not changed."""

    number: int
    who: str
    what: Combination
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    framing: str
    is_plain: bool
    query: tuple[tuple[str, str], ...] = field(default=())

    @property
    def is_dry(self) -> bool:
        """Return True for a well-formed dry run. Options in the body of a deletion replace the parameters."""
        is_replaced = self.method == "DELETE" and bool(self.body)
        return self.is_plain and ("dryRun", "All") in self.query[:1] and not is_replaced

    def raw(self, token: str) -> bytes:
        """Return the bytes of the request."""
        version = "1.0" if self.framing == "HTTP/1.0" else "1.1"
        lines = [f"{self.method} {self.target} HTTP/{version}", "Host: localhost"]
        if token:
            lines.append(f"Authorization: Bearer {token}")
        lines += [f"{name}: {value}" for name, value in self.headers]
        framed, body = _framed(self.framing, self.body)
        return "\r\n".join([*lines, *framed, "", ""]).encode("latin-1", "replace") + body

    def __str__(self) -> str:
        headers = ", ".join(f"{name}: {value[:60]}" for name, value in self.headers)
        return f"#{self.number} {self.who}: {self.method} {self.target[:300]} [{headers}] {self.framing} {self.body[:1500]!r}"


#: A request inside the body of another one, which must never get a response.
_SMUGGLED: Final = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"


def _framed(framing: str, body: bytes) -> tuple[list[str], bytes]:
    """Return the headers that delimit the body, and the bytes of the body."""
    right, in_chunks = f"Content-Length: {len(body)}", "Transfer-Encoding: chunked"
    chunk = b"%x\r\n%s\r\n" % (len(body), body) if body else b""
    usual = [right] if body else []
    return {
        "chunked": ([in_chunks], chunk + b"0\r\n\r\n"),
        "both": ([right, in_chunks], b"0\r\n\r\n" + _SMUGGLED),
        "two lengths": ([right, f"Content-Length: {len(body) + 1}"], body),
        "too long": ([f"Content-Length: {len(body) + 100}"], body),
        "too short": ([f"Content-Length: {len(body) // 2}"], body),
        "negative": (["Content-Length: -1"], body),
        "none": ([], b""),
        "bad chunk": ([in_chunks], b"zz\r\n" + body),
        "endless chunk": ([in_chunks], b"ffffffff\r\n" + body),
    }.get(framing, (usual, body))


def make(rng: random.Random, number: int, what: Combination) -> Attack:
    """Return an attack derived from a well-formed request."""
    who = rng.choices(USERS, (2, 10, 10, 78))[0]
    path = _spoiled_path(rng, what.route.path) if rng.random() < 0.06 else what.route.path
    method = rng.choice(_METHODS) if rng.random() < 0.01 else what.method
    framing = rng.choice(_FRAMINGS) if rng.random() < 0.04 else ""
    query = _query(rng, what)
    target = path + ("?" + "&".join(f"{quote(name)}={quote(value)}" for name, value in query) if query else "")
    if rng.random() < 0.02:
        target += rng.choice(
            ("?", "?&&&", "?%", "?%ff=%fe", "?a=b=c;d", "#x", "?" + "a&" * 1001, "?" + "x" * 20_000, "?watch", "?\x7f")
        )
    headers, form = _headers(rng, what.media_type)
    body = _body(rng, what, form)
    is_plain = path == what.route.path and method == what.method and not framing and "#" not in target
    return Attack(number, who, what, method, target, headers, body, framing, is_plain, query)


def _query(rng: random.Random, what: Combination) -> tuple[tuple[str, str], ...]:
    found = []
    if what.media_type == APPLY and rng.random() < 0.9:
        found.append(("fieldManager", "me"))
    if rng.random() < 0.3:
        for _ in range(rng.choice((1, 1, 2, 4))):
            name = rng.choice([*_PARAMETERS])
            found.append((name, rng.choice(_PARAMETERS[name])))
    return tuple(found)


def _headers(rng: random.Random, form: str) -> tuple[tuple[tuple[str, str], ...], str]:
    """Return headers, and the media type of the body that they declare."""
    headers = []
    if rng.random() < 0.3:
        headers.append(("Accept", rng.choice(_ACCEPTS)))
    if form and rng.random() < 0.04:
        form = rng.choice((*OBJECT_TYPES, *PATCH_TYPES, "text/plain", "", "APPLICATION/JSON", "application/json;charset=x"))
    if form:
        headers.append(("Content-Type", form))
    if rng.random() < 0.06:
        headers += [rng.choice(_HEADERS) for _ in range(rng.choice((1, 1, 1, 1, 2, 200)))]
    return tuple(headers), form


# -- paths --------------------------------------------------------------------------------------------------------------


def _spoiled_path(rng: random.Random, path: str) -> str:
    parts = path.split("/")
    at = rng.randrange(1, len(parts))
    match rng.randrange(8):
        case 0:
            parts[at] = rng.choice(_SEGMENTS)
        case 1:
            parts.insert(at, rng.choice(_SEGMENTS))
        case 2:
            parts[at] = "".join(f"%{ord(letter):02x}" for letter in parts[at])
        case 3:
            parts[at] = parts[at].swapcase()
        case 4:
            parts[at] += rng.choice(("%00", "%0d%0aX: y", "%2f..%2fsecrets", ";a=b", ".json", "%ff", " ", "%", "%zz", "%c0%ae"))
        case 5:
            return path + rng.choice(("/", "//", "/.", "/..", "/status", "/x/y/z"))
        case 6:
            return rng.choice(("", "/.", "/api/..", "//", "http://localhost", "/%2e%2e")) + path
        case _:
            return (
                path.replace(OPEN, CLOSED) if OPEN in path else path.replace("/v1", rng.choice(("/v2", "/v1beta1", "/V1", "")))
            )
    return "/".join(parts)


_SEGMENTS: Final = (
    "", ".", "..", "%2e%2e", "..%2f..", "%00", "*", "namespaces", "pods", "status", "watch", "proxy", "x" * 3000, "%25",
    "%e2%80%ae",    "\\", "a%5cb", "closed", "secrets", "-", "%ed%a0%80", "'", "<b>",
)  # fmt: skip


# -- bodies -------------------------------------------------------------------------------------------------------------


def _body(rng: random.Random, what: Combination, form: str) -> bytes:
    if what.method in {"GET", "HEAD"}:
        return b"" if rng.random() < 0.97 else b"{}"
    if what.method == "DELETE":
        return _deletion(rng) if form else b""
    document = _document(rng, what)
    if form == PATCH_TYPES[0]:
        text = text_of(operations(rng, document) if rng.random() < 0.9 else document)
    elif form == PROTOBUF:
        text = protobuf_of(document)
    else:
        text = text_of(_directed(rng, document) if form == PATCH_TYPES[2] else document)
    return distorted(rng, text) if rng.random() < 0.1 else text


def _document(rng: random.Random, what: Combination) -> Document:
    route = what.route
    if route.about is None:
        return {"kind": "x"}
    document = _valid_body(rng, what)
    if rng.random() < 0.75:
        spoil(rng, document, kind_schema(route.about))
    if rng.random() < 0.1 and isinstance(metadata := document.get("metadata"), dict):
        _contradict(rng, metadata)
    return document


def _valid_body(rng: random.Random, what: Combination) -> Document:
    about, route = what.route.about, what.route
    if isinstance(about, Review):
        return valid_review(about, route.namespace)
    assert isinstance(about, ServedKind)
    if rng.random() < 0.03:
        return valid_part(about, route.namespace, SEEDED, rng.choice(("binding", "eviction", "scale", "token")))
    if route.subresource:
        return valid_part(about, route.namespace, route.name, route.subresource)
    return valid_object(about, route.namespace, route.name or rng.choice((MADE, MADE, SEEDED, "other")))


def _contradict(rng: random.Random, metadata: Document) -> None:
    """Set a metadata field that contradicts the path, or that only the server may set."""
    name, value = rng.choice((
        ("name", "other"), ("namespace", CLOSED), ("namespace", OPEN), ("uid", "00000000-0000-0000-0000-000000000000"),
        ("resourceVersion", "1"), ("resourceVersion", "x"), ("resourceVersion", "0"), ("generateName", "g" * 400),
        ("deletionTimestamp", "2020-01-01T00:00:00Z"), ("deletionGracePeriodSeconds", -5), ("finalizers", ["a.b/c"]),
        ("finalizers", ["foregroundDeletion", "orphan"]), ("generation", 2**63 - 1), ("creationTimestamp", "x"),
        ("selfLink", "/x"), ("generateName", "g-"),
        ("ownerReferences", [{"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "u", "controller": True}] * 2),
        ("managedFields", [{"manager": "m", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {"f:x": {}}}]),
        ("managedFields", [{}]), ("managedFields", []),
    ))  # fmt: skip
    metadata[name] = value


def _directed(rng: random.Random, document: Document) -> Document:
    """Return a document with directives of strategic merge patches added."""
    if rng.random() < 0.5:
        return document
    home = document.get("spec") if isinstance(document.get("spec"), dict) and rng.random() < 0.5 else document
    assert isinstance(home, dict)
    for _ in range(rng.randint(1, 2)):
        name = rng.choice((
            "$patch", "$retainKeys", "$setElementOrder/containers", "$deleteFromPrimitiveList/finalizers", "$setElementOrder/x",
            "$deleteFromPrimitiveList/x", "$setElementOrder/ports", "$x",
        ))  # fmt: skip
        home[name] = rng.choice(
            ("replace", "delete", "merge", [], ["name"], [{"name": "c"}], [{"$patch": "delete"}], *HOSTILE[:8])
        )
    return document


def _deletion(rng: random.Random) -> bytes:
    options: Document = {"apiVersion": "v1", "kind": "DeleteOptions"}
    for name, values in _DELETION.items():
        if rng.random() < 0.2:
            options[name] = rng.choice((*values, hostile(rng)))
    text = text_of(options)
    return distorted(rng, text) if rng.random() < 0.2 else text


_DELETION: Final[Mapping[str, tuple[object, ...]]] = {
    "gracePeriodSeconds": (0, -1, 2**63), "propagationPolicy": ("Orphan", "Foreground", "x"), "orphanDependents": (True,),
    "preconditions": ({"uid": "x"}, {"resourceVersion": "1"}, {}), "dryRun": (["All"], ["x"], "All", []),
    "ignoreStoreReadErrorWithClusterBreakingPotential": (True,), "apiVersion": ("v2", "apps/v1"), "kind": ("Pod", ""),
}  # fmt: skip
