"""Forget what is old: expired events, and changes that no watch needs any more.

Memory then depends on what there is and what happens, not on how long the server runs. A kube-apiserver compacts etcd every
five minutes, up to the version of five minutes before; here that happens each minute.

Source  apiserver, pkg/storage/etcd3/compact.go; kube-apiserver, --event-ttl
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from moorage.rules.store.event_apis import delete_expired_events
from moorage.rules.store.store import Store

#: Seconds between two times.
EVERY_S: Final = 60.0
#: How long changes are kept for watches and lists at least, in seconds.
KEPT_S: Final = 300.0


async def forget_old(store: Store, every_s: float = EVERY_S, kept_s: float = KEPT_S) -> None:
    """Delete expired events and old changes, until cancelled."""
    clock = asyncio.get_running_loop().time
    versions = deque([(clock(), store.version)])
    while True:
        await asyncio.sleep(every_s)
        delete_expired_events(store)
        versions.append((clock(), store.version))
        while versions[0][0] <= clock() - kept_s:
            store.compact(versions.popleft()[1])
