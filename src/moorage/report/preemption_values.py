"""What preemption would do for a pod, as values."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["PreemptionNode", "PreemptionReport", "VictimReport"]


class VictimReport(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A pod that would be evicted; ``budgets`` names the disruption budgets that this violates.

    ``short_of`` says why it cannot stay: what the preemptor lacks if this pod is put back.
    """

    pod: str
    priority: int
    budgets: tuple[str, ...] = ()
    short_of: str = ""


class PreemptionNode(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One node's verdict: notHelpful, noLowerPriority, notEnough, candidate or notEvaluated.

    ``considered``: the scheduler's decision evaluated the node, not only this explanation. ``spared`` are pods of lower
    priority that stay.
    """

    node: int
    verdict: str
    considered: bool
    plugin: str = ""
    reason: str = ""
    victims: tuple[VictimReport, ...] = ()
    spared: tuple[str, ...] = ()
    violations: int = 0
    highest_priority: int = 0
    priority_sum: int = 0
    latest_start: str = ""


class PreemptionReport(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Preemption for one pod. ``summary`` is one sentence; ``chosen`` is a node, ``decided_by`` the criterion that chose it.

    ``reprieve`` names the pods of the chosen node in the order in which they were put back.
    ``lowest_priority``: the least priority at which a candidate appears, None if there is none.
    """

    summary: str
    nodes: tuple[PreemptionNode, ...] = ()
    chosen: int | None = None
    decided_by: str = ""
    not_eligible: str = ""
    reprieve: tuple[str, ...] = ()
    lowest_priority: int | None = None
