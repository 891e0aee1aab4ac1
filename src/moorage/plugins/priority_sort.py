"""PrioritySort: pods of higher priority first, and among equals the one that has waited longest.

Reads     spec.priority (0 where there is none); the time the pod was queued
Source    kube-scheduler 1.36, plugins/queuesort/priority_sort.go
"""

from __future__ import annotations

from moorage.framework.points import SortableQueued

__all__ = ["PrioritySort"]


class PrioritySort:
    """The plugin."""

    name = "PrioritySort"

    def sort_key(self, queued: SortableQueued) -> tuple[int, float]:
        return -queued.pod.priority, queued.timestamp
