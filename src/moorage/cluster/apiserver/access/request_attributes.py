"""Derive the authorization attributes of a request: verb, API group, resource, subresource and names.

Source  apiserver, pkg/endpoints/request/requestinfo.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moorage.api.documents.http_messages import is_true
from moorage.api.documents.request_targets import ReviewTarget, Target
from moorage.cluster.apiserver.access.rbac import Attributes

VERBS: Final = {"DELETE": "delete", "GET": "get", "HEAD": "get", "PATCH": "patch", "POST": "create", "PUT": "update"}
_OF_MANY: Final = {"delete": "deletecollection", "get": "list"}


def attributes_of(method: str, target: Target | ReviewTarget, query: Mapping[str, str]) -> Attributes:
    """Return the attributes of a request whose path resolved to a target."""
    verb = VERBS.get(method, method.lower())
    if isinstance(target, ReviewTarget):
        verb = _OF_MANY.get(verb, verb)
        return Attributes(verb, target.review.group, target.review.resource, namespace=target.namespace or "")
    kind, name, namespace = target.kind, target.name, target.namespace or ""
    is_many = not name
    if not name:
        verb = _OF_MANY.get(verb, verb)
        name = _single(query.get("fieldSelector", "")) if verb in {"deletecollection", "list"} else ""
    if method == "GET" and is_many and is_true(query.get("watch", "0")):
        verb = "watch"
    if kind.qualified == "namespaces" and target.name:
        namespace = target.name  # a namespace is within itself, so a namespace's admins may read it
    return Attributes(verb, kind.group, kind.resource, target.subresource, name, namespace)


def attributes_at(method: str, path: str) -> Attributes:
    """Return the attributes of a request whose path is not served: a resource under an API prefix, or the path itself."""
    parts = path.strip("/").split("/")
    verb = VERBS.get(method, "")
    is_core, is_group = parts[0] == "api" and len(parts) > 2, parts[0] == "apis" and len(parts) > 3
    if not (is_core or is_group):
        return Attributes(method.lower(), path=path)
    group, rest = ("", parts[2:]) if is_core else (parts[1], parts[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    resource, name, subresource = (*rest, "", "")[:3]
    return Attributes(verb if name else _OF_MANY.get(verb, verb), group, resource, subresource, name, namespace)


def _single(selector: str) -> str:
    """Return the name that a field selector restricts ``metadata.name`` to, or ""."""
    for part in selector.split(","):
        field, equals, name = part.partition("=")
        if field.strip() == "metadata.name" and equals:
            return name.removeprefix("=").strip()
    return ""
