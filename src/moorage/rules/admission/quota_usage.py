"""Quota usage by kind, and whether an object is in a quota's scopes.

Admission charges creations and growth with these functions, and the resource quota controller recounts existing objects
with the same functions, so the two agree. Usage is keyed by quota resource name: ``requests.cpu`` and ``cpu`` are the same
amount under two names. ``QuotaEvaluator`` says which names a kind supports; a kind without its own evaluator is counted, as
``count/widgets.example.com``.

Source  kubernetes, pkg/quota/v1/evaluator/core: services.go, persistent_volume_claims.go, registry.go; apiserver,
        pkg/quota/v1/generic/evaluator.go; pkg/quota/v1/resources.go, CalculateUsage
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from moorage.api.core import ENDED_PHASES, Quantity, ResourceQuota, ResourceQuotaSpec, ScopedResourceSelectorRequirement
from moorage.api.documents.served_kinds import KINDS, Document, ServedKind, served
from moorage.api.names import is_extended_resource_name, is_native_resource
from moorage.api.quantity import Exact, exact, parse

# Types and helpers of quota usage: amounts by resource name, lookups of other objects, and scope selector matching.
#
# Source  apiserver, pkg/quota/v1/resources.go; kubernetes, pkg/apis/core/v1/helper/helpers.go

#: Amounts by quota resource name.
Usage: TypeAlias = dict[str, Exact]
ONE: Final = exact("1")
ZERO: Final = exact("0")


class Facts(NamedTuple):
    """The facts, other than the object itself, that its usage depends on.

    ``now`` is the time in seconds since 1970. ``all`` returns the objects of a kind in a namespace ("" for cluster-scoped
    kinds); ``find`` returns one of them by namespace and name, or None. ``kinds`` are all kinds that exist.
    """

    now: float
    all: Callable[[ServedKind, str], Iterable[Document]]
    find: Callable[[ServedKind, str, str], Document | None]
    kinds: Iterable[ServedKind] = KINDS


def amounts(given: Mapping[str, Quantity] | None) -> Usage:
    """Return a resource list as exact amounts."""
    return {name: exact(amount) for name, amount in given.items()} if given else {}


def add(to: Usage, more: Usage) -> None:
    """Add amounts to ``to``, in place."""
    for name, amount in more.items():
        to[name] = to[name].plus(amount) if name in to else amount


def raise_to_at_least(held: Usage, least: Usage) -> None:
    """Raise each amount in ``held`` to at least the one in ``least``, in place."""
    for name, amount in least.items():
        if name not in held or amount.nano > held[name].nano:
            held[name] = amount


def matches_requirement(requirement: ScopedResourceSelectorRequirement, value: str) -> bool:
    """Return True if a value ("" for none) matches a scope selector requirement."""
    match requirement.operator:
        case "Exists":
            return bool(value)
        case "DoesNotExist":
            return not value
        case "In":
            return bool(value) and value in requirement.values
        case _:
            return not value or value not in requirement.values


# -- quota pods --------------------------------------------------------------------------------------------------------
# Quota usage of pods.
#
# A pod that has ended counts only as an object, and so does a deleted pod whose grace period is over. During a resize, the
# maximum of requested, allocated and actual resources counts.
#
# Source  kubernetes, pkg/quota/v1/evaluator/core/pods.go; component-helpers, resource/helpers.go, PodRequests and PodLimits

#: Prefix of resource names that stand for devices of a class.
DEVICE_CLASS: Final = "deviceclass.resource.kubernetes.io/"
_REQUIRED: Final = frozenset(["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"])
POD_NAMES: Final = _REQUIRED | {
    "count/pods", "ephemeral-storage", "limits.ephemeral-storage", "pods", "requests.ephemeral-storage",
}  # fmt: skip
_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")


def is_of_pods(name: str, _: Facts) -> bool:
    """Return True for other quota resources of pods: huge pages and extended resources."""
    if name.startswith(("hugepages-", "requests.hugepages-", f"requests.{DEVICE_CLASS}")):
        return True
    return name.startswith("requests.") and not is_native_resource(name)


def pod_usage(pod: Document, facts: Facts) -> Usage:
    """Return a pod's usage."""
    used = {"count/pods": ONE}
    if _is_charged(pod, facts.now):
        used |= _by_quota_name(_sum(pod, "requests"), _sum(pod, "limits"))
    return used


