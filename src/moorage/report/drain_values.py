"""The values of a drain: what happens to each node and pod, and what would happen if the nodes were lost instead.

``DrainReport`` has the document (``docs/reference/drain.md``) and the text. Times are seconds since the drain began.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

__all__ = ["DrainOutcome", "DrainedNode", "DrainedPod", "LossInstead", "RefusedPod"]

#: What happens to a pod. ``never`` waits for a budget that never allows it, ``lost`` is not replaced, ``finished`` had ended.
DrainOutcome: TypeAlias = Literal["moves", "waits", "never", "refused", "stays", "lost", "pending", "finished"]


class RefusedPod(Struct, frozen=True, rename="camel"):
    """A pod that kubectl refuses to evict. ``text`` is kubectl's own."""

    pod: str
    rule: str
    text: str


class DrainedPod(Struct, frozen=True, rename="camel"):
    """What happens to one pod of a drained node.

    ``node``         the final node of the pod or of its replacement
    ``at``           ``waits``: when the eviction is allowed; ``moves``: when its replacement is placed; else when it leaves
    ``budget``       the budgets that refused the eviction at first or for good, as ``namespace/name``
    ``why``          the message of kubectl, of the eviction subresource, or of the scheduler
    ``origin``       the node that it leaves
    ``replacement``  the pod that its controller makes instead
    """

    pod: str
    outcome: DrainOutcome
    node: str | None = None
    at: float | None = None
    budget: str | None = None
    why: str | None = None
    origin: str = ""
    replacement: str | None = None
    evicted_seconds: float | None = None
    gone_seconds: float | None = None
    placed_seconds: float | None = None


class DrainedNode(Struct, frozen=True, rename="camel"):
    """One node: whether it is drained, when kubectl begins and ends, and kubectl's own errors."""

    name: str
    drained: bool
    begin_seconds: float | None = None
    done_seconds: float | None = None
    errors: tuple[str, ...] = ()


class LossInstead(Struct, frozen=True, rename="camel"):
    """The result if the nodes are lost instead: how many pods move, stay pending and are lost for good."""

    moves: int
    pending: tuple[str, ...] = ()
    lost_for_good: tuple[str, ...] = ()
