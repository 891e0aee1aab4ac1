"""``NodePlan``: which nodes to buy or to remove."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from moorage.report.plan_text import plan_summary, plan_text
from moorage.report.plan_values import NodePlanValues

__all__ = ["NodePlan"]


class NodePlan(NodePlanValues, frozen=True):
    """The answer of ``moorage plan``; see ``NodePlanValues``."""

    def with_values(self, **values: Any) -> NodePlan:
        """Return the answer with these values, and with its summary set."""
        whole = replace(self, **values)
        return replace(whole, summary=plan_summary(whole))

    def _text(self, *, wide: bool) -> str:
        return plan_text(self, wide=wide)
