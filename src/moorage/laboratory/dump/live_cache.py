"""What was read of a live cluster, kept between commands: a later one watches for what changed since, and lists nothing.

Only large collections are kept, with the fields that a dump has: no secrets, environments or arguments. A file belongs to a
cluster as one context of one kubeconfig sees it, and to one version of Moorage; beside it, a small one has what changed since
it was written. Each is replaced as a whole, so several commands may use them at once: changes name the file that they belong
to, and others are left out. What is damaged, too old or of another cluster is read from the server again.

A watch from the kept resource version brings the changes since. It is at its end when it brings an object of the version that
the collection had before the watch began, or when it has been silent for a while.

A third file has answers, for as long as nothing changes that scheduling reads: heartbeats and new annotations do not count.
"""

from __future__ import annotations

import asyncio
import hashlib
import mmap
import os
import time
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Set
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field
from dataclasses import replace as with_slots
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from moorage.basis.client.credentials import Endpoint
from moorage.basis.files import replacing
from moorage.basis.inputs.cleaned_objects import ObjectCleaner
from moorage.basis.inputs.files import InputFile
from moorage.basis.inputs.served_companions import Get
from moorage.errors import ClusterError, MoorageError
from moorage.laboratory.dump.kept_objects import KEPT_KINDS, pack, unpack
from moorage.laboratory.dump.live_dump import SERVED, Pages, collection_paths, named, naming_the_server
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_reader import read_sources

if TYPE_CHECKING:
    from moorage.basis.client.rest import Rest  # imports what sends requests, which only this needs

#: Collections that print shorter than this are listed again.
_LARGE: Final = 256 << 10
#: A watch is at its end after this silence, or after the time that its first line took and some.
_SILENCE_S, _LONGEST_S = 0.1, 3.0
#: Files that were not used for so long are removed.
_FORGOTTEN_S: Final = 14 * 86400
#: So many answers about a state are kept.
_MOST_ANSWERS: Final = 32
#: Changes of more than this part of a file are no longer kept beside it.
_MUCH: Final = 8
_NAMESPACE: Final = "/api/v1/namespaces/kube-system"


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Stored(msgspec.Struct, array_like=True):
    """A collection in a file: its resource version and state, its objects as ``pack`` writes them, and which are gone since."""

    version: str
    state: str
    objects: msgspec.Raw
    gone: list[tuple[str, str]] = []


class _Stores(msgspec.Struct, array_like=True):
    """What a file holds after its checksum: collections by path, or answers by question, the newest last.

    ``of``  the cluster; of changes, the file that they are to; of answers, the state of the cluster
    ``answers``  each the text before and after the time at which the cluster was read, and the exit status
    """

    of: str = ""
    collections: dict[str, _Stored] = {}
    answers: dict[str, tuple[str, str, int]] = {}


_event_of = msgspec.json.Decoder(_Event).decode
_encode = msgspec.msgpack.Encoder().encode
#: The slots of the collections that can be kept.
_SLOTS: Final = {path: slot for slot, kind in KEPT_KINDS.items() for path in collection_paths(kind)}
_CHECKSUM: Final = 4
_NOTHING: Final = b'{"apiVersion":"v1","kind":"List","items":[]}'


