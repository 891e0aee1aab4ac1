"""The parts of a profile that the queue uses: PreEnqueue, the sort key and the queueing hints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from moorage.cycle.extender_wire import EXTENDER
from moorage.cycle.extenders import HTTPExtender
from moorage.errors import PluginError
from moorage.framework.events import ANY_EVENT, Wake
from moorage.framework.plugin_failures import failure_text
from moorage.framework.profile import Profile, Step
from moorage.queue import QueuedPod, QueueProfile
from moorage.queue.active import SortKey

__all__ = ["queue_profile", "sort_key"]


def queue_profile(profile: Profile, extenders: Sequence[HTTPExtender]) -> QueueProfile:
    """Return what the queue needs of a profile. Extenders have no queueing hints: any event retries the pods they reject."""
    needed = QueueProfile.of(profile)
    return QueueProfile(needed.pre_enqueue, {EXTENDER: (Wake(ANY_EVENT),), **needed.wakes}) if extenders else needed


def sort_key(step: Step, on_fault: Callable[[PluginError], None]) -> SortKey:
    """Return a sort key. Pods for which the QueueSort plugin raises come last, and ``on_fault`` gets the error."""

    def key_of(queued: QueuedPod) -> tuple[int, Any]:
        try:
            return 0, step.call(queued)
        except Exception as error:
            on_fault(PluginError(step.name, f"failed in queueSort: {failure_text(error)}"))
            return 1, 0

    return key_of
