"""Releases after the one that is emulated by default: how each differs from it. Only ``--emulate`` selects them.

GenericWorkload alone governs pod groups in 1.37, and opens what other gates open in 1.36.

Source  kubernetes 1.37, pkg/features/kube_features.go and pkg/scheduler
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from moorage.api.releases.earlier_releases import CURRENT
from moorage.api.releases.release import ALPHA, BETA, Release, exponential, gates_of

_GROUPS: Final = "GenericWorkload"

#: Gates that 1.37 no longer has → their value there.
_GONE: Final = {
    "GangScheduling": False, "SchedulerQueueingHints": True, "SidecarContainers": True, "WorkloadAwarePreemption": False,
}  # fmt: skip
_GATES: Final = gates_of("1.37")

_TRIAL_S: Final = exponential(0.001, 2, 16)
_VICTIMS: Final = exponential(1, 2, 11)
_GROUP: Final[Mapping[str, Any]] = {"stability": ALPHA, "gate": _GROUPS}
_PLACED: Final[Mapping[str, Any]] = {"stability": ALPHA, "gate": "TopologyAwareWorkloadScheduling"}
_BATCH: Final[Mapping[str, Any]] = {"stability": ALPHA, "labels": ("profile",)}
_ENTITIES: Final = "'pod' or 'podgroup'; 'pod' stands for individual pods that are not members of any podgroup"

#: Without the prefix ``scheduler_``. Source  1.37, pkg/scheduler/metrics/metrics.go
_METRICS: Final[Mapping[str, Mapping[str, Any]]] = {
    "scheduling_algorithm_duration_seconds": {"stability": BETA},
    "plugin_execution_duration_seconds": {"stability": BETA},
    "preemption_victims": {"help": "Number of selected preemption victims for preemption initiated by a single pod"},
    "preemption_goroutines_duration_seconds": {"deprecated": "1.37.0"},
    "store_schedule_results_duration_seconds": {"help": "Latency for storing scheduling results."},
    "podgroup_scheduling_attempt_duration_seconds": {"help": "Pod group scheduling attempt latency in seconds"},
    "pending_pods": {"help": (
        "Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number of "
        "pods in backoffQ; 'unschedulable' means number of pods in unschedulableEntities that the scheduler attempted to "
        "schedule and failed; 'gated' is the number of unschedulable pods that the scheduler never attempted to schedule "
        "because they are gated; 'incomplete' means number of pods in incompletePodGroupPods; 'pending' means number of "
        "pods in pendingPodGroupPods."
    )},
    "pod_scheduled_after_flush_total": {"help": (
        "Number of pods that were successfully scheduled after being flushed from unschedulableEntities due to timeout. "
        "This metric helps detect potential queueing hint misconfigurations or event handling issues."
    )},
    "queued_entities": {"stability": ALPHA, "labels": ("queue", "type"), "help": (
        f"Number of queued scheduling entities ({_ENTITIES}) by the queue type. 'active' means number of entities in "
        "activeQ; 'backoff' means number of entities in backoffQ; 'unschedulable' means number of entities in "
        "unschedulableEntities that the scheduler attempted to schedule and failed; 'gated' is the number of "
        "unschedulable entities that the scheduler never attempted to schedule because they are gated."
    )},
    "queue_incoming_entities_total": {"stability": ALPHA, "labels": ("queue", "event", "type"), "help": (
        "Number of scheduling entities added to scheduling queues by event, queue type, and entity type. Entity types "
        "are either 'pod' (for individual pods that are not members of any podgroup) or 'podgroup'."
    )},
    "batch_rescore_attempts_total": {**_BATCH, "help": "Counts of rescore attempts during opportunistic batching."},
    "batch_rescore_duration_seconds": {
        **_BATCH, "help": "Latency for rescoring a node during opportunistic batching.", "buckets": exponential(0.00001, 2, 12),
    },
    "generated_placements_total": {
        **_PLACED, "labels": ("profile",), "help": "Number of candidate placements generated when scheduling pod groups.",
    },
    "placement_evaluations_total": {**_PLACED, "labels": ("result", "profile"), "help": (
        "Number of candidate placements evaluated when scheduling pod groups, by result. 'feasible' means the pod group "
        "fit into the placement, while 'infeasible' means it did not."
    )},
    "workload_preemption_attempts_total": {**_GROUP, "labels": ("result",), "help": (
        "Total preemption attempts initiated by workload (including pod groups) in the cluster till now."
    )},
    "workload_preemption_victims": {
        **_GROUP, "help": "Number of pod preemption victims caused by workload preemption.", "buckets": _VICTIMS,
    },
    "preemption_workload_disruptions": {**_GROUP, "labels": ("preemptor",), "buckets": _VICTIMS, "help": (
        "Number of workload preemption units being preempted. A single preemption unit can be all pods in a pod group "
        "(in case of DisruptionMode=all), or a single pod (in case of DisruptionMode=single)."
    )},
    "preemption_evaluation_duration_seconds": {
        **_GROUP, "labels": ("preemptor", "result"), "buckets": _TRIAL_S,
        "help": "Duration in seconds for identifying the target preemption victims.",
    },
    "preemption_execution_duration_seconds": {**_GROUP, "labels": ("preemptor", "result"), "buckets": _TRIAL_S, "help": (
        "Duration in seconds for preempting the target preemption victims. With async preemption enabled, preemption "
        "execution does not block the scheduling of other pods."
    )},
    "preemption_pdb_violations_total": {
        **_GROUP, "labels": ("preemptor",), "help": "Total number of pod disruption budget violations caused by preemption.",
    },
}  # fmt: skip

_1_37_1: Final = replace(
    CURRENT,
    name="1.37.1",
    documents=frozenset(["v1"]),
    gates=_GATES.deciding,
    inert_gates=_GATES.inert,
    dependent_gates=_GATES.dependent,
    fixed_gates=_GONE,
    opened_with={"GangScheduling": _GROUPS, "WorkloadAwarePreemption": _GROUPS},
    variants=dict.fromkeys(("DefaultPreemption", "DynamicResources", "GangScheduling", "ImageLocality"), "1.37"),
    groups_as_one=True,
    retries_binds=True,
    nominates_gated_pods=True,
    removed_plugins=(),
    group_versions=("v1beta1", "v1alpha3"),
    metrics={f"scheduler_{name}": changes for name, changes in _METRICS.items()},
    compared=False,
)

#: Oldest first.
LATER: Final[tuple[Release, ...]] = (_1_37_1,)
