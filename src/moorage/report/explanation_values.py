"""The values of an explanation: why a pod is pending, or why it is on its node.

``to_dict`` gives the document (``kind: Explanation``, ``docs/reference/explanation.md``).
Nodes are given as positions in one table of names, so that groups of thousands of nodes stay small.
"""

from __future__ import annotations

from msgspec import Struct

__all__ = ["AtomReport", "ChangeReport", "LeftOut", "PreemptionNode", "PreemptionReport", "VictimReport"]


class AtomReport(Struct, frozen=True, rename="camel"):
    """One change of one object: ``path`` is the field, ``old`` and ``new`` its values, ``text`` the change in words."""

    owner: str
    verb: str
    target: str
    text: str
    cost: float
    path: str
    old: str | int | bool | None
    new: str | int | bool | None


class ChangeReport(Struct, frozen=True, rename="camel"):
    """Changes that together place the pod on one of ``nodes``. ``displaced`` pods give way, ``stranded`` ones find no place.

    ``minimal``: no subset of the changes is enough. ``alike``: the same change of other objects, at the same cost.
    ``kind``: what people call it, such as ``correct`` or ``move``. ``who`` makes it, and ``effects`` are what else happens.
    """

    owner: str
    cost: float
    atoms: tuple[AtomReport, ...]
    commands: tuple[str, ...]
    nodes: tuple[int, ...]
    displaced: tuple[str, ...] = ()
    stranded: tuple[str, ...] = ()
    minimal: bool = True
    alike: tuple[str, ...] = ()
    kind: str = ""
    who: str = ""
    effects: tuple[str, ...] = ()


class LeftOut(Struct, frozen=True, rename="camel"):
    """How many changes are not offered, and why."""

    reason: str
    text: str
    changes: int


# -- preemption values -------------------------------------------------------------------------------------------------


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
