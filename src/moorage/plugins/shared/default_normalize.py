"""The usual normalization of raw scores to 0-100: the highest becomes 100, the others keep their proportion to it.

Source  kube-scheduler, framework/plugins/helper/normalize_score.go
"""

from __future__ import annotations

import numpy as np

from moorage.state.columns import IntArray


def default_normalize(scores: IntArray, reverse: bool = False, highest: int = 100) -> IntArray:
    """Scale scores so that the highest becomes ``highest``; with ``reverse``, so that the highest becomes 0.

    Shapes  scores (n,), returns (n,), both int64; returns ``scores`` itself if nothing changes
    Rounds  towards zero, before the reversal, as Go divides
    If no score is above zero, scores stay as they are; with ``reverse`` all become ``highest``.
    """
    greatest = int(scores.max(initial=0))
    if greatest <= 0:
        return np.full_like(scores, highest) if reverse else scores
    scaled = _divided(highest * scores, greatest)
    return highest - scaled if reverse else scaled


def _divided(scores: IntArray, by: int) -> IntArray:
    """Divide and round towards zero; NumPy rounds down, which differs below zero."""
    quotient: IntArray = np.sign(scores) * (np.abs(scores) // by)
    return quotient
