"""The parts of a profile that the queue uses: PreEnqueue, the sort key and the queueing hints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from moorage.core.extenders.consultation import HTTPExtender
from moorage.core.extenders.wire import EXTENDER
from moorage.core.queue import QueuedPod, QueueProfile
from moorage.core.queue.backoff import SortKey
from moorage.errors import PluginError
from moorage.framework.events import ANY_EVENT, Action, ClusterEvent, Resource, Wake
from moorage.framework.features import FeatureGates
from moorage.framework.plugin_runner import failure_text
from moorage.framework.profile import Profile, Step

__all__ = ["ERRORS", "queue_profile", "sort_key"]

#: Stands for the plugins that rejected a pod where its attempt ended in an error: any event that a plugin names wakes it.
ERRORS: Final = ""


def queue_profile(profile: Profile, extenders: Sequence[HTTPExtender], gates: FeatureGates) -> QueueProfile:
    """Return what the queue needs of a profile. Extenders have no queueing hints: any event retries the pods they reject."""
    needed = QueueProfile.of(profile)
    wakes = {EXTENDER: (Wake(ANY_EVENT),), **needed.wakes} if extenders else needed.wakes
    if gates.emulated.parks_errors:
        wakes = {ERRORS: tuple(_after_errors(wakes, gates)), **wakes}
    return needed if wakes is needed.wakes else QueueProfile(needed.pre_enqueue, wakes)


def _after_errors(wakes: Mapping[str, Iterable[Wake]], gates: FeatureGates) -> Iterator[Wake]:
    """Yield the events that retry a pod after an error: those that a plugin names, and those of the release."""
    yield from (Wake(wake.event) for of_plugin in wakes.values() for wake in of_plugin)
    yield from (Wake(ClusterEvent(Resource(kind), Action.ALL)) for kind in sorted(gates.emulated.moving_kinds))


def sort_key(step: Step, on_fault: Callable[[PluginError], None]) -> SortKey:
    """Return a sort key. Pods for which the QueueSort plugin raises come last, and ``on_fault`` gets the error."""

    def key_of(queued: QueuedPod) -> tuple[int, Any]:
        try:
            return 0, step.call(queued)
        except Exception as error:
            on_fault(PluginError(step.name, f"failed in queueSort: {failure_text(error)}"))
            return 1, 0

    return key_of
