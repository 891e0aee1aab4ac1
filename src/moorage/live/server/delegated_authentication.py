"""Reviews by the cluster's API server: of tokens (TokenReview), of access (SubjectAccessReview), and its published client CAs.

Source  apiserver/pkg/server/options/authentication.go and authentication_dynamic_request_header.go
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from moorage.errors import ClusterError
from moorage.live.client.rest import Rest
from moorage.live.server.authentication import Caller
from moorage.live.server.authorization import AccessDecision, ResourceAccess

__all__ = ["Delegate", "read_lookup"]

_PATIENCE_S: Final = 10.0
_LOOKUP: Final = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


class Delegate:
    """Implements ``TokenReviewer`` and ``AccessReviewer`` with requests to an API server."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    async def review(self, token: str) -> Caller | None:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = await self._ask("/apis/authentication.k8s.io/v1/tokenreviews", body)
        if status.get("authenticated") is not True:
            return None
        user = _mapping(status.get("user"))
        extra = {str(name): _texts(values) for name, values in _mapping(user.get("extra")).items()}
        return Caller(str(user.get("username") or ""), _texts(user.get("groups")), str(user.get("uid") or ""), extra)

    async def access(self, caller: Caller, verb: str, path: str) -> AccessDecision:
        return await self._review_access(caller, {"nonResourceAttributes": {"path": path, "verb": verb}})

    async def resource_access(self, caller: Caller, access: ResourceAccess) -> AccessDecision:
        attributes = {name: value for name, value in access._asdict().items() if value}
        return await self._review_access(caller, {"resourceAttributes": attributes})

    async def _review_access(self, caller: Caller, attributes: dict[str, Any]) -> AccessDecision:
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
        found = _mapping(json.loads(await self._within(self._rest.send("GET", _LOOKUP))))
        return {str(name): str(value) for name, value in _mapping(found.get("data")).items()}

    async def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self._within(self._rest.send("POST", path, json.dumps(body).encode()))
        try:
            return _mapping(_mapping(json.loads(answer)).get("status"))
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


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()
