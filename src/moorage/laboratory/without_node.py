"""Find the node of a pod without one node: remove the node, decide on the pod again, and put the node back."""

from __future__ import annotations

from moorage.cycle.cycle import Cycle
from moorage.cycle.what_if import Nominated
from moorage.framework.profile import Profile
from moorage.laboratory.recorded_state import RecordedClusterState
from moorage.laboratory.undo_log import UndoLog
from moorage.state.pod_info import PodInfo

__all__ = ["choice_without"]


def choice_without(
    cluster: RecordedClusterState, profile: Profile, pod: PodInfo, nominated: Nominated, seed: int, node: str
) -> str | None:
    """Return the node that would be chosen without ``node``; None if none fits. The state is unchanged afterwards."""
    outer, cluster.log = cluster.log, UndoLog()
    cluster.log.begin()
    try:
        cluster.remove_node(node)
        cycle = Cycle(seed, by_class=False, nominated_first=False, errors_end=False)
        others = {name: pods for name, pods in nominated.items() if name != node}
        return cycle.decide(profile, pod, cluster.snapshot, others).node
    finally:
        cluster.log.roll_back()
        cluster.log = outer
