"""What the server says about itself, whatever is stored: health, version, discovery, OpenAPI.

Source  apiserver, pkg/server/healthz and pkg/endpoints/discovery
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from moorage.apiserver import discovery, openapi
from moorage.apiserver.statuses import ApiError, not_found_path
from moorage.apiserver.store import Store

__all__ = ["HEALTH", "document", "health", "is_document"]

HEALTH: Final = frozenset(["/healthz", "/livez", "/readyz"])
#: How many parts a path has at most that is answered without the store; "/api/v1" has three.
_DEPTHS: Final = {"api": 3, "apis": 4, "openapi": 99, "version": 2}


def is_document(path: str) -> bool:
    """Return True for paths whose answers do not depend on the objects."""
    parts = path.split("/")
    return len(parts) > 1 and len(parts) <= _DEPTHS.get(parts[1], 0)


def document(path: str, accept: str) -> tuple[str, bytes]:
    """Return the media type and the text of a document.

    Raises  ApiError 404 where there is none
    """
    found = _document(path, "as=APIGroupDiscoveryList" in accept)
    if found is None:
        raise not_found_path()
    form = discovery.AGGREGATED if found.get("kind") == "APIGroupDiscoveryList" else "application/json"
    return form, msgspec.json.encode(found)


def _document(path: str, wants_aggregated: bool) -> dict[str, Any] | None:
    root, *rest = path.split("/")[1:]
    if root == "version":
        return dict(discovery.VERSION)
    if root == "openapi":
        if rest[:1] != ["v3"]:
            return None
        return openapi.document_of("/".join(rest[1:])) if rest[1:] else openapi.index()
    if wants_aggregated and not rest:
        return discovery.aggregated(core=root == "api")
    if root == "api":
        return discovery.resource_list("", rest[0]) if rest else discovery.api_versions()
    return discovery.group_document(rest)


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
