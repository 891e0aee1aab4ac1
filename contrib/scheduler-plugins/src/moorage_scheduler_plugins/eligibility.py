"""Whether a pod may preempt others at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moorage.framework.points import Attempt
from moorage.framework.verdicts import Code
from moorage.state.view import PodInfo

NEVER: Final = "not eligible due to preemptionPolicy=Never."
TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."


def why_not(pod: PodInfo, attempt: Attempt, may_go: Callable[[PodInfo], bool] | None = None) -> str:
    """Return why a pod may not preempt; "" if it may. It waits for victims that terminate on its nominated node.

    ``may_go``  whether it may preempt another pod; None: those of less priority
    """
    if pod.spec.preemption_policy == "Never":
        return NEVER
    row = attempt.snapshot.table.row_of.get(pod.status.nominated_node_name)
    status = None if row is None else attempt.verdicts.status(row)
    if row is None or (status is not None and status.code is Code.UNRESOLVABLE):
        return ""
    leaving = (other for other in attempt.snapshot.table.pods[row].values() if other.terminating)
    return TERMINATING if any(other.priority < pod.priority if may_go is None else may_go(other) for other in leaving) else ""
