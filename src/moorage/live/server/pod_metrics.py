"""Resource requests and limits of every pod (/metrics/resources), as the scheduler and the kubelet account for them.

Source  kube-scheduler, metrics/resources/resources.go; component-helpers/resource/helpers.go, PodRequests and PodLimits
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from moorage.api.core import ENDED_PHASES, Container, Pod, ResourceRequirements
from moorage.api.pod_requests import RequestOptions, pod_requests
from moorage.api.quantity import QuantityError, milli_value
from moorage.api.releases.metrics import Spec
from moorage.live.server.plugin_metrics import (
    Gauge,
    Labels,
    MetricRegistry,
)

_LABELS: Final = ("namespace", "pod", "node", "scheduler", "priority", "resource", "unit")
_MEANING: Final = (
    " by workloads on the cluster, broken down by pod. This shows the resource usage the scheduler and kubelet expect per pod "
    "for resources along with the unit for the resource if any."
)
REQUEST: Final = Spec("kube_pod_resource_request", f"Resources requested{_MEANING}", "STABLE", _LABELS)
LIMIT: Final = Spec(
    "kube_pod_resource_limit", f"Resources limit for workloads{_MEANING.removeprefix(' by workloads')}", "STABLE", _LABELS
)
#: Only the spec counts: the status of a pending resize is ignored.
_AS_WRITTEN: Final = RequestOptions(use_status=False, pod_level=True, pod_level_status=False)


def pod_registry(pods: Iterable[Pod]) -> MetricRegistry:
    """Return the metrics of these pods, without those that have ended."""
    alive = [pod for pod in pods if not (pod.spec.node_name and pod.status.phase in ENDED_PHASES)]
    requests = [series for pod in alive for series in _series(pod, _requests(pod))]
    limits = [series for pod in alive for series in _series(pod, _limits(pod))]
    return MetricRegistry([Gauge(REQUEST, lambda: requests), Gauge(LIMIT, lambda: limits)])


def _series(pod: Pod, amounts: dict[str, float]) -> Iterator[tuple[Labels, float]]:
    spec = pod.spec
    priority = "" if spec.priority is None else str(spec.priority)
    for resource, amount in amounts.items():
        if amount:
            labels = (pod.namespace, pod.name, spec.node_name, spec.scheduler_name, priority, resource, _unit(resource))
            yield labels, amount


def _unit(resource: str) -> str:
    if resource == "cpu":
        return "cores"
    if resource in {"memory", "storage", "ephemeral-storage"} or resource.startswith("hugepages-"):
        return "bytes"
    return "integer" if resource.startswith("attachable-volumes-") else ""


def _requests(pod: Pod) -> dict[str, float]:
    try:
        found = pod_requests(pod, _AS_WRITTEN).requests
    except QuantityError:
        return {}
    return {name: count / 1000 if name == "cpu" else float(count) for name, count in found.items()}


def _limits(pod: Pod) -> dict[str, float]:
    """Return a pod's limits, by resource: the requests of a copy of the pod that has the limits in place of requests."""
    spec = pod.spec
    level = None if spec.resources is None else ResourceRequirements(requests=spec.resources.limits)
    asking = replace(
        spec, containers=tuple(map(_limits_asked, spec.containers)), resources=level, overhead={},
        init_containers=tuple(map(_limits_asked, spec.init_containers)),
    )  # fmt: skip
    limits = _requests(replace(pod, spec=asking))
    for name, quantity in spec.overhead.items():
        if limits.get(name):
            limits[name] += milli_value(quantity) / 1000
    return limits


def _limits_asked(container: Container) -> Container:
    return replace(container, resources=ResourceRequirements(requests=container.resources.limits))
