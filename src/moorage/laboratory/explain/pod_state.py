"""The state of a pod apart from the nodes: its place in the queue, what it waits for, and which events end the wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from moorage.api.core import ENDED_PHASES, Node, Pod, Taint
from moorage.api.pod_groups import PodGroup
from moorage.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.basis.printable import counted, some
from moorage.core.binding.binding import Binding
from moorage.core.engine.scheduler import Scheduler
from moorage.core.groups.group_cycle import GroupReport
from moorage.core.queue import QueuedPod, QueuePlace
from moorage.framework.effects import Question
from moorage.framework.events import Action, Resource, Wake
from moorage.framework.profile import Profile, declared_wakes
from moorage.laboratory.explain.named_causes import named_causes
from moorage.laboratory.explain.verdicts import Constraint, EveryVerdict, Judgement
from moorage.plugins.gang_scheduling import GangScheduling
from moorage.plugins.node_unschedulable import CORDON
from moorage.plugins.shared.term_names import taint_name
from moorage.plugins.taint_toleration import CONDITIONS
from moorage.plugins.volumes.volume_reach import rows_reaching
from moorage.plugins.volumes.volume_reasons import required_of
from moorage.report.explanation import PodStanding
from moorage.rules.volumes.bindings import class_of_claim
from moorage.simulator.simulate import Options, load_options
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.pod_groups import group_key
from moorage.state.pod_info import PodInfo

# The engine that an explanation reads: one in virtual time, or that of a live scheduler.


@dataclass(frozen=True, slots=True)
class ExplainedState:
    """The state that an explanation reads. ``profiles`` are by scheduler name; ``groups`` has the last attempts for pod groups.

    ``now``                the present time in engine seconds
    ``ask``                sends a request to an extender; None: extenders are not asked
    ``skipped_extenders``  the number of configured extenders that are left out
    """

    scheduler: Scheduler
    profiles: Mapping[str, Profile]
    now: float
    groups: Mapping[str, GroupReport] = field(default_factory=dict)
    ask: Callable[[Question], bytes] | None = None
    skipped_extenders: int = 0

    @property
    def unix_s(self) -> float:
        """The time of day, in seconds since 1970."""
        return self.now + self.scheduler.state.unix_offset_s


def state_of(simulation: SimulatedCluster, options: Options) -> ExplainedState:
    """Return the state of a simulation that was made with these options."""
    leaves_out = options.skip_extenders and options.config is not None
    skipped = len(load_options(options).configuration.extenders) if leaves_out else 0
    scheduler = simulation.scheduler
    return ExplainedState(scheduler, scheduler.profiles, simulation.now, simulation.groups, simulation.ask, skipped)


# -- pod causes --------------------------------------------------------------------------------------------------------
# Causes other than the pod and the sizes of nodes: faults of the pod's claims, and conditions of nodes.

_DELAYED = "WaitForFirstConsumer"
#: Plugins that judge claims.
_VOLUMES = frozenset({"VolumeBinding", "VolumeZone", "VolumeRestrictions", "NodeVolumeLimits", "DynamicResources"})


def causes_of(pod: PodInfo, judged: EveryVerdict) -> tuple[str, ...]:
    """Return a sentence for each cause: first those of claims, then those of nodes."""
    return (*named_causes(pod, judged), *_claims(pod, judged), *_everywhere(judged), *dict.fromkeys(_conditions(judged)))


# -- claims -----------------------------------------------------------------------------------------------------------


def _claims(pod: PodInfo, judged: EveryVerdict) -> Iterator[str]:
    """Yield faults of the pod's claims that hold on any node, and which nodes can reach their volumes."""
    claims = judged.snapshot.objects(PersistentVolumeClaim)
    for use in pod.volumes.claims if pod.volumes is not None else ():
        claim = claims.get(use.key)
        if claim is None:
            yield f"claim {use.name}: not found"
        elif claim.metadata.deletion_timestamp is not None:
            yield f"claim {use.name}: being deleted since {claim.metadata.deletion_timestamp}"
        elif claim.status.phase == "Lost":
            yield f"claim {use.name}: lost its volume {claim.spec.volume_name}"
        else:
            said = _bound(claim, judged) if claim.spec.volume_name else _unbound(claim, judged)
            yield from (f"claim {use.name}: {text}" for text in said)


def _unbound(claim: PersistentVolumeClaim, judged: EveryVerdict) -> Iterator[str]:
    name = class_of_claim(claim)
    kind = judged.snapshot.objects(StorageClass).get(name)
    if name and kind is None:
        yield f"unbound; its class {name} does not exist"
    elif kind is None or kind.volume_binding_mode != _DELAYED:
        of = f"class {name} binds at once (Immediate)" if name else "it has no class"
        yield f"unbound; {of}, so the pod waits until a volume is bound to it"


