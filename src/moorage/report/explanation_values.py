"""The values of an explanation: why a pod is pending, or why it is on its node.

``to_dict`` gives the document (``kind: Explanation``, ``docs/reference/explanation.md``).
Nodes are given as positions in one table of names, so that groups of thousands of nodes stay small.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from moorage.report.answer import Answer, AnswerRequest, Proof, plain
from moorage.report.outcome import RefusedPods
from moorage.report.run_document import refused_data
from moorage.report.score_values import ScoreReport

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


class RefusalReport(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One reason of one plugin for refusing a node.

    ``detail`` describes what was found on the node ``detail_node`` of the group; ``numbers`` has the same in numbers.
    ``stage``: ``preFilter``, ``filter``, or ``nominated`` for a node that is full only with the pods nominated to it.
    """

    plugin: str
    reason: str
    resolvable: bool = msgspec.field()
    stage: str = "filter"
    error: bool = False
    detail: str = ""
    terms: tuple[str, ...] = ()
    numbers: Mapping[str, int] = {}


class NodeGroup(Struct, frozen=True, rename="camel"):
    """Nodes that are refused for equal reasons; the details describe ``nearest``, the one that lacks least.

    ``varied``: other nodes of the group differ in their details.
    """

    nodes: tuple[int, ...]
    refusals: tuple[RefusalReport, ...]
    nearest: int
    cost: float | None = None
    varied: bool = False


class FunnelStep(Struct, frozen=True, rename="camel"):
    """One plugin in running order: nodes left before and after it; ``alone``: nodes that only this plugin refuses."""

    plugin: str
    before: int
    after: int
    alone: int
    stage: str = "filter"
    skipped: bool = False


class ConflictTerm(Struct, frozen=True):
    """One constraint: a term of a plugin."""

    plugin: str
    term: str


class NearestNode(Struct, frozen=True):
    """The node that lacks least, and what it lacks."""

    node: int
    refusals: tuple[RefusalReport, ...]
    hints: tuple[str, ...] = ()


class PodStanding(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The state of the pod apart from the nodes: what it waits for, until when, and which events end the wait.

    ``name`` is one of: notCreated, ended, beingDeleted, otherScheduler, gated, backingOff, unschedulable, active, starved,
    nominated, permit, binding, group, placed, error. ``causes`` are sentences on causes outside the nodes' capacity, such as
    claims and conditions.
    """

    name: str
    text: str = ""
    attempts: int = 0
    until_seconds: float | None = None
    ended_by: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    fits_once_released: bool | None = None
    nominated_node: str = ""


class ExplainRequest(AnswerRequest, frozen=True, kw_only=True):
    """The question, and the input that it was asked about; ``pod`` is ``namespace/name``."""

    pod: str


class ExplanationValues(Answer, frozen=True, kw_only=True):
    """The answer. ``outcome``: pending, placed, preempts, gated, notOurs, notCreated or ended; ``summary`` is the first line.

    ``changes`` are the least changes that would place the pod; ``no_change_helps``: none is known but those ``left_out``,
    which no one should make; ``needs``: the node that it needs then, in words, if no node is large enough.
    ``not_created``: pods that a quota or a limit range refused.
    """

    KIND = "Explanation"

    request: ExplainRequest
    outcome: str
    standing: PodStanding
    node: str = ""
    nodes: tuple[str, ...] = ()
    funnel: tuple[FunnelStep, ...] = ()
    groups: tuple[NodeGroup, ...] = ()
    conflicts: tuple[tuple[ConflictTerm, ...], ...] = ()
    eligible_conflict: tuple[ConflictTerm, ...] = ()
    nearest: NearestNode | None = None
    changes: tuple[ChangeReport, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    no_change_helps: bool = False
    needs: str = ""
    preemption: PreemptionReport | None = None
    scores: ScoreReport | None = None
    not_created: RefusedPods | None = None
    message: str = ""
    proof: Proof = Proof("exhaustive")

    @property
    def pod(self) -> str:
        return self.request.pod

    @property
    def holds(self) -> bool | None:
        """Whether the pod has a node, or needs none; None if the search for changes ended at a limit and found none."""
        if self.outcome not in {"pending", "gated", "notCreated", "notOurs"}:
            return True
        return None if self.proof.kind == "bounded" and not self.changes else False

    def _node_names(self) -> Collection[str]:
        return self.nodes

    def _question(self) -> Mapping[str, Any]:
        return {"explain": self.pod, **self.request.question}

    def _answer(self) -> dict[str, Any]:
        found = self._encodable()
        if self.preemption is not None:
            found["preemption"] = msgspec.json.decode(msgspec.json.encode(self.preemption))
        return found

    def _encodable(self) -> dict[str, Any]:
        # The report on preemption has a part for each node, and omits fields without a value by itself.
        nearest, scores, preemption = plain(self.nearest), plain(self.scores), self.preemption
        parts = {"node": self.node or None, "nearestMiss": nearest, "preemption": preemption, "scores": scores}
        return {
            "pod": self.pod,
            "outcome": self.outcome,
            "state": plain(self.standing),
            "nodes": list(self.nodes),
            "funnel": plain(self.funnel),
            "groups": plain(self.groups),
            "conflicts": plain(self.conflicts),
            "changes": list(msgspec.to_builtins(self.changes)),
            "leftOut": plain(self.left_out),
            "message": self.message,
            **({} if self.not_created is None else {"notCreated": refused_data([self.not_created])[0]}),
            **{name: part for name, part in parts.items() if part is not None},
        }