def _by_quota_name(requests: Usage, limits: Usage) -> Usage:
    used = {"pods": ONE}
    for name in _COMPUTE:
        if name in requests:
            used[name] = used[f"requests.{name}"] = requests[name]
        if name in limits:
            used[f"limits.{name}"] = limits[name]
    for name, amount in requests.items():
        if name.startswith("hugepages-"):
            used[name] = used[f"requests.{name}"] = amount
        elif is_extended_resource_name(name) or name.startswith(DEVICE_CLASS):
            used[f"requests.{name}"] = amount
    return used


# -- which pods --------------------------------------------------------------------------------------------------------


def _is_charged(pod: Document, now: float) -> bool:
    if (pod.get("status") or {}).get("phase") in ENDED_PHASES:
        return False
    end = charge_ends_at(pod)
    return end is None or now <= end


def charge_ends_at(pod: Document) -> float | None:
    """Return when a deleted pod stops being charged even if it has not ended, in seconds since 1970; None for other pods."""
    metadata = pod["metadata"]
    deleted_at, grace_s = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    if not deleted_at or grace_s is None:
        return None
    return datetime.datetime.fromisoformat(deleted_at).timestamp() + float(grace_s)


def has_deadline(pod: Document) -> bool:
    """Return True for a pod with ``activeDeadlineSeconds``."""
    return (pod.get("spec") or {}).get("activeDeadlineSeconds") is not None


def is_pod_scoped(requested: ScopedResourceSelectorRequirement, pod: Document) -> bool:
    """Return True if a pod is in a quota scope."""
    spec = pod.get("spec") or {}
    match requested.scope_name:
        case "Terminating":
            return has_deadline(pod)
        case "NotTerminating":
            return not has_deadline(pod)
        case "BestEffort":
            return _is_best_effort(pod)
        case "NotBestEffort":
            return not _is_best_effort(pod)
        case "PriorityClass":
            return matches_requirement(requested, spec.get("priorityClassName") or "")
        case "CrossNamespacePodAffinity":
            return any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in _terms(spec))
        case _:
            return False


def _is_best_effort(pod: Document) -> bool:
    reported = (pod.get("status") or {}).get("qosClass") or qos_class(pod.get("spec") or {})
    return bool(reported == "BestEffort")


_QOS_RESOURCES: Final = ("cpu", "memory")


def qos_class(spec: Mapping[str, Any]) -> str:
    """Return a pod's QoS class from its pod-level resources or, without those, from its containers.

    Source  kubernetes, pkg/apis/core/v1/helper/qos/qos.go
    """
    whole = spec.get("resources")
    if isinstance(whole, dict):
        asked, is_limited = [whole], not whole.get("limits") or len(_amounts(whole, "limits")) == len(_QOS_RESOURCES)
    else:
        containers = [one for part in ("initContainers", "containers") for one in spec.get(part) or () if isinstance(one, dict)]
        asked = [one.get("resources") or {} for one in containers]
        is_limited = all(len(_amounts(one, "limits")) == len(_QOS_RESOURCES) for one in asked)
    requests, limits = (_total(asked, side) for side in ("requests", "limits"))
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if is_limited and requests == limits else "Burstable"


def _amounts(resources: Mapping[str, Any], side: str) -> dict[str, int]:
    """Return the positive CPU and memory amounts of ``requests`` or ``limits``, in nano-units."""
    given = resources.get(side) or {}
    return {name: amount for name in _QOS_RESOURCES if name in given and (amount := parse(given[name])) > 0}


