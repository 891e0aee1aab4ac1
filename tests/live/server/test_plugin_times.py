"""The time of plugins, as the web interface shows it, is that of the metrics."""

from moorage.live.server.scheduler_metrics import SchedulerMetrics


def test_times_are_summed_over_the_outcomes_of_each_plugin_and_point():
    meter = SchedulerMetrics(lambda: 0.0)
    calls = next(one for one in meter.families if one.spec.name == "scheduler_plugin_execution_duration_seconds")
    for seconds, status in ((0.25, "Success"), (0.5, "Unschedulable")):
        calls.observe(seconds, "NodeResourcesFit", "Filter", status)
    calls.observe(1.0, "NodeResourcesFit", "Score", "Success")
    assert meter.plugin_times() == [
        {"plugin": "NodeResourcesFit", "extensionPoint": "Score", "calls": 1, "seconds": 1.0},
        {"plugin": "NodeResourcesFit", "extensionPoint": "Filter", "calls": 2, "seconds": 0.75},
    ]
