"""The digest of a cluster: clusters with equal digests and options decide alike."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import msgspec

from moorage.laboratory.recorded_queue import RecordedQueue
from moorage.laboratory.recorded_simulation import RecordedSimulation
from moorage.laboratory.recorded_state import RecordedClusterState
from moorage.state.pod_info import PodInfo

__all__ = ["digest_of"]


def digest_of(simulation: RecordedSimulation, more: Iterable[Any]) -> str:
    """Return the digest of a simulation's state and of ``more``, as 32 hexadecimal digits."""
    encoder = msgspec.msgpack.Encoder(enc_hook=_plain, order="deterministic")
    hasher = blake2b(digest_size=16)
    cluster, queue = simulation.scheduler.cluster, simulation.scheduler.queue
    assert isinstance(cluster, RecordedClusterState)
    assert isinstance(queue, RecordedQueue)
    for accounts in (simulation.account(), cluster.account(), queue.account(), more):
        for one in accounts:
            hasher.update(encoder.encode(one))
    return hasher.hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, PodInfo):
        return value.pod
    raise TypeError(f"no digest of {type(value).__name__}")
