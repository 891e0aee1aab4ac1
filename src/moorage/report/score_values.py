"""Why a node was chosen, as values: contributions of plugins, the margin, and what would flip the choice."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from moorage.report.answer import Answer, AnswerRequest, Proof, plain
from moorage.report.explanation_values import ChangeReport, LeftOut, PreemptionReport
from moorage.report.outcome import RefusedPods
from moorage.report.run_document import refused_data


class ScoreShare(Struct, frozen=True, rename="camel"):
    """One plugin's score of one node: raw, normalised to 0-100, and weighted."""

    plugin: str
    raw: int
    normalised: int
    weight: int
    contribution: int


class NodeTotal(Struct, frozen=True, rename="camel"):
    """One feasible node: its rank (1 for the highest total), its total, and the parts that add up to it."""

    node: int
    rank: int
    total: int
    shares: tuple[ScoreShare, ...]


class Flip(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A single change that would move the pod to another node; at ``ties_at`` both nodes have equal totals.

    ``kind``: weight, disable, usage, label or withoutNode.
    """

    kind: str
    text: str
    to: int | None = None
    plugin: str = ""
    at: int | None = None
    ties_at: int | None = None


class ScoreReport(Struct, frozen=True, rename="camel"):
    """How the node was chosen; ``margin`` is the winner's lead over ``runner_up``, ``split`` how plugins add up to it.

    ``tied`` are the nodes that share the highest total. ``unscored`` counts feasible nodes that a sampled search left out.
    """

    nodes: tuple[NodeTotal, ...]
    winner: int
    runner_up: int | None
    margin: int
    near_tie: bool
    tied: tuple[int, ...] = ()
    split: Mapping[str, int] = {}
    flips: tuple[Flip, ...] = ()
    feasible: int = 0
    refused: int = 0
    unscored: int = 0


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
    which no one should make.
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
