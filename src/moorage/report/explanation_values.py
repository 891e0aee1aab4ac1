"""The values of an explanation: why a pod is pending, or why it is on its node.

``to_dict`` gives the document (``kind: Explanation``, ``docs/reference/explanation.md``).
Nodes are positions in one table of names, so that groups of thousands of nodes stay small.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from moorage.report.change_values import ChangeReport
from moorage.report.preemption_values import PreemptionReport
from moorage.report.run_document import API_VERSION
from moorage.report.score_values import ScoreReport

__all__ = [
    "Assumption",
    "ConflictTerm",
    "ExplainRequest",
    "ExplanationValues",
    "FunnelStep",
    "NearestNode",
    "NodeGroup",
    "PodStanding",
    "Proof",
    "RefusalReport",
]  # fmt: skip


class RefusalReport(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One reason of one plugin for refusing a node.

    ``detail`` says what is there instead, for the node ``detail_node`` of the group; ``numbers`` has the same in numbers.
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
    """Nodes that are refused for equal reasons; ``nearest`` is the one that lacks least, which the details describe."""

    nodes: tuple[int, ...]
    refusals: tuple[RefusalReport, ...]
    nearest: int
    cost: float | None = None


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
    """Where the pod stands outside the verdicts of nodes: what it waits for, until when, and what would end that.

    ``name`` is one of: notCreated, ended, beingDeleted, otherScheduler, gated, backingOff, unschedulable, active, nominated,
    permit, group, placed, error. ``causes`` are sentences on claims, conditions and other causes that are not the nodes'.
    """

    name: str
    text: str = ""
    attempts: int = 0
    until_seconds: float | None = None
    ended_by: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    fits_once_released: bool | None = None
    nominated_node: str = ""


class Proof(Struct, frozen=True, rename="camel", omit_defaults=True):
    """How certain the answer is: ``exhaustive``, ``bound``, ``run`` or ``bounded``; how many engine runs and probes it took."""

    kind: str
    runs: int = 0
    probes: int = 0
    lower_bound: float | None = None


class Assumption(Struct, frozen=True):
    """Something that the answer rests on and that the input does not say."""

    name: str
    value: str


class ExplainRequest(Struct, frozen=True):
    """What was asked, of which input."""

    pod: str
    release: str
    seed: int
    digest: str = ""
    files: tuple[str, ...] = ()
    taken_at: str = ""
    notes: tuple[str, ...] = ()


class ExplanationValues(Struct, frozen=True):
    """The answer. ``outcome``: pending, placed, preempts, gated, notOurs, notCreated or ended; ``summary`` is the first line.

    ``changes`` are the least changes that would place the pod; ``no_change_helps``: there is none among those known.
    """

    request: ExplainRequest
    outcome: str
    summary: str
    standing: PodStanding
    node: str = ""
    nodes: tuple[str, ...] = ()
    funnel: tuple[FunnelStep, ...] = ()
    groups: tuple[NodeGroup, ...] = ()
    conflicts: tuple[tuple[ConflictTerm, ...], ...] = ()
    eligible_conflict: tuple[ConflictTerm, ...] = ()
    nearest: NearestNode | None = None
    changes: tuple[ChangeReport, ...] = ()
    no_change_helps: bool = False
    preemption: PreemptionReport | None = None
    scores: ScoreReport | None = None
    message: str = ""
    proof: Proof = Proof("exhaustive")
    assumptions: tuple[Assumption, ...] = ()

    @property
    def pod(self) -> str:
        return self.request.pod

    def to_dict(self) -> dict[str, Any]:
        """Return the document as plain data. A field without a value is absent."""
        asked = self.request
        given: dict[str, Any] = {"digest": asked.digest, "files": list(asked.files), "notes": list(asked.notes)}
        return {
            "apiVersion": API_VERSION,
            "kind": "Explanation",
            "release": asked.release,
            "seeds": [asked.seed],
            "input": given | ({"takenAt": asked.taken_at} if asked.taken_at else {}),
            "question": {"explain": asked.pod},
            "summary": self.summary,
            "answer": self._answer(),
            "proof": _plain(self.proof),
            "assumptions": _plain(self.assumptions),
        }

    def _answer(self) -> dict[str, Any]:
        parts = {
            "node": self.node or None, "nearestMiss": self.nearest, "preemption": self.preemption, "scores": self.scores,
        }  # fmt: skip
        return {
            "pod": self.pod,
            "outcome": self.outcome,
            "state": _plain(self.standing),
            "nodes": list(self.nodes),
            "funnel": _plain(self.funnel),
            "groups": _plain(self.groups),
            "conflicts": _plain(self.conflicts),
            "changes": list(msgspec.to_builtins(self.changes)),
            "message": self.message,
            **{name: _plain(part) for name, part in parts.items() if part is not None},
        }


def _plain(value: Any) -> Any:
    """Return a value as plain data, without the fields of structs that have no value."""
    return _without_none(msgspec.to_builtins(value))


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(part) for name, part in value.items() if part is not None}
    return [_without_none(part) for part in value] if isinstance(value, list | tuple) else value