@dataclass
class _Collection:
    """A collection at a resource version.

    ``state``    a version since which no object has changed in more than its version
    ``stored``   the objects in a file, in the order of a server's lists; None if they are still to be written
    ``changed``  what has changed since, by namespace and name; None for what is gone
    """

    path: str
    version: str
    state: str
    stored: msgspec.Raw | None = None
    changed: dict[tuple[str, str], Any] = field(default_factory=dict)

    @property
    def slot(self) -> str:
        return _SLOTS[self.path]

    @cached_property
    def _unpacked(self) -> dict[tuple[str, str], Any]:
        found = unpack(self.slot, self.stored) if self.stored is not None else []
        return {(one.metadata.namespace, one.metadata.name): one for one in found}

    def put(self, read: ClusterInput) -> bool:
        """Add objects of a cluster, or replace those of the same name; only what a dump has of them.

        Return False if one of them differs from the object that it replaces in more than its version.
        """
        clean, same = ObjectCleaner().cleaned, True
        for given in getattr(read, self.slot):
            if given.metadata.resource_version:  # a server has it; namespaces may be added where objects name them
                item, key = clean(given), (given.metadata.namespace, given.metadata.name)
                before = self.changed[key] if key in self.changed else self._unpacked.get(key)
                self.changed[key] = item
                if same and (same := before is not None):
                    metadata = replace(item.metadata, resource_version=before.metadata.resource_version)
                    same = before == replace(item, metadata=metadata)
        return same

    def objects(self) -> list[Any]:
        """Return the objects in the order of a server's lists.

        Raises  msgspec.DecodeError, IndexError
        """
        found = [one for one in {**self._unpacked, **self.changed}.values() if one is not None]
        if self.changed.keys() - self._unpacked.keys():
            found.sort(key=lambda one: f"{one.metadata.namespace}/{one.metadata.name}")
        return found

    def store(self) -> _Stored:
        """Return all objects, for a file that no longer needs their changes."""
        if self.changed or self.stored is None:
            self.stored, self.changed = msgspec.Raw(pack(self.slot, self.objects())), {}
            vars(self).pop("_unpacked", None)
        return _Stored(self.version, self.state, self.stored)

    def changes(self) -> _Stored:
        """Return what has changed since the objects were written."""
        there = [one for one in self.changed.values() if one is not None]
        gone = [key for key, one in self.changed.items() if one is None]
        return _Stored(self.version, self.state, msgspec.Raw(pack(self.slot, there)), gone)

    def apply(self, changes: _Stored) -> None:
        """Apply what had changed when an earlier command ended."""
        self.version, self.state = changes.version, changes.state
        self.changed = dict.fromkeys(changes.gone)
        for one in unpack(self.slot, changes.objects):
            self.changed[one.metadata.namespace, one.metadata.name] = one


def cache_folder(environment: Mapping[str, str]) -> Path | None:
    """Return the folder of this user's files: that of ``MOORAGE_CACHE_DIR``, which is empty for none, or the usual one.

    None, too, for a folder to which others may write.
    """
    base = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME") or "~").expanduser() / ".cache")
    given = environment.get("MOORAGE_CACHE_DIR")
    folder = Path(base) / "moorage" / "live" if given is None else Path(given)
    with suppress(OSError):
        found = folder.stat()
        if os.name == "posix" and (found.st_uid != os.geteuid() or found.st_mode & 0o022):
            return None
    return None if given == "" else folder


class LiveCache:
    """The file of one cluster. ``key`` distinguishes who sees it: version, kubeconfig and context."""

    def __init__(self, folder: Path, endpoint: Endpoint, key: Iterable[str]) -> None:
        parts = (endpoint.server, endpoint.server_name, repr(endpoint.headers), *key)
        digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=16)
        digest.update(endpoint.ca or b"")
        files = (folder / f"{digest.hexdigest()}.{what}" for what in ("objects", "changes", "answers"))
        self._path, self._beside, self._answers = files
        #: The checksum of the file of objects, as changes name it.
        self._sum = ""

    def load(self, cluster: str) -> dict[str, _Collection]:
        """Return what is kept of the cluster with this identity, by path; nothing if the file cannot be used."""
        found: dict[str, _Collection] = {}
        self._sum, stores = _read(self._path)
        if stores.of == cluster:
            found = {path: _Collection(path, one.version, one.state, one.objects) for path, one in stores.collections.items()}
            _, changes = _read(self._beside)
            with suppress(msgspec.MsgspecError, IndexError):
                for path, one in changes.collections.items() if changes.of == self._sum else ():
                    found[path].apply(one)
        return found

    def save(self, cluster: str, collections: Mapping[str, _Collection], *, others: bool) -> None:
        """Keep collections; ``others``: not those of the file. Nothing happens if a file cannot be written."""
        with suppress(OSError):
            changes = {} if others else {path: one.changes() for path, one in collections.items()}
            if changes and sum(memoryview(one.objects).nbytes for one in changes.values()) * _MUCH < self._path.stat().st_size:
                _write(self._beside, _Stores(self._sum, changes))
            else:
                _write(self._path, _Stores(cluster, {path: one.store() for path, one in collections.items()}))

    def answer(self, question: str, state: str = "") -> tuple[str, str, int] | None:
        """Return what was answered in this state of the cluster, "" for any; None if that is not known."""
        _, kept = _read(self._answers)
        return kept.answers.get(question) if state in {"", kept.of} else None

    def keep_answer(self, state: str, question: str, answer: tuple[str, str, int]) -> None:
        """Keep an answer; those about other states are forgotten. Nothing happens if the file cannot be written."""
        _, kept = _read(self._answers)
        known = [one for one in kept.answers.items() if kept.of == state and one[0] != question][1 - _MOST_ANSWERS :]
        with suppress(OSError):
            _write(self._answers, _Stores(state, {}, dict([*known, (question, answer)])))

    def touch(self) -> None:
        """Note that the files were used, and remove files that were not used for long."""
        with suppress(OSError):
            os.utime(self._path)
            for one in self._path.parent.iterdir():
                if one != self._beside and one.stat().st_mtime < time.time() - _FORGOTTEN_S:
                    one.unlink()


