"""Scores on the scale from 0 to 100."""

from __future__ import annotations

import numpy as np

from moorage.state.view import IntArray

MOST = 100


def spread(scores: IntArray) -> IntArray:
    """Map the lowest score to 0 and the highest to 100, the others linearly between; all to 0 if they are equal."""
    if not len(scores):
        return scores
    lowest, highest = int(scores.min()), int(scores.max())
    if lowest == highest:
        return np.zeros(len(scores), dtype=np.int64)
    # Python's integers do not overflow, as differences of bytes times weights may.
    return np.fromiter(((int(s) - lowest) * MOST // (highest - lowest) for s in scores), dtype=np.int64, count=len(scores))
