"""Place instances one after the other, until one finds no node.

The next instance is created when the one before is bound, as cluster-capacity does. If no plugin acts after the decision, the
instance is only counted on its node; otherwise the simulation makes a whole attempt, with claims and binding. All of this
happens in a transaction of the caller, which rolls it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from moorage.api.core import Pod
from moorage.api.meta import Object
from moorage.core.cycle.search import SearchScope
from moorage.core.engine.facts import Seen
from moorage.framework.profile import Profile
from moorage.laboratory.trial.dry_run import rests
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.pod_info import PodInfo

__all__ = ["InstanceCounter", "Placed", "Quota", "Stop"]

LIMIT_REACHED: Final = "LimitReached"
UNSCHEDULABLE: Final = "Unschedulable"
QUOTA: Final = "Quota"
STOPPED: Final = "Stopped"
#: No search for victims: a capacity does not count what preemption would free.
_NO_VICTIMS: Final = SearchScope(post_filter=False)


class Quota(Protocol):
    """The quotas of namespaces, and their usage."""

    def refusal(self, pod: Pod, needs: Sequence[Object] = ()) -> str:
        """Return why a new pod, or an object that it needs, would exceed a quota; "" if none would."""

    def take(self, pod: Pod, needs: Sequence[Object] = ()) -> None:
        """Count a pod that was created, with the objects that it needs."""


@dataclass(frozen=True, slots=True)
class Placed:
    """An instance on its node; ``victims`` were evicted for it."""

    pod: Pod
    node: str
    victims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stop:
    """Why no further instance was placed, and the instance it stopped at.

    ``kind``: ``Unschedulable``, ``LimitReached`` or ``Quota``, or ``Stopped`` if the budget was spent
    """

    kind: str
    message: str
    pod: Pod | None = None


class InstanceCounter:
    """Places instances in one simulation."""

    def __init__(self, simulation: SimulatedCluster, *, quota: Quota | None = None, preempt: bool = False) -> None:
        self._simulation = simulation
        self._quota = quota
        self._preempt = preempt
        self._first: dict[int, PodInfo] = {}

    def place(self, pod: Pod, needs: Sequence[Object] = ()) -> Placed | Stop:
        """Create one instance, with the objects it needs, and place it."""
        refusal = "" if self._quota is None else self._quota.refusal(pod, needs)
        if refusal:
            return Stop(QUOTA, refusal, pod)
        quick = None if needs else self._quickly(pod)
        placed = quick or self._attempted(pod, needs)
        if isinstance(placed, Placed) and self._quota is not None:
            self._quota.take(pod, needs)
        return placed

    # -- counted on the node only ----------------------------------------------------------------------------------------

    def _quickly(self, pod: Pod) -> Placed | Stop | None:
        """Decide and count the pod on its node; None if this needs a whole attempt."""
        scheduler = self._simulation.scheduler
        profile = scheduler.profiles.get(pod.spec.scheduler_name)
        if profile is None or self._preempt or not _is_simple(pod, profile) or scheduler.cycle.extenders:
            return None
        if scheduler.cluster.groups is not None:
            return None
        info = PodInfo(pod)
        twin = self._first.setdefault(id(pod.spec), info)
        if twin is not info and twin.labels is info.labels:
            info.share(twin)
        decision = scheduler.cycle.decide(profile, info, scheduler.snapshot, scheduler.queue.nominated)
        if decision.node is None:
            return Stop(UNSCHEDULABLE, decision.message, pod)
        if not rests(profile, decision):
            return None
        scheduler.cluster.assume(info, decision.node)
        return Placed(pod, decision.node)

    # -- attempted -------------------------------------------------------------------------------------------------------

    def _attempted(self, pod: Pod, needs: Iterable[Object]) -> Placed | Stop:
        simulation = self._simulation
        simulation.tell([*map(Seen, needs), Seen(pod)])
        now = simulation.pods[pod.metadata.uid]
        if now.spec.scheduler_name not in simulation.scheduler.profiles:
            return Stop(UNSCHEDULABLE, f"no profile has the name {now.spec.scheduler_name}", pod)
        known = set(simulation.victims)
        simulation.attempt(now) if self._preempt else simulation.attempt(now, _NO_VICTIMS)
        victims = tuple(record.pod.key for uid, record in simulation.victims.items() if uid not in known)
        if victims or not (self._node_of(pod) or self._message(pod)):
            simulation.run()  # victims leave, and volumes are bound
        node = self._node_of(pod)
        return Placed(pod, node, victims) if node else Stop(UNSCHEDULABLE, self._full_message(pod), pod)

    def _node_of(self, pod: Pod) -> str:
        now = self._simulation.pods.get(pod.metadata.uid)
        return "" if now is None else now.spec.node_name

    def _message(self, pod: Pod) -> str:
        record = self._simulation.records.get(pod.metadata.uid)
        return "" if record is None else record.message

    def _full_message(self, pod: Pod) -> str:
        """Return the message of the failed attempt, with the outcome of preemption, which was not carried out."""
        scheduler, now = self._simulation.scheduler, self._simulation.pods[pod.metadata.uid]
        queued = scheduler.queue.get(pod.metadata.uid)
        if queued is not None and queued.gate is not None:
            return ", ".join(queued.gate.reasons)
        if not self._preempt and not scheduler.cycle.extenders:
            profile = scheduler.profiles[now.spec.scheduler_name]
            decision = scheduler.cycle.decide(profile, PodInfo(now), scheduler.snapshot, scheduler.queue.nominated)
            if decision.node is None:
                return decision.message
        return self._message(pod) or "the pod waits for no node"


def _is_simple(pod: Pod, profile: Profile) -> bool:
    """Return True for a pod that no gate or plugin keeps from the queue and that has no resource claims or pod group."""
    spec = pod.spec
    return not (spec.scheduling_gates or spec.resource_claims or spec.scheduling_group or _waits(profile))


def _waits(profile: Profile) -> bool:
    """Return True if a third-party plugin may keep pods from the queue."""
    return any(step.name not in _BUILT_IN_GATES for step in profile.at("preEnqueue"))


_BUILT_IN_GATES: Final = frozenset(["SchedulingGates", "DefaultPreemption", "DynamicResources", "GangScheduling"])
