"""Try pods without binding them, if the outcome is certain to be the same.

Binding a pod in a simulation succeeds unless a plugin acts on it at Reserve or later. If none does, the decision alone gives
the outcome, and the pod only has to be counted on its node for the pods that follow. For the last pod, plugins may act that are
certain to succeed (``certain_bindings``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.api.devices import ResourceClaim
from moorage.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.decision import Decision, Feasible
from moorage.core.cycle.search import SearchScope
from moorage.core.engine.scheduler import Scheduler
from moorage.core.preemption.filter_input import FilterInput
from moorage.core.preemption.what_if import FailedAttempt, contenders
from moorage.core.queue import QueuedPod, QueuePlace
from moorage.errors import MoorageError
from moorage.framework.plugin_runner import run_filter
from moorage.framework.points import PostFilterResult
from moorage.framework.post_filter import PreFiltered
from moorage.framework.profile import Profile
from moorage.framework.verdicts import Code, Verdicts
from moorage.laboratory.placements import PodPlacement
from moorage.laboratory.trial.recorded_simulation import RecordedSimulation
from moorage.plugins.default_preemption import DefaultPreemption
from moorage.plugins.devices.allocation_results import allocations
from moorage.plugins.devices.binding import MAX_USERS
from moorage.plugins.devices.group_claims import is_reserved_for
from moorage.plugins.devices.pod_devices import PodDevices
from moorage.plugins.dynamic_resources import MAX_DEVICES, DynamicResources
from moorage.plugins.volume_binding import BoundVolumes, VolumeBindingState
from moorage.plugins.volumes.volume_matching import MatchingError, VolumeIndex
from moorage.plugins.volumes.volume_reasons import ClaimsToBind, find
from moorage.rules.volumes.bindings import class_of_claim, with_selected_node
from moorage.rules.volumes.csi_migration import in_tree_plugin, is_in_tree_plugin
from moorage.rules.volumes.volumes import made_for, makes_volumes
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.view import NodeView, PodInfo, Snapshot

# Tell whether binding a pod with volumes or devices is certain to succeed in a simulation, without trying it.
#
# Reserve and PreBind of the volume and device plugins write claims, and wait until controllers have acted on them. The
# simulated controllers act at once, so a pod for which nothing can be missing is bound in the same attempt. If it is not
# certain, only an attempt gives the outcome.


def is_certain(profile: Profile, decision: Decision, scheduler: Scheduler) -> bool:
    """Return whether all plugins that act on the pod from Reserve on are certain to succeed on its node, without waiting."""
    if decision.node is None or decision.found is None or scheduler.state.bindings.by_uid:
        return False
    states = decision.found.states
    return all(
        _succeeds(profile.plugins[name], states[name], decision.pod, decision.node, scheduler.snapshot)
        for name in profile.resting.intersection(states)
    )


def _succeeds(plugin: object, state: Any, pod: PodInfo, node: str, snapshot: Snapshot) -> bool:
    if isinstance(plugin, BoundVolumes) and isinstance(state, VolumeBindingState):
        return state.wanted.is_all_bound or _can_bind_volumes(state.wanted, node, snapshot)
    if isinstance(plugin, DynamicResources) and isinstance(state, PodDevices):
        return _can_write_claims(state, pod, node)
    return False


# -- volumes --------------------------------------------------------------------------------------------------------------


def _can_bind_volumes(wanted: ClaimsToBind, node: str, snapshot: Snapshot) -> bool:
    if wanted.selected or wanted.fault:
        return False
    found = find(wanted, NodeView(snapshot, np.array([snapshot.table.row_of[node]], dtype=np.intp)))
    group = next(iter(found.groups), None)
    if group is None or found.chosen is None:
        return False
    try:
        return all(_can_bind(claim, volume, snapshot) for claim, volume in found.chosen.at(0)) and all(
            _can_provision(claim, node, snapshot) for claim in group.to_provision
        )
    except MatchingError:
        return False


def _can_bind(claim: PersistentVolumeClaim, volume: PersistentVolume, snapshot: Snapshot) -> bool:
    """Return whether the controller binds a claim to the volume that the scheduler reserves for it."""
    other = snapshot.index(VolumeIndex).best(claim, reserved_only=True)
    return bool(claim.metadata.uid) and other in (None, volume) and in_tree_plugin(volume.spec) is None


def _can_provision(claim: PersistentVolumeClaim, node: str, snapshot: Snapshot) -> bool:
    """Return whether a volume is provisioned for a claim, once the node is selected, rather than another one bound to it."""
    storage_class = snapshot.objects(StorageClass).get(class_of_claim(claim))
    if storage_class is None or not makes_volumes(storage_class) or is_in_tree_plugin(storage_class.provisioner):
        return False
    labels = snapshot.table.nodes[snapshot.table.row_of[node]].labels
    csi_nodes = snapshot.objects(CSINode)
    volume = made_for(with_selected_node(claim, node), storage_class, {node: labels}.get, csi_nodes.get)
    if volume is None or volume.name in snapshot.objects(PersistentVolume):
        return False
    return snapshot.index(VolumeIndex).best(claim, reserved_only=False) is None


# -- devices --------------------------------------------------------------------------------------------------------------


def _can_write_claims(wanted: PodDevices, pod: PodInfo, node: str) -> bool:
    if wanted.special is not None or wanted.unusable:
        return False
    if not all(_can_use(claim, pod) for claim in wanted.claims):
        return False
    claims = wanted.to_allocate
    if not claims:
        return True
    table = wanted.snapshot.table
    row = table.row_of[node]
    answer, _ = wanted.answer(wanted.kind_on(row), table.nodes[row], MAX_DEVICES)
    if answer.found is None:
        return False
    try:
        made = allocations(answer.found, claims, node, wanted.options)
    except ValueError:
        return False
    return not any(result.binding_conditions for one in made for result in one.devices.results)


def _can_use(claim: ResourceClaim, pod: PodInfo) -> bool:
    """Return whether the pod can become a consumer of a claim."""
    if claim.metadata.deletion_timestamp is not None:
        return False
    held = claim.status.allocation
    if held is not None and any(result.binding_conditions for result in held.devices.results):
        return False
    return is_reserved_for(claim, pod) or len(claim.status.reserved_for) < MAX_USERS


_FILTERED = SearchScope(post_filter=False)

#: The points at which a plugin can fail the pod after the decision, and those at which it only observes the pod.
_AFTER = ("reserve", "permit", "preBind", "postBind")


def quick_placements(
    simulation: RecordedSimulation, pods: Sequence[Pod], scope: SearchScope, *, stop_on_failure: bool
) -> list[PodPlacement] | None:
    """Return the outcome of an attempt for each pod; None if only real attempts give it. Nothing changes."""
    scheduler = simulation.scheduler
    if scheduler.cycle.extenders or scheduler.cluster.groups is not None:
        return None
    placements: list[PodPlacement] = []
    assumed: list[str] = []
    start = scheduler.cycle.order.start
    try:
        for pod in pods:
            placed = _quick_placement(scheduler, PodInfo(pod), scope, None if pod is pods[-1] else assumed)
            if placed is None:
                return None
            placements.append(placed)
            if stop_on_failure and not placed:
                break
    finally:
        for uid in reversed(assumed):
            scheduler.cluster.forget(uid)
        scheduler.cycle.order.start = start
    return placements


class Nominated(NamedTuple):
    """The outcome of an attempt that found no node, but victims on one."""

    name: str
    victims: tuple[str, ...]


def quick_decision(
    simulation: SimulatedCluster, pod: Pod, profile: Profile, cycle: Cycle | None = None
) -> Decision | Nominated | None:
    """Return the decision on a pod if an attempt is certain to end with it; None if only a real attempt gives the outcome.

    ``cycle`` caches its verdicts on the pod for the next decision on it; None: nothing is cached.
    """
    scheduler = simulation.scheduler
    queued = scheduler.queue.get(pod.metadata.uid)
    if scheduler.cycle.extenders or scheduler.cluster.groups is not None or not _may_be_tried(scheduler, pod, queued):
        return None
    info = PodInfo(pod)
    known = None if cycle is None else known_feasible(scheduler, cycle, info, profile)
    if known is not None:
        if _has_no_victims(scheduler, known, info, profile):
            return Decision(info)
        decision = _placed_on_the_only_node(known, info, scheduler)
        if decision is not None:
            return decision if rests(profile, decision) else None
        info = _without_vain_nomination(scheduler, known, info)
    cycle = cycle or Cycle(scheduler.cycle.seed, scheduler.cycle.percentage_of_nodes_to_score, by_class=False)
    decision = cycle.decide(profile, info, scheduler.snapshot, scheduler.queue.nominated, _FILTERED)
    if decision.node is not None:
        return decision if rests(profile, decision) else None
    if decision.error is not None or decision.verdicts is None:
        return decision
    if decision.found is None:
        return None
    return _preempted(profile, decision.found, decision.pod, decision.verdicts, scheduler)


def _placed_on_the_only_node(known: Feasible, pod: PodInfo, scheduler: Scheduler) -> Decision | None:
    """Return the decision if one node is feasible, which is not scored; None if others are, or nominated pods may refuse it."""
    if known.number != 1:
        return None
    name = scheduler.snapshot.table.nodes[int(known.rows.argmax())].name
    if contenders(scheduler.queue.nominated.get(name, ()), pod):
        return None
    return Decision(pod, name, known.found, feasible=1)


def known_feasible(scheduler: Scheduler, cycle: Cycle, pod: PodInfo, profile: Profile) -> Feasible | None:
    """Return the rows that no plugin refuses, by the cached verdicts, without regard to nominated pods; None if not known."""
    if cycle.percentage_of_nodes_to_score:
        return None
    return cycle.path(profile).feasible(pod, scheduler.snapshot)


def _without_vain_nomination(scheduler: Scheduler, known: Feasible, pod: PodInfo) -> PodInfo:
    """Return the pod without its nomination if its nominated node refuses it: then it is decided like any other pod."""
    row = scheduler.snapshot.table.row_of.get(pod.status.nominated_node_name)
    if row is None or known.rows[row]:
        return pod
    return PodInfo(replace(pod.pod, status=replace(pod.status, nominated_node_name="")))


def _has_no_victims(scheduler: Scheduler, known: Feasible, pod: PodInfo, profile: Profile) -> bool:
    """Return whether it is certain that no node fits the pod and preemption cannot help: it may not preempt, or no one."""
    if known.number:
        return False
    return all(
        _finds_none(step.plugin, scheduler, pod, profile, known) if isinstance(step.plugin, DefaultPreemption)
        else isinstance(step.plugin, DynamicResources) and step.name in known.found.skipped
        for step in profile.at("postFilter")
    )  # fmt: skip


def _finds_none(plugin: DefaultPreemption, scheduler: Scheduler, pod: PodInfo, profile: Profile, known: Feasible) -> bool:
    """Return whether a pod that all nodes refuse may not preempt now, or no pod has a lower priority."""
    verdicts, snapshot = Verdicts(len(scheduler.snapshot.table)), scheduler.snapshot
    attempt: Any = FailedAttempt(FilterInput(profile, known.found, pod), snapshot, verdicts, scheduler.queue.nominated)
    row = snapshot.table.row_of.get(pod.status.nominated_node_name)
    try:
        if row is not None:  # its victims may still be there
            run_filter(profile, known.found, pod, NodeView(snapshot, np.array([row], dtype=np.intp)), verdicts)
        return bool(plugin.ineligible(pod, attempt)) or not plugin.has_lesser(pod, snapshot)
    except MoorageError:  # the attempt reports it
        return False


def _preempted(
    profile: Profile, found: PreFiltered, pod: PodInfo, verdicts: Verdicts, scheduler: Scheduler
) -> Decision | Nominated | None:
    """Return the outcome of PostFilter for a pod that Filter refused everywhere; None if only a real attempt gives it."""
    attempt: Any = FailedAttempt(FilterInput(profile, found, pod), scheduler.snapshot, verdicts, scheduler.queue.nominated)
    for step in profile.at("postFilter"):
        if isinstance(step.plugin, DefaultPreemption):
            if not step.plugin.may_help(pod, verdicts, scheduler.snapshot):
                continue
            result = step.plugin.post_filter(pod, attempt)
            if not isinstance(result, PostFilterResult):
                return None
            if result.nominated:
                return Nominated(result.nominated, tuple([victim.key for victim in result.victims]))
            if result.code is not Code.UNSCHEDULABLE:
                return None
        elif not isinstance(step.plugin, DynamicResources) or step.name not in found.skipped:
            return None
    return Decision(pod)


def _may_be_tried(scheduler: Scheduler, pod: Pod, queued: QueuedPod | None) -> bool:
    if queued is None or queued.gated or queued.pod.terminating or queued.place is QueuePlace.IN_FLIGHT:
        return False
    return scheduler.cluster.node_of(pod.metadata.uid) is None


def _quick_placement(scheduler: Scheduler, pod: PodInfo, scope: SearchScope, assumed: list[str] | None) -> PodPlacement | None:
    """Decide for one pod, and count it on its node. ``assumed`` collects UIDs of counted pods; None: count no pod."""
    profile = scheduler.profiles.get(pod.spec.scheduler_name)
    if profile is None or not _may_be_tried(scheduler, pod.pod, scheduler.queue.get(pod.uid)):
        return None
    decision = scheduler.cycle.decide(profile, pod, scheduler.snapshot, scheduler.queue.nominated, scope)
    if decision.node is None:
        return _failure(decision, scheduler) if assumed is None else None
    if not rests(profile, decision) and not (
        assumed is None and _only_claims_act(profile) and is_certain(profile, decision, scheduler)
    ):
        return None
    if assumed is not None:
        if scheduler.queue.nomination(pod.uid):
            return None
        scheduler.cluster.assume(pod, decision.node)
        assumed.append(pod.uid)
    return PodPlacement(pod.key, decision.node, feasible=decision.feasible, evaluated=decision.evaluated)


def rests(profile: Profile, decision: Decision) -> bool:
    """Return True if no plugin acts on the pod after the decision."""
    busy = decision.found is not None and not profile.resting.isdisjoint(decision.found.states)
    return not busy and _only_claims_act(profile)


def _only_claims_act(profile: Profile) -> bool:
    """Return whether all plugins that act after a decision do nothing for pods that they skipped in PreFilter."""
    return not any(profile.restless_at(point) for point in _AFTER)


def _failure(decision: Decision, scheduler: Scheduler) -> PodPlacement | None:
    after = decision.post_filter
    if after is None or decision.error is not None:
        return None
    nominated = scheduler.queue.nomination(decision.pod.uid) if after.nominated is None else after.nominated
    victims = tuple(victim.key for victim in after.victims)
    return PodPlacement(decision.pod.key, None, decision.message, nominated or "", victims, evaluated=decision.evaluated)
