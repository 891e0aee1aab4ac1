"""Authorize requests: administrators, always-allowed paths, and SubjectAccessReviews of the cluster.

Source  apiserver/pkg/server/options/authorization.go; authorization/path/path.go
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from moorage.errors import InputError
from moorage.live.server.authentication import Caller, Expiring

__all__ = ["AccessDecision", "AccessReviewer", "OpenPaths", "RequestAuthorizer", "ResourceAccess"]

_ADMINS: Final = "system:masters"


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """Whether a request is allowed, and the cluster's reason, if it gave one."""

    allowed: bool
    reason: str = ""


class ResourceAccess(NamedTuple):
    """A verb on a resource; "" as namespace stands for all."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


class AccessReviewer(Protocol):
    """Reviews access to paths and to resources."""

    async def access(self, caller: Caller, verb: str, path: str) -> AccessDecision:
        """Review access to a non-resource path.

        Raises  ClusterError
        """

    async def resource_access(self, caller: Caller, access: ResourceAccess) -> AccessDecision:
        """Review access to a resource.

        Raises  ClusterError
        """


class OpenPaths:
    """Paths that need no authorization. One that ends in ``*`` matches all paths with that prefix.

    Raises  InputError for a ``*`` in any other position
    """

    def __init__(self, paths: Sequence[str]) -> None:
        bare = [path.removeprefix("/") for path in paths]
        for path in bare:
            if "*" in path[:-1]:
                raise InputError(f'--authorization-always-allow-paths: only trailing * allowed in "{path}"')
        self._exact = frozenset(path for path in bare if not path.endswith("*"))
        self._prefixes = tuple(path[:-1] for path in bare if path.endswith("*"))

    def __contains__(self, path: str) -> bool:
        bare = path.removeprefix("/")
        return bare in self._exact or (bool(self._prefixes) and bare.startswith(self._prefixes))


@dataclass(slots=True)
class RequestAuthorizer:
    """Authorizes requests. Without a ``reviewer``, only administrators and the open paths are allowed. Times in seconds."""

    reviewer: AccessReviewer | None
    clock: Callable[[], float]
    open_paths: OpenPaths
    allowed_ttl_s: float = 10.0
    refused_ttl_s: float = 10.0
    _known: Expiring[AccessDecision] = field(default_factory=Expiring)

    async def authorize(self, caller: Caller, verb: str, path: str) -> AccessDecision:
        """Return whether a user may access a path.

        Raises  ClusterError if the cluster cannot be reached
        """
        if _ADMINS in caller.groups or path in self.open_paths:
            return AccessDecision(True)
        if self.reviewer is None:
            return AccessDecision(False)
        key, now = (caller.key, verb, path), self.clock()
        found = self._known.get(key, now)
        if found is not None:
            return found[0]
        return self._keep(key, await self.reviewer.access(caller, verb, path), now)

    async def authorize_resource(self, caller: Caller, access: ResourceAccess) -> AccessDecision:
        """Return whether a user may access a resource.

        Raises  ClusterError if the cluster cannot be reached
        """
        if _ADMINS in caller.groups:
            return AccessDecision(True)
        if self.reviewer is None:
            return AccessDecision(False)
        key, now = (caller.key, access), self.clock()
        found = self._known.get(key, now)
        if found is not None:
            return found[0]
        return self._keep(key, await self.reviewer.resource_access(caller, access), now)

    def _keep(self, key: Hashable, answer: AccessDecision, now: float) -> AccessDecision:
        self._known.put(key, answer, now + (self.allowed_ttl_s if answer.allowed else self.refused_ttl_s), now)
        return answer
