"""Starved pods: they fit now if they are tried alone, but not when the pods ahead of them in the queue are tried first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.basis.printable import counted, some
from moorage.report.explanation import Explanation

#: Maximum number of pods ahead of a pod for which they are tried first.
MOST_AHEAD: Final = 1000
_IN_QUEUE: Final = frozenset({"active", "unschedulable", "backingOff"})


def may_starve(explanation: Explanation, ahead: Sequence[Pod]) -> bool:
    """Return whether a pod is in the queue, fits now, and has other pods ahead of it."""
    return explanation.standing.name in _IN_QUEUE and explanation.scores is not None and 0 < len(ahead) <= MOST_AHEAD


def starved(explanation: Explanation, pod: Pod, ahead: Sequence[Pod]) -> Explanation:
    """Return the explanation of a pod that fits on no node after the pods ahead of it were tried."""
    own, highest = pod.spec.priority or 0, max(one.spec.priority or 0 for one in ahead)
    are = (
        f"the pod ahead of it in the queue ({ahead[0].key}) is"
        if len(ahead) == 1
        else (f"the {counted(len(ahead), 'pod')} ahead of it in the queue ({some([one.key for one in ahead])}) are")
    )
    why = f"it fits now if it is tried alone, but not after {are} tried"
    last = f"its priority is {own}, and that of the pods ahead is up to {highest}"
    text = f"{why[0].upper()}{why[1:]}; {last}"
    ended_by = (f"a priority above {highest}", "room for the pods ahead of it as well")
    return replace(
        explanation,
        summary=f"{explanation.request.pod} is pending: {why}.",
        standing=replace(explanation.standing, name="starved", text=text, ended_by=ended_by),
    )
