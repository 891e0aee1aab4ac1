"""TeamNodes: keep pods off nodes that are another team's."""

from moorage.framework.verdicts import Hold
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeInfo

OWNER = "example.org/team"


class TeamNodes:
    """Keep pods without a team's label off the nodes labelled with that team; nodes without a team take every pod."""

    name = "TeamNodes"

    def filter_node(self, pod: PodInfo, node: NodeInfo) -> Hold | None:
        owner = node.labels.get(OWNER)
        if owner is None or pod.labels.get("team") == owner:
            return None
        return Hold.because("node(s) are another team's", unresolvable=True)
