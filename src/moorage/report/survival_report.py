"""``Survival`` and ``FailureReport``: what happens when nodes, zones or other domains are lost."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct

from moorage.report.answer import Answer, plain
from moorage.report.outage_values import NodeLoss, SurvivalFix
from moorage.report.survival_text import failure_text, survival_text

__all__ = ["FailureReport", "SpareReport", "Survival"]


class SpareReport(Struct, frozen=True, rename="camel"):
    """The fewest spare nodes like ``like`` with which every loss is survived; if ``nodes`` is None, more than ``tried``."""

    like: str
    tried: int
    nodes: int | None = None


class Survival(Answer, frozen=True, kw_only=True):
    """Whether a cluster survives every loss.

    ``over``            what is lost: ``node``, ``zone`` or a label
    ``survives``        None if not every loss was run, and those that were run are survived
    ``failures``        every loss that was run, in the order of the nodes or of the values; ``not_run``: how many were not
    ``worst``           the losses that are worst; several if they are equally bad
    ``pending_before``  pods that are pending without any loss; they are not counted
    ``without``         nodes that are in no domain, and never lost
    ``fix``             changes after which every loss is survived; ``spare``: how many more nodes would have that effect
    """

    KIND: ClassVar[str] = "Survival"

    over: str
    survives: bool | None
    failures: tuple[NodeLoss, ...]
    not_run: int = 0
    worst: tuple[str, ...] = ()
    pending_before: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    fix: SurvivalFix | None = None
    fix_searched: bool = False
    spare: SpareReport | None = None

    @property
    def holds(self) -> bool | None:
        """True if every loss is survived; None if that is not known."""
        return self.survives

    def _answer(self) -> dict[str, Any]:
        found: dict[str, Any] = plain(
            {
                "survives": self.survives,
                "over": self.over,
                "failures": self.failures,
                "notRun": self.not_run or None,
                "worst": self.worst,
                "pendingBefore": self.pending_before,
                "without": self.without,
                "fix": self.fix,
                "spare": self.spare,
            }
        )
        return found

    def _text(self, *, wide: bool) -> str:
        return survival_text(self, wide=wide)


class FailureReport(Answer, frozen=True, kw_only=True):
    """The answer for one given loss: what happens when some nodes are lost at once.

    ``mode``  ``deleted``, or ``unreachable``
    """

    KIND: ClassVar[str] = "Survival"

    mode: str
    loss: NodeLoss

    @property
    def holds(self) -> bool:
        """True if no pod is pending afterwards that was not before."""
        return not self.loss.pending and not self.loss.stuck

    def _answer(self) -> dict[str, Any]:
        worst = () if self.holds else (self.loss.lost,)
        found: dict[str, Any] = plain(
            {
                "survives": self.holds,
                "mode": self.mode,
                "failures": (self.loss,),
                "worst": worst,
                "pendingBefore": (),
                "without": (),
            }
        )
        return found

    def _text(self, *, wide: bool) -> str:
        return failure_text(self, wide=wide)
