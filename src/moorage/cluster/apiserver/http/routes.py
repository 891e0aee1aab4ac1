"""The methods that each path supports. Other methods are rejected before the body is read.

Source  apiserver, pkg/endpoints/installer.go
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from moorage.cluster.apiserver.schema.discovery import SUBRESOURCES
from moorage.cluster.apiserver.schema.request_bodies import PATCH_TYPES
from moorage.cluster.apiserver.vocabulary.http_messages import ReviewTarget, Target
from moorage.cluster.apiserver.vocabulary.statuses import not_allowed, not_supported, unsupported_media, unsupported_patch

__all__ = ["check_route"]

#: The types of patches to objects of custom kinds, which have no merge keys.
_CUSTOM_PATCH_TYPES: Final = tuple(one for one in PATCH_TYPES if "strategic" not in one)
_OF_ONE: Final = {"delete": "DELETE", "get": "GET", "patch": "PATCH", "update": "PUT"}
_OF_MANY: Final = {"create": "POST", "deletecollection": "DELETE", "list": "GET"}
_OF_PARTS: Final = {**_OF_ONE, "create": "POST"}


def check_route(method: str, target: Target | ReviewTarget, media_type: str, verb: str = "") -> None:
    """Check that a path supports a method and, for a patch, its media type. ``verb`` is the request's.

    Raises  ApiError 405 or 415
    """
    custom = target.kind if isinstance(target, Target) and target.kind.custom is not None else None
    if method not in _methods(target):
        raise not_allowed() if custom is None else not_supported(custom.resource, custom.group, verb or method.lower())
    if method == "PATCH" and custom is not None and media_type not in _CUSTOM_PATCH_TYPES:
        raise unsupported_media(_CUSTOM_PATCH_TYPES)
    if method == "PATCH" and media_type not in PATCH_TYPES:
        raise unsupported_patch()


def _methods(target: Target | ReviewTarget) -> frozenset[str]:
    if isinstance(target, ReviewTarget):
        return _of_many(target.review.verbs)
    if target.subresource:
        return _of_part(target.subresource)
    if target.name:
        created = {"POST"} if target.kind.custom is not None and "create" in target.kind.verbs else set()
        return _of_one(target.kind.verbs) | created
    # A collection over all namespaces can only be read.
    return _of_many(target.kind.verbs if target.namespace is not None else ("list",))


@cache
def _of_many(verbs: tuple[str, ...]) -> frozenset[str]:
    return _methods_of(_OF_MANY, verbs)


@cache
def _of_one(verbs: tuple[str, ...]) -> frozenset[str]:
    return _methods_of(_OF_ONE, verbs)


@cache
def _of_part(subresource: str) -> frozenset[str]:
    return _methods_of(_OF_PARTS, SUBRESOURCES[subresource][3])


def _methods_of(methods: Mapping[str, str], verbs: tuple[str, ...]) -> frozenset[str]:
    return frozenset(methods[verb] for verb in verbs if verb in methods)
