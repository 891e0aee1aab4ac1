"""Which kinds of Kueue, Karpenter and job controllers an API server serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from moorage.api.custom_objects import CustomKind
from moorage.basis.inputs.components import COMPANIONS
from moorage.errors import ClusterError

#: ``get(path, params)`` returns the body of a response and raises ClusterError.
Get: TypeAlias = Callable[[str, Mapping[str, str]], Awaitable[bytes]]


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    group_version: str = ""


class _Group(msgspec.Struct, frozen=True):
    versions: tuple[_Version, ...] = ()


class _Groups(msgspec.Struct, frozen=True):
    groups: tuple[_Group, ...] = ()


_GROUPS: Final = msgspec.json.Decoder(_Groups)


async def served_companions(get: Get, named_kinds: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the kinds of Kueue, autoscalers and jobs that the API server serves, each in the best of its versions.

    ``named_kinds``  kinds that are read anyway
    Raises  ClusterError if the API server cannot be reached
    """
    try:
        groups = _GROUPS.decode(await get("/apis", {})).groups
    except ClusterError as error:
        if not error.status:
            raise
        return ()
    except msgspec.MsgspecError:
        return ()
    served = {one.group_version for group in groups for one in group.versions}
    known = {(kind.plural, kind.group) for kind in map(CustomKind.parse, named_kinds) if kind is not None}
    return tuple(
        f"{plural}.{version}.{group}"
        for (plural, group), versions in COMPANIONS.items()
        if (plural, group) not in known
        for version in [next((one for one in versions if f"{group}/{one}" in served), None)]
        if version is not None
    )
