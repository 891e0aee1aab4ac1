"""Trials in a cluster itself: changes are made in a transaction, the pod is tried, and all is taken back.

A change of the configuration is not made in the cluster. The cycle decides with a profile that lacks the plugin instead, which
is what the changed configuration would run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from moorage.api.core import Pod
from moorage.cycle.cycle import Cycle
from moorage.errors import InputError
from moorage.framework.changes import Change
from moorage.framework.profile import Profile
from moorage.laboratory.offers import Offers, offers_of
from moorage.laboratory.placements import PodPlacement
from moorage.laboratory.trials import Trial, unscheduled
from moorage.simulator.simulation import Simulation
from moorage.state.pod_info import PodInfo

__all__ = ["ClusterTrials"]

#: Plugins that a profile cannot do without at these points.
_NEEDED = frozenset(["queueSort", "bind"])


class TriedCluster(Protocol):
    """What trials need of a cluster."""

    @property
    def simulation(self) -> Simulation: ...
    def transaction(self) -> AbstractContextManager[Any]: ...
    def apply(self, *changes: Change) -> None: ...
    def schedule(self, pods: Iterable[str | Pod] | None = None) -> list[PodPlacement]: ...


@dataclass
class ClusterTrials:
    """Trials of one pod, ``namespace/name``, in a cluster."""

    cluster: TriedCluster
    key: str

    def __post_init__(self) -> None:
        self._known = frozenset(self.cluster.simulation.pods)

    def attempt(self, changes: Collection[Change]) -> Trial:
        """Make the changes, try the pod before all others, and take everything back."""
        made = [one for one in changes if one.owner != "config"]
        disabled = [one for one in changes if one.owner == "config"]
        with self.cluster.transaction():
            try:
                self.cluster.apply(*sorted(made, key=lambda one: (one.verb, one.target, one.path)))
            except InputError as error:
                return Trial(fault=str(error))
            pod = self.cluster.simulation.pod_named(self.key)
            if pod is None:
                return Trial(fault=f"pod {self.key} is not there")
            before = unscheduled(pod, self.cluster.simulation)
            if before is not None and not (
                disabled and pod.spec.scheduler_name not in self.cluster.simulation.scheduler.profiles
            ):
                return Trial(offers=before)
            return self._reconfigured(pod, disabled) if disabled else self._tried(pod, grow=not changes)

    def _tried(self, pod: Pod, *, grow: bool) -> Trial:
        trial = self._bound(pod)
        offers = self._offers(pod, self._profile(pod), grow=grow)
        return replace(trial, offers=offers) if trial is not None else Trial(offers=offers)

    def _bound(self, pod: Pod) -> Trial | None:
        """Try the pod in a transaction of its own, and the pods that replace evicted ones after it."""
        with self.cluster.transaction():
            (placement,) = self.cluster.schedule([pod.metadata.uid])
            if placement.node is not None:
                return Trial(placement.node, *self._replaced())
            victims = placement.victims if placement.nominated else ()
        return self._preempting(pod, victims) if victims else None

    def _replaced(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        pods = self.cluster.simulation.pods
        waiting = [pod for uid, pod in pods.items() if uid not in self._known and not pod.spec.node_name]
        placements = self.cluster.schedule([pod.metadata.uid for pod in waiting]) if waiting else []
        return tuple(one.pod for one in placements if one), tuple(one.pod for one in placements if not one)

    def _preempting(self, pod: Pod, victims: Iterable[str]) -> Trial | None:
        """Try the pod once more with its victims gone."""
        gone = tuple(victims)
        with self.cluster.transaction():
            self.cluster.apply(*(Change("cluster", "evict", f"pod/{key}") for key in gone))
            (placement,) = self.cluster.schedule([pod.metadata.uid])
            return Trial(placement.node, gone) if placement.node is not None else None

    def _reconfigured(self, pod: Pod, disabled: Iterable[Change]) -> Trial:
        """Decide with a profile that lacks plugins."""
        profile = self._profile(pod, disabled)
        scheduler = self.cluster.simulation.scheduler
        cycle = Cycle(scheduler.cycle.seed, by_class=False)
        decision = cycle.decide(profile, PodInfo(pod), scheduler.snapshot, scheduler.queue.nominated)
        offers = self._offers(pod, profile)
        if decision.node is not None:
            return Trial(decision.node, offers=offers)
        after = decision.post_filter
        if after is not None and after.nominated and after.victims:
            return Trial(after.nominated, tuple(one.key for one in after.victims), (), offers)
        return Trial(offers=offers)

    def _profile(self, pod: Pod, disabled: Iterable[Change] = ()) -> Profile:
        profiles = self.cluster.simulation.scheduler.profiles
        profile = profiles.get(pod.spec.scheduler_name) or next(iter(profiles.values()))
        gone = {one.target.rpartition("/")[2] for one in disabled if one.verb == "disable-plugin"}
        steps = {
            point: held if point in _NEEDED else tuple(step for step in held if step.name not in gone)
            for point, held in profile.steps.items()
        }
        return replace(profile, steps=steps, scheduler_name=pod.spec.scheduler_name) if gone else profile

    def _offers(self, pod: Pod, profile: Profile, *, grow: bool = False) -> Offers:
        return offers_of(profile, PodInfo(pod), self.cluster.simulation.scheduler.snapshot, grow=grow)
