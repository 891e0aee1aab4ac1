"""PodGroupPodsCount: prefer the placement that schedules the most pods of a group.

Reads     the number of the group's pods that already have a node, and of those assigned in each placement
Scores    the sum of both, scaled so that the best placement gets 100
Source    kube-scheduler 1.36, plugins/podgrouppodscount/podgroup_pods_count.go

The feature gate TopologyAwareWorkloadScheduling enables the plugin.
"""

from __future__ import annotations

from typing import Final

from moorage.errors import AttemptError
from moorage.framework.placements import GroupInfo, Proposal
from moorage.framework.plugin_runner import MAX_SCORE
from moorage.framework.points import PlacementScoreExtensions, PlacementScorePlugin
from moorage.state.cluster import Snapshot

# kube-scheduler's own text, kept word for word.
NO_ASSIGNED_PODS: Final = "no pods from pod group are assigned to any of the candidate placements"


class PodGroupPodsCount(PlacementScorePlugin, PlacementScoreExtensions):
    name = "PodGroupPodsCount"

    def score_placement(self, group: GroupInfo, proposal: Proposal, snapshot: Snapshot) -> int:
        of_each = [snapshot.group(group.key)] if group.tree is None else group.tree.pods(snapshot)
        return sum(pods.scheduled_count for pods in of_each if pods is not None) + len(proposal.assigned)

    def normalize_placements(self, group: GroupInfo, scores: list[int]) -> list[int]:
        most = max(scores, default=0)
        if most == 0:
            raise AttemptError(self.name, NO_ASSIGNED_PODS)
        return [score * MAX_SCORE // most for score in scores]
