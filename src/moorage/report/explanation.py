"""Why a pod is pending, or why it is on its node: ``Explanation`` and its parts."""

from __future__ import annotations

from moorage.report.answer import Assumption, Proof
from moorage.report.explanation_text import explanation_text
from moorage.report.explanation_values import (
    ConflictTerm,
    ExplainRequest,
    ExplanationValues,
    FunnelStep,
    NearestNode,
    NodeGroup,
    PodStanding,
    RefusalReport,
)

__all__ = [
    "Assumption",
    "ConflictTerm",
    "ExplainRequest",
    "Explanation",
    "FunnelStep",
    "NearestNode",
    "NodeGroup",
    "PodStanding",
    "Proof",
    "RefusalReport",
]


class Explanation(ExplanationValues, frozen=True, kw_only=True):
    """The answer of ``moorage explain``, with its text; see ``ExplanationValues``."""

    def _text(self, *, wide: bool) -> str:
        return explanation_text(self, wide=wide)
