"""PrioritySort: order the active queue by priority, highest first, then by time in the queue, longest first.

Reads     spec.priority (0 if absent); the time the pod was queued
Source    kube-scheduler 1.36, plugins/queuesort/priority_sort.go
"""

from __future__ import annotations

from moorage.framework.points import QueueSortPlugin, SortableQueued


class PrioritySort(QueueSortPlugin):
    name = "PrioritySort"

    def sort_key(self, queued: SortableQueued) -> tuple[int, float]:
        return -queued.pod.priority, queued.timestamp
