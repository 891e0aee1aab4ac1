"""What was read of a live cluster, kept between commands: a later one watches for what changed since, and lists nothing.

Only large collections are kept, with the fields that a dump has: no secrets, environments or arguments. A file belongs to a
cluster as one context of one kubeconfig sees it, and to one version of Moorage. It is replaced as a whole, so several commands
may use it at once. What is damaged, too old or of another cluster is read from the server again.

A watch from the kept resource version brings the changes since. It is at its end when it brings an object of the version that
the collection had before the watch began, or when it has been silent for a while.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from moorage.basis.inputs.files import InputFile
from moorage.errors import ClusterError, MoorageError
from moorage.laboratory.redact.live_dump import DumpWriter
from moorage.live.client.credentials import Endpoint

if TYPE_CHECKING:
    from moorage.live.client.rest import Rest  # imports aiohttp

__all__ = ["CachedGet", "LiveCache", "cache_folder", "keeping"]

#: Collections that print shorter than this are listed again.
_LARGE: Final = 32 << 10
#: A watch is at its end after this silence, or after the time that its first line took and some.
_SILENCE_S, _LONGEST_S = 0.2, 3.0
#: Files that were not used for so long are removed.
_FORGOTTEN_S: Final = 14 * 86400
_NAMESPACE: Final = "/api/v1/namespaces/kube-system"


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Head(msgspec.Struct, frozen=True):
    """The first line of a file. ``collections``: path → resource version and number of lines."""

    cluster: str
    checksum: int
    collections: dict[str, tuple[str, int]]


_name_of = msgspec.json.Decoder(_Named).decode
_event_of = msgspec.json.Decoder(_Event).decode
_head_of = msgspec.json.Decoder(_Head).decode


@dataclass
class _Collection:
    """The objects of a collection as JSON, by namespace and name, at a resource version."""

    version: str
    items: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def put(self, item: bytes) -> None:
        named = _name_of(item).metadata
        self.items[named.namespace, named.name] = item

    def as_list(self) -> bytes:
        return b'{"apiVersion":"v1","kind":"List","metadata":{},"items":[%b]}' % b",\n".join(
            item
            for _, item in sorted(self.items.items(), key=lambda one: "/".join(one[0]))  # the order of a server's lists
        )


def keeping(cache: LiveCache) -> Callable[[Rest], AbstractAsyncContextManager[CachedGet]]:
    """Return what reads through a cache, for ``take_dump``."""

    @asynccontextmanager
    async def reading(rest: Rest) -> AsyncIterator[CachedGet]:
        get = CachedGet(rest, cache)
        await get.open()
        yield get
        get.save()

    return reading


def cache_folder(environment: Mapping[str, str]) -> Path | None:
    """Return the folder of this user's files: that of ``MOORAGE_CACHE_DIR``, which is empty for none, or the usual one."""
    if (given := environment.get("MOORAGE_CACHE_DIR")) is not None:
        return Path(given) if given else None
    base = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME") or "~").expanduser() / ".cache")
    return Path(base) / "moorage" / "live"


class LiveCache:
    """The file of one cluster. ``key`` distinguishes who sees it: version, kubeconfig and context."""

    def __init__(self, folder: Path, endpoint: Endpoint, key: Iterable[str]) -> None:
        parts = (endpoint.server, endpoint.server_name, repr(endpoint.headers), *key)
        digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=16)
        digest.update(endpoint.ca or b"")
        self._path = folder / f"{digest.hexdigest()}.objects"

    def load(self, cluster: str) -> dict[str, _Collection]:
        """Return what is kept of the cluster with this identity, by path; nothing if the file cannot be used."""
        with suppress(OSError, msgspec.MsgspecError, ValueError):
            first, _, body = self._path.read_bytes().partition(b"\n")
            head = _head_of(first)
            if head.cluster == cluster and head.checksum == zlib.crc32(body):
                lines = iter(body.split(b"\n"))
                found = {path: _Collection(version) for path, (version, _) in head.collections.items()}
                for path, (_, count) in head.collections.items():
                    for _ in range(count):
                        namespace, name, item = next(lines, b"").split(b"\t", 2)
                        found[path].items[namespace.decode(), name.decode()] = item
                return found
        return {}

    def save(self, cluster: str, collections: Mapping[str, _Collection]) -> None:
        """Keep collections. Nothing happens if the file cannot be written."""
        body = b"\n".join(
            b"%b\t%b\t%b" % (namespace.encode(), name.encode(), item)
            for one in collections.values()
            for (namespace, name), item in one.items.items()
        )
        counts = {path: (one.version, len(one.items)) for path, one in collections.items()}
        head = msgspec.json.encode(_Head(cluster, zlib.crc32(body), counts))
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, beside = tempfile.mkstemp(prefix=".", dir=self._path.parent)  # only its owner can read it
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.writelines((head, b"\n", body))
                os.replace(beside, self._path)
            except OSError:
                os.unlink(beside)

    def touch(self) -> None:
        """Note that the file was used, and remove files that were not used for long."""
        with suppress(OSError):
            os.utime(self._path)
            for one in self._path.parent.iterdir():
                if one.stat().st_mtime < time.time() - _FORGOTTEN_S:
                    one.unlink()


