"""The digest of a cluster: clusters with equal digests and options decide alike.

Few answers are asked for the digest of their cluster, and it takes longer to compute than some of them. So at first only
what may change is encoded, and what never changes is copied by reference. The rest is done when the digest is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any
from weakref import ref

import msgspec

from moorage.api import packing
from moorage.laboratory.trial.recorded_simulation import RecordedSimulation
from moorage.laboratory.trial.recorded_state import RecordedClusterState, RecordedQueue
from moorage.report.answer import LateText
from moorage.state.pod_info import PodInfo


class Digests:
    """Makes the digests of a cluster's states, which are computed when they are read.

    Until then a digest holds copies of the cluster's large books. So that these are held once, the digest made before is
    computed when the next one is made, if anything still refers to it.
    """

    def __init__(self) -> None:
        self._last: Callable[[], LateText | None] = lambda: None

    def of(self, simulation: RecordedSimulation, more: Iterable[Any]) -> LateText:
        """Return the digest of a simulation's present state and of ``more``, as 32 hexadecimal digits."""
        last = self._last()
        if last is not None:
            str(last)
        made = LateText(_late_digest(simulation, more))
        self._last = ref(made)
        return made


def _late_digest(simulation: RecordedSimulation, more: Iterable[Any]) -> Callable[[], str]:
    encoder = msgspec.msgpack.Encoder(enc_hook=_plain, order="deterministic")
    cluster, queue = simulation.scheduler.cluster, simulation.scheduler.queue
    assert isinstance(cluster, RecordedClusterState)
    assert isinstance(queue, RecordedQueue)
    pods = dict(simulation.pods)
    accounts = simulation.account(pods), cluster.account(pods), queue.account(), more

    def encode(one: Any) -> bytes:
        try:
            return encoder.encode(one)
        except OverflowError:
            return packing.pack(msgspec.to_builtins(one, enc_hook=_plain), ordered=True)

    parts = [one if callable(one) else encode(one) for account in accounts for one in account]

    def digest() -> str:
        hasher = blake2b(digest_size=16)
        for part in parts:
            for one in (part,) if isinstance(part, bytes) else map(encode, part()):
                hasher.update(one)
        return hasher.hexdigest()

    return digest


def _plain(value: Any) -> Any:
    if isinstance(value, PodInfo):
        return value.pod
    raise TypeError(f"no digest of {type(value).__name__}")
