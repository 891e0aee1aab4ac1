"""Drops fields of a pod that a release does not know or whose feature gate is off.

A dropped field counts neither for pending pods nor for placed ones:

* pod-level resource requests, while their gate is off
* what devices take of the node, while the gate DRANodeAllocatableResources is off
* host ports of sidecars, up to 1.33.3
* the state of a resize that the kubelet reports, up to 1.32
* inclusion policies of spread constraints up to 1.32, and ``minDomains`` up to 1.29, while their gates are off
* ``matchLabelKeys`` of spread constraints, off up to 1.26, while their gate is off
* sidecars, up to 1.27
* requests of local storage, up to 1.24, while their gate is off
* overhead, and namespace selectors of affinity terms, up to 1.23, while their gates are off
* ephemeral volumes, up to 1.22, while their gate is off

1.21 stands for 1.19 to 1.21: a pod has all newer fields dropped, as its API server would have stored it. That release rounds
the requests of each container, not their sum, so requests are rounded here.

Source  kube-scheduler 1.36, framework/types.go, NodeInfo.update, PodInfo.CalculateResource; api 0.21, core/v1/types.go;
        kubernetes 1.21, pkg/api/pod/util.go, dropDisabledFields
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import Any, Final

from msgspec.structs import replace

from moorage.api.core import LabelSelector, LabelSelectorRequirement, Pod, Quantity, ResourceList, TopologySpreadConstraint
from moorage.api.pod_requests import with_greatest_of_each_container
from moorage.api.quantity import NANO_PER_MILLI, NANO_PER_UNIT, QuantityError, milli_value, parse, value
from moorage.basis import table_of
from moorage.basis.printable import counted, some
from moorage.framework.feature_gates import FeatureGates

_Reader = Callable[[Pod], Pod]
#: Field → the fields below it to change, or the function of its value; None sets the field to its default.
_Tree = dict[str, "_Tree | Callable[[Any], Any] | None"]


# -- changing fields ---------------------------------------------------------------------------------------------------


def _changing(change: Callable[[Any], Any] | None, *paths: str) -> _Reader:
    """Return a function that changes the values at these paths; items of lists are changed one by one."""
    tree: _Tree = {}
    for path in paths:
        *above, last = path.split(".")
        inner: Any = tree
        for name in above:
            inner = inner.setdefault(name, {})
        inner[last] = change
    return lambda pod: _changed(pod, tree)


def _dropping(*paths: str) -> _Reader:
    """Return a function that sets the fields at these paths to their defaults."""
    return _changing(None, *paths)


def _changed(held: Any, tree: _Tree) -> Any:
    """Return a struct or a tuple of structs with changed fields; the same object if nothing changes."""
    if isinstance(held, tuple):
        made = tuple(_changed(one, tree) for one in held)
        return held if all(one is other for one, other in zip(made, held, strict=True)) else made
    if held is None:
        return None
    changes: dict[str, Any] = {}
    for name, inner in tree.items():
        old = getattr(held, name)
        if isinstance(inner, dict):
            new = _changed(old, inner)
        elif inner is not None:
            new = inner(old)
        else:
            new = getattr(type(held)(), name)  # its default
        if new is not old and new != old:
            changes[name] = new
    return replace(held, **changes) if changes else held


def _all(*readers: _Reader) -> _Reader:
    return lambda pod: reduce(lambda left, read: read(left), readers, pod)


_REQUESTS: Final = ("spec.containers.resources.requests", "spec.init_containers.resources.requests", "spec.overhead")
_TERMS: Final = tuple(
    f"spec.affinity.{kind}.{terms}"
    for kind in ("pod_affinity", "pod_anti_affinity")
    for terms in (
        "required_during_scheduling_ignored_during_execution",
        "preferred_during_scheduling_ignored_during_execution.pod_affinity_term",
    )
)
_CONSTRAINTS: Final = "spec.topology_spread_constraints"
_TABLE: Final = table_of("moorage.framework", "dropped_fields.toml")
#: Matches no namespace: each has a name.
_NOWHERE: Final = LabelSelector(
    match_expressions=(LabelSelectorRequirement(key="kubernetes.io/metadata.name", operator="In", values=("",)),)
)


def _without_storage(requests: ResourceList) -> ResourceList:
    return {name: amount for name, amount in requests.items() if name != "ephemeral-storage"}


def _without_label_keys(pod: Pod) -> Pod:
    """Drop the keys, and what the API server's defaults added to the selectors for them."""
    labels = pod.metadata.labels

    def without(one: TopologySpreadConstraint) -> TopologySpreadConstraint:
        added = {(key, "In", (labels[key],)) for key in one.match_label_keys if key in labels}
        selector = one.label_selector
        if selector is not None:
            rest = tuple(
                asked for asked in selector.match_expressions if (asked.key, asked.operator, asked.values) not in added
            )
            selector = replace(selector, match_expressions=rest)
        return replace(one, match_label_keys=(), label_selector=selector)

    if not any(one.match_label_keys for one in pod.spec.topology_spread_constraints):
        return pod
    return _changing(lambda held: tuple(map(without, held)), _CONSTRAINTS)(pod)


def _without_device_amounts(pod: Pod) -> Pod:
    held = pod.status.node_allocatable_resource_claim_statuses  # hardly any pod has them, so this is asked first
    return _dropping("status.node_allocatable_resource_claim_statuses")(pod) if held else pod