def _bound(claim: PersistentVolumeClaim, judged: EveryVerdict) -> Iterator[str]:
    volume = judged.snapshot.objects(PersistentVolume).get(claim.spec.volume_name)
    if volume is None:
        yield f"bound to volume {claim.spec.volume_name}, which does not exist"
        return
    required = volume.required_affinity
    if required is None:
        return
    rows = np.flatnonzero(rows_reaching(required, judged.snapshot.nodes))
    if len(rows) == len(judged.names):
        return
    where = some([judged.names[row] for row in rows.tolist()]) or "no node"
    yield f"volume {volume.metadata.name} (class {class_of_claim(claim) or 'none'}) requires {required_of(volume)}: {where}"


def _everywhere(judged: EveryVerdict) -> Iterator[str]:
    """Yield reasons of volume and device plugins that are equal on all nodes: a claim is in use, or no volume fits."""
    for one in judged.refusing:
        if one.name in _VOLUMES and one.plugin is not None and one.refused.all():
            yield from dict.fromkeys(_same(judged, one))


def _same(judged: EveryVerdict, one: Judgement) -> Iterator[str]:
    """Yield what a plugin says of the first node, if it says the same of the last one."""
    first, last = (judged.why(one, row) for row in (0, len(judged.names) - 1))
    if first is None or last is None or first.text != last.text:
        return
    if (
        first.text.startswith(("claim", "not allocatable", "no free devices"))
        and "=" not in first.text
        and " label" not in first.text
    ):
        yield first.text.replace(" here", " on any node")


#: How the sentence on a node's condition ends.
REPAIR = " repair the node: the taint goes when it recovers"

# -- nodes ------------------------------------------------------------------------------------------------------------


def _conditions(judged: EveryVerdict) -> Iterator[str]:
    """Yield the conditions of nodes whose taints keep the pod off, as repairing the nodes is the first remedy."""
    table = judged.snapshot.table
    nodes = table.nodes
    held, first = np.unique(table.taints.ids, return_index=True)
    in_turn = held[np.argsort(first)].tolist()
    for taint in dict.fromkeys(taint for at in in_turn for taint in table.taints.values[at]):
        rows = judged.constraints.get(Constraint("TaintToleration", taint_name(taint)))
        if rows is None or taint.key not in CONDITIONS or taint.key == CORDON.key:
            continue
        refused = np.flatnonzero(rows).tolist()
        since = _since(taint, nodes[refused[0]])
        yield (f"{CONDITIONS[taint.key]}{since}: {some([judged.names[row] for row in refused])};{REPAIR}")


def _since(taint: Taint, node: Node) -> str:
    """Return since when a node has a condition, by the taint with this key, and the message in the node's status."""
    added = taint.time_added or next(
        (one.time_added for one in node.spec.taints if one.key == taint.key and one.time_added), ""
    )
    name = "Ready" if taint.key.endswith(("/not-ready", "/unreachable")) else _camel(taint.key.rpartition("/")[2])
    found = next((one for one in node.status.conditions if one.type == name), None)
    reason = f" ({found.type}={found.status}{f', {found.reason}' if found.reason else ''})" if found is not None else ""
    return (f" since {added}" if added else "") + reason


def _camel(text: str) -> str:
    return "".join("PID" if word == "pid" else word.capitalize() for word in text.split("-"))


#: The words for resources and for actions on them in sentences.
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
    """Return the state of a pod that this scheduler does not try: it has ended, is being deleted, or has another scheduler."""
    if pod.status.phase in ENDED_PHASES:
        return PodStanding("ended", f"its phase is {pod.status.phase}")
    if pod.metadata.deletion_timestamp is not None and not pod.spec.node_name:
        held = f"; finalizers: {', '.join(pod.metadata.finalizers)}" if pod.metadata.finalizers else ""
        return PodStanding("beingDeleted", f"marked as deleted since {pod.metadata.deletion_timestamp}{held}")
    names = sorted(profiles)
    if pod.spec.scheduler_name not in names and not pod.spec.node_name:
        theirs = f"its schedulerName is {pod.spec.scheduler_name}; the profiles here are {', '.join(names)}"
        return PodStanding("otherScheduler", theirs, ended_by=(f"schedulerName: {' or '.join(names)}",))
    return None


