"""Which nodes the Filter plugins accept for a pod, and why not the others. Scores, preemption and extenders play no part.

``Cluster.feasible``, cluster-autoscaler and the environments of ``learning`` ask this. Nothing changes or is remembered.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.decision import Decision
from moorage.core.cycle.search import EVERYWHERE, SearchScope
from moorage.core.engine.scheduler import Scheduler
from moorage.framework.profile import Profile
from moorage.state.pod_info import PodInfo

#: A cycle that filters every node and caches nothing.
_JUDGE: Final = Cycle(by_class=False, nominated_first=False, errors_end=False)
#: Profile → its Filter plugins alone.
_FILTERING: WeakKeyDictionary[Profile, Profile] = WeakKeyDictionary()


def no_profile(pod: PodInfo) -> str:
    """Return why a pod cannot be judged: no profile has its scheduler name."""
    return f"no profile has the name {pod.spec.scheduler_name}"


def filtered(scheduler: Scheduler, pod: PodInfo, scope: SearchScope = EVERYWHERE) -> Decision | None:
    """Return the decision of the Filter plugins, with the verdict on every node of ``scope``; None without a profile."""
    profile = scheduler.profiles.get(pod.spec.scheduler_name)
    if profile is None:
        return None
    alone = _FILTERING.get(profile)
    if alone is None:
        alone = _FILTERING[profile] = replace(profile.without_scores(), percentage_of_nodes_to_score=100)
    scope = replace(scope, post_filter=False)
    return _JUDGE.decide(alone, pod, scheduler.snapshot, scheduler.queue.nominated, scope)


def fitting_rows(scheduler: Scheduler, pod: PodInfo) -> npt.NDArray[np.intp]:
    """Return the rows of the node table that no Filter plugin refuses for a pod."""
    decision = filtered(scheduler, pod)
    if decision is None or decision.node is None or decision.verdicts is None:
        return np.zeros(0, dtype=np.intp)
    return np.flatnonzero(decision.verdicts.ids == 0)


def refusal(scheduler: Scheduler, pod: PodInfo, row: int) -> tuple[str, ...] | None:
    """Return why the Filter plugins refuse a pod on the node of a row; None if they accept it."""
    decision = filtered(scheduler, pod, SearchScope(np.array([row], dtype=np.intp)))
    if decision is None:
        return (no_profile(pod),)
    if decision.verdicts is None:
        return (decision.message,)
    status = decision.verdicts.statuses[decision.verdicts.ids[row]]
    return None if status is None else tuple(status.reasons)
