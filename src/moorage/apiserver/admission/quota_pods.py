"""Quota usage of pods.

A pod that has ended counts only as an object, and so does a deleted pod whose grace period is over. During a resize, the
maximum of requested, allocated and actual resources counts.

Source  kubernetes, pkg/quota/v1/evaluator/core/pods.go; component-helpers, resource/helpers.go, PodRequests and PodLimits
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Any, Final

from moorage.api.core import ENDED_PHASES
from moorage.api.names import is_extended_resource_name, is_native_resource
from moorage.api.quotas import ScopedResourceSelectorRequirement
from moorage.apiserver.admission.quota_types import ONE, Facts, Usage, add, amounts, matches_requirement, raise_to_at_least
from moorage.apiserver.admission.strategy import qos_class
from moorage.apiserver.vocabulary.records import Document

__all__ = [
    "DEVICE_CLASS",
    "NAMES",
    "charge_ends_at",
    "has_deadline",
    "is_of_pods",
    "is_pod_scoped",
    "missing_requests",
    "pod_usage",
]  # fmt: skip

#: Prefix of resource names that stand for devices of a class.
DEVICE_CLASS: Final = "deviceclass.resource.kubernetes.io/"
_REQUIRED: Final = frozenset(["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"])
NAMES: Final = _REQUIRED | {
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
    when, grace = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    if not when or grace is None:
        return None
    return datetime.datetime.fromisoformat(when).timestamp() + float(grace)


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
    spec, statuses, is_stuck = pod.get("spec") or {}, _statuses(pod), _is_infeasible(pod)
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


def _is_infeasible(pod: Document) -> bool:
    conditions: list[dict[str, Any]] = (pod.get("status") or {}).get("conditions") or []
    pending = next((one for one in conditions if one.get("type") == "PodResizePending"), None)
    return pending is not None and pending.get("reason") == "Infeasible"


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