def _total(asked: Iterable[Mapping[str, Any]], side: str) -> dict[str, int]:
    total: dict[str, int] = {}
    for resources in asked:
        for name, amount in _amounts(resources, side).items():
            total[name] = total.get(name, 0) + amount
    return total


def _terms(spec: Document) -> Iterator[Document]:
    """Yield a pod's affinity and anti-affinity terms, required and preferred."""
    affinity = spec.get("affinity") or {}
    for part in ("podAffinity", "podAntiAffinity"):
        held = affinity.get(part) or {}
        yield from held.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for weighted in held.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield weighted.get("podAffinityTerm") or {}


# -- required requests and limits --------------------------------------------------------------------------------------


def missing_requests(limited: Iterable[str], pod: Document) -> str:
    """Return an error text for a pod whose containers do not specify a limited amount, or "".

    Only CPU and memory must be specified, as in kube-apiserver.
    """
    needed = _REQUIRED & set(limited)
    spec = pod.get("spec") or {}
    pod_level = spec.get("resources") or {}
    if not needed or any(_is_pod_level(name) for side in ("requests", "limits") for name in pod_level.get(side) or ()):
        return ""
    missing: dict[str, set[str]] = {}
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        given = container.get("resources") or {}
        specified = _by_quota_name(amounts(given.get("requests")), amounts(given.get("limits")))
        for name in needed - specified.keys():
            missing.setdefault(name, set()).add(container.get("name") or "")
    reported = [f"{name} for: {','.join(sorted(containers))}" for name, containers in sorted(missing.items())]
    return f"must specify {'; '.join(reported)}" if reported else ""


def _is_pod_level(name: str) -> bool:
    return name in {"cpu", "memory"} or name.startswith("hugepages-")


# -- amounts -----------------------------------------------------------------------------------------------------------


def _sum(pod: Document, side: str) -> Usage:
    """Return a pod's total ``requests`` or ``limits``, the overhead included."""
    spec = pod.get("spec") or {}
    total = _container_total(pod, side)
    pod_level = spec.get("resources") or {}
    total |= {name: amount for name, amount in amounts(pod_level.get(side)).items() if _is_pod_level(name)}
    overhead = amounts(spec.get("overhead"))
    if side == "limits":
        # Overhead adds to existing limits only: a pod without a limit stays unlimited.
        overhead = {name: amount for name, amount in overhead.items() if name in total and total[name].nano}
    add(total, overhead)
    return total


def _container_total(pod: Document, side: str) -> Usage:
    spec, statuses = pod.get("spec") or {}, _statuses(pod)
    conditions: list[Document] = (pod.get("status") or {}).get("conditions") or []
    pending = next((one for one in conditions if one.get("type") == "PodResizePending"), {})
    is_stuck = pending.get("reason") == "Infeasible"
    total: Usage = {}
    for container in spec.get("containers") or ():
        add(total, _effective(container, statuses, side, is_stuck))
    sidecars: Usage = {}
    starting: Usage = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            own = _effective(container, statuses, side, is_stuck)
            add(total, own)
            add(sidecars, own)
            raise_to_at_least(starting, {name: sidecars[name] for name in own})
        else:
            own = amounts((container.get("resources") or {}).get(side))
            add(own, {name: sidecars[name] for name in own if name in sidecars})
            raise_to_at_least(starting, own)
    raise_to_at_least(total, starting)
    return total


def _statuses(pod: Document) -> dict[str, Document]:
    """Return the status of each container whose resources the kubelet reported, by container name."""
    status = pod.get("status") or {}
    reported = [one for part in ("containerStatuses", "initContainerStatuses") for one in status.get(part) or ()]
    return {one.get("name") or "": one for one in reported if one.get("resources") is not None}


