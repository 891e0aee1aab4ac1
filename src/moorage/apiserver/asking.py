"""What a request is about to do, in the words that rules are written in.

Source  apiserver, pkg/endpoints/request/requestinfo.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moorage.apiserver.requesting import is_true
from moorage.apiserver.rules import Attributes
from moorage.apiserver.targets import ReviewTarget, Target

__all__ = ["attributes_of"]

_VERBS: Final = {"DELETE": "delete", "GET": "get", "HEAD": "get", "PATCH": "patch", "POST": "create", "PUT": "update"}
_OF_MANY: Final = {"delete": "deletecollection", "get": "list"}


def attributes_of(method: str, target: Target | ReviewTarget, query: Mapping[str, str]) -> Attributes:
    """Return the verb, the resource and the names of a request."""
    verb = _VERBS.get(method, method.lower())
    if isinstance(target, ReviewTarget):
        return Attributes(verb, target.review.group, target.review.resource, namespace=target.namespace or "")
    kind, name, namespace = target.kind, target.name, target.namespace or ""
    if not name:
        verb = _OF_MANY.get(verb, verb)
        name = _single(query.get("fieldSelector", "")) if verb in {"deletecollection", "list"} else ""
    if method == "GET" and not target.subresource and is_true(query.get("watch", "0")):
        verb = "watch"
    if kind.resource == "namespaces" and target.name:
        namespace = target.name  # a namespace is within itself, so its admins may look at it
    return Attributes(verb, kind.group, kind.resource, target.subresource, name, namespace)


def _single(selector: str) -> str:
    """Return the one name that a field selector leaves, or none."""
    for part in selector.split(","):
        field, equals, name = part.partition("=")
        if field.strip() == "metadata.name" and equals:
            return name.removeprefix("=").strip()
    return ""
