"""Documents that do not depend on stored objects: health, version, discovery and OpenAPI.

Source  apiserver, pkg/server/healthz and pkg/endpoints/discovery
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from moorage.api.documents import statuses
from moorage.api.documents.http_messages import health_text
from moorage.api.documents.request_targets import ReviewTarget, Target
from moorage.api.documents.served_kinds import KindTable
from moorage.cluster.apiserver.schema import discovery, openapi
from moorage.cluster.apiserver.schema.discovery import SUBRESOURCES
from moorage.cluster.apiserver.schema.openapi import SWAGGER_PROTOBUF, SWAGGER_SENT, swagger_protobuf
from moorage.cluster.apiserver.schema.representations import JSON, accepted, encoded_as
from moorage.cluster.apiserver.schema.request_bodies import PATCH_TYPES
from moorage.rules.store.store import Store

HEALTH: Final = frozenset(["/healthz", "/livez", "/readyz"])
#: Paths that are also served in encodings other than JSON.
_NEGOTIATED: Final = frozenset(["api", "apis"])
#: Number of documents of a kind table that are kept.
_KEPT: Final = 256
#: Maximum number of path segments that are answered without the store, by root; "/api/v1" has three.
_DEPTHS: Final = {"": 2, "api": 3, "apis": 4, "openapi": 99, "version": 2}


class ServerDocument(NamedTuple):
    """A document to send. A client that already has its ``tag`` gets 304; a document without a tag is always sent."""

    form: str
    body: bytes
    tag: str = ""


def is_document(path: str) -> bool:
    """Return True for paths whose responses do not depend on stored objects."""
    parts = (path or "/").split("/")
    return len(parts) > 1 and len(parts) <= _DEPTHS.get(parts[1], 0)


def is_health(path: str) -> bool:
    """Return True for the health paths and for their individual checks."""
    endpoint, _, part = path.rpartition("/")
    return path in HEALTH or (endpoint in HEALTH and part != "")


def check_method(path: str, method: str) -> None:
    """Check that API and version documents are only read. Other documents ignore the method, as in kube-apiserver.

    Raises  ApiError 405
    """
    root, *rest = path.split("/")[1:] or [""]
    if method != "GET" and (root in {"api", "version"} or (root == "apis" and rest)):
        raise statuses.not_allowed()


def document(path: str, accept: str, host: str, kinds: KindTable) -> ServerDocument:
    """Return the document at a path. ``host`` is the server's address, ``kinds`` are those that it serves.

    Raises  ApiError 404 if there is none, 406 if the client accepts none of its encodings
    """
    if path == "/openapi/v2":
        return _swagger(accept, kinds)
    version = discovery.aggregated_version(accept)
    page = _kept(kinds, (path, version, host), lambda: _encode(path, version, host, kinds))
    if page.form != JSON or path.split("/")[1:2] not in ([one] for one in _NEGOTIATED):
        return page
    encoding = accepted(accept).encoding
    return ServerDocument(encoding, encoded_as(encoding, page.body))


#: The encoded documents of each kind table, by path, encoding and host.
_ENCODED: Final[WeakKeyDictionary[KindTable, dict[Hashable, ServerDocument]]] = WeakKeyDictionary()


def _kept(kinds: KindTable, key: Hashable, make: Callable[[], ServerDocument]) -> ServerDocument:
    """Return a document from the cache of a kind table, or make it."""
    cache = _ENCODED.setdefault(kinds, {})
    if key not in cache:
        if len(cache) >= _KEPT:
            cache.clear()
        cache[key] = make()
    return cache[key]


def _encode(path: str, aggregated: str, host: str, kinds: KindTable) -> ServerDocument:
    found = _document(path, aggregated, host, kinds)
    if found is None:
        # Below a group and below the core API, kube-apiserver has a handler that reports unknown versions itself.
        raise statuses.not_found_path() if path.startswith("/api/") or path.count("/") > 2 else statuses.no_such_page()
    body = msgspec.json.encode(found)
    if found.get("kind") == "APIGroupDiscoveryList":
        return ServerDocument(discovery.AGGREGATED.format(aggregated), body, f'"{hashlib.sha512(body).hexdigest().upper()}"')
    return ServerDocument(JSON, body)


def _document(path: str, aggregated: str, host: str, kinds: KindTable) -> dict[str, Any] | None:
    root, *rest = path.split("/")[1:] or [""]
    if not root:
        return {"paths": sorted(_paths(kinds))}
    if root == "version":
        return dict(discovery.version_document(kinds.server_version))
    if root == "openapi":
        if rest[:1] != ["v3"]:
            return None
        return openapi.document_of("/".join(rest[1:]), kinds) if rest[1:] else openapi.index(kinds)
    if aggregated and not rest:
        return discovery.aggregated(root == "api", aggregated, kinds)
    if root == "api":
        return discovery.resource_list("", rest[0], kinds) if rest else discovery.api_versions(host)
    return discovery.group_document(rest, kinds)


def _paths(kinds: KindTable) -> Iterator[str]:
    """Yield the paths that do not depend on a resource."""
    yield from ("/api", "/api/v1", "/apis", "/metrics", "/openapi/v2", "/openapi/v3", "/version")
    for group in discovery.group_list(kinds)["groups"]:
        yield f"/apis/{group['name']}"
        yield from (f"/apis/{one['groupVersion']}" for one in group["versions"])
    yield from (f"{path}{more}" for path in HEALTH for more in ("", "/ping"))


def _swagger(accept: str, kinds: KindTable) -> ServerDocument:
    for clause in accept.split(",") if accept else ["*/*"]:
        form = clause.partition(";")[0].strip()
        if form in {SWAGGER_PROTOBUF, SWAGGER_SENT}:
            return _kept(kinds, SWAGGER_SENT, lambda: ServerDocument(SWAGGER_SENT, swagger_protobuf(openapi.swagger(kinds))))
        if form in {"*/*", "application/*", JSON}:
            return _kept(kinds, JSON, lambda: ServerDocument(JSON, msgspec.json.encode(openapi.swagger(kinds))))
    raise statuses.not_acceptable([JSON, SWAGGER_PROTOBUF])


def health(path: str, store: Store, *, verbose: bool, excluded: Sequence[str] = ()) -> str:
    """Return the response of a health path. A server that cannot write changes is alive, but not ready.

    Raises  ApiError 500 if a check fails, without the reason; 404 for an unknown check
    """
    endpoint, _, part = path.removeprefix("/").partition("/")
    checks = {"ping": ""}
    if endpoint == "readyz" and store.log is not None:
        checks["data"] = store.log.failure
    if part:
        if part not in checks:
            raise statuses.no_such_page()
        checks, excluded = {part: checks[part]}, ()
    passes, text = health_text(endpoint, checks, excluded, verbose=verbose and not part)
    if not passes:
        raise statuses.PlainError(500, text)
    return text


# -- routes ------------------------------------------------------------------------------------------------------------
# The methods that each path supports. Other methods are rejected before the body is read.
#
# Source  apiserver, pkg/endpoints/installer.go

#: The types of patches to objects of custom kinds, which have no merge keys.
_CUSTOM_PATCH_TYPES: Final = tuple(one for one in PATCH_TYPES if "strategic" not in one)
#: The methods of the verbs on collections, on objects and on their subresources.
_METHODS: Final[Mapping[str, Mapping[str, str]]] = {
    "many": {"create": "POST", "deletecollection": "DELETE", "list": "GET"},
    "one": {"delete": "DELETE", "get": "GET", "patch": "PATCH", "update": "PUT"},
    "part": {"create": "POST", "delete": "DELETE", "get": "GET", "patch": "PATCH", "update": "PUT"},
}


def check_route(method: str, target: Target | ReviewTarget, media_type: str, verb: str = "") -> None:
    """Check that a path supports a method and, for a patch, its media type. ``verb`` is the request's.

    Raises  ApiError 405 or 415
    """
    custom = target.kind if isinstance(target, Target) and target.kind.custom is not None else None
    if method not in _methods(target):
        if custom is not None:
            raise statuses.not_supported(custom.resource, custom.group, verb or method.lower())
        raise statuses.not_allowed()
    if method == "PATCH" and custom is not None and media_type not in _CUSTOM_PATCH_TYPES:
        raise statuses.unsupported_media(_CUSTOM_PATCH_TYPES)
    if method == "PATCH" and media_type not in PATCH_TYPES:
        raise statuses.ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", routed=False)


def _methods(target: Target | ReviewTarget) -> frozenset[str]:
    if isinstance(target, ReviewTarget):
        return _methods_of("many", target.review.verbs)
    if target.subresource:
        return _methods_of("part", SUBRESOURCES[target.subresource][3])
    if target.name:
        created = {"POST"} if target.kind.custom is not None and "create" in target.kind.verbs else set()
        return _methods_of("one", target.kind.verbs) | created
    # A collection over all namespaces can only be read.
    return _methods_of("many", target.kind.verbs if target.namespace is not None else ("list",))


@cache
def _methods_of(place: str, verbs: tuple[str, ...]) -> frozenset[str]:
    return frozenset(_METHODS[place][verb] for verb in verbs if verb in _METHODS[place])
