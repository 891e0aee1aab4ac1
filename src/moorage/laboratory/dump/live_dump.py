"""Take a dump of a live cluster: one GET for its version and for each page of each kind, and no request that writes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from moorage.api.custom_objects import CustomKind
from moorage.api.kinds import Kind
from moorage.api.meta import Object
from moorage.basis.client.credentials import Endpoint
from moorage.basis.client.kubeconfig import ClientEnvironment, in_cluster, read_kubeconfig
from moorage.basis.client.server_version import server_version
from moorage.basis.inputs.components import (
    CONFIG_MAPS,
    FILES,
    config_maps_of,
)
from moorage.basis.inputs.files import InputFile
from moorage.basis.inputs.objects import find_objects
from moorage.basis.inputs.served_companions import Get, served_companions
from moorage.basis.inputs.simulated_kinds import KINDS
from moorage.basis.printable import one_line
from moorage.errors import UNREACHABLE, ClusterError, InputError
from moorage.simulator.cluster_input import NOT_SERVED, ClusterInput, UnreadKind, unread_notes
from moorage.simulator.cluster_reader import LeavesOut, ReadRules, read_sources

#: How the objects of an API server are read: one that cannot be does not keep the others from being read.
SERVED: Final = ReadRules(leaves_out=LeavesOut.ALL)
_PAGE: Final = "500"
#: The status code of an expired continue token, and how often a collection is listed from the start again.
_GONE: Final = 410
_RESTARTS: Final = 2
#: How many collections are read at once.
_AT_ONCE: Final = 6
#: Kinds without which a dump is of no use.
_NEEDED: Final = frozenset({"nodes", "pods"})


class _Meta(msgspec.Struct, frozen=True, rename={"resource_version": "resourceVersion", "token": "continue"}):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    token: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    items: msgspec.Raw = msgspec.Raw()


class _Collection(NamedTuple):
    """A kind, and the paths of its collection by API version, the preferred one first."""

    plural: str
    paths: tuple[str, ...]


#: Decodes the metadata of an object or a list, and leaves its items as they are.
named = msgspec.json.Decoder(_Named).decode


def endpoint_of(kubeconfig: str | os.PathLike[str] | None, context: str | None) -> Endpoint:
    """Return the API server of a context of a kubeconfig, found where kubectl finds it, or that of the cluster we run in.

    Raises  InputError
    """
    environment = ClientEnvironment(os.environ, time.monotonic, lambda: datetime.now(UTC))
    listed = [Path(one) for one in os.environ.get("KUBECONFIG", "").split(os.pathsep) if one]
    usual = Path.home() / ".kube" / "config"
    if kubeconfig is not None:
        return read_kubeconfig([Path(kubeconfig)], must_exist=True).endpoint(environment, context or "")
    if listed or usual.exists():
        return read_kubeconfig(listed or [usual], must_exist=False).endpoint(environment, context or "")
    if context or not os.environ.get("KUBERNETES_SERVICE_HOST"):
        wanted = f"no kubeconfig found: KUBECONFIG is not set, there is no {usual}, and this is no pod of a cluster"
        raise InputError(one_line(f"{wanted}; give --kubeconfig FILE, or run a cluster here: moorage up"))
    return in_cluster(environment)


@contextmanager
def naming_the_server(server: str) -> Iterator[None]:
    """Raise errors of the block with the name of the server that cannot be reached.

    Raises  ClusterError
    """
    try:
        yield
    except ClusterError as error:
        if error.reason != UNREACHABLE:
            raise
        why = str(error).partition("cannot connect: ")[2] or str(error)
        raise ClusterError(f"cannot reach {server}: {why[:1].lower()}{why[1:]}", reason=UNREACHABLE) from None


@dataclass
class Pages:
    """The pages of every collection of a cluster, the version of its server, and the kinds that are missing."""

    files: list[InputFile] = field(default_factory=list)
    version: str = ""
    missing: list[UnreadKind] = field(default_factory=list)
    companions: tuple[str, ...] = ()

    async def read(self, get: Get, custom: Iterable[str] = ()) -> None:
        """Read every collection through ``get``.

        Raises  ClusterError
        """
        self.version = await version_of(get)
        self.companions = await served_companions(get, custom)
        self.missing = await fetch(get, self.files.append, (*custom, *self.companions))

    def cluster(
        self, server: str, began: datetime, custom: Iterable[str] = (), known: Iterable[tuple[str, Iterable[Object]]] = ()
    ) -> ClusterInput:
        """Return the objects on the pages, and those that are known without.

        Raises  InputError
        """
        taken_at = began.isoformat(timespec="seconds")
        kinds = dict.fromkeys((*custom, *self.companions, *FILES))
        read = read_sources(self.files, validated=False, custom=kinds, rules=SERVED, known=known)
        notes = (f"taken from {server} at {taken_at}", *unread_notes(self.missing, read.pods), *read.report.notes)
        return replace(read, report=replace(read.report, notes=notes, taken_at=taken_at, server_version=self.version))


async def version_of(get: Get) -> str:
    """Return the version of the API server; "" if it forbids or does not serve the request.

    Raises  ClusterError if the API server cannot be reached
    """
    try:
        return await server_version(get)
    except ClusterError as error:
        if error.status not in {403, 404}:
            raise
        return ""


async def _config_maps(get: Get, names: Iterable[tuple[str, str]], take: Callable[[InputFile], None]) -> None:
    """Pass the config maps of these namespaces and names to ``take``, those that there are and that may be read."""
    for namespace, name in dict.fromkeys(names):
        path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        try:
            take(InputFile(path, await get(path, {})))
        except ClusterError as error:
            if error.status not in {403, 404}:
                raise


def _names_of_config_maps(pages: Iterable[InputFile]) -> Iterator[tuple[str, str]]:
    for page in pages:
        for found in find_objects(page):
            yield from config_maps_of(found)


async def fetch(get: Get, take: Callable[[InputFile], None], custom: Iterable[str] = ()) -> list[UnreadKind]:
    """Pass every page of every kind to ``take``, in the order of kinds; return the kinds that are missing.

    After them come the config maps, by name, of components that Deployments run.

    Raises  ClusterError if nodes or pods cannot be read, or the API server cannot be reached
    """
    missing, config_maps = [], list(CONFIG_MAPS)
    # Of config maps those that are read are asked for by name.
    listed = (one for one in dict.fromkeys(custom) if one not in FILES and not one.startswith("configmaps."))
    collections = (*_collections(), *map(_custom_collection, listed))
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def read(collection: _Collection) -> tuple[list[InputFile], str]:
        async with at_once:
            return await _read_collection(get, collection)

    reading = [asyncio.ensure_future(read(one)) for one in collections]
    try:
        for collection, task in zip(collections, reading, strict=True):
            pages, why = await task
            for page in pages:
                take(page)
            if collection.plural == "deployments":
                config_maps += _names_of_config_maps(pages)
            if why:
                missing.append(UnreadKind(collection.plural, why))
    finally:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
    await _config_maps(get, config_maps, take)
    return missing


async def _read_collection(get: Get, collection: _Collection) -> tuple[list[InputFile], str]:
    """Return the pages of a collection in the first version that is served, and why it cannot be read, "" if it can."""
    for path in collection.paths:
        try:
            return await _pages(get, path), ""
        except ClusterError as error:
            if error.status == 404 and path is not collection.paths[-1]:
                continue
            if collection.plural in _NEEDED or error.status not in {403, 404}:
                raise
            return [], NOT_SERVED if error.status == 404 else "forbidden"
    return [], NOT_SERVED


def _collections() -> Iterable[_Collection]:
    for kind in KINDS:
        yield _Collection(kind.resource, collection_paths(kind))


def collection_paths(kind: Kind) -> tuple[str, ...]:
    """Return the paths of a kind's collection by API version, the preferred one first."""
    return tuple(f"/{'apis' if kind.group else 'api'}/{version}/{kind.resource}" for version in kind.api_versions)


def _custom_collection(name: str) -> _Collection:
    kind = CustomKind.parse(name)
    if kind is None:
        raise InputError(f"{name}: write a kind as plural.version.group")
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.api_version}"
    return _Collection(name, (f"{root}/{kind.plural}",))


async def _pages(get: Get, path: str) -> list[InputFile]:
    """Read all pages; start again if the version of the first page has expired on the API server, and at last ask for one."""
    for _ in range(_RESTARTS):
        try:
            return await _all_pages(get, path)
        except ClusterError as error:
            if error.status != _GONE:
                raise
    return await _all_pages(get, path, "0")


async def _all_pages(get: Get, path: str, limit: str = _PAGE) -> list[InputFile]:
    pages: list[InputFile] = []
    token = ""
    while True:
        body = await get(path, {"limit": limit, **({"continue": token} if token else {})})
        pages.append(InputFile(path, body))
        try:
            token = named(body).metadata.token
        except msgspec.MsgspecError as error:
            raise ClusterError(f"GET {path}: the answer is not a list: {error}") from None
        if not token:
            return pages