def _read(path: Path) -> tuple[str, _Stores]:
    """Return the checksum of a file and what it holds; nothing if it is damaged."""
    with suppress(OSError, ValueError, msgspec.MsgspecError):  # an empty file cannot be mapped
        with path.open("rb") as file:  # Windows cannot replace a file that is mapped
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if os.name == "posix" else file.read())
        if zlib.crc32(data[_CHECKSUM:]) == int.from_bytes(data[:_CHECKSUM], "big"):
            return data[:_CHECKSUM].hex(), msgspec.msgpack.decode(data[_CHECKSUM:], type=_Stores)
    return "", _Stores()


def _write(path: Path, stores: _Stores) -> None:
    """Replace a file.

    Raises  OSError
    """
    body = _encode(stores)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(path, lasting=False) as file:
        file.writelines((zlib.crc32(body).to_bytes(_CHECKSUM, "big"), body))


class CachedReading:
    """Reads collections from the cache and a watch, where they are kept, or else from the server: a ``Reading``.

    ``arrived`` is called before anything is decoded, with the state of the cluster ("" if it is not known) and the time.
    """

    def __init__(self, cache: LiveCache, arrived: Callable[[str, str], None] | None = None) -> None:
        self._cache = cache
        self._arrived = arrived
        self._rest: Rest
        self._cluster = ""
        self._kept: dict[str, _Collection] = {}
        self._pages: dict[str, list[bytes]] = {}
        #: The resource version of each collection in the files, and what applies its changes since.
        self._loaded: dict[str, str] = {}
        self._following: dict[str, asyncio.Task[_Collection | None]] = {}

    @property
    def known(self) -> Iterator[tuple[str, list[Any]]]:
        """Yield the path and the objects of each collection that is kept.

        Raises  MsgspecError, IndexError if they were damaged before their checksum was made; then they are removed
        """
        try:
            yield from ((path, kept.objects()) for path, kept in self._kept.items())
        except (msgspec.MsgspecError, IndexError):
            self._cache.save(self._cluster, {}, others=True)
            self._kept.clear()
            raise

    @property
    def listed(self) -> Set[str]:
        """The slots whose objects were not kept but listed."""
        return KEPT_KINDS.keys() - {_SLOTS[path] for path in self._kept if path not in self._pages}

    async def open(self, rest: Rest) -> Get:
        """Begin to bring what is kept up to date. Return what reads a page of a collection, or another document."""
        self._rest = rest
        try:
            self._cluster = named(await rest.send("GET", _NAMESPACE)).metadata.uid
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
            self._kept[path] = kept
            return _NOTHING
        body = await self._rest.get(path, params)
        if "continue" not in params:
            self._pages[path] = []
        self._pages[path].append(body)
        return body

    def arrive(self, others: Iterable[str], taken_at: str) -> None:
        """Take note that all has arrived; ``others``: what else is known of the server.

        Raises  CancelledError if ``arrived`` does, because nothing more is needed; what changed is kept all the same
        """
        try:
            if self._arrived is not None:
                self._arrived(self._state(others) if self._cluster else "", taken_at)
        except CancelledError:
            self.save()
            raise

    def _state(self, others: Iterable[str]) -> str:
        """Return a text that is the same only if all that scheduling reads of the cluster is the same."""
        digest = hashlib.blake2b("\0".join((self._cluster, *others)).encode(), digest_size=16)
        for path in sorted({*self._kept, *self._pages}):
            known = self._kept[path].state if path in self._kept else self._version_of_large(path)
            items = () if known else [bytes(named(page).items) for page in self._pages[path]]
            for part in (path.encode(), known.encode(), *items):
                digest.update(b"%d:%b" % (len(part), part))
        return digest.hexdigest()

    def _version_of_large(self, path: str) -> str:
        """Return the resource version of a collection that was listed, if it is to be kept; "" for others."""
        pages = self._pages[path]
        is_large = path in _SLOTS and sum(map(len, pages)) >= _LARGE
        return named(pages[0]).metadata.resource_version if is_large else ""

    def save(self, read: ClusterInput | None = None) -> None:
        """Keep all large collections for the next command; ``read``: what those hold that were listed."""
        if not self._cluster:
            return
        others = len(self._kept) < len(self._loaded)
        for path in self._pages:
            if read is not None and (version := self._version_of_large(path)):
                self._kept[path] = made = _Collection(path, version, version)
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
        except (MoorageError, msgspec.MsgspecError, IndexError, TimeoutError, StopAsyncIteration):
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
            until = named(await now).metadata.resource_version
            while version != until and not (until.isdecimal() and version.isdecimal() and int(version) >= int(until)):
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
        found = named(event.object).metadata
        version = found.resource_version
        changed.pop((found.namespace, found.name), None)
        if event.type == "DELETED":
            kept.changed[found.namespace, found.name] = None
            kept.state = version
        elif event.type != "BOOKMARK":
            changed[found.namespace, found.name] = bytes(event.object)
    if changed:
        page = b'{"apiVersion":"v1","kind":"List","items":[%b]}' % b",".join(changed.values())
        if not kept.put(read_sources([InputFile(kept.path, page)], validated=False, rules=SERVED)):
            kept.state = version
    return version