class CachedGet:
    """Reads collections from the cache and a watch, where they are kept, or else from the server.

    Call ``open`` first; ``save`` keeps what was read.
    """

    def __init__(self, rest: Rest, cache: LiveCache) -> None:
        self._rest, self._cache = rest, cache
        self._cluster = ""
        self._kept: dict[str, _Collection] = {}
        self._pages: dict[str, list[bytes]] = {}
        #: The resource version of each collection in the file.
        self._loaded: dict[str, str] = {}

    async def open(self) -> None:
        """Bring what is kept up to date."""
        try:
            self._cluster = _name_of(await self._rest.send("GET", _NAMESPACE)).metadata.uid
        except msgspec.MsgspecError:
            return
        except ClusterError as error:
            if not error.status:  # it did not answer
                raise
        if not self._cluster:  # without its identity, nothing is kept
            return
        kept = self._cache.load(self._cluster)
        self._loaded = {path: one.version for path, one in kept.items()}
        are_current = await asyncio.gather(*(self._follow(path, one) for path, one in kept.items()))
        self._kept = {path: one for (path, one), is_current in zip(kept.items(), are_current, strict=True) if is_current}

    async def __call__(self, path: str, params: Mapping[str, str]) -> bytes:
        """Return a page of a collection, or another document.

        Raises  ClusterError
        """
        if "limit" not in params:
            return await self._rest.get(path, params)
        if path in self._kept:
            return self._kept[path].as_list()
        body = await self._rest.get(path, params)
        if "continue" not in params:
            self._pages[path] = []
        self._pages[path].append(body)
        return body

    def save(self) -> None:
        """Keep all large collections for the next command."""
        if not self._cluster:
            return
        is_changed = any(one.version != self._loaded.get(path) for path, one in self._kept.items())
        for path, pages in self._pages.items():
            if sum(map(len, pages)) >= _LARGE and (version := _name_of(pages[0]).metadata.resource_version):
                self._kept[path] = made = _Collection(version)
                for item in _cleaned(path, pages):
                    made.put(item)
                is_changed = True
        if is_changed or len(self._kept) < len(self._loaded):
            self._cache.save(self._cluster, self._kept)
        self._cache.touch()

    async def _follow(self, path: str, kept: _Collection) -> bool:
        """Apply the changes since a collection was kept; return False if it must be listed."""
        try:
            until = _name_of(await self._rest.send("GET", path, params={"limit": "1"})).metadata.resource_version
            if until != kept.version:
                kept.version = await self._watch(path, kept, until)
        except (MoorageError, msgspec.MsgspecError, TimeoutError, StopAsyncIteration):
            return False
        return True

    async def _watch(self, path: str, kept: _Collection, until: str) -> str:
        """Apply changes until the end of the watch. Return the version from which the next watch continues.

        After a silence, that is the version of the last event: what the server sends late is not lost to the next command.
        """
        version = kept.version
        asked = {"watch": "1", "resourceVersion": kept.version, "allowWatchBookmarks": "true", "timeoutSeconds": "60"}
        began = time.monotonic()
        async with self._rest.watch(path, asked, _LONGEST_S) as lines:
            silence_s = min(_LONGEST_S, max(_SILENCE_S, 2 * (time.monotonic() - began)))
            while True:
                try:
                    some = await asyncio.wait_for(anext(lines), silence_s)
                except TimeoutError:
                    return version
                version = _applied(kept, path, some) or version
                if _reaches(until, version):
                    return version


def _applied(kept: _Collection, path: str, lines: Iterable[bytes]) -> str:
    """Apply lines of a watch, in order; return the resource version of the last object.

    Raises  ClusterError for an error, such as that of an expired version; MsgspecError for what is no event
    """
    version = ""
    changed: dict[tuple[str, str], bytes] = {}
    for line in lines:
        event = _event_of(line)
        if event.type == "ERROR":
            raise ClusterError(f"watch {path}: {bytes(event.object)!r}")
        found = _name_of(event.object).metadata
        version = found.resource_version
        changed.pop((found.namespace, found.name), None)
        if event.type == "DELETED":
            kept.items.pop((found.namespace, found.name), None)
        elif event.type != "BOOKMARK":
            changed[found.namespace, found.name] = bytes(event.object)
    if changed:
        page = b'{"apiVersion":"v1","kind":"List","items":[%b]}' % b",".join(changed.values())
        for item in _cleaned(path, [page]):
            kept.put(item)
    return version


def _reaches(until: str, version: str) -> bool:
    return until.isdecimal() and version.isdecimal() and int(version) >= int(until)


def _cleaned(path: str, pages: Iterable[bytes]) -> list[bytes]:
    writer = DumpWriter()
    for page in pages:
        writer.take(InputFile(path, page))
    return writer.items
