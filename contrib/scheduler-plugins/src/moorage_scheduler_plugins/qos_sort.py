"""QOSSort: order pods of one priority by their class of service: Guaranteed, Burstable, BestEffort.

Source  scheduler-plugins 903da7df82cb, pkg/qos/queue_sort.go
"""

from __future__ import annotations

from typing import Any, Final

from moorage.framework.points import QueueSortPlugin, SortableQueued
from moorage_scheduler_plugins.quality import qos_of

_ORDER: Final = ("Guaranteed", "Burstable", "BestEffort")


class QOSSort(QueueSortPlugin):
    name = "QOSSort"

    def sort_key(self, queued: SortableQueued) -> Any:
        return -queued.pod.priority, _ORDER.index(qos_of(queued.pod)), queued.timestamp
