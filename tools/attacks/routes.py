"""Every path that the embedded API server serves, derived from its own tables, so that new kinds are attacked as well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from urllib.parse import quote

from moorage.api.documents.request_targets import find_target
from moorage.api.documents.served_kinds import (
    ALL_GATES,
    KINDS,
    MEASURED,
    REVIEWS,
    RUNTIME_CONFIG,
    VERSIONS,
    KindTable,
    Review,
    ServedKind,
)
from moorage.api.documents.statuses import ApiError
from moorage.cluster.apiserver.http.server_documents import check_route
from moorage.cluster.apiserver.schema.request_bodies import OBJECT_TYPES, PATCH_TYPES
from tools.attacks.objects import ATTACKED, object_name

__all__ = ["CLOSED", "MADE", "METHODS", "OPEN", "SEEDED", "Route", "combinations", "object_path", "routes"]

#: The namespaces: one where ordinary users have some rights, and one where they have none.
OPEN: Final = "open"
CLOSED: Final = "closed"
#: The names of the object that exists from the start and of the one that attacks create.
SEEDED: Final = "seeded"
MADE: Final = "made"

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "GET": ("",), "HEAD": ("",), "POST": OBJECT_TYPES, "PUT": OBJECT_TYPES, "PATCH": PATCH_TYPES, "DELETE": ("", *OBJECT_TYPES),
}  # fmt: skip
_ALL: Final[tuple[ServedKind | Review, ...]] = (*KINDS, *VERSIONS, *MEASURED, *REVIEWS, ATTACKED)
_TABLE: Final = KindTable(ALL_GATES | RUNTIME_CONFIG, [ATTACKED])
_DOCUMENTS: Final = (
    "/", "/api", "/api/v1", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1",
    "/readyz", "/readyz/ping", "/version",
)  # fmt: skip


class Route(NamedTuple):
    """A path and its kind. ``about`` is None for paths without objects."""

    path: str
    about: ServedKind | Review | None = None
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class Combination(NamedTuple):
    route: Route
    method: str
    media_type: str


def object_path(kind: ServedKind | Review, namespace: str, name: str = "", subresource: str = "") -> str:
    """Return the quoted path of an object, a subresource or a collection."""
    head = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    parts = (f"namespaces/{namespace}" if namespace else "", kind.resource, name, subresource)
    return quote("/".join([head, *filter(None, parts)]), safe="/%")


def routes() -> Iterator[Route]:
    """Yield every route, with names filled in."""
    yield from (Route(path) for path in _DOCUMENTS)
    groups = sorted({(kind.group, kind.version) for kind in _ALL if kind.group})
    yield from (Route(f"/apis/{group}/{version}") for group, version in groups)
    for review in REVIEWS:
        for namespace in (OPEN, CLOSED) if review.namespaced else ("",):
            yield Route(object_path(review, namespace), review, namespace)
    for kind in (*KINDS, *VERSIONS, *MEASURED, ATTACKED):
        yield from _of_kind(kind)


def _of_kind(kind: ServedKind) -> Iterator[Route]:
    yield Route(object_path(kind, ""), kind)
    for namespace in (OPEN, CLOSED) if kind.namespaced else ("",):
        if namespace:
            yield Route(object_path(kind, namespace), kind, namespace)
        for name in (object_name(kind, SEEDED), object_name(kind, MADE)):
            yield Route(object_path(kind, namespace, name), kind, namespace, name)
        for part in kind.subresources:
            name = object_name(kind, SEEDED)
            yield Route(object_path(kind, namespace, name, part), kind, namespace, name, part)


def combinations() -> list[Combination]:
    """Return every route with every method and media type that it supports, and once with one that it does not."""
    return [
        Combination(route, method, form)
        for route in routes()
        for method in METHODS
        for form in (_TYPES[method] if _takes(route, method) else _TYPES[method][:1])
    ]


def _takes(route: Route, method: str) -> bool:
    """Return whether a path supports a method."""
    if route.about is None:
        return method == "GET"
    try:
        check_route(method, find_target(route.path, _TABLE), _TYPES[method][0])
    except ApiError:
        return False
    return True
