"""Open a cluster's store, in memory or with a log on disk."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from moorage.apiserver.access.bootstrap import bootstrap_cluster
from moorage.apiserver.storage.event_apis import mirror_events
from moorage.apiserver.storage.sqlite_log import SQLiteLog
from moorage.apiserver.storage.store import Store
from moorage.framework.features import FeatureGates
from moorage.private_files import Warn

__all__ = ["open_store"]

#: How far resource versions jump at each start. The file may lack the last changes that watches have seen, whose versions must
#: not be reused.
_VERSION_JUMP: Final = 1_000_000


def open_store(
    path: Path | None = None, *, clock: Callable[[], float] = time.time, seed: int | None = None,
    gates: FeatureGates | None = None, warn: Warn = lambda line: None,
) -> Store:  # fmt: skip
    """Return a store with the bootstrap objects and the content of the file. Close it with ``store.close()``.

    Without a path nothing is persisted. With one, changes are on disk once ``store.settle()`` has returned, and the HTTP
    server responds no earlier. Watches and paged lists from before the start get 410, as history is not persisted.

    ``seed`` makes uids and generated names the same in each run; without it they are random. ``gates`` determine which
    kinds are served and which gated fields are kept. ``warn`` receives a warning if others could read the file, whose
    permissions are then restricted.

    Raises  ConfigError if the file cannot be opened or another process has it open, InputError if it is damaged
    """
    if path is None:
        store = Store(clock, random.Random(_seed(seed, 0)), secrets.token_bytes(32), gates=gates)  # noqa: S311
        bootstrap_cluster(store)
        mirror_events(store)
        return store
    log = SQLiteLog(path, warn)
    try:
        version = log.version
        store = Store(clock, random.Random(_seed(seed, version)), secrets.token_bytes(32), gates=gates)  # noqa: S311
        if version:
            store.restore(log.load(store.find_stored_kind), version + _VERSION_JUMP)
            log.start_at(version + _VERSION_JUMP)
        store.attach_log(log)
        bootstrap_cluster(store)
        mirror_events(store)
        log.flush()
    except BaseException:
        log.close()
        raise
    return store


def _seed(seed: int | None, version: int) -> int | str:
    """Return the seed of the uid generator, different at each start, as uids must not repeat."""
    return secrets.randbits(128) if seed is None else f"{seed}/{version}"
