"""What pods take of resource quotas.

A pod that has ended counts as an object and takes nothing else; nor does one that is long past the time it was given to end.
While a pod is resized, the most of what it asks for, was granted and has counts.

Source  kubernetes, pkg/quota/v1/evaluator/core/pods.go; component-helpers, resource/helpers.go, PodRequests and PodLimits
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Any, Final

from moorage.api.core import ENDED_PHASES
from moorage.api.names import is_extended_resource_name, is_native_resource
from moorage.api.quotas import ScopedResourceSelectorRequirement
from moorage.apiserver.admission.quota_types import ONE, Facts, Usage, add, amounts, label_fits, raise_to
from moorage.apiserver.admission.strategy import qos_class
from moorage.apiserver.vocabulary.records import Document

__all__ = [
    "DEVICE_CLASS", "NAMES", "has_deadline", "is_of_pods", "is_pod_scoped", "missing_requests", "pod_usage", "settles_at",
]  # fmt: skip

#: How resources are called that stand for devices of a class.
DEVICE_CLASS: Final = "deviceclass.resource.kubernetes.io/"
_MUST_SAY: Final = frozenset(["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"])
NAMES: Final = _MUST_SAY | {
    "count/pods", "ephemeral-storage", "limits.ephemeral-storage", "pods", "requests.ephemeral-storage",
}  # fmt: skip
_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")


def is_of_pods(name: str, _: Facts) -> bool:
    """Return True for further names of what pods take: huge pages, and whatever others define."""
    if name.startswith(("hugepages-", "requests.hugepages-", f"requests.{DEVICE_CLASS}")):
        return True
    return name.startswith("requests.") and not is_native_resource(name)


def pod_usage(pod: Document, facts: Facts) -> Usage:
    """Return what a pod takes."""
    used = {"count/pods": ONE}
    if _is_charged(pod, facts.now):
        used |= _by_names(_sum(pod, "requests"), _sum(pod, "limits"))
    return used


def _by_names(requests: Usage, limits: Usage) -> Usage:
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


# -- which pods ---------------------------------------------------------------------------------------------------------


def _is_charged(pod: Document, now: float) -> bool:
    if (pod.get("status") or {}).get("phase") in ENDED_PHASES:
        return False
    end = settles_at(pod)
    return end is None or now <= end


def settles_at(pod: Document) -> float | None:
    """Return when a pod that is deleted takes nothing any more, ended or not, in seconds since 1970; None for others."""
    metadata = pod["metadata"]
    when, grace = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    if not when or grace is None:
        return None
    return datetime.datetime.fromisoformat(when).timestamp() + float(grace)


def has_deadline(pod: Document) -> bool:
    """Return True for a pod that may only run for so long."""
    return (pod.get("spec") or {}).get("activeDeadlineSeconds") is not None


def is_pod_scoped(asked: ScopedResourceSelectorRequirement, pod: Document) -> bool:
    """Return True for a pod that meets what a scope asks."""
    spec = pod.get("spec") or {}
    match asked.scope_name:
        case "Terminating":
            return has_deadline(pod)
        case "NotTerminating":
            return not has_deadline(pod)
        case "BestEffort":
            return _is_best_effort(pod)
        case "NotBestEffort":
            return not _is_best_effort(pod)
        case "PriorityClass":
            return label_fits(asked, spec.get("priorityClassName") or "")
        case "CrossNamespacePodAffinity":
            return any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in _terms(spec))
        case _:
            return False


def _is_best_effort(pod: Document) -> bool:
    told = (pod.get("status") or {}).get("qosClass") or qos_class(pod.get("spec") or {})
    return bool(told == "BestEffort")


def _terms(spec: Document) -> Iterator[Document]:
    """Yield what a pod says of where it is to be with regard to other pods."""
    affinity = spec.get("affinity") or {}
    for part in ("podAffinity", "podAntiAffinity"):
        held = affinity.get(part) or {}
        yield from held.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for weighted in held.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield weighted.get("podAffinityTerm") or {}


# -- what they must say -------------------------------------------------------------------------------------------------


def missing_requests(limited: Iterable[str], pod: Document) -> str:
    """Return what is wrong with a pod whose containers leave out what is limited; nothing if all is said.

    So it is asked of processors and memory, and of nothing else, as it always was.
    """
    needed = _MUST_SAY & set(limited)
    spec = pod.get("spec") or {}
    whole = spec.get("resources") or {}
    if not needed or any(_is_pod_level(name) for side in ("requests", "limits") for name in whole.get(side) or ()):
        return ""
    left: dict[str, set[str]] = {}
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        given = container.get("resources") or {}
        said = _by_names(amounts(given.get("requests")), amounts(given.get("limits")))
        for name in needed - said.keys():
            left.setdefault(name, set()).add(container.get("name") or "")
    told = [f"{name} for: {','.join(sorted(containers))}" for name, containers in sorted(left.items())]
    return f"must specify {'; '.join(told)}" if told else ""


def _is_pod_level(name: str) -> bool:
    return name in {"cpu", "memory"} or name.startswith("hugepages-")


# -- how much -----------------------------------------------------------------------------------------------------------


def _sum(pod: Document, side: str) -> Usage:
    """Return what a pod requests, or what it is limited to."""
    spec = pod.get("spec") or {}
    total = _of_containers(pod, side)
    whole = spec.get("resources") or {}
    total |= {name: amount for name, amount in amounts(whole.get(side)).items() if _is_pod_level(name)}
    overhead = amounts(spec.get("overhead"))
    if side == "limits":
        # A pod that is not limited is not limited by what it takes on top either.
        overhead = {name: amount for name, amount in overhead.items() if name in total and total[name].nano}
    add(total, overhead)
    return total


def _of_containers(pod: Document, side: str) -> Usage:
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
            raise_to(starting, {name: sidecars[name] for name in own})
        else:
            own = amounts((container.get("resources") or {}).get(side))
            add(own, {name: sidecars[name] for name in own if name in sidecars})
            raise_to(starting, own)
    raise_to(total, starting)
    return total


def _statuses(pod: Document) -> dict[str, Document]:
    """Return what kubelet says of containers, by their names, of those whose resources it tells."""
    status = pod.get("status") or {}
    told = [one for part in ("containerStatuses", "initContainerStatuses") for one in status.get(part) or ()]
    return {one.get("name") or "": one for one in told if one.get("resources") is not None}


def _is_infeasible(pod: Document) -> bool:
    conditions: list[dict[str, Any]] = (pod.get("status") or {}).get("conditions") or []
    pending = next((one for one in conditions if one.get("type") == "PodResizePending"), None)
    return pending is not None and pending.get("reason") == "Infeasible"


def _effective(container: Document, statuses: dict[str, Document], side: str, is_stuck: bool) -> Usage:
    """Return what counts of a container: its own words, and what it has, if that is more."""
    asked = amounts((container.get("resources") or {}).get(side))
    status = statuses.get(container.get("name") or "")
    if status is None:
        return asked
    held = {} if is_stuck else asked
    raise_to(held, amounts(status["resources"].get(side)))
    if side == "requests":
        raise_to(held, amounts(status.get("allocatedResources")))
    return held
