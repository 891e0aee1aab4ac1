"""The metrics of each release: the one truth for ``/metrics`` and for comparisons of releases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Final

from moorage.api.releases import RELEASES
from moorage.api.releases.release import Spec, exponential

# -- metrics 1 36 ------------------------------------------------------------------------------------------------------
# The metrics of kube-scheduler 1.36: names, labels, meaning, stability and buckets.
#
# Help texts are Kubernetes' own, as dashboards and the metrics reference show them. Metrics without labels are shown
# from the start, those with labels once they have a value.
#
# Source  kube-scheduler, metrics/metrics.go; plugins/volumebinding/metrics; component-base/metrics; client-go leader election

_ATTEMPT_S: Final = exponential(0.001, 2, 15)
_POINT_S: Final = exponential(0.0001, 2, 12)
_CALL_S: Final = exponential(0.00001, 1.5, 20)
_LONG_S: Final = exponential(0.01, 2, 20)
_BATCH_S: Final = exponential(0.00001, 2, 12)
_REQUEST_S: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)

_ALL: Final = (
    Spec(
        "scheduler_schedule_attempts_total",
        "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, "
        "while 'error' means an internal scheduler problem.",
        "STABLE", ("result", "profile"),
    ),
    Spec(
        "scheduler_event_handling_duration_seconds", "Event handling latency in seconds.", "ALPHA", ("event",), _POINT_S
    ),
    Spec(
        "scheduler_scheduling_attempt_duration_seconds",
        "Scheduling attempt latency in seconds (scheduling algorithm + binding)",
        "STABLE", ("result", "profile"), _ATTEMPT_S,
    ),
    Spec(
        "scheduler_scheduling_algorithm_duration_seconds", "Scheduling algorithm latency in seconds", "ALPHA", (), _ATTEMPT_S
    ),
    Spec(
        "scheduler_preemption_victims", "Number of selected preemption victims", "STABLE", (), exponential(1, 2, 7)
    ),
    Spec("scheduler_preemption_attempts_total", "Total preemption attempts in the cluster till now", "STABLE"),
    Spec(
        "scheduler_pending_pods",
        "Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number of pods "
        "in backoffQ; 'unschedulable' means number of pods in unschedulablePods that the scheduler attempted to schedule and "
        "failed; 'gated' is the number of unschedulable pods that the scheduler never attempted to schedule because they are "
        "gated.",
        "STABLE", ("queue",),
    ),
    Spec("scheduler_inflight_events", "Number of events currently tracked in the scheduling queue.", "ALPHA", ("event",)),
    Spec(
        "scheduler_goroutines", "Number of running goroutines split by the work they do such as binding.", "BETA",
        ("operation",),
    ),
    Spec(
        "scheduler_batch_attempts_total", "Counts of results when we attempt to use batching.", "ALPHA", ("profile", "result")
    ),
    Spec("scheduler_batch_cache_flushed_total", "Counts of cache flushes by reason.", "ALPHA", ("profile", "reason")),
    Spec(
        "scheduler_pod_scheduling_sli_duration_seconds",
        "E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might involve multiple "
        "scheduling attempts.",
        "BETA", ("attempts",), _LONG_S,
    ),
    Spec(
        "scheduler_pod_scheduling_attempts", "Number of attempts to successfully schedule a pod.", "STABLE", (),
        exponential(1, 2, 5),
    ),
    Spec(
        "scheduler_pod_scheduled_after_flush_total",
        "Number of pods that were successfully scheduled after being flushed from unschedulablePods due to timeout. This "
        "metric helps detect potential queueing hint misconfigurations or event handling issues.",
        "ALPHA",
    ),
    Spec(
        "scheduler_framework_extension_point_duration_seconds",
        "Latency for running all plugins of a specific extension point.",
        "STABLE", ("extension_point", "status", "profile"), _POINT_S,
    ),
    Spec(
        "scheduler_plugin_execution_duration_seconds", "Duration for running a plugin at a specific extension point.",
        "ALPHA", ("plugin", "extension_point", "status"), _CALL_S,
    ),
    Spec(
        "scheduler_queueing_hint_execution_duration_seconds", "Duration for running a queueing hint function of a plugin.",
        "ALPHA", ("plugin", "event", "hint"), _CALL_S,
    ),
    Spec(
        "scheduler_queue_incoming_pods_total", "Number of pods added to scheduling queues by event and queue type.",
        "STABLE", ("queue", "event"),
    ),
    Spec("scheduler_permit_wait_duration_seconds", "Duration of waiting on permit.", "BETA", ("result",), _ATTEMPT_S),
    Spec(
        "scheduler_cache_size", "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.", "ALPHA", ("type",)
    ),
    Spec(
        "scheduler_unschedulable_pods",
        "The number of unschedulable pods broken down by plugin name. A pod will increment the gauge for all plugins that "
        "caused it to not schedule and so this metric have meaning only when broken down by plugin.",
        "BETA", ("plugin", "profile"),
    ),
    Spec(
        "scheduler_plugin_evaluation_total",
        "Number of attempts to schedule pods by each plugin and the extension point (available only in PreFilter, Filter, "
        "PreScore, and Score).",
        "BETA", ("plugin", "extension_point", "profile"),
    ),
    Spec(
        "scheduler_preemption_goroutines_duration_seconds", "Duration in seconds for running goroutines for the preemption.",
        "ALPHA", ("result",), _LONG_S,
    ),
    Spec(
        "scheduler_preemption_goroutines_execution_total", "Number of preemption goroutines executed.", "ALPHA", ("result",)
    ),
    Spec(
        "scheduler_async_api_call_execution_total", "Total number of API calls executed by the async dispatcher.",
        "ALPHA", ("call_type", "result"),
    ),
    Spec(
        "scheduler_async_api_call_execution_duration_seconds",
        "Duration in seconds for executing API call in the async dispatcher.",
        "ALPHA", ("call_type", "result"), _ATTEMPT_S,
    ),
    Spec(
        "scheduler_pending_async_api_calls", "Number of API calls currently pending in the async queue.", "ALPHA",
        ("call_type",),
    ),
    Spec(
        "scheduler_resourceclaim_creates_total", "Number of ResourceClaims creation requests within scheduler",
        "ALPHA", ("status",),
    ),
    Spec(
        "scheduler_dra_bindingconditions_allocations_total",
        "Number of allocations using devices with BindingConditions, counted per driver per scheduling attempt",
        "ALPHA", ("profile", "driver", "status"),
    ),
    Spec(
        "scheduler_dra_bindingconditions_wait_duration_seconds",
        "Time in seconds spent waiting for BindingConditions to be satisfied during PreBind.",
        "ALPHA", ("profile", "driver", "status"), exponential(0.1, 2, 14),
    ),
    Spec(
        "scheduler_get_node_hint_duration_seconds", "Latency for getting a node hint.", "ALPHA", ("hinted", "profile"), _BATCH_S
    ),
    Spec("scheduler_store_schedule_results_duration_seconds", "Latency for getting a no.", "ALPHA", ("profile",), _BATCH_S),
    Spec(
        "scheduler_podgroup_schedule_attempts_total",
        "Number of attempts to schedule pod group, by the result. 'unschedulable' means a pod group could not be scheduled, "
        "while 'error' means an internal scheduler problem.",
        "ALPHA", ("result", "profile"),
    ),
    Spec(
        "scheduler_podgroup_scheduling_attempt_duration_seconds",
        "Pod group scheduling attempt latency in seconds (scheduling algorithm + binding)",
        "ALPHA", ("result", "profile"), _ATTEMPT_S,
    ),
    Spec(
        "scheduler_podgroup_scheduling_algorithm_duration_seconds", "Pod group scheduling algorithm latency in seconds",
        "ALPHA", (), _ATTEMPT_S,
    ),
    Spec(
        "scheduler_volume_binder_cache_requests_total", "Total number for request volume binding cache", "ALPHA", ("operation",)
    ),
    Spec("scheduler_volume_scheduling_stage_error_total", "Volume scheduling stage error count", "ALPHA", ("operation",)),
    Spec(
        "leader_election_master_status",
        "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is "
        "the string used to identify the lease. Please make sure to group by name.",
        "ALPHA", ("name",),
    ),
    Spec(
        "rest_client_requests_total", "Number of HTTP requests, partitioned by status code, method, and host.",
        "ALPHA", ("code", "method", "host"),
    ),
    Spec(
        "rest_client_request_duration_seconds", "Request latency in seconds. Broken down by verb, and host.",
        "ALPHA", ("verb", "host"), _REQUEST_S,
    ),
    Spec(
        "rest_client_rate_limiter_duration_seconds",
        "Client side rate limiter latency in seconds. Broken down by verb, and host.", "ALPHA", ("verb", "host"), _REQUEST_S,
    ),
    Spec(
        "kubernetes_build_info",
        "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go "
        "version, and compiler from which Kubernetes was built, and platform on which it is running.",
        "BETA",
        (
            "major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform",
        ),
    ),
    Spec(
        "kubernetes_feature_enabled", "This metric records the data about the stage and enablement of a k8s feature.",
        "BETA", ("name", "stage"),
    ),
    Spec("kubernetes_healthcheck", "This metric records the result of a single healthcheck.", "STABLE", ("name", "type")),
    Spec(
        "kubernetes_healthchecks_total", "This metric records the results of all healthcheck.", "STABLE",
        ("name", "type", "status"),
    ),
    Spec("disabled_metrics_total", "The count of disabled metrics.", "BETA"),
)  # fmt: skip
#: Feature gate → the metrics that are registered only if it is open.
_GATED: Final = {
    "DRADeviceBindingConditions": "dra_bindingconditions_allocations_total dra_bindingconditions_wait_duration_seconds",
    "DRAExtendedResource": "resourceclaim_creates_total",
    "GenericWorkload": """
        podgroup_schedule_attempts_total podgroup_scheduling_algorithm_duration_seconds
        podgroup_scheduling_attempt_duration_seconds
    """,
    "SchedulerAsyncAPICalls": """
        async_api_call_execution_duration_seconds async_api_call_execution_total pending_async_api_calls
    """,
    "SchedulerAsyncPreemption": "preemption_goroutines_duration_seconds preemption_goroutines_execution_total",
    "SchedulerQueueingHints": "inflight_events queueing_hint_execution_duration_seconds",
}
_GATES: Final = {f"scheduler_{name}": gate for gate, names in _GATED.items() for name in names.split()}

#: The metrics by name.
METRICS_1_36: Final = {spec.name: replace(spec, gate=_GATES.get(spec.name, "")) for spec in _ALL}


# -- metrics -----------------------------------------------------------------------------------------------------------


@cache
def metrics_of(release: str) -> Mapping[str, Spec]:
    """Return the metrics of a release: those of 1.36 by their name there, hidden where the release lacks them, and those that
    only earlier releases have."""
    changes = RELEASES[release].metrics
    if not changes:
        return METRICS_1_36
    found = {name: replace(spec, **changes.get(name, {})) for name, spec in METRICS_1_36.items()}
    for name, own in changes.items():
        if name not in found:
            base = METRICS_1_36[own["of"]] if "of" in own else Spec(name, "")
            found[name] = replace(base, **{"name": name, **own})
    return found
