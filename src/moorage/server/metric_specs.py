"""The metrics of /metrics: those of kube-scheduler and Moorage's own."""

from __future__ import annotations

from typing import Final

from moorage.releases.metric_spec import Spec
from moorage.releases.metrics_1_36 import METRICS_1_36

__all__ = ["NEVER_MOVED", "OWN", "SPECS"]

_OWN: Final = (
    Spec(
        "moorage_faults_total",
        "Facts, attempts and plugin calls that raised an exception and were survived; each is logged.",
        "",
    ),
    Spec(
        "moorage_attempt_errors_total",
        "Attempts that ended in an error, by the plugin that raised it; empty for errors of the API server.",
        "",
        ("plugin", "profile"),
    ),
    Spec(
        "moorage_events_dropped_total",
        "Kubernetes events that were dropped because the queue was full or the API server did not respond.",
        "",
    ),
)
#: Moorage's own metrics, in every release.
OWN: Final = {spec.name: spec for spec in _OWN}
SPECS: Final = {**METRICS_1_36, **OWN}

#: Upstream's metrics of mechanisms that Moorage does not have: they are accepted by name and never shown.
NEVER_MOVED: Final = frozenset(
    [
        "scheduler_async_api_call_execution_duration_seconds",
        "scheduler_async_api_call_execution_total",
        "scheduler_batch_attempts_total",
        "scheduler_batch_cache_flushed_total",
        "scheduler_dra_bindingconditions_allocations_total",
        "scheduler_dra_bindingconditions_wait_duration_seconds",
        "scheduler_get_node_hint_duration_seconds",
        "scheduler_pending_async_api_calls",
        "scheduler_resourceclaim_creates_total",
        "scheduler_store_schedule_results_duration_seconds",
        "scheduler_volume_binder_cache_requests_total",
        "scheduler_volume_scheduling_stage_error_total",
    ]
)
