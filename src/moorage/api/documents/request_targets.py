"""Resolve request paths to targets: a kind, and optionally a namespace, a name and a subresource.

    /api/v1/namespaces/NS/pods/NAME/status     /apis/GROUP/VERSION/RESOURCE     …

Source  apiserver, pkg/endpoints/request/requestinfo.go
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import unquote

from moorage.api.documents.served_kinds import ALL_KINDS, REVIEWS, KindTable, Review, ServedKind
from moorage.api.documents.statuses import no_such_page, not_found_path


class Target(NamedTuple):
    """The target of a request. A namespace of None means all namespaces; an empty name means the collection."""

    kind: ServedKind
    namespace: str | None
    name: str = ""
    subresource: str = ""


class ReviewTarget(NamedTuple):
    review: Review
    namespace: str | None


#: Characters that no path segment may contain.
_has_special: Final = re.compile(r"[/%\\\0]").search
_REVIEWS: Final = {(one.group, one.version, one.resource): one for one in REVIEWS}


def find_target(path: str, kinds: KindTable = ALL_KINDS) -> Target | ReviewTarget:
    """Return the target of a percent-encoded path. ``kinds`` are those that the server serves.

    Raises  ApiError 404 for paths that are not served; in plain text outside the API prefixes
    """
    parts = path.removeprefix("/").removesuffix("/").split("/")
    match [unquote(part) for part in parts] if "%" in path else parts:
        case ["api", version, *rest]:
            target = _within(kinds, "", version, rest)
        case ["apis", group, version, *rest] if kinds.has_group(group):
            target = _within(kinds, group, version, rest)
        case _:
            raise no_such_page()
    if isinstance(target, Target) and not target.kind.is_served(kinds.gates):
        raise not_found_path()
    return target


def _within(kinds: KindTable, group: str, version: str, parts: list[str]) -> Target | ReviewTarget:
    namespace: str | None = None
    # The subresources of namespaces are no resource names.
    if len(parts) > 2 and parts[0] == "namespaces" and not (group == "" and parts[2] in {"finalize", "status"}):
        namespace, parts = parts[1], parts[2:]
    if not parts or any(part in {"", ".", ".."} or _has_special(part) for part in (*parts[:3], namespace or "x")):
        raise not_found_path()
    review = _REVIEWS.get((group, version, parts[0]))
    if review is not None and len(parts) == 1 and review.namespaced is (namespace is not None):
        return ReviewTarget(review, namespace)
    kind = kinds.find(parts[0], group, version)
    is_proxy = len(parts) > 2 and parts[2] == "proxy"  # with a path behind it
    if kind is None or (len(parts) > 3 and not is_proxy):
        raise not_found_path()
    name = parts[1] if len(parts) > 1 else ""
    subresource = parts[2] if len(parts) > 2 else ""
    if subresource and subresource not in kind.subresources:
        raise not_found_path()
    if (namespace is not None and not kind.namespaced) or (namespace is None and kind.namespaced and name):
        raise not_found_path()
    return Target(kind, namespace if kind.namespaced else "", name, subresource)
