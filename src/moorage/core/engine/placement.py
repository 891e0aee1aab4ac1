"""What the fast lane found for a pod: its node, and what is needed to place it there."""

from __future__ import annotations

from msgspec import Struct

from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.decision import Decision
from moorage.core.cycle.sheets import CachedPath
from moorage.core.queue import QueuedPod
from moorage.framework.profile import Profile
from moorage.state.pod_info import PodInfo

__all__ = ["Found"]


class Found(Struct):
    """The next pod of the queue and the decision for it. The pod is still in the queue. ``among``: see ``Quick``."""

    queued: QueuedPod
    pod: PodInfo
    decision: Decision
    profile: Profile
    row: int
    node: str
    cycle: Cycle
    path: CachedPath
    among: int
