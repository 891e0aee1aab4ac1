"""An upper bound by arithmetic for the number of instances of a pod that fit, in whichever order nodes are chosen.

Each node that accepts the first instance takes ``min over resources of floor(free / request)``. Host ports allow one instance
per node, required anti-affinity of the pod to itself one instance per domain. The sum is an upper bound unless a rule that
refuses the first instance on a node could accept a later one there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from msgspec.structs import replace

from moorage.api.core import Object, Pod
from moorage.core.cycle.search import SearchScope
from moorage.core.engine.facts import Seen
from moorage.framework.profile import Profile
from moorage.laboratory.cluster_objects import cluster_input
from moorage.laboratory.explain.verdicts import EveryVerdict, free_amount
from moorage.laboratory.trial.dry_run import rests
from moorage.plugins.node_resources_fit import RequestedResource
from moorage.plugins.spread.spread_counts import Spread
from moorage.simulator.quotas import QuotaLedger, QuotaRoom, is_new
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.view import BoolArray, IntArray, PodInfo, Snapshot

FIT: Final = "NodeResourcesFit"
#: Plugins whose Filter never accepts a later instance on a node where it refused the first one.
_NEVER_OPEN: Final = frozenset([
    FIT, "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "VolumeRestrictions",
    "NodeVolumeLimits", "EBSLimits", "GCEPDLimits", "AzureDiskLimits", "CinderLimits", "VolumeBinding", "VolumeZone",
    "NodeDeclaredFeatures", "NodeLabel", "DynamicResources", "PodTopologySpread", "InterPodAffinity",
])  # fmt: skip
#: Stands for "no limit" in counts of instances.
_ENDLESS: Final = np.int64(1) << 40


@dataclass(frozen=True, slots=True)
class Room:
    """The room of each node, in instances. Arrays have shape (rows,); rows are those of the node table.

    ``judged``     the verdicts from which it is computed
    ``open_rows``  nodes that no plugin but NodeResourcesFit refuses
    ``per_row``    how many instances fit there by resources, and by ports and anti-affinity within the node
    ``free``       the free amount of each resource that the pod requests, ``pods`` included
    ``bound``      the upper bound over all nodes; None if there is no bound, for the reason ``why_none``
    """

    judged: EveryVerdict
    open_rows: BoolArray
    per_row: IntArray
    free: Mapping[str, IntArray]
    needs: Mapping[str, int]
    bound: int | None
    why_none: str = ""

    def free_in(self, snapshot: Snapshot) -> dict[str, IntArray]:
        """Return the free amounts of these resources in another state."""
        return _free(_wants(self.judged), snapshot)

    def bound_with(self, resource: str, more: Sequence[int]) -> int:
        """Return the bound if each row had more of a resource. The state must be the one of the verdicts."""
        free = {**self.free, resource: self.free[resource] + np.asarray(more, dtype=np.int64)}
        return _bound(_per_row(self.judged, self.open_rows, free), _self_avoiding(self.judged), self.judged.snapshot)


def room_for(judged: EveryVerdict, why_none: str = "") -> Room:
    """Return the room for a pod in the state that its verdicts describe."""
    snapshot = judged.snapshot
    open_rows = judged.open_without({FIT})
    wants = _wants(judged)
    free = _free(wants, snapshot)
    per_row = _per_row(judged, open_rows, free)
    needs = {want.resource: want.amount for want in wants} | {"pods": 1}
    why_none = why_none or why_no_bound(judged)
    bound = None if why_none else _bound(per_row, _self_avoiding(judged), snapshot)
    return Room(judged, open_rows, per_row, free, needs, bound, why_none)


def _per_row(judged: EveryVerdict, open_rows: BoolArray, free: Mapping[str, IntArray]) -> IntArray:
    per_row = np.where(open_rows, _instances(_wants(judged), free, judged.snapshot), 0)
    return np.minimum(per_row, 1) if judged.pod.host_ports and _runs(judged.profile, "NodePorts") else per_row


def _wants(judged: EveryVerdict) -> tuple[RequestedResource, ...]:
    state = next((one.state for one in judged.judgements if one.name == FIT and isinstance(one.state, tuple)), ())
    return tuple(want for want in state if isinstance(want, RequestedResource))


def _free(wants: Iterable[RequestedResource], snapshot: Snapshot) -> dict[str, IntArray]:
    return {name: free_amount(snapshot.nodes, name) for name in (*(want.resource for want in wants), "pods")}


def _instances(wants: Iterable[RequestedResource], free: Mapping[str, IntArray], snapshot: Snapshot) -> IntArray:
    """Return how many instances fit on each row by resources."""
    most = np.clip(free["pods"], 0, _ENDLESS)
    for want in wants:
        if want.amount > 0:
            fits = np.clip(free[want.resource], 0, None) // want.amount
            if want.by_device:
                fits = np.where(snapshot.nodes.allocatable(want.resource) > 0, fits, _ENDLESS)
            most = np.minimum(most, fits)
        else:  # earlier releases refuse an overcommitted node even to a pod that requests none of the resource
            most = np.where(free[want.resource] < 0, 0, most)
    return most


def _runs(profile: Profile, plugin: str) -> bool:
    return any(step.name == plugin for step in profile.at("filter"))


def _bound(per_row: IntArray, keys: Sequence[str], snapshot: Snapshot) -> int:
    """Return the sum over rows; if the pod avoids itself within domains of a key, at most the number of domains."""
    totals = [int(per_row.sum())]
    for key in keys:
        domains = snapshot.nodes.ids(snapshot.nodes.label(key))
        outside = int(per_row[domains == 0].sum())
        totals.append(outside + len(np.unique(domains[(domains != 0) & (per_row > 0)])))
    return min(totals)


def _self_avoiding(judged: EveryVerdict) -> list[str]:
    """Return the topology keys within which the pod's required anti-affinity keeps two instances apart."""
    pod, snapshot = judged.pod, judged.snapshot
    if not _runs(judged.profile, "InterPodAffinity"):
        return []
    labels = snapshot.namespace_labels(pod.namespace)
    return [term.topology_key for term in pod.required_anti_affinity if term.matches(pod, labels)]


