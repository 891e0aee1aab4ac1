"""How many replicas a metric of an autoscaler asks for, from what the pods use.

Usage is declared, not measured (``usage_metrics``): of the metrics, those of resources exist here, of pods and of containers.

Source  kubernetes, pkg/controller/podautoscaler: replica_calculator.go, metrics/utilization.go, horizontal.go
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from moorage.api.documents.object_fields import condition_of, is_ending, name_of, phase_of, seconds, status_of
from moorage.api.documents.served_kinds import Document
from moorage.api.quantity import canonical, milli_value, value
from moorage.cluster.apiserver.tables.usage_metrics import used_by_containers

#: Time in which the CPU of a starting pod says little, and after which a pod that was never ready is ignored, in seconds.
_CPU_INITIALIZATION_S: Final = 300.0
_INITIAL_READINESS_S: Final = 30.0
_WINDOW_S: Final = 15.0
_NO_API: Final = {
    "Object": ("FailedGetObjectMetric", "object", "custom"), "Pods": ("FailedGetPodsMetric", "pods", "custom"),
    "External": ("FailedGetExternalMetric", "external", "external"),
}  # fmt: skip


class MetricError(Exception):
    """A metric that cannot be read, with the reason of the condition that says so."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ReplicaProposal(NamedTuple):
    """The number of replicas that a metric asks for, its name and its value, as the status has it."""

    replicas: int
    metric: str
    status: Document


class Tolerances(NamedTuple):
    """The relative differences from the target that change nothing."""

    down: float = 0.1
    up: float = 0.1

    def include(self, ratio: float) -> bool:
        return 1.0 - self.down <= ratio <= 1.0 + self.up


class _Groups(NamedTuple):
    """The usage of ready pods, by name, and the names of pods whose usage does not count, or is not known."""

    usage: dict[str, int]
    unready: list[str]
    missing: list[str]


