"""Where a pod stands outside the verdicts of nodes: its place in the queue, what it waits for, and what would end that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from moorage.api.core import ENDED_PHASES, Pod
from moorage.api.storage import PersistentVolumeClaim
from moorage.framework.events import Action, Resource, Wake
from moorage.framework.profile import declared_wakes
from moorage.laboratory.explained_state import ExplainedState
from moorage.laboratory.verdicts import Constraint, EveryVerdict
from moorage.plugins.node_unschedulable import CORDON
from moorage.plugins.taint_toleration import CONDITIONS
from moorage.plugins.term_names import taint_name
from moorage.queue import QueuedPod, QueuePlace
from moorage.report.explanation import PodStanding
from moorage.state.pod_groups import group_key
from moorage.state.pod_info import PodInfo
from moorage.wording import counted, some

__all__ = ["standing_of", "standing_without_attempt"]

#: What a resource is called, and what was done to it, in sentences.
_WHAT: Mapping[str, str] = {
    Resource.POD: "pod", Resource.ASSIGNED_POD: "placed pod", Resource.UNSCHEDULED_POD: "pending pod", Resource.NODE: "node",
    Resource.PERSISTENT_VOLUME: "PersistentVolume", Resource.PERSISTENT_VOLUME_CLAIM: "PersistentVolumeClaim",
}  # fmt: skip
_DONE: Mapping[Action, str] = {
    Action.ADD: "added", Action.DELETE: "deleted", Action.UPDATE_NODE_ALLOCATABLE: "allocatable changed",
    Action.UPDATE_NODE_LABEL: "labels changed", Action.UPDATE_NODE_TAINT: "taints changed",
    Action.UPDATE_NODE_CONDITION: "condition changed", Action.UPDATE_NODE_ANNOTATION: "annotations changed",
    Action.UPDATE_NODE_DECLARED_FEATURE: "declared features changed", Action.UPDATE_POD_LABEL: "labels changed",
    Action.UPDATE_POD_SCALE_DOWN: "requests reduced", Action.UPDATE_POD_TOLERATION: "tolerations added",
    Action.UPDATE_POD_GATES_ELIMINATED: "scheduling gates removed",
    Action.UPDATE_POD_GENERATED_CLAIM: "generated claims recorded",
}  # fmt: skip


def standing_without_attempt(pod: Pod, profiles: Iterable[str]) -> PodStanding | None:
    """Return the standing of a pod that no profile here tries: it has ended, is being deleted, or is another scheduler's."""
    if pod.status.phase in ENDED_PHASES:
        return PodStanding("ended", f"its phase is {pod.status.phase}")
    if pod.metadata.deletion_timestamp is not None and not pod.spec.node_name:
        held = f"; finalizers: {', '.join(pod.metadata.finalizers)}" if pod.metadata.finalizers else ""
        return PodStanding("beingDeleted", f"it is being deleted since {pod.metadata.deletion_timestamp}{held}")
    names = sorted(profiles)
    if pod.spec.scheduler_name not in names and not pod.spec.node_name:
        theirs = f"its schedulerName is {pod.spec.scheduler_name}; the profiles here are {', '.join(names)}"
        return PodStanding("otherScheduler", theirs, ended_by=(f"schedulerName: {' or '.join(names)}",))
    return None


def standing_of(state: ExplainedState, pod: PodInfo, judged: EveryVerdict) -> PodStanding:
    """Return the standing of a pending pod that a profile here tries."""
    scheduler = state.scheduler
    causes = (*_claims(pod, judged), *_conditions(judged))
    waiting = next((one for one in scheduler.waiting() if one.pod.uid == pod.uid), None)
    if waiting is not None:
        return PodStanding("permit", "a Permit plugin holds it on its node", causes=causes)
    queued = scheduler.queue.get(pod.uid)
    if queued is None:
        return PodStanding("active", "it was not tried", causes=causes)
    nominated = scheduler.queue.nomination(pod.uid) or ""
    if queued.gated:
        return _gated(queued, judged, causes)
    if nominated:
        return PodStanding("nominated", _leaving(state, nominated), queued.attempts, causes=causes, nominated_node=nominated)
    if group_key(pod) is not None and scheduler.cluster.groups is not None:
        return PodStanding("group", _group(state, pod), queued.attempts, ended_by=("pods of its group",), causes=causes)
    if queued.place is QueuePlace.BACKOFF:
        until = queued.backoff_until
        text = f"attempt {queued.attempts} failed; it is retried" + (f" at {until:g}s" if until is not None else "")
        return PodStanding("backingOff", text, queued.attempts, until, ("time",), causes)
    return _unschedulable(queued, judged, causes)