def standing_of(state: ExplainedState, pod: PodInfo, judged: EveryVerdict) -> PodStanding:
    """Return the state of a pending pod that this scheduler tries."""
    scheduler = state.scheduler
    causes = causes_of(pod, judged)
    waiting = scheduler.binding_of(pod.uid)
    if waiting is not None and waiting.waits and waiting.verdict is None:
        return _held(waiting, state.now, causes)
    if waiting is not None:
        return PodStanding("binding", f"it is being bound to {waiting.node}", causes=causes, nominated_node=waiting.node)
    queued = scheduler.queue.get(pod.uid)
    if queued is None:
        return PodStanding("active", "it was not tried", causes=causes)
    nominated = scheduler.queue.nomination(pod.uid) or ""
    in_group = group_key(pod) is not None and scheduler.cluster.groups is not None
    if queued.gated and not (in_group and queued.gated_by == GangScheduling.name):
        return _gated(queued, judged, causes)
    if nominated:
        text, ended_by = _leaving(state, nominated), ("its victims gone",)
        return PodStanding("nominated", text, queued.attempts, ended_by=ended_by, causes=causes, nominated_node=nominated)
    if in_group:
        namespace, _, name = (group_key(pod) or "").partition("/")
        whole = f"its group as a whole: moorage explain podgroup/{name} -n {namespace}"
        return PodStanding(
            "group", _group(state, pod), queued.attempts, ended_by=("pods of its group",), causes=(whole, *causes)
        )
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
    rejecters = sorted(filter(None, queued.rejecters))
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


def _held(waiting: Binding, now: float, causes: tuple[str, ...]) -> PodStanding:
    """Return the state of a pod that waits at Permit on its node."""
    plugins, left = waiting.pending, max(0.0, waiting.deadline - now)
    holds = "holds" if len(plugins) == 1 else "hold"
    text = f"{' and '.join(plugins)} {holds} it at Permit on {waiting.node}; rejected in {round(left, 3):g}s unless allowed"
    ended_by = (f"approval by {some(plugins)}", "timeout")
    return PodStanding(
        "permit", text, until_seconds=waiting.deadline, ended_by=ended_by, causes=causes, nominated_node=waiting.node
    )


def _leaving(state: ExplainedState, node: str) -> str:
    """Return, in words, the nominated node of a pod and the longest remaining grace period of its victims."""
    table = state.scheduler.snapshot.table
    row = table.row_of.get(node)
    leaving = [] if row is None else [other for other in table.pods[row].values() if other.terminating]
    if not leaving:
        return f"it is nominated to {node}"
    held = [other for other in leaving if other.pod.metadata.finalizers]
    if held:
        names = some(list(dict.fromkeys(name for other in held for name in other.pod.metadata.finalizers)))
        return (
            f"it is nominated to {node}; waits for {some([one.key for one in held])}, whose deletion was due at "
            f"{held[0].pod.metadata.deletion_timestamp} and which the finalizer {names} holds: its controller must remove it"
        )
    left = max(_grace_left(other, state.unix_s) for other in leaving)
    return f"it is nominated to {node}; waits for {some([one.key for one in leaving])} to leave, for {left:g}s at most"


#: Times before this one are simulated.
_REAL_S = 1e9


def _grace_left(pod: PodInfo, now: float) -> float:
    """Return the maximum number of seconds until a terminating pod is deleted.

    In a live cluster, the deletion timestamp is that time. In simulated time it is the time when the deletion began. In a dump
    it is of no use, because the present time is not known: the whole grace period is assumed.
    """
    own = pod.spec.termination_grace_period_seconds
    grace = 30.0 if own is None else float(own)
    written = datetime.fromisoformat(pod.metadata.deletion_timestamp or "1970-01-01T00:00:00Z").timestamp()
    if written < _REAL_S:
        return round(max(0.0, written + grace - now), 3)
    return round(max(0.0, written - now), 3) if now > _REAL_S else grace


def _group(state: ExplainedState, pod: PodInfo) -> str:
    """Return, in words, what the pod's group lacks: pods, or nodes for enough of them."""
    key = group_key(pod) or ""
    pods = state.scheduler.snapshot.group(key)
    there, placed = (0, 0) if pods is None else (len(pods), pods.scheduled_count)
    group, last = state.scheduler.snapshot.objects(PodGroup).get(key), state.groups.get(key)
    least = None if group is None else group.min_count
    if group is None:
        return f"it waits for its group {key}, which does not exist"
    of = f" of {least}" if least else ""
    fit = f", {last.could_go} fit at the last attempt" if last is not None and last.message else ""
    said = f"; {last.message}" if last is not None and last.message else ""
    return (
        f"it waits for its group {key}: {there}{of} {'pod exists' if there == 1 else 'pods exist'}, {placed} placed{fit}{said}"
    )
