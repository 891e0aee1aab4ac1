"""The answer of ``moorage compare``: the differences between A and B, how certain they are, and the gates.

``to_dict`` gives the document (``kind: Comparison``, ``docs/reference/compare.md``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from msgspec import Struct

from moorage.report.answer import Answer
from moorage.report.gates import GateResult, MetricComparison, evaluate, parse_gate
from moorage.report.run_values import MeasuredRun, json_number

__all__ = ["ComparisonValues", "MoveCount", "PodMove", "ReleaseChange", "TextChange"]


class MoveCount(Struct, frozen=True):
    """How many pods are on another node in B than in A, ``of`` those that A was to place or evicted; means over seeds.

    ``by_chance``  for each seed, how many of them are on another node in A with the next seed
    """

    pods: float
    of: float
    by_chance: tuple[int, ...] = ()
    within_group: float = 0
    to_another_group: float = 0
    to_another_zone: float = 0
    per_seed: tuple[int, ...] = ()


class PodMove(Struct, frozen=True):
    """A pod that is on another node in B with the first seed; an empty name of a node stands for none."""

    pod: str
    a: str
    b: str


class ReleaseChange(Struct, frozen=True):
    """A difference between the releases of A and B. ``kind``: rule, plugin, default, gate, metric or flag."""

    kind: str
    text: str


class TextChange(Struct, frozen=True):
    """A pod that stays pending in A and in B, with different messages."""

    pod: str
    a: str
    b: str


class ComparisonValues(Answer, frozen=True, kw_only=True):
    """The values of a comparison. ``names`` are those of A and B.

    ``moved``   None if a stored run has no placements
    ``moves``   of the first seed, in order of arrival
    ``runs``    all runs of A and of B, in the order of the seeds
    ``notes``   notes on the input of one side alone, such as a missing plugin
    ``release_changes``  what is different because A and B have different releases
    ``texts``            of the first seed, the texts of pending pods that differ
    """

    KIND: ClassVar[str] = "Comparison"
    NAMES_RELEASE: ClassVar[bool] = False  # the lines of A and B do

    names: tuple[str, str]
    metrics: Mapping[str, MetricComparison]
    extra: Mapping[str, MetricComparison] = {}
    moved: MoveCount | None = None
    moves: tuple[PodMove, ...] = ()
    gates: tuple[GateResult, ...] = ()
    new_pending: tuple[str, ...] = ()
    runs: tuple[tuple[MeasuredRun, ...], tuple[MeasuredRun, ...]] = ((), ())
    notes: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    release_changes: tuple[ReleaseChange, ...] = ()
    texts: tuple[TextChange, ...] = ()

    @property
    def holds(self) -> bool | None:
        """Whether every gate passed; True without gates. None if the gates would read more seeds than were run."""
        if self.gates and self.stopped is not None:
            return None
        return all(gate.passed for gate in self.gates)

    def gate(self, text: str, *, strict: bool = False) -> GateResult:
        """Return whether a gate passes, such as ``pending > +0``.

        Raises  InputError for a text that is no gate, and for a metric that the comparison does not have
        """
        return evaluate(parse_gate(text), {**self.metrics, **self.extra}, strict=strict)

    def _answer(self) -> dict[str, Any]:
        sides = zip(("a", "b"), self.names, self.notes, strict=True)
        return {
            **{side: {"name": name, "notes": list(notes)} for side, name, notes in sides},
            "metrics": {name: _metric(one) for name, one in self.metrics.items()},
            **({} if self.moved is None else {"moved": _moved(self.moved)}),
            "moves": [{"pod": one.pod, "a": one.a, "b": one.b} for one in self.moves],
            "newPending": list(self.new_pending),
            "gates": [{"gate": one.gate, "passed": one.passed, "metric": one.metric, "text": one.text} for one in self.gates],
            "releaseChanges": [{"kind": one.kind, "text": one.text} for one in self.release_changes],
            "texts": [{"pod": one.pod, "a": one.a, "b": one.b} for one in self.texts],
            "runs": {"a": _runs(self.runs[0]), "b": _runs(self.runs[1])},
        }


def _metric(one: MetricComparison) -> dict[str, Any]:
    interval = None if one.interval is None else [json_number(end) for end in one.interval]
    shown: dict[str, Any] = {
        "a": json_number(one.a), "b": json_number(one.b), "difference": json_number(one.difference), "interval": interval,
        "exact": one.exact, "mayBeZero": one.may_be_zero,
    }  # fmt: skip
    return shown | ({"p": json_number(one.p)} if one.p is not None else {})


def _moved(moved: MoveCount) -> dict[str, Any]:
    return {
        "pods": json_number(moved.pods),
        "of": json_number(moved.of),
        "byChance": list(moved.by_chance),
        "withinGroup": json_number(moved.within_group),
        "toAnotherGroup": json_number(moved.to_another_group),
        "toAnotherZone": json_number(moved.to_another_zone),
        "perSeed": list(moved.per_seed),
    }


def _runs(runs: Iterable[MeasuredRun]) -> list[dict[str, Any]]:
    return [
        {
            "seed": run.seed,
            "release": run.release,
            "metrics": {name: json_number(value, exactly=True) for name, value in run.metrics.items()},
            "pending": [{"pod": one.pod, "workload": one.workload, "message": one.message} for one in run.pending],
        }
        for run in runs
    ]
