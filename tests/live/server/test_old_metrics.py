"""The metrics of earlier releases: those that their sources have, under their names, with their labels."""

from __future__ import annotations

import pytest

from moorage.api.feature_gates import FeatureGates
from moorage.api.releases import TODAY, find_release
from moorage.core.engine.facts import Phase
from moorage.core.groups.group_cycle import GroupReport
from moorage.live.server.plugin_metrics import Filter, Gauge
from moorage.live.server.scheduler_metrics import SchedulerMetrics, registry_of, specs_of

#: From pkg/scheduler/metrics/metrics.go of 1.19 to 1.22: name → labels.
UPSTREAM = {
    "scheduler_e2e_scheduling_duration_seconds": ("result", "profile"),
    "scheduler_framework_extension_point_duration_seconds": ("extension_point", "status", "profile"),
    "scheduler_pending_pods": ("queue",),
    "scheduler_permit_wait_duration_seconds": ("result",),
    "scheduler_plugin_execution_duration_seconds": ("plugin", "extension_point", "status"),
    "scheduler_pod_scheduling_attempts": (),
    "scheduler_pod_scheduling_duration_seconds": ("attempts",),
    "scheduler_preemption_attempts_total": (),
    "scheduler_preemption_victims": (),
    "scheduler_queue_incoming_pods_total": ("queue", "event"),
    "scheduler_schedule_attempts_total": ("result", "profile"),
    "scheduler_scheduler_cache_size": ("type",),
    "scheduler_scheduler_goroutines": ("work",),
    "scheduler_scheduling_algorithm_duration_seconds": (),
    "scheduler_volume_binder_cache_requests_total": ("operation",),
    "scheduler_volume_scheduling_stage_error_total": ("operation",),
}
#: Metrics that 1.20 deprecates.
_BINDING = {"scheduler_binding_duration_seconds", "scheduler_scheduling_algorithm_preemption_evaluation_seconds"}
#: Metrics that 1.19 deprecates.
_OF_1_19 = {
    "scheduler_scheduling_algorithm_predicate_evaluation_seconds", "scheduler_scheduling_algorithm_priority_evaluation_seconds",
    "scheduler_scheduling_duration_seconds", "scheduler_volume_scheduling_duration_seconds",
}  # fmt: skip


@pytest.mark.parametrize(
    ("release", "others", "deprecated"),
    [
        ("1.19", _BINDING | _OF_1_19, _OF_1_19),
        ("1.20", _BINDING, _BINDING),
        ("1.21", set(), set()),
        ("1.22.6", set(), set()),
    ],
)
def test_the_metrics_are_those_of_the_release(release, others, deprecated):
    specs = {one.name: one for one in specs_of(release).values() if one.name.startswith("scheduler_") and not one.hidden}
    assert {name: spec.labels for name, spec in specs.items() if name not in others} == UPSTREAM
    assert specs.keys() >= others
    assert {name for name, spec in specs.items() if spec.deprecated} == deprecated
    assert {spec.stability for spec in specs.values()} == {"ALPHA"}


#: What 1.37 adds, without ``scheduler_``, from its source: name → labels.
NEW_IN_1_37 = {
    "batch_rescore_attempts_total": ("profile",),
    "batch_rescore_duration_seconds": ("profile",),
    "generated_placements_total": ("profile",),
    "placement_evaluation_duration_seconds": ("result", "profile"),
    "placement_evaluations_total": ("result", "profile"),
    "preemption_evaluation_duration_seconds": ("preemptor", "result"),
    "preemption_execution_duration_seconds": ("preemptor", "result"),
    "preemption_pdb_violations_total": ("preemptor",),
    "preemption_workload_disruptions": ("preemptor",),
    "queue_incoming_entities_total": ("queue", "event", "type"),
    "queued_entities": ("queue", "type"),
    "workload_preemption_attempts_total": ("result",),
    "workload_preemption_victims": (),
    # Those of all components, which earlier releases have, too, are served from 1.37 on.
    "hidden_metrics_total": (),
    "registered_metrics_total": ("stability_level", "deprecated_version"),
    "version_info": ("component", "binary", "emulation", "min_compat"),
}


