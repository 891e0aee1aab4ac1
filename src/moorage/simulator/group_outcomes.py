"""The pod groups of a finished simulation."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.pod_groups import POD_GROUP_SCHEDULED, PodGroup, find_condition
from moorage.engine.group_outcome import GroupReport
from moorage.report.group_report import PodGroupOutcome
from moorage.report.outcome import InputNote
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.pod_groups import GroupPods, group_key
from moorage.state.pod_info import PodInfo
from moorage.wording import counted

__all__ = ["closed_gate_notes", "pod_groups"]

_OPEN = "--feature-gates=GenericWorkload=true,GangScheduling=true"


def pod_groups(simulation: SimulatedCluster) -> Iterator[PodGroupOutcome]:
    """Yield every pod group that exists or that a pod names, by namespace and name; none if groups are disabled."""
    snapshot = simulation.scheduler.snapshot
    if simulation.scheduler.cluster.groups is None:
        return
    known = snapshot.objects(PodGroup)
    named = {key for record in simulation.records.values() if (key := group_key(PodInfo(record.pod))) is not None}
    for key in sorted({*known, *named}):
        yield _outcome(key, known.get(key), snapshot.group(key), simulation.groups.get(key))


def _outcome(key: str, group: PodGroup | None, pods: GroupPods | None, last: GroupReport | None) -> PodGroupOutcome:
    namespace, _, name = key.partition("/")
    there, placed = (0, 0) if pods is None else (len(pods), pods.scheduled_count)
    least = None if group is None else group.min_count
    state, message = _state(group, there, placed, last)
    return PodGroupOutcome(namespace, name, state, least, there, placed, message)


def _state(group: PodGroup | None, there: int, placed: int, last: GroupReport | None) -> tuple[str, str]:
    if group is None:
        return "Missing", "there is no PodGroup of this name, and its pods wait for it"
    condition = find_condition(group, POD_GROUP_SCHEDULED)
    if condition is not None and condition.status == "True":
        return "Scheduled", ""
    least = group.min_count
    if least is not None and there < least:
        return "Waiting", f"{there} of the {least} pods that go together are there"
    if last is None:
        return ("Scheduled", "") if there and there == placed else ("Waiting", "no pod of it was tried")
    if last.result == "error":
        return "Error", last.message
    found = placed + last.could_go
    if least is None:
        return "Unschedulable", last.message
    return "Unschedulable", f"{last.message}: {found} of the {least} pods that go together found a node"


def closed_gate_notes(simulation: SimulatedCluster, groups: int) -> Iterator[InputNote]:
    """Yield a note if the input has pod groups but the feature gate for them is off."""
    if groups and simulation.scheduler.cluster.groups is None:
        text = f"{counted(groups, 'pod group')} ignored, and the pods scheduled one by one; {_OPEN} schedules them as groups"
        yield InputNote("PodGroups", text)