def _effective(container: Document, statuses: dict[str, Document], side: str, is_stuck: bool) -> Usage:
    """Return the amounts that count for a container: the maximum of its spec and the actual and allocated resources in its
    status.
    """
    requested = amounts((container.get("resources") or {}).get(side))
    status = statuses.get(container.get("name") or "")
    if status is None:
        return requested
    held = {} if is_stuck else requested
    raise_to_at_least(held, amounts(status["resources"].get(side)))
    if side == "requests":
        raise_to_at_least(held, amounts(status.get("allocatedResources")))
    return held


# -- quota claims ------------------------------------------------------------------------------------------------------
# Quota usage of resource claims: the largest number of devices of each class that a claim can be allocated.
#
# Devices of a class with an extended resource name also count under that name. If a claim was created for a pod, the amount
# that the pod itself is charged is subtracted.
#
# Source  kubernetes, pkg/quota/v1/evaluator/core/resource_claims.go

CLAIM_NAMES: Final = frozenset(["count/resourceclaims.resource.k8s.io"])
_BY_DEVICE_CLASS: Final = ".deviceclass.resource.k8s.io/devices"
_FOR_POD: Final = "resource.kubernetes.io/extended-resource-claim"
#: Maximum number of devices in a claim's allocation.
_MAX_DEVICES: Final = 32
_CLASSES: Final = served("deviceclasses", "resource.k8s.io")
_DEVICE_CLAIMS: Final = served("resourceclaims", "resource.k8s.io")
_PODS: Final = served("pods")


def is_of_claims(name: str, facts: Facts) -> bool:
    """Return True for other quota resources of claims: devices by class, and extended resources backed by devices."""
    if name.endswith(_BY_DEVICE_CLASS):
        return True
    resource = name.removeprefix("requests.")
    if resource == name or (is_native_resource(name) and not resource.startswith(DEVICE_CLASS)):
        return False
    return any(resource in {f"{DEVICE_CLASS}{one['metadata']['name']}", _extended(one)} for one in facts.all(_CLASSES, ""))


def _extended(device_class: Document | None) -> str:
    """Return the extended resource name of a device class, or ""."""
    return str(((device_class or {}).get("spec") or {}).get("extendedResourceName") or "")


def claim_usage(claim: Document, facts: Facts) -> Usage:
    """Return a claim's usage."""
    used: Usage = {"count/resourceclaims.resource.k8s.io": ONE}
    devices: Usage = {}
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        largest: Usage = {}
        for one in request.get("firstAvailable") or [request.get("exactly") or {}]:
            # The largest number of devices that a request can be allocated, by device class.
            name, mode = one.get("deviceClassName"), one.get("allocationMode")
            count = {"ExactCount": one.get("count") or 0, "All": _MAX_DEVICES}.get(mode or "", 0)
            raise_to_at_least(largest, {name: exact(count)} if name else {})
        add(devices, largest)
    add(used, {f"{name}{_BY_DEVICE_CLASS}": amount for name, amount in devices.items()})
    add(used, _extended_usage(claim, devices, facts))
    return used


def _extended_usage(claim: Document, devices: Usage, facts: Facts) -> Usage:
    """Return a claim's usage of extended resources, minus the amounts that its pod is charged."""
    used: Usage = {}
    for name, amount in devices.items():
        used[f"requests.{DEVICE_CLASS}{name}"] = amount
        if resource := _extended(facts.find(_CLASSES, "", name)):
            used[f"requests.{resource}"] = amount
    charged = _charged_to_pod(claim, facts)
    left = {name: amount.minus(charged[name]) if name in charged else amount for name, amount in used.items()}
    return {name: amount for name, amount in left.items() if amount.nano > 0}


