"""The values of outages: what happens when nodes, zones or other domains are lost."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from moorage.report.plan_values import MovedPod

__all__ = ["NodeLoss", "SurvivalFix"]


class NodeLoss(Struct, frozen=True, rename="camel"):
    """What happens when some nodes are lost.

    ``lost``           what is lost: a node, a zone, or the value of a label; two of them are joined with " + "
    ``nodes``          the lost nodes, and ``pods`` how many pods are on them
    ``pending``        the pods that are pending afterwards, and were not before
    ``lost_for_good``  pods that no controller replaces
    ``preempted``      pods that are evicted to make room
    ``stuck``          pods that cannot leave: their node is unreachable, and a StatefulSet waits for them
    ``moves``          how many pods are placed elsewhere
    ``moved``          the pods of the nodes, and the nodes of their replacements: ``to`` is empty for pending and lost pods
    ``by_priority``    how many pods are pending, by priority class, or by priority if it has no name; "" for neither
    ``why``            why the first pending pod is not placed: the message of kube-scheduler's event
    ``same_as``        the loss of equal nodes, which was computed instead of this one
    """

    lost: str
    nodes: tuple[str, ...]
    pods: int
    pending: tuple[str, ...] = ()
    lost_for_good: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    moves: int = 0
    by_priority: Mapping[str, int] = {}
    pending_cpu_milli: int = 0
    pending_memory_bytes: int = 0
    free_cpu_milli: int = 0
    free_memory_bytes: int = 0
    why: str | None = None
    same_as: str | None = None
    moved: tuple[MovedPod, ...] | None = None


class SurvivalFix(Struct, frozen=True, rename="camel"):
    """Changes after which no loss leaves a pod pending; an engine run of every loss verified it.

    ``notes``  the effect of cheaper changes
    """

    cost: float
    changes: tuple[str, ...]
    commands: tuple[str, ...]
    notes: tuple[str, ...] = ()
