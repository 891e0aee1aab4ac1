"""Why a pod is pending, or why it is on its node: ``Explanation`` and its parts."""

from __future__ import annotations

from moorage.report.explanation_text import explanation_text
from moorage.report.explanation_values import (
    Assumption,
    ConflictTerm,
    ExplainRequest,
    ExplanationValues,
    FunnelStep,
    NearestNode,
    NodeGroup,
    PodStanding,
    Proof,
    RefusalReport,
)
from moorage.report.style import Style

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


class Explanation(ExplanationValues, frozen=True):
    """The answer, which ``text`` prints; see ``ExplanationValues``."""

    def text(self, *, wide: bool = False, ascii_only: bool = False, colour: bool = False) -> str:
        """Return what the command prints."""
        return Style(ascii_only=ascii_only, colour=colour).finished(explanation_text(self, wide=wide))