def _charged_to_pod(claim: Document, facts: Facts) -> Usage:
    """Return the usage of the pod whose extended resources a claim was created for; nothing for other claims."""
    metadata = claim["metadata"]
    owner = _owner(metadata)
    if owner is None or (metadata.get("annotations") or {}).get(_FOR_POD) != "true":
        return {}
    namespace = metadata.get("namespace") or ""
    pod = facts.find(_PODS, namespace, owner.get("name") or "")
    if pod is None or pod["metadata"].get("uid") != owner.get("uid"):
        return {}
    claim_status = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    if claim_status is not None:
        return pod_usage(pod, facts) if claim_status.get("resourceClaimName") == metadata["name"] else {}
    return pod_usage(pod, facts) if _is_first(metadata, owner, facts.all(_DEVICE_CLAIMS, namespace)) else {}


def _owner(metadata: Document) -> dict[str, Any] | None:
    """Return the owner reference to the pod that controls a claim, or None."""
    owner: dict[str, Any] | None = next((one for one in metadata.get("ownerReferences") or () if one.get("controller")), None)
    return owner if owner is not None and (owner.get("kind"), owner.get("apiVersion")) == ("Pod", "v1") else None


def _is_first(metadata: Document, owner: dict[str, Any], claims: Iterable[Document]) -> bool:
    """Return True if a claim is the oldest that was created for its pod: only its usage is reduced by that of the pod."""
    own = (metadata.get("creationTimestamp") or "", metadata["name"])
    for one in claims:
        held = one["metadata"]
        if (held.get("annotations") or {}).get(_FOR_POD) != "true" or (_owner(held) or {}).get("uid") != owner.get("uid"):
            continue
        if (held.get("creationTimestamp") or "", held["name"]) < own:
            return False
    return True


#: Kinds that are never counted.
_UNCOUNTED: Final = frozenset(["Event"])
#: Resources that have a plain name in addition to ``count/NAME``.
_PLAIN: Final = frozenset(["configmaps", "replicationcontrollers", "resourcequotas", "secrets"])


@dataclass(frozen=True)
class QuotaEvaluator:
    """How objects of one kind are counted.

    ``names`` are the resources that the kind always uses; ``is_named`` returns True for further ones. ``is_scoped`` returns
    whether an object is in a scope; quotas with scopes ignore kinds without scopes. ``missing`` returns an error text for
    an object that does not specify an amount for a limited resource. ``grows`` returns, given the subresource and the
    object before and after, whether an update can increase usage.
    """

    names: frozenset[str]
    usage: Callable[[Document, Facts], Usage]
    is_named: Callable[[str, Facts], bool] = lambda _, __: False
    is_scoped: Callable[[ScopedResourceSelectorRequirement, Document], bool] = lambda _, __: False
    missing: Callable[[Iterable[str], Document], str] = lambda _, __: ""
    grows: Callable[[str, Document, Document], bool] = lambda _, __, ___: False

    def matching(self, names: Iterable[str], facts: Facts) -> list[str]:
        """Return the sorted quota resources that this kind uses."""
        return sorted(name for name in names if name in self.names or self.is_named(name, facts))


def is_in_scope(evaluator: QuotaEvaluator, spec: ResourceQuotaSpec, document: Document) -> bool:
    """Return True if an object is in all scopes of a quota."""
    return all(evaluator.is_scoped(requirement, document) for requirement in spec.requirements)


@lru_cache(maxsize=1024)
def evaluator_for(kind: ServedKind) -> QuotaEvaluator | None:
    """Return the evaluator of a kind, or None if the kind is not counted."""
    if not kind.namespaced or kind.native in _UNCOUNTED:
        return None
    found = _EVALUATORS.get(kind)
    if found is not None:
        return found
    names = frozenset([f"count/{kind.qualified}", *([kind.resource] if not kind.group and kind.resource in _PLAIN else [])])
    counted = dict.fromkeys(sorted(names), ONE)
    return QuotaEvaluator(names, lambda _, __: counted)


