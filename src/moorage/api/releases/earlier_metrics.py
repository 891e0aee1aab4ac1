"""The metrics of 1.19 to 1.35: what differs from those of 1.36.

A metric that a release deprecates is beside the one that replaced it; releases after that one hide it, until it is removed.
In 1.19 to 1.24 the metrics of client-go (``rest_client_…``) are those of 1.36.

Source  kube-scheduler 1.19 to 1.36, pkg/scheduler/metrics/metrics.go; component-base, metrics
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moorage.api.releases.release import ALPHA, BETA, exponential

_Changes = Mapping[str, Mapping[str, Any]]

_SLI: Final = "scheduler_pod_scheduling_sli_duration_seconds"
_ATTEMPT: Final = "scheduler_scheduling_attempt_duration_seconds"
_HIDDEN: Final[Mapping[str, Any]] = {"hidden": True}


def _lacks(names: str) -> _Changes:
    return {f"scheduler_{name}": _HIDDEN for name in names.split()}


_1_35: Final[_Changes] = {
    **_lacks("""
        dra_bindingconditions_allocations_total dra_bindingconditions_wait_duration_seconds pod_scheduled_after_flush_total
        podgroup_schedule_attempts_total podgroup_scheduling_algorithm_duration_seconds
        podgroup_scheduling_attempt_duration_seconds
    """),
    **{
        f"scheduler_{name}": {"stability": ALPHA}
        for name in ("goroutines", "permit_wait_duration_seconds", "plugin_evaluation_total", "unschedulable_pods")
    },
    "kubernetes_build_info": {"stability": ALPHA},
}
_1_34: Final[_Changes] = {
    **_1_35,
    **_lacks("""
        batch_attempts_total batch_cache_flushed_total get_node_hint_duration_seconds resourceclaim_creates_total
        store_schedule_results_duration_seconds
    """),
}
_WITHOUT_API_CALLS: Final[_Changes] = {
    **_1_34,
    **_lacks("async_api_call_execution_duration_seconds async_api_call_execution_total pending_async_api_calls"),
}
_OLD_CACHE_SIZE: Final = "scheduler_scheduler_cache_size"
_1_33: Final[_Changes] = {
    **_WITHOUT_API_CALLS,
    _OLD_CACHE_SIZE: {"of": "scheduler_cache_size", "deprecated": "1.33.0"},
}

#: The metric of 1.28 in place of ``_SLI``.
_POD_S: Final[Mapping[str, Any]] = {
    "name": "scheduler_pod_scheduling_duration_seconds",
    "help": "E2e latency for a pod being scheduled which may include multiple scheduling attempts.",
    "stability": "STABLE",
}
_1_32: Final[_Changes] = {
    **_WITHOUT_API_CALLS,
    "scheduler_cache_size": {"name": _OLD_CACHE_SIZE},
    _POD_S["name"]: {**_POD_S, "of": _SLI, "deprecated": "1.29.0", "hidden": True},
}
_1_31: Final[_Changes] = {
    **_1_32,
    **_lacks("inflight_events preemption_goroutines_duration_seconds preemption_goroutines_execution_total"),
}
_1_30: Final[_Changes] = {
    **_1_31,
    **_lacks("event_handling_duration_seconds queueing_hint_execution_duration_seconds"),
    _SLI: {
        "help": "E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue an d might involve "
        "multiple scheduling attempts.",
    },
}
_1_29: Final[_Changes] = {
    **_1_30,
    "scheduler_plugin_evaluation_total": {
        **_1_30["scheduler_plugin_evaluation_total"],
        "help": "Number of attempts to schedule pods by each plugin and the extension point (available only in PreFilter and "
        "Filter.).",
    },
    _POD_S["name"]: {**_1_30[_POD_S["name"]], "hidden": False},
}

_HEALTH: Final = ("kubernetes_healthcheck", "kubernetes_healthchecks_total")
_1_28: Final[_Changes] = {
    **{name: changes for name, changes in _1_29.items() if name != _POD_S["name"]},
    _SLI: _POD_S,
    **{name: {"stability": BETA} for name in _HEALTH},
}

_OLD_GOROUTINES: Final[Mapping[str, Any]] = {"name": "scheduler_scheduler_goroutines", "labels": ("work",), "stability": ALPHA}
_1_27: Final[_Changes] = {
    **_1_28,
    **{name: {"stability": ALPHA} for name in (*_HEALTH, "kubernetes_feature_enabled")},
    "disabled_metrics_total": {"name": "disabled_metric_total", "stability": ALPHA},
    _OLD_GOROUTINES["name"]: {
        **_OLD_GOROUTINES,
        "help": "Number of running goroutines split by the work they do such as binding. This metric is replaced by the "
        '"goroutines" metric.',
        "of": "scheduler_goroutines",
        "deprecated": "1.26.0",
        "hidden": True,
    },
}

#: The metric of 1.22 in place of ``_ATTEMPT``.
_E2E: Final[Mapping[str, Any]] = {
    "name": "scheduler_e2e_scheduling_duration_seconds",
    "help": "E2e scheduling latency in seconds (scheduling algorithm + binding)",
    "stability": ALPHA,
}
_1_26: Final[_Changes] = {
    **_1_27,
    **_lacks("plugin_evaluation_total"),
    _OLD_GOROUTINES["name"]: {**_1_27[_OLD_GOROUTINES["name"]], "hidden": False},
    _E2E["name"]: {
        **_E2E,
        "help": f"{_E2E['help']}. This metric is replaced by scheduling_attempt_duration_seconds.",
        "of": _ATTEMPT,
        "deprecated": "1.23.0",
        "hidden": True,
    },
}

_PENDING: Final = (
    "Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number of pods in "
    "backoffQ; 'unschedulable' means number of pods in "
)
_1_25: Final[_Changes] = {
    **{name: changes for name, changes in _1_26.items() if name != _OLD_GOROUTINES["name"]},
    "scheduler_goroutines": _OLD_GOROUTINES,
    "scheduler_pending_pods": {"help": f"{_PENDING}unschedulablePods."},
    "scheduler_preemption_victims": {"buckets": tuple(float(bound) for bound in range(5, 55, 5))},
    **dict.fromkeys((*_HEALTH, "kubernetes_feature_enabled", "disabled_metrics_total"), _HIDDEN),
}

_1_23: Final[_Changes] = {
    **_1_25,
    **_lacks("unschedulable_pods"),
    "scheduler_pending_pods": {"help": f"{_PENDING}unschedulableQ."},
    _E2E["name"]: {**_1_25[_E2E["name"]], "hidden": False},
}

#: Metrics that became stable in 1.23.
_ALPHA_UNTIL_1_23: Final = (
    _SLI,
    *(
        f"scheduler_{name}"
        for name in (
            "framework_extension_point_duration_seconds", "pending_pods", "pod_scheduling_attempts",
            "preemption_attempts_total", "preemption_victims", "queue_incoming_pods_total", "schedule_attempts_total",
        )
    ),
)  # fmt: skip
#: Metrics that 1.19 deprecated, with their help.
_UNTIL_1_19: Final = {
    "scheduling_duration_seconds": "Scheduling latency in seconds split by sub-parts of the scheduling operation",
    "scheduling_algorithm_predicate_evaluation_seconds": "Scheduling algorithm predicate evaluation duration in seconds",
    "scheduling_algorithm_priority_evaluation_seconds": "Scheduling algorithm priority evaluation duration in seconds",
    "volume_scheduling_duration_seconds": "Volume scheduling stage latency",
}
_OF_1_19: Final[_Changes] = {
    f"scheduler_{name}": {"help": f"{text} (Deprecated since 1.19.0)", "deprecated": "1.19.0"}
    for name, text in _UNTIL_1_19.items()
}
_VOLUME_S: Final = "scheduler_volume_scheduling_duration_seconds"
_1_22: Final[_Changes] = {
    **{name: changes for name, changes in _1_23.items() if name != _E2E["name"]},
    **{name: {**_1_23.get(name, {}), "stability": ALPHA} for name in _ALPHA_UNTIL_1_23},
    _ATTEMPT: _E2E,
    _VOLUME_S: {**_OF_1_19[_VOLUME_S], "hidden": True},
}

_SECONDS: Final[Mapping[str, Any]] = {"buckets": exponential(0.001, 2, 15)}
_BINDING: Final[_Changes] = {
    "scheduler_binding_duration_seconds": {"help": "Binding latency in seconds", **_SECONDS},
    "scheduler_scheduling_algorithm_preemption_evaluation_seconds": {
        "help": "Scheduling algorithm preemption evaluation duration in seconds",
        **_SECONDS,
    },
}
_1_20: Final[_Changes] = {
    **_1_22,
    **{name: {**changes, "deprecated": "1.20.0"} for name, changes in _BINDING.items()},
}
_1_19: Final[_Changes] = {**_1_22, **_BINDING, **_OF_1_19}

#: Minor release → metric of 1.36, or one that only earlier releases have → what is different.
METRICS: Final[Mapping[str, _Changes]] = {
    "1.35": _1_35, "1.34": _1_34, "1.33": _1_33, "1.32": _1_32, "1.31": _1_31, "1.30": _1_30, "1.29": _1_29,
    "1.28": _1_28, "1.27": _1_27, "1.26": _1_26, "1.25": _1_25, "1.24": _1_25, "1.23": _1_23, "1.22": _1_22,
    "1.21": _1_22, "1.20": _1_20, "1.19": _1_19,
}  # fmt: skip
