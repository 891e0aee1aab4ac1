"""Decide quickly for pods that name their nodes, as DaemonSet pods do: filter only these nodes.

Each such pod is a class of its own, so caching a verdict of every row gains nothing. If exactly one of the named nodes is
feasible, it is the decision; every other case takes the full path.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from moorage.framework.plugin_runner import ask, refused_rows, run_pre_filter
from moorage.framework.prefilter_state import PreFiltered
from moorage.framework.profile import Profile
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo

__all__ = ["NarrowLook"]

#: The largest number of named nodes that is decided here.
_FEW: Final = 8


class Only(NamedTuple):
    """The only feasible row, the PreFilter result, and the number of nodes that it leaves."""

    row: int
    found: PreFiltered
    among: int


class NarrowLook:
    """Decides for the pods of one profile that name few nodes."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._filters = [(step, step.single) for step in profile.at("filter")]
        forms = (step.reuse.narrows_to for step in profile.at("preFilter"))
        self._narrows = [narrows_to for narrows_to in forms if narrows_to is not None]

    def concerns(self, pod: PodInfo) -> bool:
        """Return whether a plugin narrows the search to at most ``_FEW`` nodes."""
        for narrows_to in self._narrows:
            names = narrows_to(pod)
            if names is not None and len(names) <= _FEW:
                return True
        return False

    def decide(self, pod: PodInfo, snapshot: Snapshot) -> Only | None:
        """Return the only feasible row; None if there are none or several."""
        found = run_pre_filter(self._profile, pod, snapshot)
        if found.refused is not None or found.nodes is None:
            return None
        row_of = snapshot.table.row_of
        rows = [row_of[name] for name in found.nodes if name in row_of]
        feasible = [row for row in rows if self._fits(row, found, pod, snapshot)]
        return Only(feasible[0], found, len(rows)) if len(feasible) == 1 else None

    def _fits(self, row: int, found: PreFiltered, pod: PodInfo, snapshot: Snapshot) -> bool:
        nodes, skipped, states = snapshot.nodes, found.skipped, found.states
        node = nodes.one(row)
        for step, single in self._filters:
            if step.name in skipped:
                continue
            state = states.get(step.name, pod)
            if single is not None:
                if ask(single, "filter", state, node) is not None:
                    return False
                continue
            refused = refused_rows(step, state, nodes.at(row))
            if refused is not None and refused[0]:
                return False
        return True
