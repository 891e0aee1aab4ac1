"""Follow what surrounds the scheduler: kinds of Kueue, Karpenter and job controllers, and the settings of such components.

They are recorded, and the scheduler beside the recorder does not see them. A kind that may not be read is left out, so that
a role without it records the rest. Of Deployments only the settings of components are kept, and of config maps those that
components read, each by its name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from moorage.api.custom_objects import CustomKind, CustomObject, custom_type, read_custom
from moorage.api.decode import decode
from moorage.api.kinds import KINDS
from moorage.api.meta import Object, ObjectMeta
from moorage.basis.client.watched_resources import WatchedResource
from moorage.basis.inputs.components import (
    CONFIG_MAP_TYPE,
    CONFIG_MAPS,
    RUNNERS,
    components_of,
    config_maps_of,
    kept_component,
    kept_config_map,
)
from moorage.basis.inputs.objects import FoundObject
from moorage.basis.inputs.served_companions import Get, served_companions
from moorage.core.engine.facts import Gone, Seen
from moorage.errors import ClusterError
from moorage.live.runtime.inbox import FactSource

#: Kinds of Kubernetes that queues and autoscalers read, and kube-scheduler does not.
BESIDE: Final = ("Job", "DaemonSet", "LimitRange", "RuntimeClass", "PriorityClass")
#: How often config maps are read.
CONFIG_MAPS_S: Final = 60.0
#: How often a kind is asked for that is not served any more.
_UNSERVED_S: Final = 300.0


class Companions(NamedTuple):
    """What to follow beside the kinds of the scheduler, and what may not be read."""

    resources: tuple[WatchedResource[Any], ...]
    #: Namespaces and names of the config maps to read; reading workloads adds to them.
    config_maps: dict[tuple[str, str], None]
    forbidden: tuple[str, ...] = ()


async def find_companions(get: Get) -> Companions:
    """Ask an API server which of these kinds it serves and lets read: for one object of each.

    Raises  ClusterError if the API server cannot be reached
    """
    names = dict.fromkeys(CONFIG_MAPS)
    resources: list[WatchedResource[Any]] = [_runner(plural, names) for plural in RUNNERS]
    custom = await served_companions(get)
    resources += map(_companion, custom)
    if custom or await _has_autoscaler(get):
        found = {kind.name: kind for kind in KINDS}
        resources += [
            WatchedResource(one.type, one.api_version, one.resource, one.namespaced) for one in map(found.__getitem__, BESIDE)
        ]
    readable = await asyncio.gather(*(_may_read(get, one.path, {"limit": "1"}) for one in resources))
    pairs = list(zip(resources, readable, strict=True))
    return Companions(tuple(one for one, may in pairs if may), names, tuple(one.plural for one, may in pairs if may is False))


async def _may_read(get: Get, path: str, params: Mapping[str, str]) -> bool | None:
    """Return whether a path may be read; None if nothing is served there."""
    try:
        await get(path, params)
    except ClusterError as error:
        if error.status not in {401, 403, 404}:
            raise
        return None if error.status == 404 else False
    return True


async def _has_autoscaler(get: Get) -> bool:
    """Return whether cluster-autoscaler writes its status."""
    return bool(await _may_read(get, _path_of(CONFIG_MAPS[0]), {}))


def _path_of(config_map: tuple[str, str]) -> str:
    namespace, name = config_map
    return f"/api/v1/namespaces/{namespace}/configmaps/{name}"


def _identity(raw: bytes, where: str) -> ObjectMeta:
    """Return the name, UID and version of an object; no other field of its metadata is of use."""
    known = decode(raw, Object, where).metadata
    return ObjectMeta(name=known.name, namespace=known.namespace, uid=known.uid, resource_version=known.resource_version)


def _companion(name: str) -> WatchedResource[CustomObject]:
    kind = CustomKind.parse(name)
    assert kind is not None
    return WatchedResource(
        custom_type(name), kind.api_version, kind.plural,
        read=lambda raw: read_custom(raw, name, kind.plural), unserved_s=_UNSERVED_S,
    )  # fmt: skip


def _runner(plural: str, names: dict[tuple[str, str], None]) -> WatchedResource[CustomObject]:
    """Return the resource of a kind of workloads, whose objects are read as the component that they run."""
    (kind,) = (one for one in KINDS if one.resource == plural)

    def read(raw: bytes) -> CustomObject:
        found = FoundObject(kind.api_version, kind.name, raw, plural)
        metadata = _identity(raw, plural)
        component = next(components_of(found), None)
        if component is None:
            return RUNNERS[plural](metadata=metadata, document={})
        names.update(dict.fromkeys(config_maps_of(found)))
        return RUNNERS[plural](metadata=metadata, document=kept_component(component, metadata.namespace))

    return WatchedResource(RUNNERS[plural], kind.api_version, plural, read=read, unserved_s=_UNSERVED_S)


class ConfigMapReader:
    """Reads config maps by name, now and then, and puts those that changed into a source.

    ``names`` may grow. ``report`` receives why one cannot be read, once for each reason.
    """

    def __init__(
        self, get: Get, source: FactSource, names: Mapping[tuple[str, str], None], report: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._get, self._source, self._names, self._report = get, source, names, report
        self._known: dict[tuple[str, str], CustomObject] = {}
        self._reported: set[str] = set()

    async def run(self, ready: Iterable[Awaitable[Any]], every_s: float = CONFIG_MAPS_S) -> None:
        """Read until cancelled, for the first time when all in ``ready`` are done."""
        await asyncio.gather(*ready)
        while True:
            self._source.begin()
            for name in list(self._names):
                await self._read(name)
            self._source.end()
            await asyncio.sleep(every_s)

    async def _read(self, name: tuple[str, str]) -> None:
        known = self._known.get(name)
        try:
            body = await self._get(_path_of(name), {})
            found = _config_map(body)
        except (ClusterError, msgspec.MsgspecError) as error:
            if getattr(error, "status", 0) != 404:
                why = f"config map {'/'.join(name)}: {error}"
                if why not in self._reported:
                    self._reported.add(why)
                    self._report(why)
                return
            found = None
        if found is None:
            if self._known.pop(name, None) is not None and known is not None:
                await self._source.put(Gone(known))
        elif known is None or known.metadata.resource_version != found.metadata.resource_version:
            self._known[name] = found
            await self._source.put(Seen(found))


def _config_map(body: bytes) -> CustomObject | None:
    """Return a config map with the texts that are read; None if it has none."""
    document = kept_config_map(msgspec.json.decode(body, type=dict[str, Any]))
    if document is None:
        return None
    return CONFIG_MAP_TYPE(metadata=_identity(body, "config map"), document=document)
