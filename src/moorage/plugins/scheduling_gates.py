"""SchedulingGates: keep a pod out of the active queue while it carries scheduling gates.

Reads     spec.schedulingGates
Rejects   the pod before it is queued, while any gate is left
Wakes on  the pod's own last gate being removed
Source    kube-scheduler 1.36, plugins/schedulinggates/scheduling_gates.go
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.verdicts import Hold
from moorage.state.pod_info import PodInfo

__all__ = ["SchedulingGates"]

GATES_GONE = ClusterEvent(Resource.POD, Action.UPDATE_POD_GATES_ELIMINATED)


class SchedulingGates:
    """The plugin. It sees a pod before the queue does, so it has no part in a scheduling cycle."""

    name = "SchedulingGates"

    def pre_enqueue(self, pod: PodInfo) -> Hold | None:
        gates = pod.spec.scheduling_gates
        if not gates:
            return None
        names = " ".join(gate.name for gate in gates)
        return Hold.because(f"waiting for scheduling gates: [{names}]", unresolvable=True)

    def wakes_on(self) -> Iterator[Wake]:
        yield Wake(GATES_GONE, when=lambda pod, old, new: pod.uid == new.uid)
