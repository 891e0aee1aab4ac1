"""The metrics of earlier releases, for their dashboards: current metrics under their earlier names.

Metrics that a release did not have are hidden. ``Release.metrics`` has the differences of 1.23 to 1.35; the rest of this module
is about 1.19 to 1.21. Metrics that were already deprecated then are not emulated.

Source  kube-scheduler 1.19, 1.20 and 1.21, pkg/scheduler/metrics/metrics.go
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from moorage.releases import RELEASES
from moorage.releases.earlier_metrics import OLD_CACHE_SIZE
from moorage.server.metric_specs import SPECS
from moorage.server.metric_types import Spec

__all__ = ["specs_of"]

#: Current metric → what was different.
_RENAMED: Final[Mapping[str, Mapping[str, Any]]] = {
    "scheduler_scheduling_attempt_duration_seconds": {
        "name": "scheduler_e2e_scheduling_duration_seconds",
        "help": "E2e scheduling latency in seconds (scheduling algorithm + binding)",
    },
    "scheduler_pod_scheduling_sli_duration_seconds": {
        "name": "scheduler_pod_scheduling_duration_seconds",
        "help": "E2e latency for a pod being scheduled which may include multiple scheduling attempts.",
    },
    "scheduler_goroutines": {"name": "scheduler_scheduler_goroutines", "labels": ("work",)},
    "scheduler_cache_size": {"name": "scheduler_scheduler_cache_size"},
    "scheduler_preemption_victims": {"buckets": tuple(float(bound) for bound in range(5, 55, 5))},
    "scheduler_pending_pods": {
        "help": "Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number "
        "of pods in backoffQ; 'unschedulable' means number of pods in unschedulableQ.",
    },
}
#: Metrics that had the same name.
_SAME: Final = frozenset(
    f"scheduler_{name}"
    for name in (
        "framework_extension_point_duration_seconds", "permit_wait_duration_seconds", "plugin_execution_duration_seconds",
        "pod_scheduling_attempts", "preemption_attempts_total", "queue_incoming_pods_total", "schedule_attempts_total",
        "scheduling_algorithm_duration_seconds",
    )
)  # fmt: skip
#: Metrics of later releases that do not start with ``scheduler_``.
_LATER: Final = frozenset(["disabled_metrics_total", "kubernetes_feature_enabled"])


def specs_of(release: str) -> Mapping[str, Spec]:
    """Return the spec of each current metric under a release; metrics that the release did not have are hidden."""
    emulated = RELEASES[release]
    if emulated.legacy_metrics:
        return {name: _of_before(spec) for name, spec in SPECS.items()}
    if not emulated.metrics:
        return SPECS
    specs = {name: replace(spec, **emulated.metrics.get(name, {})) for name, spec in SPECS.items()}
    deprecated = emulated.metrics.get(OLD_CACHE_SIZE)
    return specs if deprecated is None else {**specs, OLD_CACHE_SIZE: replace(SPECS["scheduler_cache_size"], **deprecated)}


def _of_before(spec: Spec) -> Spec:
    if spec.name in _RENAMED:
        return replace(spec, stability="ALPHA", **_RENAMED[spec.name])
    if spec.name in _SAME:
        return replace(spec, stability="ALPHA")
    return replace(spec, hidden=spec.name.startswith("scheduler_") or spec.name in _LATER)
