"""The outcomes of trying pods: the node of each one or why it has none; and the nodes that accept a pod."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from moorage.api.core import Pod
from moorage.core.cycle.decision import Decision
from moorage.core.engine.scheduler import Scheduler
from moorage.laboratory.frames import ColumnFrame
from moorage.simulator.simulation import SimulatedCluster

__all__ = ["Feasibility", "PodPlacement", "placement_of"]


class PodPlacement(Struct, frozen=True):
    """The outcome of one attempt for one pod.

    ``node``       where the pod was placed; None if it was not
    ``message``    why it was not placed: the message of kube-scheduler's event
    ``nominated``  the nominated node, on which the pod waits for victims to terminate
    ``victims``    the pods that are evicted for it, as ``namespace/name``
    ``feasible``   how many nodes it fitted on; ``evaluated`` how many were looked at
    """

    pod: str
    node: str | None = None
    message: str = ""
    nominated: str = ""
    victims: tuple[str, ...] = ()
    feasible: int = 0
    evaluated: int = 0

    def __bool__(self) -> bool:
        return self.node is not None


class Feasibility(Struct, frozen=True):
    """The nodes that accept one pod now. ``message`` is empty if there are any.

    ``nodes``     the names of the nodes that no Filter plugin refuses
    ``verdicts``  one row for each refusal: ``node``, ``plugin``, ``reason``, and whether eviction could resolve it
    """

    pod: str
    nodes: list[str]
    verdicts: ColumnFrame
    message: str = ""

    def __bool__(self) -> bool:
        return bool(self.nodes)


def placement_of(simulation: SimulatedCluster, pod: Pod, decisions: Sequence[Decision]) -> PodPlacement:
    """Return the outcome of an attempt for a pod that ended with these decisions."""
    now = simulation.pods.get(pod.metadata.uid, pod)
    last = decisions[-1] if decisions else None
    if now.spec.node_name:
        feasible, evaluated = (0, 0) if last is None else (last.feasible, last.evaluated)
        return PodPlacement(pod.key, now.spec.node_name, feasible=feasible, evaluated=evaluated)
    scheduler = simulation.scheduler
    if last is None:
        return PodPlacement(pod.key, message=_why_untried(now, scheduler))
    after = last.post_filter
    return PodPlacement(
        pod.key,
        message=last.message or f"waits to be bound to {last.node}",
        nominated=scheduler.queue.nomination(now.metadata.uid) or "",
        victims=() if after is None else tuple(victim.key for victim in after.victims),
        evaluated=last.evaluated,
    )


def _why_untried(pod: Pod, scheduler: Scheduler) -> str:
    queued = scheduler.queue.get(pod.metadata.uid)
    if queued is not None and queued.gate is not None:
        return ", ".join(queued.gate.reasons)
    if pod.spec.scheduler_name not in scheduler.profiles:
        return f"no profile has the name {pod.spec.scheduler_name}"
    return "the pod waits for no node"
