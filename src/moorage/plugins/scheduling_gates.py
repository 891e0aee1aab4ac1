"""SchedulingGates: keep a pod out of the active queue while it has scheduling gates.

Reads     spec.schedulingGates
Rejects   the pod at PreEnqueue while it has a gate
Wakes on  the removal of the pod's last gate
Source    kube-scheduler 1.36, plugins/schedulinggates/scheduling_gates.go
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.points import EnqueueExtensions, PreEnqueuePlugin
from moorage.framework.verdicts import Hold
from moorage.state.pod_info import PodInfo

GATES_GONE = ClusterEvent(Resource.POD, Action.UPDATE_POD_GATES_ELIMINATED)


class SchedulingGates(PreEnqueuePlugin, EnqueueExtensions):
    """The plugin. It runs only at PreEnqueue, so it takes no part in a scheduling cycle."""

    name = "SchedulingGates"

    def pre_enqueue(self, pod: PodInfo) -> Hold | None:
        gates = pod.spec.scheduling_gates
        if not gates:
            return None
        names = " ".join(gate.name for gate in gates)
        return Hold.because(f"waiting for scheduling gates: [{names}]", unresolvable=True)

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(GATES_GONE, when=lambda pod, old, new: pod.uid == new.uid, by_shape=True)