def test_the_metrics_of_1_37():
    before, after = specs_of("1.36.2"), specs_of("1.37")
    new = {name.removeprefix("scheduler_"): after[name].labels for name in after.keys() - before.keys()}
    assert new == NEW_IN_1_37
    grown = {name for name in before if before[name].stability == "ALPHA" and after[name].stability == "BETA"}
    assert grown == {"scheduler_plugin_execution_duration_seconds", "scheduler_scheduling_algorithm_duration_seconds"}
    assert {name for name in after if after[name].deprecated} == {"scheduler_preemption_goroutines_duration_seconds"}


def shown_by(metrics):
    """Return the values of counters, and the counts and sums of histograms: metric without ``scheduler_`` → labels → value."""
    found = {}
    for family in metrics.families:
        values = (
            family.values if hasattr(family, "values") else {k: (sum(c.counts), c.total) for k, c in family.children.items()}
        )
        if any(value not in {0, (0, 0)} for value in values.values()):
            found[family.spec.name.removeprefix("scheduler_")] = dict(values)
    return found


def test_the_metrics_of_groups_in_1_37():
    gates = FeatureGates.parse("GenericWorkload=true,TopologyAwareWorkloadScheduling=true", "1.37")
    metrics = SchedulerMetrics(lambda: 0.0, gates)
    placements = {"generated": 4, "feasible": 1, "infeasible": 3}
    waits = "waiting_on_preemption"
    report = GroupReport(
        "default/g", "s", "unschedulable", "", 0, 2, placements=placements, preempted="Success", victims=5,
        of_root=waits, disruptions=2, violations=3, preemptor="compositepodgroup",
    )  # fmt: skip
    metrics.grouped(report, 0.5)
    metrics.grouped(GroupReport("default/h", "s", waits, "", 0, 2), 0.5)  # another group of the tree
    metrics.worked(Phase.PREEMPT, "s", 0.25, None, "podgroup")
    metrics.evaluated("feasible", "s", 0.125)
    assert shown_by(metrics) == {
        "generated_placements_total": {("s",): 4},
        "placement_evaluations_total": {("feasible", "s"): 1, ("infeasible", "s"): 3},
        "placement_evaluation_duration_seconds": {("feasible", "s"): (1, 0.125)},
        "podgroup_schedule_attempts_total": {(waits, "s"): 1},
        "podgroup_scheduling_attempt_duration_seconds": {(waits, "s"): (1, 0.5)},
        "podgroup_scheduling_algorithm_duration_seconds": {(): (1, 0.5)},
        "workload_preemption_attempts_total": {("Success",): 1},
        "workload_preemption_victims": {(): (1, 5)},
        "preemption_workload_disruptions": {("compositepodgroup",): (1, 2)},
        "preemption_pdb_violations_total": {("compositepodgroup",): 3},
        "preemption_execution_duration_seconds": {("podgroup", "success"): (1, 0.25)},
        "preemption_goroutines_duration_seconds": {("success",): (1, 0.25)},
        "preemption_goroutines_execution_total": {("success",): 1},
    }
    before = SchedulerMetrics(lambda: 0.0, FeatureGates.parse("GenericWorkload=true", "1.36.2"))
    before.grouped(report, 0.5)
    shown = {metric.name for metric in registry_of(before.families, Filter(), "1.36.2")[0].collect()}
    assert "scheduler_podgroup_schedule_attempts" in shown
    assert not any("placement" in name or "workload" in name for name in shown)


#: An event of the queue → its name in 1.37, in metrics of the queue and of hints, and in those of event handlers.
EVENT_NAMES = {
    "UnschedulablePodAdd": ("UnscheduledPodAdd", "UnscheduledPodAdd"),
    "UnschedulablePodDelete": ("UnscheduledPodDelete", "UnscheduledPodDelete"),
    "UnschedulablePodUpdatePodLabel": ("TargetPodUpdatePodLabel", "UnscheduledPodUpdatePodLabel"),
    "AssignedPodUpdate": ("AssignedPodUpdate", "AssignedPodUpdate"),
    "NodeAdd": ("NodeAdd", "NodeAdd"),
}


