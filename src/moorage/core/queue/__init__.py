"""The scheduling queue, and the cluster events that make it retry a pod."""

from moorage.core.queue.cluster_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    UNSCHEDULED_POD_ADD,
    assigned_pod_events,
    node_events,
    object_events,
    pod_changes,
)
from moorage.core.queue.hints import wakes_of
from moorage.core.queue.pre_enqueue import QueueProfile
from moorage.core.queue.queued_pod import PendingPod, QueuedPod, QueuePlace
from moorage.core.queue.scheduling_queue import QueueTimes, SchedulingQueue

__all__ = [
    "ASSIGNED_POD_ADD", "ASSIGNED_POD_DELETE", "UNSCHEDULED_POD_ADD", "PendingPod", "QueuePlace", "QueueProfile", "QueueTimes",
    "QueuedPod",     "SchedulingQueue", "assigned_pod_events", "node_events", "object_events", "pod_changes", "wakes_of",
]  # fmt: skip
