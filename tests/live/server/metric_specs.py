"""The metrics of today's release, for tests of the endpoint and of its reference page."""

from __future__ import annotations

from moorage.api.releases import TODAY
from moorage.live.server.scheduler_metrics import specs_of

SPECS = specs_of(TODAY)
#: Upstream's metrics of mechanisms that Moorage does not have: they are accepted by name and never shown.
NEVER_MOVED = frozenset(
    [
        "scheduler_async_api_call_execution_duration_seconds",
        "scheduler_async_api_call_execution_total",
        "scheduler_batch_attempts_total",
        "scheduler_batch_cache_flushed_total",
        "scheduler_batch_rescore_attempts_total",
        "scheduler_batch_rescore_duration_seconds",
        "scheduler_dra_bindingconditions_allocations_total",
        "scheduler_dra_bindingconditions_wait_duration_seconds",
        "scheduler_get_node_hint_duration_seconds",
        "scheduler_pending_async_api_calls",
        "scheduler_preemption_evaluation_duration_seconds",
        "scheduler_resourceclaim_creates_total",
        "scheduler_store_schedule_results_duration_seconds",
        "scheduler_volume_binder_cache_requests_total",
        "scheduler_volume_scheduling_stage_error_total",
    ]
)
