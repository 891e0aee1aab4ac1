"""How often Moorage decides as the scheduler of the cluster does, by plugin, and the decisions that differ."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

from msgspec import Struct

__all__ = ["Agreement", "ComparedDecision", "Match"]

#: How many differences are kept in memory. The log has all.
_KEPT: Final = 50


class Match(Enum):
    """The result of a comparison."""

    SAME = "same"
    EQUAL_SCORE = "equal score"
    SAMPLED = "best of a sample"
    REORDERED = "same in another order"
    DIFFERENT = "different"

    @property
    def agrees(self) -> bool:
        return self is not Match.DIFFERENT


class ComparedDecision(Struct, frozen=True):
    """A decision of the cluster's scheduler beside that of Moorage on the state before it.

    ``node`` and ``ours`` are the nodes chosen, "" for none; ``message`` and ``our_message`` the reasons of a failure.
    ``plugins`` made the difference. ``reordered_by``: how many other pods were moved before or after this one.
    """

    pod: str
    uid: str
    verdict: Match
    node: str = ""
    ours: str = ""
    message: str = ""
    our_message: str = ""
    plugins: tuple[str, ...] = ()
    margin: int = 0
    reordered_by: int = 0

    @property
    def is_binding(self) -> bool:
        return bool(self.node)

    def facts(self) -> dict[str, Any]:
        """Return the comparison as plain data, without what is empty."""
        values = {
            "pod": self.pod, "uid": self.uid, "verdict": self.verdict.value, "node": self.node, "ours": self.ours,
            "message": self.message, "ourMessage": self.our_message, "plugins": list(self.plugins), "margin": self.margin,
        }  # fmt: skip
        return {name: value for name, value in values.items() if value}


class Agreement:
    """Counts comparisons. ``uncompared`` counts decisions that were not compared, by the reason."""

    def __init__(self) -> None:
        self.bindings: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        #: Plugins that made a difference → in how many comparisons.
        self.plugins: Counter[str] = Counter()
        self.uncompared: Counter[str] = Counter()
        self.differences: deque[dict[str, Any]] = deque(maxlen=_KEPT)

    def count(self, found: ComparedDecision, at: int) -> None:
        """Count a comparison made at a time of the log."""
        (self.bindings if found.is_binding else self.failures)[found.verdict.value] += 1
        if not found.verdict.agrees:
            self.plugins.update(found.plugins)
            self.differences.append({"at": at, **found.facts()})

    @property
    def compared(self) -> int:
        return self.bindings.total() + self.failures.total()

    @property
    def share(self) -> float | None:
        """The share of decisions that agree; None before the first."""
        different = self.bindings[Match.DIFFERENT.value] + self.failures[Match.DIFFERENT.value]
        return 1 - different / self.compared if self.compared else None

    def go_on(self, facts: Mapping[str, Any], differences: Iterable[dict[str, Any]] = ()) -> None:
        """Count on from what an earlier recorder of the same log counted: its ``facts`` and kept differences."""
        for name in ("bindings", "failures", "plugins", "uncompared"):
            getattr(self, name).update(facts.get(name, {}))
        self.differences.extend(differences)

    def facts(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        return {
            "compared": self.compared, "share": self.share, "bindings": dict(self.bindings), "failures": dict(self.failures),
            "plugins": dict(self.plugins), "uncompared": dict(self.uncompared),
        }  # fmt: skip