@pytest.mark.parametrize("event", EVENT_NAMES)
def test_events_have_the_names_of_the_release(event):
    """Source  kube-scheduler 1.37, framework/types.go, EventResource (#135905)."""
    for release, expected in (("1.36.2", (event, event)), ("1.37", EVENT_NAMES[event])):
        metrics = SchedulerMetrics(lambda: 0.0, FeatureGates.parse("", release))
        metrics.hinted("Fit", event, "Queue", 0.5)
        metrics.handled(event, [0.5])
        shown = shown_by(metrics)
        (hinted,), (handled,) = shown["queueing_hint_execution_duration_seconds"], shown["event_handling_duration_seconds"]
        assert (hinted[1], handled[0]) == expected


#: The metrics of 1.22, without ``scheduler_``, from its source; and what each release after it added and removed.
IN_1_22 = """
    framework_extension_point_duration_seconds scheduler_goroutines pending_pods permit_wait_duration_seconds
    plugin_execution_duration_seconds pod_scheduling_attempts preemption_attempts_total preemption_victims
    queue_incoming_pods_total schedule_attempts_total scheduler_cache_size scheduling_algorithm_duration_seconds
    volume_binder_cache_requests_total volume_scheduling_stage_error_total
"""
CHANGED = {
    "1.22": ("e2e_scheduling_duration_seconds pod_scheduling_duration_seconds", ""),
    "1.23": ("scheduling_attempt_duration_seconds", ""),
    "1.24": ("unschedulable_pods", "e2e_scheduling_duration_seconds"),
    "1.25": ("", ""),
    "1.26": ("goroutines", ""),
    "1.27": ("plugin_evaluation_total", "scheduler_goroutines"),
    "1.28": ("", ""),
    "1.29": ("pod_scheduling_sli_duration_seconds", ""),
    "1.30": ("", "pod_scheduling_duration_seconds"),
    "1.31": ("event_handling_duration_seconds queueing_hint_execution_duration_seconds", ""),
    "1.32": ("inflight_events preemption_goroutines_duration_seconds preemption_goroutines_execution_total", ""),
    "1.33": ("cache_size", ""),
    "1.34": (
        "async_api_call_execution_duration_seconds async_api_call_execution_total pending_async_api_calls",
        "scheduler_cache_size",
    ),
    "1.35": (
        (
            "batch_attempts_total batch_cache_flushed_total get_node_hint_duration_seconds resourceclaim_creates_total "
            "store_schedule_results_duration_seconds"
        ),
        "",
    ),
    "1.36": (
        (
            "dra_bindingconditions_allocations_total dra_bindingconditions_wait_duration_seconds "
            "pod_scheduled_after_flush_total podgroup_schedule_attempts_total podgroup_scheduling_algorithm_duration_seconds "
            "podgroup_scheduling_attempt_duration_seconds"
        ),
        "",
    ),
}
BETA_SINCE_1_36 = {"goroutines", "permit_wait_duration_seconds", "plugin_evaluation_total", "unschedulable_pods"}


def test_each_release_from_1_22_on_has_the_metrics_of_its_source():
    expected = set(IN_1_22.split())
    for release, (added, removed) in CHANGED.items():
        expected = (expected | set(added.split())) - set(removed.split())
        specs = specs_of(find_release(release).name).values()
        shown = {spec.name.removeprefix("scheduler_"): spec for spec in specs if not spec.hidden}
        assert {name for name, spec in shown.items() if name != spec.name} == expected, release
        beta = {name for name, spec in shown.items() if name != spec.name and spec.stability == "BETA"}
        assert beta - {"pod_scheduling_sli_duration_seconds"} == (BETA_SINCE_1_36 if release == "1.36" else set()), release


