"""``DrainReport``: whether nodes can be drained, and what happens to their pods."""

from __future__ import annotations

from typing import Any, ClassVar

from moorage.report.answer import Answer, plain
from moorage.report.drain_text import drain_text
from moorage.report.drain_values import DrainedNode, DrainedPod, LossInstead, RefusedPod

__all__ = ["DrainReport"]


class DrainReport(Answer, frozen=True, kw_only=True):
    """What ``kubectl drain`` does to nodes and their pods. Times are seconds since the drain began.

    ``possible``       kubectl drains all nodes
    ``refused``        the pods that kubectl refuses to evict
    ``evicted``        the pods that are evicted, in order
    ``pods``           every pod of the nodes
    ``pending``        pods that are pending afterwards and were not before
    ``preempted``      pods that are evicted to make room for replacements
    ``deadlock``       True if evictions wait for budgets that only a pending pod could restore
    ``nodes``          the nodes in the order in which they are drained
    ``ready_seconds``  when the last replacement is ready
    ``if_lost``        what happens if the nodes are lost instead
    """

    KIND: ClassVar[str] = "DrainReport"

    possible: bool
    refused: tuple[RefusedPod, ...] = ()
    evicted: tuple[str, ...] = ()
    pods: tuple[DrainedPod, ...] = ()
    pending: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    deadlock: bool = False
    nodes: tuple[DrainedNode, ...] = ()
    ready_seconds: float | None = None
    if_lost: LossInstead | None = None

    @property
    def holds(self) -> bool | None:
        """True if the nodes can be drained and no pod is pending afterwards; None if another order may make it so."""
        if self.possible and not self.pending:
            return True
        return False if self.stopped is None else None

    def _answer(self) -> dict[str, Any]:
        found: dict[str, Any] = plain(
            {
                "possible": self.possible,
                "refused": self.refused,
                "evicted": self.evicted,
                "pods": self.pods,
                "pending": self.pending,
                "preempted": self.preempted,
                "deadlock": self.deadlock,
                "nodes": self.nodes,
                "order": [node.name for node in self.nodes],
                "readySeconds": self.ready_seconds,
                "ifLost": self.if_lost,
            }
        )
        return found

    def _text(self, *, wide: bool) -> str:
        return drain_text(self, wide=wide)
