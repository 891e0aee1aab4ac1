"""The importance of pods in preemption: higher priority first, then the earlier start.

A pod that has not started counts as starting now, so it is the least important of its priority. For two such pods
kube-scheduler reads the clock twice and finds the first one older; under its sort the later of the two ranks first.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from moorage.state.pod_info import PodInfo

__all__ = ["NOT_STARTED", "by_importance", "earliest_start", "started"]

#: The start time of a pod that has not started: later than any other.
NOT_STARTED: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def by_importance(pods: Iterable[PodInfo]) -> list[PodInfo]:
    """Return the pods, the most important first.

    Ties keep the given order, except pods that have not started: their order is reversed.
    Source  scheduler/util/utils.go, MoreImportantPod, under Go's insertion sort
    """
    keyed = []
    for at, pod in enumerate(pods):
        start = started(pod)
        keyed.append((-pod.priority, start, at if start < NOT_STARTED else -at, pod))
    keyed.sort(key=lambda entry: entry[:3])
    return [pod for *_, pod in keyed]


def earliest_start(pods: Iterable[PodInfo]) -> int:
    """Return the earliest start among the pods of the highest priority, in the units of ``started``; needs at least one pod.

    Source  scheduler/util/utils.go, GetEarliestPodStartTime
    """
    _, start = min((-pod.priority, started(pod)) for pod in pods)
    return start


def started(pod: PodInfo) -> int:
    """Return when the pod started, in microseconds since 1970; ``NOT_STARTED`` if it has not."""
    text = pod.status.start_time
    return NOT_STARTED if text is None else _instant(text)


@lru_cache(maxsize=65_536)
def _instant(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)
