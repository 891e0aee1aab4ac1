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

from moorage.framework.profile import Profile
from moorage.laboratory.explain.verdicts import EveryVerdict
from moorage.plugins.node_resources_fit import RequestedResource
from moorage.plugins.spread.spread_counts import Spread
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray, IntArray

__all__ = ["Room", "room_for", "why_no_bound"]

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
    open_rows = np.ones(len(snapshot.table), dtype=bool)
    for one in judged.refusing:
        if one.name != FIT:
            open_rows &= ~one.refused
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
    nodes = snapshot.nodes
    free = {want.resource: nodes.allocatable(want.resource) - nodes.requested(want.resource) for want in wants}
    return free | {"pods": nodes.allowed_pods - nodes.pod_count}


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