_without_local_storage: Final = _changing(_without_storage, *_REQUESTS)
_without_keys_of_terms: Final = _dropping(
    *(f"{term}.{name}" for term in _TERMS for name in ("match_label_keys", "mismatch_label_keys"))
)
#: Affinity terms with namespace selectors match no namespace, as 1.23 reads them without its gate.
_selecting_no_namespaces: Final = _all(
    _changing(lambda held: None if held is None else _NOWHERE, *(f"{term}.namespace_selector" for term in _TERMS)),
    _without_keys_of_terms,
)
#: Gate of 1.32 or before → the reader while it is closed.
_BY_GATE: Final[Mapping[str, _Reader]] = {
    "PodAffinityNamespaceSelector": _selecting_no_namespaces,
    "LocalStorageCapacityIsolation": _without_local_storage,
    **{gate: _dropping(*paths) for gate, paths in _TABLE["gates"].items()},
}


_unknown_to_1_21: Final = _all(_dropping(*_TABLE["unknown_to_1_21"], *_TABLE["resizes"]), _without_keys_of_terms)


def _readers_of_1_21(gates: FeatureGates) -> Iterator[_Reader]:
    """Yield functions that together drop the fields of a pod which 1.21 does not know, and round its requests."""
    yield _unknown_to_1_21
    if not gates["PodAffinityNamespaceSelector"]:
        yield _dropping(*(f"{term}.namespace_selector" for term in _TERMS))
    for gate in ("PodOverhead", "LocalStorageCapacityIsolation", "GenericEphemeralVolume"):
        if not gates[gate]:
            yield _BY_GATE[gate]
    yield _changing(_rounded, *_REQUESTS)


def _rounded(requests: ResourceList) -> ResourceList:
    """Return requests in whole units, rounded up; the same object if they are whole already."""
    parts = {name: whole for name, quantity in requests.items() if (whole := _whole(name, quantity)) is not None}
    return {**requests, **parts} if parts else requests


def _whole(name: str, quantity: Quantity) -> Quantity | None:
    """Return a fractional request in whole units; None if it is whole already, or invalid."""
    try:
        nano = parse(quantity)
        if nano % (NANO_PER_MILLI if name == "cpu" else NANO_PER_UNIT) == 0:
            return None
        return f"{milli_value(quantity)}m" if name == "cpu" else value(quantity)
    except QuantityError:
        return None


# -- readers -----------------------------------------------------------------------------------------------------------


def pod_reader(gates: FeatureGates) -> _Reader:
    """Return a function that drops the fields of a pod which the gates' release does not know.

    Up to 1.36 it also changes the statuses of a pod that is being resized, so that its containers count one by one.
    """
    dropped = _dropper(gates)
    return dropped if gates.emulated.sums_resizes else _all(dropped, with_greatest_of_each_container)


def _dropper(gates: FeatureGates) -> _Reader:
    is_1_21 = gates.emulated.drops_later_pod_fields
    return _all(*(_readers_of_1_21(gates) if is_1_21 else _readers(gates)))


def ignored_fields_note(pods: Iterable[Pod], gates: FeatureGates) -> str:
    """Return a note on pods with fields that the gates' release does not know or count; "" if no pod has such a field."""
    release = gates.emulated
    no_gates = (
        "SchedulingGates" in release.lacks or _is_closed(gates, "PodSchedulingReadiness") or release.drops_later_pod_fields
    )
    no_claims = not gates["DynamicResourceAllocation"]
    if not (no_gates or no_claims or release.drops_later_pod_fields or any(True for _ in _readers(gates))):
        return ""
    read = _dropper(gates)

    def ignores(pod: Pod) -> bool:
        if (no_gates and pod.spec.scheduling_gates) or (no_claims and pod.spec.resource_claims):
            return True
        seen = read(pod)
        return seen is not pod and seen != pod

    changed = [pod.key for pod in pods if ignores(pod)]
    return (
        f"{counted(len(changed), 'pod')} with fields that kube-scheduler {release} ignores: {some(changed)}" if changed else ""
    )


def _readers(gates: FeatureGates) -> Iterator[_Reader]:
    """Yield a reader for each set of fields that the release does not count."""
    if not gates["PodLevelResources"]:
        yield _dropping("spec.resources")
    if not gates["InPlacePodLevelResourcesVerticalScaling"]:
        yield _dropping("status.resources")
    if not gates["InPlacePodVerticalScaling"]:
        yield _dropping(*_TABLE["resizes"])  # what the kubelet reports in the status
    if not gates["DRANodeAllocatableResources"]:
        yield _without_device_amounts
    if not gates.emulated.counts_sidecar_ports:
        yield _dropping("spec.init_containers.ports")
    if not gates.emulated.knows_sidecars:
        yield _dropping("spec.init_containers.restart_policy")
    if not gates["MatchLabelKeysInPodTopologySpread"]:
        yield _without_label_keys
    yield from (reader for gate, reader in _BY_GATE.items() if _is_closed(gates, gate))


def _is_closed(gates: FeatureGates, name: str) -> bool:
    """Return True if the gate is closed, in a release with it or before it. Later releases lack it: the feature is on."""
    return name in gates.names and not gates[name]