def counted_usage(quota: ResourceQuota, hard: Usage, facts: Facts) -> tuple[Usage, int]:
    """Return the usage of a quota's limited resources for which there is an evaluator, and the number of objects read."""
    seen = 0
    total: Usage = {}
    used: Usage = {}
    for kind in facts.kinds:
        meter = evaluator_for(kind)
        names = meter.matching(hard, facts) if meter is not None else []
        if meter is None or not names:
            continue
        total |= dict.fromkeys(names, ZERO)
        for document in facts.all(kind, quota.metadata.namespace):
            seen += 1
            if is_in_scope(meter, quota.spec, document):
                add(used, meter.usage(document, facts))
    return total | {name: amount for name, amount in used.items() if name in total}, seen


_SERVICES: Final = frozenset(["count/services", "services", "services.loadbalancers", "services.nodeports"])


def _service(service: Document, _: Facts) -> Usage:
    spec = service.get("spec") or {}
    ports, kind = spec.get("ports") or [], spec.get("type")
    has_balancer = kind == "LoadBalancer"
    if has_balancer and spec.get("allocateLoadBalancerNodePorts") is False:
        # Node ports are not allocated yet here, so only those that the service requests count.
        count = sum(1 for port in ports if port.get("nodePort"))
    else:
        count = len(ports) if has_balancer or kind == "NodePort" else 0
    return {
        "count/services": ONE, "services": ONE, "services.loadbalancers": ONE if has_balancer else ZERO,
        "services.nodeports": exact(count),
    }  # fmt: skip


# -- persistent volume claims ------------------------------------------------------------------------------------------

_CLAIMS: Final = frozenset(["count/persistentvolumeclaims", "persistentvolumeclaims", "requests.storage"])
_BY_CLASS: Final = ".storageclass.storage.k8s.io/"
_LEGACY_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"


def _claim(claim: Document, _: Facts) -> Usage:
    spec, annotations = claim.get("spec") or {}, claim["metadata"].get("annotations") or {}
    storage_class = annotations.get(_LEGACY_CLASS_ANNOTATION) or spec.get("storageClassName") or ""
    used = {"count/persistentvolumeclaims": ONE, "persistentvolumeclaims": ONE}
    requests = (spec.get("resources") or {}).get("requests") or {}
    if "storage" in requests:
        # A larger size that was already allocated during a resize still counts after the request shrinks.
        held = ((claim.get("status") or {}).get("allocatedResources") or {}).get("storage", "0")
        used["requests.storage"] = max(exact(requests["storage"]), exact(held), key=lambda one: one.nano).in_whole_units()
    if storage_class:
        used |= {f"{storage_class}{_BY_CLASS}{name}": used[name] for name in _CLAIMS & used.keys() if "/" not in name}
    return used


def _is_claim_scoped(requirement: ScopedResourceSelectorRequirement, claim: Document) -> bool:
    if requirement.scope_name != "VolumeAttributesClass":
        return False
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    target = (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName")
    named = [spec.get("volumeAttributesClassName"), status.get("currentVolumeAttributesClassName"), target]
    return any(matches_requirement(requirement, name) for name in [name for name in named if name] or [""])


# -- evaluators by kind ------------------------------------------------------------------------------------------------

_EVALUATORS: Final = {
    served("pods"): QuotaEvaluator(
        POD_NAMES, pod_usage, is_of_pods, is_pod_scoped, missing_requests,
        lambda part, old, new: part == "resize"
        or (not part and has_deadline(old) is not has_deadline(new)),
    ),
    served("services"): QuotaEvaluator(_SERVICES, _service, grows=lambda part, _, __: not part),
    served("persistentvolumeclaims"): QuotaEvaluator(
        _CLAIMS, _claim, lambda name, _: name.endswith((f"{_BY_CLASS}requests.storage", f"{_BY_CLASS}persistentvolumeclaims")),
        _is_claim_scoped, grows=lambda part, _, __: part in {"", "status"},
    ),
    served("resourceclaims", "resource.k8s.io"): QuotaEvaluator(
        CLAIM_NAMES, claim_usage, is_of_claims, grows=lambda part, _, __: not part
    ),
}  # fmt: skip
