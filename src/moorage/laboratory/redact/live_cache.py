"""What was read of a live cluster, kept between commands: a later one watches for what changed since, and lists nothing.

Only large collections are kept, with the fields that a dump has: no secrets, environments or arguments. A file belongs to a
cluster as one context of one kubeconfig sees it, and to one version of Moorage; beside it, a small one has what changed since
it was written. Each is replaced as a whole, so several commands may use them at once: changes name the file that they belong
to, and others are left out. What is damaged, too old or of another cluster is read from the server again.

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
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from moorage.basis.inputs.cleaned_objects import ObjectCleaner
from moorage.basis.inputs.files import InputFile
from moorage.errors import ClusterError, MoorageError
from moorage.laboratory.redact.kept_objects import KEPT_KINDS, pack, unpack
from moorage.laboratory.redact.live_dump import Get, collection_paths
from moorage.live.client.credentials import Endpoint
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_reader import read_sources

if TYPE_CHECKING:
    from moorage.live.client.rest import Rest  # imports what sends requests, which only this needs

#: Collections that print shorter than this are listed again.
_LARGE: Final = 256 << 10
#: A watch is at its end after this silence, or after the time that its first line took and some.
_SILENCE_S, _LONGEST_S = 0.1, 3.0
#: Files that were not used for so long are removed.
_FORGOTTEN_S: Final = 14 * 86400
#: Changes of more than this part of a file are no longer kept beside it.
_MUCH: Final = 8
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


class _Stored(msgspec.Struct, array_like=True):
    """A collection in a file: its resource version, its objects as ``pack`` writes them, and which are gone since."""

    version: str
    objects: bytes
    gone: list[tuple[str, str]] = []


class _Stores(msgspec.Struct, array_like=True):
    """What a file holds after its checksum: of the cluster, or of the file to which these are changes, by path."""

    of: str
    collections: dict[str, _Stored]


_name_of = msgspec.json.Decoder(_Named).decode
_event_of = msgspec.json.Decoder(_Event).decode
_encode = msgspec.msgpack.Encoder().encode
#: The slots of the collections that can be kept.
_SLOTS: Final = {path: slot for slot, kind in KEPT_KINDS.items() for path in collection_paths(kind)}
_CHECKSUM: Final = 4
_NOTHING: Final = b'{"apiVersion":"v1","kind":"List","items":[]}'


@dataclass
class _Collection:
    """A collection at a resource version.

    ``stored``   the objects in a file, in the order of a server's lists; b"" if they are still to be written
    ``changed``  what has changed since, by namespace and name; None for what is gone
    """

    path: str
    version: str
    stored: bytes = b""
    changed: dict[tuple[str, str], Any] = field(default_factory=dict)

    @property
    def slot(self) -> str:
        return _SLOTS[self.path]

    def put(self, read: ClusterInput) -> None:
        """Add objects of a cluster, or replace those of the same name; only what a dump has of them."""
        clean = ObjectCleaner().cleaned
        for item in getattr(read, self.slot):
            if item.metadata.resource_version:  # a server has it; namespaces may be added where objects name them
                self.changed[item.metadata.namespace, item.metadata.name] = clean(item)

    def objects(self) -> list[Any]:
        """Return the objects in the order of a server's lists.

        Raises  msgspec.DecodeError, IndexError
        """
        found = unpack(self.slot, self.stored) if self.stored else []
        if self.changed:
            came, kept = dict(self.changed), []
            for one in found:
                key = (one.metadata.namespace, one.metadata.name)
                if (one := came.pop(key, one)) is not None:
                    kept.append(one)
            new = [one for one in came.values() if one is not None]
            found = sorted([*kept, *new], key=lambda one: f"{one.metadata.namespace}/{one.metadata.name}") if new else kept
        return found

    def store(self) -> _Stored:
        """Return all objects, for a file that no longer needs their changes."""
        if self.changed or not self.stored:
            self.stored, self.changed = pack(self.slot, self.objects()), {}
        return _Stored(self.version, self.stored)

    def changes(self) -> _Stored:
        """Return what has changed since the objects were written."""
        there = [one for one in self.changed.values() if one is not None]
        return _Stored(self.version, pack(self.slot, there), [key for key, one in self.changed.items() if one is None])

    def apply(self, changes: _Stored) -> None:
        """Apply what had changed when an earlier command ended."""
        self.version = changes.version
        self.changed = dict.fromkeys(changes.gone)
        for one in unpack(self.slot, changes.objects):
            self.changed[one.metadata.namespace, one.metadata.name] = one


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
        self._path, self._beside = (folder / f"{digest.hexdigest()}.{what}" for what in ("objects", "changes"))
        #: The checksum of the file of objects, as changes name it.
        self._sum = ""

    def load(self, cluster: str) -> dict[str, _Collection]:
        """Return what is kept of the cluster with this identity, by path; nothing if the file cannot be used."""
        found: dict[str, _Collection] = {}
        self._sum, stores = _read(self._path)
        if stores.of == cluster:
            found = {path: _Collection(path, one.version, one.objects) for path, one in stores.collections.items()}
            _, changes = _read(self._beside)
            with suppress(msgspec.MsgspecError, IndexError):
                for path, one in changes.collections.items() if changes.of == self._sum else ():
                    found[path].apply(one)
        return found

    def save(self, cluster: str, collections: Mapping[str, _Collection], *, others: bool) -> None:
        """Keep collections; ``others``: not those of the file. Nothing happens if a file cannot be written."""
        with suppress(OSError):
            changes = {} if others else {path: one.changes() for path, one in collections.items()}
            if changes and sum(len(one.objects) for one in changes.values()) * _MUCH < self._path.stat().st_size:
                _write(self._beside, _Stores(self._sum, changes))
            else:
                _write(self._path, _Stores(cluster, {path: one.store() for path, one in collections.items()}))

    def touch(self) -> None:
        """Note that the files were used, and remove files that were not used for long."""
        with suppress(OSError):
            os.utime(self._path)
            for one in self._path.parent.iterdir():
                if one != self._beside and one.stat().st_mtime < time.time() - _FORGOTTEN_S:
                    one.unlink()


def _read(path: Path) -> tuple[str, _Stores]:
    """Return the checksum of a file and what it holds; nothing if it is damaged."""
    with suppress(OSError, msgspec.MsgspecError, UnicodeError):
        data = memoryview(path.read_bytes())
        if zlib.crc32(data[_CHECKSUM:]) == int.from_bytes(data[:_CHECKSUM], "big"):
            return data[:_CHECKSUM].hex(), msgspec.msgpack.decode(data[_CHECKSUM:], type=_Stores)
    return "", _Stores("", {})


def _write(path: Path, stores: _Stores) -> None:
    """Replace a file.

    Raises  OSError
    """
    body = _encode(stores)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, beside = tempfile.mkstemp(prefix=".", dir=path.parent)  # only its owner can read it
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines((zlib.crc32(body).to_bytes(_CHECKSUM, "big"), body))
        os.replace(beside, path)
    except OSError:
        os.unlink(beside)
        raise


class CachedReading:
    """Reads collections from the cache and a watch, where they are kept, or else from the server: a ``Reading``."""

    def __init__(self, cache: LiveCache) -> None:
        self._cache = cache
        self._rest: Rest
        self._cluster = ""
        self._kept: dict[str, _Collection] = {}
        self._pages: dict[str, list[bytes]] = {}
        #: The resource version of each collection in the files, and what applies its changes since.
        self._loaded: dict[str, str] = {}
        self._following: dict[str, asyncio.Task[_Collection | None]] = {}
        self.known: list[tuple[str, list[Any]]] = []

    async def open(self, rest: Rest) -> Get:
        """Begin to bring what is kept up to date. Return what reads a page of a collection, or another document."""
        self._rest = rest
        try:
            self._cluster = _name_of(await rest.send("GET", _NAMESPACE)).metadata.uid
        except msgspec.MsgspecError:
            return self._get
        except ClusterError as error:
            if not error.status:  # it did not answer
                raise
        if self._cluster:  # without its identity, nothing is kept
            kept = self._cache.load(self._cluster)
            self._loaded = {path: one.version for path, one in kept.items()}
            self._following = {path: asyncio.create_task(self._follow(path, one)) for path, one in kept.items()}
        return self._get

    async def _get(self, path: str, params: Mapping[str, str]) -> bytes:
        if "limit" not in params:
            return await self._rest.get(path, params)
        if path in self._following and (kept := await self._following[path]) is not None:
            with suppress(msgspec.MsgspecError, IndexError):  # it was damaged before its checksum was made
                self.known.append((path, kept.objects()))
                self._kept[path] = kept
                return _NOTHING
        body = await self._rest.get(path, params)
        if "continue" not in params:
            self._pages[path] = []
        self._pages[path].append(body)
        return body

    def save(self, read: ClusterInput) -> None:
        """Keep all large collections for the next command; ``read``: what they hold."""
        if not self._cluster:
            return
        others = len(self._kept) < len(self._loaded)
        for path, pages in self._pages.items():
            version = _name_of(pages[0]).metadata.resource_version
            if path in _SLOTS and version and sum(map(len, pages)) >= _LARGE:
                self._kept[path] = made = _Collection(path, version)
                made.put(read)
                others = True
        if others or any(one.version != self._loaded.get(path) for path, one in self._kept.items()):
            self._cache.save(self._cluster, self._kept, others=others)
        self._cache.touch()

    async def _follow(self, path: str, kept: _Collection) -> _Collection | None:
        """Apply the changes since a collection was kept, and return it; None if it must be listed."""
        now = asyncio.create_task(self._rest.send("GET", path, params={"limit": "1"}))
        try:
            kept.version = await self._watch(path, kept, now)
        except (MoorageError, msgspec.MsgspecError, TimeoutError, StopAsyncIteration):
            return None
        finally:
            now.cancel()
            await asyncio.gather(now, return_exceptions=True)
        return kept

    async def _watch(self, path: str, kept: _Collection, now: Awaitable[bytes]) -> str:
        """Apply changes until the end of the watch. Return the version from which the next watch continues.

        After a silence, that is the version of the last event: what the server sends late is not lost to the next command.
        """
        version = kept.version
        asked = {"watch": "1", "resourceVersion": kept.version, "allowWatchBookmarks": "true", "timeoutSeconds": "60"}
        began = time.monotonic()
        async with self._rest.watch(path, asked, _LONGEST_S) as lines:
            silence_s = min(_LONGEST_S, max(_SILENCE_S, 2 * (time.monotonic() - began)))
            until = _name_of(await now).metadata.resource_version
            while version != until and not _reaches(until, version):
                try:
                    some = await asyncio.wait_for(anext(lines), silence_s)
                except TimeoutError:
                    break
                version = _applied(kept, some) or version
        return version


def _applied(kept: _Collection, lines: Iterable[bytes]) -> str:
    """Apply lines of a watch, in order; return the resource version of the last object.

    Raises  ClusterError for an error, such as that of an expired version; InputError, MsgspecError for what is no event
    """
    version = ""
    changed: dict[tuple[str, str], bytes] = {}
    for line in lines:
        event = _event_of(line)
        if event.type == "ERROR":
            raise ClusterError(f"watch {kept.path}: {bytes(event.object)!r}")
        found = _name_of(event.object).metadata
        version = found.resource_version
        changed.pop((found.namespace, found.name), None)
        if event.type == "DELETED":
            kept.changed[found.namespace, found.name] = None
        elif event.type != "BOOKMARK":
            changed[found.namespace, found.name] = bytes(event.object)
    if changed:
        page = b'{"apiVersion":"v1","kind":"List","items":[%b]}' % b",".join(changed.values())
        kept.put(read_sources([InputFile(kept.path, page)], validated=False))
    return version


def _reaches(until: str, version: str) -> bool:
    return until.isdecimal() and version.isdecimal() and int(version) >= int(until)
