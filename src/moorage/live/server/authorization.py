"""Authorize requests: administrators, always-allowed paths, and SubjectAccessReviews of the cluster.

Source  apiserver/pkg/server/options/authorization.go; authorization/path/path.go
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from moorage.api.documents.http_messages import MASTERS, User
from moorage.api.documents.served_kinds import as_mapping
from moorage.basis.client.rest import Rest
from moorage.errors import ClusterError, InputError
from moorage.live.server.authentication import Expiring


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """Whether a request is allowed, and the cluster's reason, if it gave one."""

    allowed: bool
    reason: str = ""


class PathAccess(NamedTuple):
    """A path that is no resource, and a verb."""

    path: str
    verb: str


class ResourceAccess(NamedTuple):
    """A verb on a resource; "" as namespace stands for all."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


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

    reviewer: Delegate | None
    clock: Callable[[], float]
    open_paths: OpenPaths
    allowed_ttl_s: float = 10.0
    refused_ttl_s: float = 10.0
    _known: Expiring[AccessDecision] = field(default_factory=Expiring)

    async def authorize(self, caller: User, access: PathAccess | ResourceAccess) -> AccessDecision:
        """Return whether a user may access a path or a resource.

        Raises  ClusterError if the cluster cannot be reached
        """
        if MASTERS in caller.groups or (isinstance(access, PathAccess) and access.path in self.open_paths):
            return AccessDecision(True)
        if self.reviewer is None:
            return AccessDecision(False)
        key, now = (*caller[:3], tuple(sorted(caller.extra.items())), access), self.clock()
        found = self._known.get(key, now)
        if found is not None:
            return found[0]
        answer = await self.reviewer.access(caller, access)
        self._known.put(key, answer, now + (self.allowed_ttl_s if answer.allowed else self.refused_ttl_s), now)
        return answer


# -- delegated authentication ------------------------------------------------------------------------------------------
# Reviews by the cluster's API server: of tokens (TokenReview), of access (SubjectAccessReview), and its published client CAs.
#
# Source  apiserver/pkg/server/options/authentication.go and authentication_dynamic_request_header.go

_PATIENCE_S: Final = 10.0
_LOOKUP: Final = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


class Delegate:
    """Reviews tokens and access with requests to an API server."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    async def review(self, token: str) -> User | None:
        """Return the user of a token; None for an invalid token.

        Raises  ClusterError
        """
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = await self._ask("/apis/authentication.k8s.io/v1/tokenreviews", body)
        if status.get("authenticated") is not True:
            return None
        user = as_mapping(status.get("user"))
        extra = {str(name): _texts(values) for name, values in as_mapping(user.get("extra")).items()}
        return User(str(user.get("username") or ""), _texts(user.get("groups")), str(user.get("uid") or ""), extra)

    async def access(self, caller: User, access: PathAccess | ResourceAccess) -> AccessDecision:
        """Review whether a user may access a path or a resource.

        Raises  ClusterError
        """
        kind = "nonResourceAttributes" if isinstance(access, PathAccess) else "resourceAttributes"
        attributes = {kind: {name: value for name, value in access._asdict().items() if value}}
        spec: dict[str, Any] = {"user": caller.name, "groups": list(caller.groups), **attributes}
        if caller.uid:
            spec["uid"] = caller.uid
        if caller.extra:
            spec["extra"] = {name: list(values) for name, values in caller.extra.items()}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        status = await self._ask("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        return AccessDecision(status.get("allowed") is True, str(status.get("reason") or ""))

    async def lookup(self) -> dict[str, str]:
        """Return the authentication configuration that the cluster publishes.

        Raises  ClusterError
        """
        found = as_mapping(json.loads(await self._within(self._rest.send("GET", _LOOKUP))))
        return {str(name): str(value) for name, value in as_mapping(found.get("data")).items()}

    async def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self._within(self._rest.send("POST", path, json.dumps(body).encode()))
        try:
            return as_mapping(as_mapping(json.loads(answer)).get("status"))
        except ValueError:
            raise ClusterError(f"POST {path}: the response is not a review") from None

    @staticmethod
    async def _within(asking: Any) -> bytes:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                answer: bytes = await asking
                return answer
        except TimeoutError:
            raise ClusterError(f"the cluster did not answer within {_PATIENCE_S:g}s") from None


def read_lookup(found: dict[str, str], field: str) -> tuple[str, ...]:
    """Return a list that the cluster publishes as JSON; empty if it is missing or not a list of strings."""
    try:
        listed = json.loads(found.get(field) or "[]")
    except ValueError:
        return ()
    return _texts(listed)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()
