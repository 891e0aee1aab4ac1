"""Read the live cluster that a command asks about, if need be before the command itself is loaded.

Loading what answers a question takes about as long as reading the cluster, most of which is waiting. So ``kubectl moorage``
begins to read in a thread as soon as it knows the cluster; the question takes over what was read for the same options. If
the answer to the question is kept and its cluster has not changed since, nothing is loaded or decoded.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from threading import Thread
from typing import Any, Final, NamedTuple

from moorage import __version__
from moorage.api.custom_objects import CustomKind
from moorage.api.gc_pause import collector_paused
from moorage.basis import folder_of
from moorage.basis.inputs.files import PROJECT_FILE
from moorage.errors import ClusterError
from moorage.interfaces.cli.terminal import output_style
from moorage.laboratory.dump.live_cache import CachedReading, LiveCache, as_kept, cache_folder, take_dump
from moorage.laboratory.dump.live_dump import endpoint_of, naming_the_server
from moorage.simulator.cluster_input import ClusterInput

#: How long loading may hold the interpreter while a response waits: reading takes many short turns.
_TURN_S: Final = 0.0005
#: The readings that were begun, and not taken by ``read_live``.
BEGUN: Final[dict[ClusterToRead, BegunReading]] = {}


class ClusterToRead(NamedTuple):
    """What is read: the cluster of a context of a kubeconfig, both as options give them, and custom kinds.

    ``is_kept``: what is read is kept between commands
    """

    kubeconfig: str | None
    context: str | None
    custom: tuple[str, ...] = ()
    is_kept: bool = True

    def read(self, begun: BegunReading | None = None) -> ClusterInput:
        """Read the cluster; ``begun``: the reading in a thread that this is.

        Raises  InputError, ClusterError; CancelledError if the answer to the question of ``begun`` is known
        """
        endpoint = endpoint_of(self.kubeconfig, self.context)
        folder = cache_folder(os.environ) if self.is_kept else None
        place = os.environ.get("KUBECONFIG", "") if self.kubeconfig is None else os.path.abspath(self.kubeconfig)
        key = (__version__, place, self.context or "")
        reading = None
        if folder is not None:
            reading = CachedReading(cache := LiveCache(folder, endpoint, key), None if begun is None else begun.arrived)
            if begun is not None:
                begun.look_in(cache, endpoint.namespace)
        with collector_paused():
            read = take_dump(endpoint, self.custom, reading)
            return read if not self.is_kept else as_kept(read) if reading is None else as_kept(read, reading.listed)


# -- readings ----------------------------------------------------------------------------------------------------------
# The same question about a cluster in the same state has the same answer, so the texts of answers are kept: of questions about
# the cluster as it is that read no other file, and only where no limit of time ended a search. The cluster is read all the
# same, so that the answer is that of the present state.

#: Options that may have any value; with a value of another one, an answer depends on more than the cluster.
_PLAIN: Final = frozenset({
    "all_changes", "alternatives", "ascii_only", "context", "every_namespace", "every_pending", "kubeconfig", "live", "may",
    "namespace", "no_quota", "output", "pods", "probes", "quiet", "seed", "selector", "shows_progress", "time_limit",
    "together", "validate", "with_queue",
})  # fmt: skip

#: The files of Moorage that an answer depends on: modules and tables.
_CODE: Final = (".py", ".toml", ".json")


class BegunReading:
    """A reading in a thread for a question, the words of a command. ``known``: the text of the answer and the exit status."""

    def __init__(self, words: Sequence[str]) -> None:
        newest, code = 0, folder_of("moorage")
        if not (code.parent / f"moorage-{__version__}.dist-info").exists():  # in a checkout, code changes within a version
            found = (f"{folder}/{one}" for folder, _, files in os.walk(code) for one in files if one.endswith(_CODE))
            newest = max((os.stat(one).st_mtime_ns for one in found), default=0)
        self._question = repr((words, output_style(), newest))
        self._cache: LiveCache | None = None
        self._state = self._taken_at = ""
        self.known: Future[tuple[str, int] | None] = Future()
        self.cluster: Future[ClusterInput] = Future()

    def run(self, source: ClusterToRead) -> None:
        """Read a cluster."""
        try:
            self.cluster.set_result(source.read(self))
        except CancelledError as known:
            if BEGUN.get(source) is self:
                del BEGUN[source]
            self._tell(known.args[0])
        except BaseException as error:
            self.cluster.set_exception(error)
        self._tell(None)

    def _tell(self, known: tuple[str, int] | None) -> None:
        if not self.known.done():
            self.known.set_result(known)

    def look_in(self, cache: LiveCache, namespace: str) -> None:
        """Look whether an answer is kept, now that it is known where: for a context with this namespace."""
        here = Path.cwd()
        if not any((folder / PROJECT_FILE).exists() for folder in (here, *here.parents)):
            self._cache = cache
            self._question = hashlib.blake2b(f"{namespace} {self._question}".encode(), digest_size=16).hexdigest()
        if self._cache is None or cache.answer(self._question) is None:
            self._tell(None)

    def arrived(self, state: str, taken_at: str) -> None:
        """Look up the answer, now that the state of the cluster is known; see ``CachedReading``.

        Raises  CancelledError, with the answer, if it is known, so that nothing is decoded
        """
        self._state, self._taken_at = state, taken_at
        if self._cache is None or not state or self.known.done():  # the command may have gone on without
            return
        if (known := self._cache.answer(self._question, state)) is not None:
            before, after, status = known
            raise CancelledError((f"{before}{taken_at}{after}", status))
        self._tell(None)

    def keep(self, text: str, given: Mapping[str, Any], status: int) -> None:
        """Keep the text of the answer, if these options let another run print the same."""
        others = [name for name, value in given.items() if value and name not in _PLAIN]
        if self._cache is not None and self._state and given["output"] in {"text", "wide"} and not others:
            before, _, after = text.partition(self._taken_at)
            if self._taken_at not in after:
                self._cache.keep_answer(self._state, self._question, (before, after, status))


def begin_reading(source: ClusterToRead, words: Sequence[str] = ()) -> BegunReading:
    """Begin to read a cluster for a command in a thread, which does not keep the process alive."""
    import moorage.basis.client.rest  # noqa: F401 (here, so that the thread does not wait for its turn to load it)

    begun = BEGUN[source] = BegunReading(words)
    sys.setswitchinterval(_TURN_S)
    Thread(target=begun.run, args=(source,), name="reading", daemon=True).start()
    return begun


def served_kinds(kubeconfig: str | None, context: str | None, kinds: Iterable[str]) -> tuple[str, ...]:
    """Return those of custom kinds that a cluster serves, each in the last of its versions; none if it does not say.

    Raises  InputError, ClusterError
    """
    from moorage.basis.client.rest import Rest  # imports what sends requests

    endpoint, found = endpoint_of(kubeconfig, context), list[bytes]()

    async def read() -> None:
        async with Rest(endpoint, agent="moorage-laboratory") as rest:
            try:
                found.append(await rest.get("/apis"))
            except ClusterError as error:
                if not error.status:  # it was not the server that refused
                    raise

    with naming_the_server(endpoint.server):
        asyncio.run(read())
    groups = [group for body in found for group in json.loads(body).get("groups") or ()]
    served = {one["groupVersion"] for group in groups for one in group["versions"]}
    named = filter(None, map(CustomKind.parse, kinds))
    return tuple({(one.plural, one.group): str(one) for one in named if one.api_version in served}.values())


def read_live(source: ClusterToRead) -> ClusterInput:
    """Return a cluster, once it is read.

    Raises  InputError, ClusterError
    """
    begun = BEGUN.pop(source, None)
    return source.read() if begun is None else begun.cluster.result()