def as_kept(cluster: ClusterInput, listed: Iterable[str] = KEPT_KINDS) -> ClusterInput:
    """Return a cluster with only those fields that are kept, so that its digest is the same with and without a cache."""
    clean = ObjectCleaner().cleaned
    cleaned: dict[str, Any] = {slot: tuple(map(clean, getattr(cluster, slot))) for slot in listed}
    return with_slots(cluster, **cleaned)


def take_dump(endpoint: Endpoint, custom: Iterable[str] = (), reading: CachedReading | None = None) -> ClusterInput:
    """Return the objects of every kind that scheduling reads; notes say when they were read, and which kinds are missing.

    ``reading``  reads each collection; None: from the API server
    Raises  ClusterError if the API server cannot be reached or refuses nodes or pods; InputError for unreadable objects
    """
    from moorage.basis.client.rest import Rest  # imports what sends requests, which only this needs

    began, found = datetime.now(UTC), Pages()

    async def read() -> None:  # returns nothing: asyncio.run makes a text of what a task returns
        async with Rest(endpoint, agent="moorage-laboratory") as rest:
            await found.read(rest.get if reading is None else await reading.open(rest), custom)

    with naming_the_server(endpoint.server):
        asyncio.run(read())
    if reading is not None:
        reading.arrive((found.version, *map(str, found.missing)), began.isoformat(timespec="seconds"))
    try:
        cluster = found.cluster(endpoint.server, began, custom, () if reading is None else reading.known)
    except (msgspec.MsgspecError, IndexError):
        return take_dump(endpoint, custom)
    if reading is not None:
        reading.save(cluster)
    return cluster
