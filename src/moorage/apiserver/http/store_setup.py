"""How a cluster's objects come to be: in memory, or from a file and kept there."""

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
from moorage.private_files import Tell

__all__ = ["open_store"]

#: How far versions jump at a start. A file may lack the last of what watches were shown; no version of it is given out twice.
_LEAP: Final = 1_000_000


def open_store(
    path: Path | None = None, *, clock: Callable[[], float] = time.time, seed: int | None = None,
    gates: FeatureGates | None = None, tell: Tell = lambda line: None,
) -> Store:  # fmt: skip
    """Return a store with what every cluster has, and what the file holds. ``store.close()`` ends it.

    Without a path nothing is kept. With one, what was changed is on disk once ``store.settle()`` has returned; the HTTP
    server answers no earlier. Watches and lists of before are told 410, as history is not kept.

    ``seed`` makes the uids and generated names of a run the same each time; without one they are drawn at random. ``gates``
    decide what is served in addition to what always is, and which fields are kept. ``tell`` hears of it where others could
    read the file, which is then closed to them.

    Raises  ConfigError where the file cannot be opened or another process has it, InputError where it is damaged
    """
    if path is None:
        store = Store(clock, random.Random(_seed(seed, 0)), secrets.token_bytes(32), gates=gates)  # noqa: S311
        bootstrap_cluster(store)
        mirror_events(store)
        return store
    journal = SQLiteLog(path, tell)
    try:
        version = journal.version
        store = Store(clock, random.Random(_seed(seed, version)), secrets.token_bytes(32), gates=gates)  # noqa: S311
        if version:
            store.restore(journal.load(), version + _LEAP)
            journal.start_at(version + _LEAP)
        store.attach_log(journal)
        bootstrap_cluster(store)
        mirror_events(store)
        journal.flush()
    except BaseException:
        journal.close()
        raise
    return store


def _seed(seed: int | None, version: int) -> int | str:
    """Return what uids are drawn from: another sequence after each start, as they must not come twice."""
    return secrets.randbits(128) if seed is None else f"{seed}/{version}"
