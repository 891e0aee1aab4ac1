"""The smallest OpenAPI document that tells clients what they ask it: which kinds there are, and that changes may be dry runs.

No schemas are described, so ``kubectl explain`` has nothing to say, and kubectl falls back on what it knows of the kinds.

Source  kubectl, pkg/util/verifier (client-go, query parameters of PATCH); kube-openapi, handler3
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from moorage.apiserver.discovery import VERSION
from moorage.apiserver.kinds import KINDS, Kind

__all__ = ["document_of", "index"]

_PARAMETERS: Final = ("dryRun", "fieldManager", "fieldValidation", "force")


def _places() -> list[str]:
    return sorted({_place(kind) for kind in KINDS})


def _place(kind: Kind) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def index() -> dict[str, Any]:
    """Return where the documents of all groups are."""
    digest = hashlib.sha256(VERSION["gitVersion"].encode()).hexdigest().upper()
    return {"paths": {place: {"serverRelativeURL": f"/openapi/v3/{place}?hash={digest}"} for place in _places()}}


def document_of(place: str) -> dict[str, Any] | None:
    """Return one group's document, or None where there is no such group."""
    kinds = [kind for kind in KINDS if _place(kind) == place]
    if not kinds:
        return None
    paths = {}
    for kind in kinds:
        within = "namespaces/{namespace}/" if kind.namespaced else ""
        paths[f"/{place}/{within}{kind.resource}/{{name}}"] = {"patch": _patch(kind)}
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]}, "paths": paths}


def _patch(kind: Kind) -> dict[str, Any]:
    return {
        "operationId": f"patch{kind.kind}",
        "parameters": [{"name": name, "in": "query", "schema": {"type": "string"}} for name in _PARAMETERS],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
    }