def why_no_bound(judged: EveryVerdict) -> str:
    """Return why the first instance's verdicts do not bound the number of instances; "" if they do."""
    profile, pod = judged.profile, judged.pod
    names = [step.name for step in (*profile.at("preFilter"), *profile.at("filter"))]
    unknown = [name for name in names if name not in _NEVER_OPEN]
    if not _runs(profile, FIT):
        return f"no profile runs {FIT}"
    if unknown:
        return f"{unknown[0]} may admit more nodes once instances are placed"
    for one in judged.judgements:
        spreads = one.state if one.name == "PodTopologySpread" and isinstance(one.state, tuple) else ()
        if any(isinstance(spread, Spread) and spread.own for spread in spreads):
            return "spreading may admit more nodes once instances are placed"
    labels = judged.snapshot.namespace_labels(pod.namespace)
    if _runs(profile, "InterPodAffinity") and any(term.matches(pod, labels) for term in pod.required_affinity):
        return "affinity to other instances may admit more nodes once instances are placed"
    return ""


# -- capacity count ----------------------------------------------------------------------------------------------------
# Place instances one after the other, until one finds no node.
#
# The next instance is created when the one before is bound, as cluster-capacity does. If no plugin acts after the decision,
# the instance is only counted on its node; otherwise the simulation makes a whole attempt, with claims and binding. All of
# this happens in a transaction of the caller, which rolls it back.

LIMIT_REACHED: Final = "LimitReached"
UNSCHEDULABLE: Final = "Unschedulable"
QUOTA: Final = "Quota"
STOPPED: Final = "Stopped"
#: No search for victims: a capacity does not count what preemption would free.
_NO_VICTIMS: Final = SearchScope(post_filter=False)


class InstanceQuotas:
    """The quotas of a cluster with their usage. Instances of one template are counted, not charged one by one."""

    def __init__(self, ledger: QuotaLedger, *, alike: bool) -> None:
        self._ledger = ledger
        self._alike = alike
        self._room: QuotaRoom | None = None
        self._created = 0

    def refusal(self, pod: Pod, needs: Sequence[Object] = ()) -> str:
        """Return why the API server would not create a pod, or an object that it needs; "" if it would."""
        if self._alike and not needs:
            if self._room is None:
                self._room = self._ledger.room(pod)
            room = self._room
            if room.count is None or self._created < room.count or room.refused is None:
                return ""
            return replace(room.refused, name=pod.metadata.name).message
        trial = self._ledger.copy()
        refused = next((found for obj in (*needs, pod) if (found := trial.charge(obj)) is not None), None)
        return "" if refused is None else refused.message

    def take(self, pod: Pod, needs: Sequence[Object] = ()) -> None:
        """Count a pod that was created, with the objects that it needs."""
        self._created += 1
        if not self._alike or needs:
            for obj in (*needs, pod):
                self._ledger.charge(obj)


def quotas_of(objects: Iterable[Object], *, alike: bool) -> InstanceQuotas | None:
    """Return the quotas of a cluster, charged with its pending pods too; None without quotas. ``alike``: one template only."""
    given = cluster_input(objects)
    ledger = QuotaLedger.of(given)
    if not ledger:
        return None
    for pod in given.pods:
        if is_new(pod):
            ledger.charge(pod)
    return InstanceQuotas(ledger, alike=alike)


