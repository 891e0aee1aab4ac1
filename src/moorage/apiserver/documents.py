"""What the server says about itself, whatever is stored: health, version, discovery, OpenAPI.

Source  apiserver, pkg/server/healthz and pkg/endpoints/discovery
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, Final

import msgspec

from moorage.apiserver import discovery, openapi
from moorage.apiserver.forms import JSON, accepted, encoded_as
from moorage.apiserver.statuses import ApiError, not_acceptable, not_found_path
from moorage.apiserver.store import Store
from moorage.apiserver.swagger_proto import SWAGGER_PROTOBUF, SWAGGER_SENT, swagger_protobuf

__all__ = ["HEALTH", "document", "health", "is_document"]

HEALTH: Final = frozenset(["/healthz", "/livez", "/readyz"])
#: What is told in other encodings than JSON, too.
_NEGOTIATED: Final = frozenset(["api", "apis"])
#: How many parts a path has at most that is answered without the store; "/api/v1" has three.
_DEPTHS: Final = {"api": 3, "apis": 4, "openapi": 99, "version": 2}


def is_document(path: str) -> bool:
    """Return True for paths whose answers do not depend on the objects."""
    parts = path.split("/")
    return len(parts) > 1 and len(parts) <= _DEPTHS.get(parts[1], 0)


def document(path: str, accept: str, gates: frozenset[str] = frozenset()) -> tuple[str, bytes]:
    """Return the media type and the text of a document. ``gates`` are those open that open kinds.

    Raises  ApiError 404 where there is none, 406 for a client that reads it in no form there is
    """
    found = _swagger(accept, gates) if path == "/openapi/v2" else _encoded(path, discovery.aggregated_version(accept), gates)
    if found is None:
        raise not_found_path()
    form, body = found
    if form != JSON or path.split("/")[1] not in _NEGOTIATED:
        return found
    encoding = accepted(accept).encoding
    return encoding, encoded_as(encoding, body)


@lru_cache(maxsize=256)
def _encoded(path: str, aggregated: str, gates: frozenset[str]) -> tuple[str, bytes] | None:
    found = _document(path, aggregated, gates)
    if found is None:
        return None
    is_aggregated = found.get("kind") == "APIGroupDiscoveryList"
    return discovery.AGGREGATED.format(aggregated) if is_aggregated else JSON, msgspec.json.encode(found)


def _document(path: str, aggregated: str, gates: frozenset[str]) -> dict[str, Any] | None:
    root, *rest = path.split("/")[1:]
    if root == "version":
        return dict(discovery.VERSION)
    if root == "openapi":
        if rest[:1] != ["v3"]:
            return None
        return openapi.document_of("/".join(rest[1:]), gates) if rest[1:] else openapi.index(gates)
    if aggregated and not rest:
        return discovery.aggregated(root == "api", aggregated, gates)
    if root == "api":
        return discovery.resource_list("", rest[0], gates) if rest else discovery.api_versions()
    return discovery.group_document(rest, gates)


def _swagger(accept: str, gates: frozenset[str]) -> tuple[str, bytes]:
    for clause in accept.split(",") if accept else ["*/*"]:
        form = clause.partition(";")[0].strip()
        if form in {SWAGGER_PROTOBUF, SWAGGER_SENT}:
            return SWAGGER_SENT, _swagger_protobuf(gates)
        if form in {"*/*", "application/*", JSON}:
            return JSON, _swagger_json(gates)
    raise not_acceptable([JSON, SWAGGER_PROTOBUF])


@cache
def _swagger_json(gates: frozenset[str]) -> bytes:
    return msgspec.json.encode(openapi.swagger(gates))


@cache
def _swagger_protobuf(gates: frozenset[str]) -> bytes:
    return swagger_protobuf(openapi.swagger(gates))


def health(path: str, store: Store, *, verbose: bool) -> str:
    """Return the answer of a health path. A server that cannot keep changes is alive, and not ready.

    Raises  ApiError 500 where something is amiss; what, is told to those who may see more
    """
    checks = {"ping": ""}
    if path == "/readyz" and store.keeper is not None:
        checks["data"] = store.keeper.failure
    name = path.removeprefix("/")
    if any(checks.values()):
        raise ApiError(500, "InternalError", f"{name} check failed: {', '.join(one for one, why in checks.items() if why)}")
    lines = [f"[+]{one} ok" for one in checks]
    return "\n".join([*lines, f"{name} check passed", ""]) if verbose else "ok"
