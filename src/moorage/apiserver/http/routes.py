"""Which methods a path has. What is asked otherwise gets no further than this, whoever it comes from and whatever it holds.

Source  apiserver, pkg/endpoints/installer.go
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from moorage.apiserver.schema.discovery import SUBRESOURCES
from moorage.apiserver.schema.request_bodies import PATCH_TYPES
from moorage.apiserver.vocabulary.request_targets import ReviewTarget, Target
from moorage.apiserver.vocabulary.statuses import not_allowed, unsupported_patch

__all__ = ["check_route"]

#: Why what kube-apiserver serves is refused.
_UNDEFINED: Final = "this server has built-in kinds only, so its list of CustomResourceDefinitions stays empty"
_OF_ONE: Final = {"delete": "DELETE", "get": "GET", "patch": "PATCH", "update": "PUT"}
_OF_MANY: Final = {"create": "POST", "deletecollection": "DELETE", "list": "GET"}
_OF_PARTS: Final = {**_OF_ONE, "create": "POST"}


def check_route(method: str, target: Target | ReviewTarget, media_type: str) -> None:
    """Check that a path has a method, and for a patch that its type is one.

    Raises  ApiError 405 or 415
    """
    if method not in _methods(target):
        raise not_allowed(_UNDEFINED if _is_of_definitions(target) else "")
    if method == "PATCH" and media_type not in PATCH_TYPES:
        raise unsupported_patch()


def _is_of_definitions(target: Target | ReviewTarget) -> bool:
    return isinstance(target, Target) and target.kind.kind == "CustomResourceDefinition"


def _methods(target: Target | ReviewTarget) -> frozenset[str]:
    if isinstance(target, ReviewTarget):
        return _of_many(target.review.verbs)
    if target.subresource:
        return _of_part(target.subresource)
    if target.name:
        return _of_one(target.kind.verbs)
    # A list over all namespaces is there to be read only.
    return _of_many(target.kind.verbs if target.namespace is not None else ("list",))


@cache
def _of_many(verbs: tuple[str, ...]) -> frozenset[str]:
    return _named(_OF_MANY, verbs)


@cache
def _of_one(verbs: tuple[str, ...]) -> frozenset[str]:
    return _named(_OF_ONE, verbs)


@cache
def _of_part(subresource: str) -> frozenset[str]:
    return _named(_OF_PARTS, SUBRESOURCES[subresource][3])


def _named(methods: Mapping[str, str], verbs: tuple[str, ...]) -> frozenset[str]:
    return frozenset(methods[verb] for verb in verbs if verb in methods)
