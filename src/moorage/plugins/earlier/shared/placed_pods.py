"""Queueing hints of releases in which a pod that is only nominated to a node does not count.

Source    kube-scheduler 1.35, plugins/interpodaffinity/plugin.go and podtopologyspread/plugin.go; 1.32, the same of nodeports,
          noderesources and nodevolumelimits
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from moorage.framework.events import Hint, Resource, Wake
from moorage.framework.points import EnqueueExtensions
from moorage.state.pod_info import PodInfo


class WokenByPlacedPods(EnqueueExtensions):
    """A mixin whose ``wakes_on`` ignores events of other pods unless they are placed. List it before the plugin's class."""

    def wakes_on(self) -> Iterator[Wake]:
        return for_placed_pods(super().wakes_on())  # type: ignore[safe-super]  # of the plugin, the next base


def for_placed_pods(wakes: Iterable[Wake]) -> Iterator[Wake]:
    """Yield the wakes with hints that ignore events of other pods unless these are placed."""
    for wake in wakes:
        yield (
            replace(wake, when=_if_placed(wake.when)) if wake.event.resource is Resource.POD and wake.when is not None else wake
        )


def _if_placed(hint: Hint) -> Hint:
    def placed(pod: PodInfo, old: Any, new: Any) -> bool:
        changed = [one for one in (old, new) if one is not None]
        return all(one.spec.node_name or one.uid == pod.uid for one in changed) and hint(pod, old, new)

    return placed
