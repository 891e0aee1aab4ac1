"""The state of a pod in a scheduler's queue, in the terms of the map."""

from __future__ import annotations

from typing import Final

from moorage.engine.scheduler import Scheduler
from moorage.queue.queued_pod import QueuePlace
from moorage.web.rows import QueueState

__all__ = ["queue_state"]

_WORDS: Final = {QueuePlace.BACKOFF: "backoff", QueuePlace.GATED: "gated"}
_UNKNOWN: Final = QueueState()


def queue_state(scheduler: Scheduler, uid: str) -> QueueState:
    """Return in which part of the queue a pod is, and its number of attempts."""
    queued = scheduler.queue.get(uid)
    return _UNKNOWN if queued is None else QueueState(_WORDS.get(queued.place, "pending"), queued.attempts)
