"""Report decisions on the pods to explain while the state is still the one of the decision.

Every decision changes the state, so an explanation computes what it needs at once: ``WatchingCycle`` calls back right after it
has decided on a watched pod, before the engine acts on that decision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.decision import Decision
from moorage.core.cycle.search import EVERYWHERE, SearchScope
from moorage.core.extenders.consultation import Asking
from moorage.core.preemption.what_if import Nominated
from moorage.framework.profile import Profile
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo

__all__ = ["Moment", "WatchingCycle"]


@dataclass(frozen=True)
class Moment:
    """A decision, and the state before it; valid until the callback returns."""

    profile: Profile
    decision: Decision
    snapshot: Snapshot
    nominated: Nominated


@dataclass
class WatchingCycle(Cycle):
    """A cycle that reports decisions on some pods. ``watched``: UID → the callback that gets each decision."""

    watched: dict[str, Callable[[Moment], None]] = field(default_factory=dict)

    def deciding(
        self,
        profile: Profile,
        pod: PodInfo,
        snapshot: Snapshot,
        nominated: Nominated | None = None,
        scope: SearchScope = EVERYWHERE,
        *,
        ask: bool = True,
    ) -> Asking[Decision]:
        decision = yield from super().deciding(profile, pod, snapshot, nominated, scope, ask=ask)
        self._report(Moment(profile, decision, snapshot, nominated or {}))
        return decision

    def _report(self, moment: Moment) -> None:
        heard = self.watched.get(moment.decision.pod.uid)
        if heard is not None:
            heard(moment)
