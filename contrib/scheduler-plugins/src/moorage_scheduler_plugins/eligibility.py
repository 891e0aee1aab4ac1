"""Whether a pod may preempt others at all."""

from __future__ import annotations

from typing import Final

from moorage.framework.points import Attempt
from moorage.framework.verdicts import Code
from moorage.state.view import PodInfo

NEVER: Final = "not eligible due to preemptionPolicy=Never."
TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."


def why_not(pod: PodInfo, attempt: Attempt) -> str:
    """Return why a pod may not preempt; "" if it may. It waits for lesser pods that terminate on its nominated node."""
    if pod.spec.preemption_policy == "Never":
        return NEVER
    row = attempt.snapshot.table.row_of.get(pod.status.nominated_node_name)
    status = None if row is None else attempt.verdicts.status(row)
    if row is None or (status is not None and status.code is Code.UNRESOLVABLE):
        return ""
    others = attempt.snapshot.table.pods[row].values()
    return TERMINATING if any(other.terminating and other.priority < pod.priority for other in others) else ""
