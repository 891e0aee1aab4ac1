"""The metrics of 1.19 to 1.21: those that their sources have, under their names, with their labels."""

from __future__ import annotations

import pytest

from moorage.server.metric_specs import SPECS
from moorage.server.metric_types import Filter
from moorage.server.old_metric_specs import specs_of
from moorage.server.scheduler_metrics import SchedulerMetrics, registry_of

#: From pkg/scheduler/metrics/metrics.go of 1.19, 1.20 and 1.21, less what each had deprecated: name → labels.
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
}


@pytest.mark.parametrize("release", ["1.19", "1.20", "1.21"])
def test_the_metrics_are_those_of_the_release(release):
    specs = [spec for spec in specs_of(release).values() if spec.name.startswith("scheduler_") and not spec.hidden]
    assert {spec.name: spec.labels for spec in specs} == UPSTREAM
    assert {spec.stability for spec in specs} == {"ALPHA"}
    assert specs_of(release).keys() == SPECS.keys()


def test_the_current_release_renames_and_hides_no_metric():
    assert specs_of("1.36") is SPECS
    assert not any(spec.hidden for spec in SPECS.values())


def test_preemption_victims_use_the_buckets_of_the_old_release():
    assert specs_of("1.20")["scheduler_preemption_victims"].buckets == tuple(range(5, 51, 5))


def test_hidden_metrics_are_counted_and_not_shown():
    meter = SchedulerMetrics(lambda: 0.0, release="1.21")
    meter.handled("NodeAdd", 1.0)
    meter.permitted("allowed", 1.0)
    shown = {metric.name for metric in registry_of(meter.families, Filter(), "1.21")[0].collect()}
    assert "scheduler_permit_wait_duration_seconds" in shown
    assert "scheduler_event_handling_duration_seconds" not in shown
    assert "disabled_metrics" not in shown
