"""Read the live cluster that a command asks about, if need be before the command itself is loaded.

Loading what answers a question takes about as long as reading the cluster, most of which is waiting. So ``kubectl moorage``
begins to read in a thread as soon as it knows the cluster; the question takes over what was read for the same options.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Final, NamedTuple

from moorage import __version__
from moorage.api.gc_pause import collector_paused
from moorage.laboratory.redact.live_cache import CachedReading, LiveCache, cache_folder
from moorage.laboratory.redact.live_dump import endpoint_of, take_dump
from moorage.simulator.cluster_input import ClusterInput

#: How long loading may hold the interpreter while a response waits: reading takes many short turns.
_TURN_S: Final = 0.0005
_begun: Final[dict[ClusterToRead, Future[ClusterInput]]] = {}


class ClusterToRead(NamedTuple):
    """What is read: the cluster of a context of a kubeconfig, both as options give them, and custom kinds.

    ``is_kept``: what is read is kept between commands
    """

    kubeconfig: str | None
    context: str | None
    custom: tuple[str, ...] = ()
    is_kept: bool = True

    def read(self) -> ClusterInput:
        """Read the cluster.

        Raises  InputError, ClusterError
        """
        endpoint = endpoint_of(self.kubeconfig, self.context)
        folder = cache_folder(os.environ) if self.is_kept else None
        place = os.environ.get("KUBECONFIG", "") if self.kubeconfig is None else os.path.abspath(self.kubeconfig)
        key = (__version__, place, self.context or "")
        reading = None if folder is None else CachedReading(LiveCache(folder, endpoint, key))
        with collector_paused():
            return take_dump(endpoint, self.custom, reading)


def begin_reading(source: ClusterToRead) -> None:
    """Begin to read a cluster in a thread, which does not keep the process alive."""
    import moorage.live.client.rest  # noqa: F401 (here, so that the thread does not wait for its turn to load it)

    found: Future[ClusterInput] = Future()
    _begun[source] = found
    sys.setswitchinterval(_TURN_S)
    Thread(target=_run, args=(source.read, found), name="reading", daemon=True).start()


def _run(read: Callable[[], ClusterInput], found: Future[ClusterInput]) -> None:
    try:
        found.set_result(read())
    except BaseException as error:
        found.set_exception(error)


def read_live(source: ClusterToRead) -> ClusterInput:
    """Return a cluster, once it is read.

    Raises  InputError, ClusterError
    """
    begun = _begun.pop(source, None)
    return source.read() if begun is None else begun.result()