@pytest.mark.parametrize(
    ("gates", "prefix", "shown"),
    [
        (FeatureGates(release="1.32.5"), "scheduler_preemption_goroutines_", False),
        (FeatureGates.parse("SchedulerAsyncPreemption=true", "1.32.5"), "scheduler_preemption_goroutines_", True),
        (FeatureGates(release="1.31.8"), "scheduler_queueing_hint_", False),
        (FeatureGates(), "scheduler_queueing_hint_", True),
    ],
)
def test_metrics_that_need_a_gate_are_shown_if_it_is_open(gates, prefix, shown):
    families = SchedulerMetrics(lambda: 0.0, gates).families
    assert any(family.spec.name.startswith(prefix) and not family.spec.hidden for family in families) is shown


def test_the_current_release_hides_no_metric():
    assert not any(spec.hidden for spec in specs_of(TODAY).values())


def test_preemption_victims_use_the_buckets_of_the_old_release():
    assert specs_of("1.20")["scheduler_preemption_victims"].buckets == tuple(range(5, 51, 5))


def test_hidden_metrics_are_counted_and_not_shown():
    meter = SchedulerMetrics(lambda: 0.0, FeatureGates(release="1.21"))
    meter.handled("NodeAdd", [1.0])
    meter.permitted("allowed", 1.0)
    shown = {metric.name for metric in registry_of(meter.families, Filter(), "1.21")[0].collect()}
    assert "scheduler_permit_wait_duration_seconds" in shown
    assert "scheduler_event_handling_duration_seconds" not in shown
    assert "disabled_metrics" not in shown


#: Release → a metric that it shows under its new and its deprecated name.
RENAMED = {
    "1.23.5": ("scheduler_scheduling_attempt_duration_seconds", "scheduler_e2e_scheduling_duration_seconds", "1.23.0"),
    "1.29.14": ("scheduler_pod_scheduling_sli_duration_seconds", "scheduler_pod_scheduling_duration_seconds", "1.29.0"),
}


@pytest.mark.parametrize(("release", "new", "old", "since"), [(release, *one) for release, one in RENAMED.items()])
def test_a_deprecated_metric_has_the_values_of_the_one_that_replaced_it(release, new, old, since):
    meter = SchedulerMetrics(lambda: 0.0, FeatureGates(release=release))
    meter._attempt_s.observe(0.5, "scheduled", "default-scheduler")
    meter._sli_s.observe(0.5, "1")
    found = {one.name: one for one in registry_of(meter.families, Filter(), release)[0].collect()}
    values = [[(sample.labels, sample.value) for sample in found[name].samples] for name in (new, old)]
    assert values[0] == values[1]
    assert f"(Deprecated since {since}) E2e" in found[old].documentation


@pytest.mark.parametrize(("release", "old"), [("1.24.17", RENAMED["1.23.5"][1]), ("1.30.10", RENAMED["1.29.14"][1])])
def test_a_hidden_metric_is_shown_on_request(release, old):
    meter = SchedulerMetrics(lambda: 0.0, FeatureGates(release=release))
    meter._attempt_s.observe(0.5, "scheduled", "default-scheduler")
    meter._sli_s.observe(0.5, "1")
    for shown in (Filter(), Filter(hidden_too=True)):
        found = {one.name for one in registry_of(meter.families, shown, release)[0].collect()}
        assert (old in found) is shown.hidden_too
        assert "scheduler_cache_size" not in found, "the release does not have it"


def test_a_deprecated_metric_has_the_label_of_its_release():
    specs = specs_of("1.26.15")
    assert specs["scheduler_goroutines"].labels == ("operation",)
    gauge = Gauge(specs["scheduler_goroutines"], lambda: [(("binding",), 2.0)])
    found = {one.name: one for one in registry_of([gauge], Filter(), "1.26.15")[0].collect()}
    assert found["scheduler_scheduler_goroutines"].samples[0].labels == {"work": "binding"}
    assert found["scheduler_goroutines"].samples[0].labels == {"operation": "binding"}