@dataclass(frozen=True, slots=True)
class Placed:
    """An instance on its node; ``victims`` were evicted for it."""

    pod: Pod
    node: str
    victims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stop:
    """Why no further instance was placed, and the instance it stopped at.

    ``kind``: ``Unschedulable``, ``LimitReached`` or ``Quota``, or ``Stopped`` if the budget was spent
    """

    kind: str
    message: str
    pod: Pod | None = None


class InstanceCounter:
    """Places instances in one simulation."""

    def __init__(self, simulation: SimulatedCluster, *, quota: InstanceQuotas | None = None, preempt: bool = False) -> None:
        self._simulation = simulation
        self._quota = quota
        self._preempt = preempt
        self._first: dict[int, PodInfo] = {}

    def place(self, pod: Pod, needs: Sequence[Object] = ()) -> Placed | Stop:
        """Create one instance, with the objects it needs, and place it."""
        refusal = "" if self._quota is None else self._quota.refusal(pod, needs)
        if refusal:
            return Stop(QUOTA, refusal, pod)
        quick = None if needs else self._quickly(pod)
        placed = quick or self._attempted(pod, needs)
        if isinstance(placed, Placed) and self._quota is not None:
            self._quota.take(pod, needs)
        return placed

    # -- counted on the node only ----------------------------------------------------------------------------------------

    def _quickly(self, pod: Pod) -> Placed | Stop | None:
        """Decide and count the pod on its node; None if this needs a whole attempt."""
        scheduler = self._simulation.scheduler
        profile = scheduler.profiles.get(pod.spec.scheduler_name)
        if profile is None or self._preempt or not _is_simple(pod, profile) or scheduler.cycle.extenders:
            return None
        if scheduler.cluster.groups is not None:
            return None
        info = PodInfo(pod)
        twin = self._first.setdefault(id(pod.spec), info)
        if twin is not info and twin.labels is info.labels:
            info.share(twin)
        decision = scheduler.cycle.decide(profile, info, scheduler.snapshot, scheduler.queue.nominated)
        if decision.node is None:
            return Stop(UNSCHEDULABLE, decision.message, pod)
        if not rests(profile, decision):
            return None
        scheduler.cluster.assume(info, decision.node)
        return Placed(pod, decision.node)

    # -- attempted -------------------------------------------------------------------------------------------------------

    def _attempted(self, pod: Pod, needs: Iterable[Object]) -> Placed | Stop:
        simulation = self._simulation
        simulation.tell([*map(Seen, needs), Seen(pod)])
        now = simulation.pods[pod.metadata.uid]
        if now.spec.scheduler_name not in simulation.scheduler.profiles:
            return Stop(UNSCHEDULABLE, f"no profile has the name {now.spec.scheduler_name}", pod)
        known = set(simulation.victims)
        simulation.attempt(now) if self._preempt else simulation.attempt(now, _NO_VICTIMS)
        victims = tuple(record.pod.key for uid, record in simulation.victims.items() if uid not in known)
        if victims or not (self._node_of(pod) or self._message(pod)):
            simulation.run()  # victims leave, and volumes are bound
        node = self._node_of(pod)
        return Placed(pod, node, victims) if node else Stop(UNSCHEDULABLE, self._full_message(pod), pod)

    def _node_of(self, pod: Pod) -> str:
        now = self._simulation.pods.get(pod.metadata.uid)
        return "" if now is None else now.spec.node_name

    def _message(self, pod: Pod) -> str:
        record = self._simulation.records.get(pod.metadata.uid)
        return "" if record is None else record.message

    def _full_message(self, pod: Pod) -> str:
        """Return the message of the failed attempt, with the outcome of preemption, which was not carried out."""
        scheduler, now = self._simulation.scheduler, self._simulation.pods[pod.metadata.uid]
        queued = scheduler.queue.get(pod.metadata.uid)
        if queued is not None and queued.gate is not None:
            return ", ".join(queued.gate.reasons)
        if not self._preempt and not scheduler.cycle.extenders:
            profile = scheduler.profiles[now.spec.scheduler_name]
            decision = scheduler.cycle.decide(profile, PodInfo(now), scheduler.snapshot, scheduler.queue.nominated)
            if decision.node is None:
                return decision.message
        return self._message(pod) or "the pod waits for no node"


def _is_simple(pod: Pod, profile: Profile) -> bool:
    """Return True for a pod that no gate or plugin keeps from the queue and that has no resource claims or pod group."""
    spec = pod.spec
    return not (spec.scheduling_gates or spec.resource_claims or spec.scheduling_group or _waits(profile))


def _waits(profile: Profile) -> bool:
    """Return True if a third-party plugin may keep pods from the queue."""
    return any(step.name not in _BUILT_IN_GATES for step in profile.at("preEnqueue"))


_BUILT_IN_GATES: Final = frozenset(["SchedulingGates", "DefaultPreemption", "DynamicResources", "GangScheduling"])
