"""Every metric that kube-scheduler 1.37.2 serves is served here, or named on the reference page with the reason."""

import re
from pathlib import Path

from prometheus_client import generate_latest

from moorage.core.cycle.decision import Decision
from moorage.errors import AttemptError, PluginError
from moorage.framework.verdicts import Code, Status
from moorage.live.server.plugin_metrics import Filter
from moorage.live.server.scheduler_metrics import SchedulerMetrics, registry_of
from moorage.testing.builders import a_pod

#: The names at /metrics of kube-scheduler 1.37.2 on a cluster with some pods, without ``go_``.
NAMES = Path(__file__).with_name("component_metrics.txt").read_text().split()
PAGE = (Path(__file__).parents[3] / "docs/reference/run.md").read_text()


def test_each_metric_is_served_or_named():
    named = set(re.findall(r"`([a-z_0-9]+)`", PAGE))
    named |= {f"scheduler_{one}" for one in named}
    process = {name for name in NAMES if name.startswith("process_")}

    assert [name for name in NAMES if name not in named | process] == []


def samples(registry, name):
    text = generate_latest(registry).decode()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name)}


def test_the_registered_metrics_are_counted_by_stability():
    meter = SchedulerMetrics(lambda: 0.0)
    _, registry = registry_of(meter.families, Filter())
    found = samples(registry, "registered_metrics_total")
    shown = [one.spec.stability for one in meter.families if one.spec.stability and not one.spec.hidden]
    assert found['registered_metrics_total{deprecated_version="",stability_level="STABLE"}'] == shown.count("STABLE")
    assert samples(registry, "hidden_metrics_total") == {"hidden_metrics_total": 0.0}


def test_refusals_of_the_api_server_are_no_errors_of_attempts():
    meter = SchedulerMetrics(lambda: 0.0)
    pod = a_pod("p", schedulerName="s").pod
    meter.failed(Decision(pod, refused_after=Status(Code.ERROR, "", ("409 Conflict",))), 1.0)
    assert meter._errors.values == {}
    meter.failed(Decision(pod, error=AttemptError("", "inside")), 1.0)
    meter.failed(Decision(pod, error=PluginError("Odd", "raised")), 1.0)
    assert meter._errors.values == {("", "s"): 1, ("Odd", "s"): 1}