def proposal_of(
    metric: Document, pods: Sequence[Document], current: int, tolerances: Tolerances, measured: Callable[[Document], bool],
    now: float,
) -> ReplicaProposal:  # fmt: skip
    """Return what a metric asks for. ``measured``: whether there are metrics of a pod.

    Raises  MetricError
    """
    form = metric["type"]
    if form in _NO_API:
        reason, part, api = _NO_API[form]
        name = metric[part]["metric"]["name"]
        why = f"unable to fetch metrics from {api} metrics API: no {api} metrics API ({api}.metrics.k8s.io) registered"
        raise MetricError(reason, f"unable to get {part} metric {name}: {why}")
    part, container = (
        ("containerResource", metric["containerResource"]["container"]) if form == "ContainerResource" else ("resource", "")
    )
    source = metric[part]
    resource, target = source["name"], source["target"]
    reason = "FailedGetContainerResourceMetric" if container else "FailedGetResourceMetric"
    try:
        if not pods:
            raise MetricError(reason, "no pods returned by selector while calculating replica count")
        groups = _grouped(pods, resource, container, measured, now)
        if not groups.usage:
            raise MetricError(reason, "did not receive metrics for targeted pods (pods might be unready)")
        if target.get("averageValue") is not None:
            wanted = milli_value(target["averageValue"])
            ratio: _Ratio = lambda usage: (sum(usage.values()) // len(usage)) / wanted  # noqa: E731
            replicas = _replicas(groups, ratio, dict.fromkeys(groups.missing, wanted), current, tolerances)
            held: Document = {"averageValue": _shown(sum(groups.usage.values()) // len(groups.usage))}
        else:
            percent = target["averageUtilization"]
            requests = _requests(pods, resource, container, reason)
            fallback = {name: requests[name] * max(100, percent) // 100 for name in groups.missing}
            ratio = lambda usage: _utilization(usage, requests) / percent  # noqa: E731
            replicas = _replicas(groups, ratio, fallback, current, tolerances)
            utilization = _utilization(groups.usage, requests)
            held = {"averageUtilization": utilization, "averageValue": _shown(sum(groups.usage.values()) // len(groups.usage))}
    except MetricError as error:
        what = f"{resource} resource metric value" if not container else f"{resource} container metric value"
        raise MetricError(reason, f"failed to get {what}: {error}" if not container else str(error)) from None
    status = {"name": resource, "current": held, **({"container": container} if container else {})}
    return ReplicaProposal(replicas, _title(resource, container, target), {"type": form, part: status})


def _title(resource: str, container: str, target: Mapping[str, Any]) -> str:
    kind = "container resource" if container else "resource"
    utilization = " utilization (percentage of request)" if target.get("averageValue") is None else ""
    return f"{resource} {kind}{utilization}"


def _grouped(
    pods: Iterable[Document], resource: str, container: str, measured: Callable[[Document], bool], now: float
) -> _Groups:
    groups = _Groups({}, [], [])
    for pod in pods:
        if is_ending(pod) or phase_of(pod) == "Failed":
            continue
        used = _usage(pod, resource, container) if measured(pod) else None
        if phase_of(pod) == "Pending":
            groups.unready.append(name_of(pod))
        elif used is None:
            groups.missing.append(name_of(pod))
        elif resource == "cpu" and _is_starting(pod, now):
            groups.unready.append(name_of(pod))
        else:
            groups.usage[name_of(pod)] = used
    return groups


def _is_starting(pod: Document, now: float) -> bool:
    """Return whether the CPU usage of a pod does not count, because it starts or has never been ready."""
    ready, started = condition_of(pod, "Ready"), status_of(pod).get("startTime")
    if ready is None or not started:
        return True
    is_unready, changed = ready.get("status") == "False", seconds(ready.get("lastTransitionTime"))
    if seconds(started) + _CPU_INITIALIZATION_S > now:
        return is_unready or now < changed + _WINDOW_S
    return is_unready and seconds(started) + _INITIAL_READINESS_S > changed


def _usage(pod: Document, resource: str, container: str) -> int | None:
    """Return what a pod, or one container of it, uses, in thousandths; None if there is no such metric."""
    index = {"cpu": 0, "memory": 1}.get(resource)
    found = [used for name, used in used_by_containers(pod) if container in {"", name}]
    if index is None or not found:
        return None
    return sum(one[index] for one in found) * (1 if index == 0 else 1000)


def _requests(pods: Iterable[Document], resource: str, container: str, reason: str) -> dict[str, int]:
    """Return the requests of pods, in thousandths.

    Raises  MetricError for a container without a request
    """
    made = {}
    for pod in pods:
        total = 0
        for one in _containers(pod):
            if container in {"", one["name"]}:
                amount = ((one.get("resources") or {}).get("requests") or {}).get(resource)
                if amount is None:
                    raise MetricError(
                        reason, f"missing request for {resource} in container {one['name']} of Pod {name_of(pod)}"
                    )
                total += milli_value(amount)
        made[name_of(pod)] = total
    return made


def _containers(pod: Document) -> list[Document]:
    sidecars = [one for one in pod["spec"].get("initContainers") or () if one.get("restartPolicy") == "Always"]
    return [*(pod["spec"].get("containers") or ()), *sidecars]


_Ratio = Callable[[Mapping[str, int]], float]


def _utilization(usage: Mapping[str, int], requests: Mapping[str, int]) -> int:
    total = sum(requests[name] for name in usage)
    if total == 0:
        raise MetricError("", "no metrics returned matched known pods")
    return sum(usage.values()) * 100 // total


def _replicas(groups: _Groups, ratio: _Ratio, fallback: Mapping[str, int], current: int, tolerances: Tolerances) -> int:
    """Return the number of replicas. Pods whose usage is unknown count so that fewer pods change; ``fallback``: what
    they use if there would be fewer.
    """
    found = ratio(groups.usage)
    ups_with_unready = bool(groups.unready) and found > 1.0
    if not ups_with_unready and not groups.missing:
        return current if tolerances.include(found) else math.ceil(found * len(groups.usage))
    usage = dict(groups.usage)
    if groups.missing and found < 1.0:
        usage |= fallback
    elif groups.missing and found > 1.0:
        usage |= dict.fromkeys(groups.missing, 0)
    if ups_with_unready:
        usage |= dict.fromkeys(groups.unready, 0)
    again = ratio(usage)
    if tolerances.include(again) or (found < 1.0 < again) or (again < 1.0 < found):
        return current
    replicas = math.ceil(again * len(usage))
    turns = (again < 1.0 and replicas > current) or (again > 1.0 and replicas < current)
    return current if turns else replicas


def _shown(thousandths: int) -> str:
    return canonical(f"{thousandths}m") if thousandths % 1000 else str(value(str(thousandths // 1000)))