def _gated(queued: QueuedPod, judged: EveryVerdict, causes: tuple[str, ...]) -> PodStanding:
    fits = int(judged.feasible.sum())
    reasons = ", ".join(queued.gate.reasons) if queued.gate is not None else ""
    then = f"released, it would fit on {counted(fits, 'node')}" if fits else "released, it would fit on no node"
    text = f"{queued.gated_by} gates it: {reasons}; {then}"
    ended_by = tuple(_ended_by(judged, [queued.gated_by]))
    return PodStanding("gated", text, queued.attempts, ended_by=ended_by, causes=causes, fits_once_released=bool(fits))


def _unschedulable(queued: QueuedPod, judged: EveryVerdict, causes: tuple[str, ...]) -> PodStanding:
    rejecters = sorted(queued.rejecters)
    tried = f"tried {counted(queued.attempts, 'time')}" if queued.attempts else "not tried"
    text = f"Waits unschedulable, {tried}; retried after an event that concerns {some(rejecters) or 'it'}, or after 5 minutes"
    name = "unschedulable" if queued.place is QueuePlace.UNSCHEDULABLE else "active"
    return PodStanding(name, text, queued.attempts, ended_by=tuple(_ended_by(judged, rejecters)), causes=causes)


def _ended_by(judged: EveryVerdict, plugins: Iterable[str]) -> Iterator[str]:
    """Yield the events after which a pod that these plugins rejected is retried."""
    for name in plugins:
        plugin = judged.profile.plugins.get(name)
        wakes = None if plugin is None else declared_wakes(plugin)
        if wakes is None:
            yield f"any event ({name})"
            continue
        for said in dict.fromkeys(_said(wake) for wake in wakes):
            yield f"{said} ({name})"


def _said(wake: Wake) -> str:
    event = wake.event
    if event.resource == Resource.ANY:
        return "any event"
    what = _WHAT.get(str(event.resource)) or str(event.resource).rpartition("/")[2]
    if Action.UPDATE in event.action:
        done = [_DONE[flag] for flag in (Action.ADD, Action.DELETE) if flag in event.action] + ["changed"]
    else:
        done = [text for flag, text in _DONE.items() if flag in event.action]
    return f"{what} {' or '.join(done)}"


def _leaving(state: ExplainedState, node: str) -> str:
    table = state.scheduler.snapshot.table
    row = table.row_of.get(node)
    leaving = [] if row is None else [other.key for other in table.pods[row].values() if other.terminating]
    waits = f"; waits for {some(leaving)} to leave" if leaving else ""
    return f"it is nominated to {node}{waits}"


def _group(state: ExplainedState, pod: PodInfo) -> str:
    key = group_key(pod) or ""
    pods = state.scheduler.snapshot.group(key)
    there, placed = (0, 0) if pods is None else (len(pods), pods.scheduled_count)
    last = state.groups.get(key)
    said = f"; {last.message}" if last is not None and last.message else ""
    return f"it waits for its group {key}: {counted(there, 'pod')} exist, {placed} placed{said}"


def _conditions(judged: EveryVerdict) -> Iterator[str]:
    """Yield the conditions of nodes that keep the pod off through the taints that go with them: repairing comes first."""
    nodes = judged.snapshot.table.nodes
    for taint in dict.fromkeys(taint for node in nodes for taint in node.spec.taints):
        rows = judged.constraints.get(Constraint("TaintToleration", taint_name(taint)))
        if rows is None or taint.key not in CONDITIONS or taint.key == CORDON.key:
            continue
        names = [judged.names[row] for row in np.flatnonzero(rows).tolist()]
        since = f" since {taint.time_added}" if taint.time_added else ""
        yield f"{CONDITIONS[taint.key]}{since}: {some(names)}; the taint goes when the node recovers"


def _claims(pod: PodInfo, judged: EveryVerdict) -> Iterator[str]:
    """Yield what is wrong with the pod's claims, whatever node it goes to."""
    if pod.volumes is None:
        return
    claims = judged.snapshot.objects(PersistentVolumeClaim)
    for use in pod.volumes.claims:
        claim = claims.get(use.key)
        if claim is None:
            yield f"claim {use.name}: not found"
        elif claim.metadata.deletion_timestamp is not None:
            yield f"claim {use.name}: being deleted since {claim.metadata.deletion_timestamp}"
        elif claim.status.phase == "Lost":
            yield f"claim {use.name}: lost its volume {claim.spec.volume_name}"
