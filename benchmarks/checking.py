"""The check that is part of every run: sampled decisions are made again the plain way, with nothing kept.

The node that was chosen must be among the plain way's best at that moment. Where nothing fits, the plain way must say so too,
in the same words.
"""

from __future__ import annotations

from time import perf_counter, process_time

from moorage.cycle.cycle import Cycle
from moorage.cycle.decision import Decision
from moorage.cycle.what_if import Nominated
from moorage.framework.profile import Profile
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo

__all__ = ["CheckFailedError", "CheckedCycle"]


class CheckFailedError(Exception):
    """A decision that the plain way would not have made, or pods that found no place. The run has no number."""


class CheckedCycle(Cycle):
    """A cycle that checks the first and then every n-th of its decisions, and keeps count of the time that takes."""

    def watch(self, every: int) -> None:
        """Check from now on; 0 checks nothing."""
        self.every = every
        self.decided = self.checked = 0
        self.wall_s = self.cpu_s = 0.0

    def decide(self, profile: Profile, pod: PodInfo, snapshot: Snapshot, nominated: Nominated | None = None) -> Decision:
        decision = super().decide(profile, pod, snapshot, nominated)
        every = getattr(self, "every", 0)
        if every:
            if self.decided % every == 0:
                self._check(decision, profile, pod, snapshot, nominated)
            self.decided += 1
        return decision

    def _check(self, made: Decision, profile: Profile, pod: PodInfo, snapshot: Snapshot, nominated: Nominated | None) -> None:
        wall, cpu = perf_counter(), process_time()
        plain = Cycle(seed=self.seed, by_class=False, always_score=True).decide(profile, pod, snapshot, nominated)
        if made.node is None or plain.node is None:
            if (made.node, made.message) != (plain.node, plain.message):
                raise CheckFailedError(f"{pod.key}: {made.node or made.message}; the plain way: {plain.node or plain.message}")
        else:
            best = [] if plain.scores is None else [snapshot.table.nodes[row].name for row in plain.scores.best()]
            if made.node not in best or made.feasible != plain.feasible:
                raise CheckFailedError(
                    f"{pod.key}: {made.node} of {made.feasible} nodes, best of {plain.feasible} are {best[:5]}"
                )
        self.checked += 1
        self.wall_s += perf_counter() - wall
        self.cpu_s += process_time() - cpu
