"""ReleaseGate: keep the pods of a release off all nodes until the release is open.

Reads     the label release of a pod; the Release of that name in its namespace, a custom kind
Rejects   every node, while there is no such Release or its spec.open is not true; evicting pods would not help
Wakes on  that Release created or updated to be open
"""

from moorage.api.custom_objects import CustomObject
from moorage.framework.events import Action, ClusterEvent, Wake
from moorage.framework.verdicts import SKIP, Hold, Skip
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo

#: The kind as plural.version.group.
RELEASES = "releases.v1.example.com"


class ReleaseGate:
    name = "ReleaseGate"

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> Hold | Skip:
        wanted = pod.labels.get("release")
        if wanted is None:
            return SKIP
        release = snapshot.custom(RELEASES).get(f"{pod.namespace}/{wanted}")
        return SKIP if release is not None and is_open(release) else Hold.because(f"{wanted} is not open", unresolvable=True)

    def wakes_on(self):
        yield Wake(ClusterEvent(RELEASES, Action.ADD | Action.UPDATE), when=opens_for)


def is_open(release: CustomObject) -> bool:
    return release.get("spec", "open") is True


def opens_for(pod: PodInfo, old: CustomObject | None, new: CustomObject) -> bool:
    mine = (new.namespace, new.name) == (pod.namespace, pod.labels.get("release"))
    return mine and is_open(new)
