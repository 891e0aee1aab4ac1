"""The version that an API server reports at ``/version``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from moorage.api.core import Namespace
from moorage.api.decode import decode
from moorage.errors import ClusterError, MoorageError


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    git_version: str = ""


async def server_version(get: Callable[[str, Mapping[str, str]], Awaitable[bytes]]) -> str:
    """Return the version of an API server, such as ``v1.34.1``; "" if its response has none. ``get`` makes the request.

    Raises  ClusterError
    """
    try:
        return msgspec.json.decode(await get("/version", {}), type=_Version).git_version
    except msgspec.MsgspecError as error:
        raise ClusterError(f"GET /version: the answer is not a version: {error}") from None


async def cluster_uid(get: Callable[[str, Mapping[str, str]], Awaitable[bytes]]) -> str:
    """Return the UID of the namespace kube-system, which tells clusters apart; "" if it cannot be read."""
    try:
        return decode(await get("/api/v1/namespaces/kube-system", {}), Namespace, "kube-system").metadata.uid
    except MoorageError:
        return ""
