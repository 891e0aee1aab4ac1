"""The metrics of 1.22 to 1.35: what differs from those of 1.36. Metrics that only an open gate shows are not listed.

Source  kube-scheduler 1.22 to 1.36, pkg/scheduler/metrics/metrics.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moorage.releases.release import ALPHA

__all__ = ["METRICS", "OLD_CACHE_SIZE"]

_Changes = Mapping[str, Mapping[str, Any]]


def _hidden(names: str) -> _Changes:
    return {f"scheduler_{name}": {"hidden": True} for name in names.split()}


_1_35: Final[_Changes] = {
    **_hidden("""
        dra_bindingconditions_allocations_total dra_bindingconditions_wait_duration_seconds pod_scheduled_after_flush_total
        podgroup_schedule_attempts_total podgroup_scheduling_algorithm_duration_seconds
        podgroup_scheduling_attempt_duration_seconds
    """),
    **{
        f"scheduler_{name}": {"stability": ALPHA}
        for name in ("goroutines", "permit_wait_duration_seconds", "plugin_evaluation_total", "unschedulable_pods")
    },
}
_1_34: Final[_Changes] = {
    **_1_35,
    **_hidden("""
        batch_attempts_total batch_cache_flushed_total get_node_hint_duration_seconds resourceclaim_creates_total
        store_schedule_results_duration_seconds
    """),
}
_WITHOUT_API_CALLS: Final[_Changes] = {
    **_1_34,
    **_hidden("async_api_call_execution_duration_seconds async_api_call_execution_total pending_async_api_calls"),
}
#: The metric that became ``scheduler_cache_size``; 1.33 shows both.
OLD_CACHE_SIZE: Final = "scheduler_scheduler_cache_size"
_1_33: Final[_Changes] = {
    **_WITHOUT_API_CALLS,
    OLD_CACHE_SIZE: {
        "name": OLD_CACHE_SIZE,
        "help": "(Deprecated since 1.33.0) Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
    },
}
_1_32: Final[_Changes] = {**_WITHOUT_API_CALLS, "scheduler_cache_size": {"name": OLD_CACHE_SIZE}}
_1_31: Final[_Changes] = {
    **_1_32,
    **_hidden("inflight_events preemption_goroutines_duration_seconds preemption_goroutines_execution_total"),
}
_1_30: Final[_Changes] = {
    **_1_31,
    **_hidden("event_handling_duration_seconds queueing_hint_execution_duration_seconds"),
    "scheduler_pod_scheduling_sli_duration_seconds": {
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
}
_1_28: Final[_Changes] = {
    **_1_29,
    "scheduler_pod_scheduling_sli_duration_seconds": {
        "name": "scheduler_pod_scheduling_duration_seconds",
        "help": "E2e latency for a pod being scheduled which may include multiple scheduling attempts.",
        "stability": "STABLE",
    },
}

_1_26: Final[_Changes] = {**_1_28, **_hidden("plugin_evaluation_total")}

_PENDING: Final = (
    "Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number of pods in "
    "backoffQ; 'unschedulable' means number of pods in "
)
_1_25: Final[_Changes] = {
    **_1_26,
    "scheduler_goroutines": {"name": "scheduler_scheduler_goroutines", "labels": ("work",), "stability": ALPHA},
    "scheduler_pending_pods": {"help": f"{_PENDING}unschedulablePods."},
    "scheduler_preemption_victims": {"buckets": tuple(float(bound) for bound in range(5, 55, 5))},
}

_1_23: Final[_Changes] = {
    **_1_25,
    **_hidden("unschedulable_pods"),
    "scheduler_pending_pods": {"help": f"{_PENDING}unschedulableQ."},
}

#: Minor release → metric of 1.36 → what is different.
METRICS: Final[Mapping[str, _Changes]] = {
    "1.35": _1_35, "1.34": _1_34, "1.33": _1_33, "1.32": _1_32, "1.31": _1_31, "1.30": _1_30,
    "1.29": _1_29, "1.28": _1_28, "1.27": _1_28, "1.26": _1_26, "1.25": _1_25, "1.24": _1_25, "1.23": _1_23,
}  # fmt: skip
