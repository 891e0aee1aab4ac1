"""Visitors: the users of requests, and what they may see."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from moorage.apiserver.vocabulary.statuses import ApiError
from moorage.web.mirror import View

__all__ = ["Visitor", "check_may_list", "view_of"]


class Visitor(Protocol):
    """An authenticated user."""

    @property
    def name(self) -> str: ...

    @property
    def credential(self) -> Any | None:
        """The user to store in a new session; None for a visitor who is identified by a session."""

    async def check(self, verb: str, resource: str, namespace: str = "", group: str = "", name: str = "") -> None:
        """Check that the user has a right, in one namespace or (with "") in all.

        Raises  ApiError 403
        """


async def may(visitor: Visitor, verb: str, resource: str, namespace: str = "") -> bool:
    try:
        await visitor.check(verb, resource, namespace)
    except ApiError as error:
        if error.code != 403:
            raise
        return False
    return True


async def view_of(visitor: Visitor, namespaces: Iterable[str]) -> View:
    """Return what a visitor may see: nodes, and the pods of all namespaces or of those in which they may list pods.

    Raises  ApiError 403 for a visitor who may not list nodes, or pods in any namespace
    """
    await visitor.check("list", "nodes")
    if await may(visitor, "list", "pods"):
        return View()
    seen = frozenset([name for name in namespaces if await may(visitor, "list", "pods", name)])
    if not seen:
        await visitor.check("list", "pods")
    return View(seen)


async def check_may_list(visitor: Visitor, kinds: Iterable[tuple[str, str]]) -> None:
    """Check that a visitor may list all objects of the kinds, given as (group, resource): answers may show any of them.

    Raises  ApiError 403
    """
    for group, resource in kinds:
        await visitor.check("list", resource, group=group)
