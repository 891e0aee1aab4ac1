"""The check in every run: sampled decisions are repeated on the full path, without any cache.

The chosen node must be among the best nodes of the full path at that moment. If no node fits, the full path must find none
either, with the same message.
"""

from __future__ import annotations

from time import perf_counter, process_time
from types import MappingProxyType

from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.decision import Decision, Quick
from moorage.core.cycle.search import EVERYWHERE, SearchScope
from moorage.core.cycle.sheet import ShapeRoute
from moorage.core.cycle.sheets import Sheets
from moorage.core.preemption.what_if import Nominated
from moorage.framework.profile import Profile
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo

__all__ = ["CheckFailedError", "CheckedCycle"]

_NONE: Nominated = MappingProxyType({})


class CheckFailedError(Exception):
    """A decision differs from the full path, or pods were not placed. The run has no result."""


class _CheckedPath(Sheets):
    """The cached path of a ``CheckedCycle``."""

    def __init__(self, cycle: CheckedCycle, profile: Profile) -> None:
        super().__init__(profile)
        self._cycle = cycle

    def decide_known(self, pod: PodInfo, snapshot: Snapshot, seed: int, nominated: Nominated = _NONE) -> Quick | None:
        quick = super().decide_known(pod, snapshot, seed, nominated)
        return self._cycle.confirmed(quick, self._profile, pod, snapshot, nominated)

    def decide_copy(self, route: ShapeRoute, pod: PodInfo, snapshot: Snapshot, seed: int) -> Quick | None:
        return self._cycle.confirmed(super().decide_copy(route, pod, snapshot, seed), self._profile, pod, snapshot, _NONE)


class CheckedCycle(Cycle):
    """A cycle that checks the first and then every n-th of its decisions, and measures the time of the checks.

    ``failure`` is the first failed check of a decision in the fast lane, which leaves every exception to the long way.
    """

    failure: CheckFailedError | None = None

    def watch(self, every: int) -> None:
        """Start checking every n-th decision; 0 disables the check."""
        self.every = every
        self.decided = self.checked = 0
        self.wall_s = self.cpu_s = 0.0

    def decide(
        self, profile: Profile, pod: PodInfo, snapshot: Snapshot, nominated: Nominated | None = None,
        scope: SearchScope = EVERYWHERE,
    ) -> Decision:  # fmt: skip
        decision = super().decide(profile, pod, snapshot, nominated, scope)
        every = getattr(self, "every", 0)
        if every:
            if self.decided % every == 0:
                self._check(decision, profile, pod, snapshot, nominated, scope)
            self.decided += 1
        return decision

    def at_once(self, profile: Profile) -> Sheets | None:
        path = self._paths.get(profile)
        if not isinstance(path, _CheckedPath):
            path = self._paths[profile] = _CheckedPath(self, profile)
        return path

    def confirmed(
        self, quick: Quick | None, profile: Profile, pod: PodInfo, snapshot: Snapshot, nominated: Nominated
    ) -> Quick | None:
        """Check a decision of the fast lane if it is its turn, and return it."""
        every = getattr(self, "every", 0)
        if every and quick is not None:
            if self.decided % every == 0:
                made = Decision(pod, snapshot.table.nodes[quick.row].name, feasible=quick.feasible)
                self._check_fast(made, profile, snapshot, nominated)
            self.decided += 1
        return quick

    def _check_fast(self, made: Decision, profile: Profile, snapshot: Snapshot, nominated: Nominated) -> None:
        try:
            self._check(made, profile, made.pod, snapshot, nominated, EVERYWHERE)
        except CheckFailedError as error:
            self.failure = self.failure or error

    def _check(
        self, made: Decision, profile: Profile, pod: PodInfo, snapshot: Snapshot, nominated: Nominated | None,
        scope: SearchScope,
    ) -> None:  # fmt: skip
        wall, cpu = perf_counter(), process_time()
        plain = Cycle(seed=self.seed, by_class=False, always_score=True).decide(profile, pod, snapshot, nominated, scope)
        if made.node is None or plain.node is None:
            if (made.node, made.message) != (plain.node, plain.message):
                raise CheckFailedError(f"{pod.key}: {made.node or made.message}; the full path: {plain.node or plain.message}")
        else:
            best = [] if plain.scores is None else [snapshot.table.nodes[row].name for row in plain.scores.best()]
            if made.node not in best or made.feasible != plain.feasible:
                raise CheckFailedError(
                    f"{pod.key}: {made.node} of {made.feasible} nodes, best of {plain.feasible} are {best[:5]}"
                )
        self.checked += 1
        self.wall_s += perf_counter() - wall
        self.cpu_s += process_time() - cpu
