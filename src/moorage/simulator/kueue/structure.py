"""The structure of Kueue's objects: which fields there must be, and of which types. Other fields are left alone.

Source  Kueue, config/components/crd; apis/config/v1beta2
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta, Struct

from moorage.api.core import Taint, Toleration
from moorage.api.decode import decode
from moorage.api.meta import LabelSelector
from moorage.errors import InputError

__all__ = ["check_structure", "whole_number"]

_Quantity: TypeAlias = str | int | float


class _Quota(Struct, frozen=True, rename="camel"):
    name: str
    nominal_quota: Any = None
    borrowing_limit: Any = None
    lending_limit: Any = None


class _FlavorQuotas(Struct, frozen=True):
    name: str
    resources: tuple[_Quota, ...] | None = None


class _Group(Struct, frozen=True, rename="camel"):
    covered_resources: tuple[str, ...]
    flavors: tuple[_FlavorQuotas, ...]


class _Borrow(Struct, frozen=True, rename="camel"):
    policy: str | None = None
    max_priority_threshold: int | None = None


class _Preemption(Struct, frozen=True, rename="camel"):
    borrow_within_cohort: _Borrow | None = None


class _Check(Struct, frozen=True, rename="camel"):
    name: str
    on_flavors: tuple[str, ...] | None = None


class _Checks(Struct, frozen=True, rename="camel"):
    admission_checks: tuple[_Check, ...] | None = None


class _Sharing(Struct, frozen=True):
    weight: Any = None
    enable: bool | None = None


class _QueueSpec(Struct, frozen=True, rename="camel"):
    resource_groups: tuple[_Group, ...] | None = None
    namespace_selector: LabelSelector | None = None
    preemption: _Preemption | None = None
    flavor_fungibility: dict[str, Any] | None = None
    fair_sharing: _Sharing | None = None
    admission_checks: tuple[str, ...] | None = None
    admission_checks_strategy: _Checks | None = None


class _Level(Struct, frozen=True, rename="camel"):
    node_label: str


class _Levels(Struct, frozen=True):
    levels: tuple[_Level, ...] | None = None


class _FlavorSpec(Struct, frozen=True, rename="camel"):
    node_labels: dict[str, str] | None = None
    node_taints: tuple[Taint, ...] | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_name: str | None = None


class _Layer(Struct, frozen=True):
    topology: str
    size: int


class _Topology(Struct, frozen=True, rename="camel"):
    required: str | None = None
    preferred: str | None = None
    pod_set_slice_size: int | None = None
    podset_slice_required_topology_constraints: tuple[_Layer, ...] | None = None


class _PodSet(Struct, frozen=True, rename="camel"):
    count: Annotated[int, Meta(ge=0)] = 1
    min_count: int | None = None
    template: dict[str, Any] = {}
    topology_request: _Topology | None = None


class _WorkloadSpec(Struct, frozen=True, rename="camel"):
    pod_sets: tuple[_PodSet, ...] = ()
    priority: int | None = None


class _Assignment(Struct, frozen=True, rename="camel"):
    name: str
    flavors: dict[str, str] | None = None
    resource_usage: dict[str, _Quantity] | None = None
    count: int | None = None
    topology_assignment: dict[str, Any] | None = None


class _Admission(Struct, frozen=True, rename="camel"):
    cluster_queue: str
    pod_set_assignments: tuple[_Assignment, ...] | None = None


class _Condition(Struct, frozen=True):
    type: str
    status: str = ""


class _Status(Struct, frozen=True):
    admission: _Admission | None = None
    conditions: tuple[_Condition, ...] | None = None


class _Requeuing(Struct, frozen=True, rename="camel"):
    timestamp: str | None = None
    backoff_limit_count: int | None = None
    backoff_base_seconds: int | None = None
    backoff_max_seconds: int | None = None


class _PodsReady(Struct, frozen=True, rename="camel"):
    requeuing_strategy: _Requeuing | None = None


class _Queue(Struct, frozen=True):
    spec: _QueueSpec = _QueueSpec()


class _Flavor(Struct, frozen=True):
    spec: _FlavorSpec = _FlavorSpec()


class _TopologyObject(Struct, frozen=True):
    spec: _Levels = _Levels()


class _LocalQueue(Struct, frozen=True):
    spec: dict[str, Any] = {}


class _PriorityClass(Struct, frozen=True):
    value: int | None = None


class _Workload(Struct, frozen=True):
    spec: _WorkloadSpec = _WorkloadSpec()
    status: _Status = _Status()


class _UsageRules(Struct, frozen=True, rename="camel"):
    usage_half_life_time: str | None = None
    usage_sampling_interval: str | None = None
    resource_weights: dict[str, float] | None = None


class _Configuration(Struct, frozen=True, rename="camel"):
    fair_sharing: _Sharing | None = None
    admission_fair_sharing: _UsageRules | None = None
    wait_for_pods_ready: _PodsReady | None = None


_TYPES: Final[Mapping[str, type[Struct]]] = {
    "ClusterQueue": _Queue, "Cohort": _Queue, "ResourceFlavor": _Flavor, "Topology": _TopologyObject, "LocalQueue": _LocalQueue,
    "WorkloadPriorityClass": _PriorityClass, "Workload": _Workload, "Configuration": _Configuration,
}  # fmt: skip


def check_structure(documents: Iterable[Mapping[str, Any]]) -> None:
    """Check the fields of Kueue's objects.

    Raises  InputError that names the object and the field
    """
    for one in documents:
        if (kind := _TYPES.get(str(one.get("kind")))) is not None:
            decode(dict(one), kind, "Kueue")


def whole_number(value: Any, where: str) -> int:
    """Return a count of an object or an annotation.

    Raises  InputError unless it is a whole number of at least 0
    """
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        raise InputError(f"{where}: {value!r} is no count; use a whole number of at least 0")
    return number
