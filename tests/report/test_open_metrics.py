"""Runs in the OpenMetrics text format, read back by the parser of prometheus_client."""

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from moorage.report.exports import as_open_metrics
from moorage.report.outcome import PodOutcome, Run
from moorage.report.run_document import moments
from tests.report.test_trace_events import demo, traced  # noqa: F401


def families(run):
    return {one.name: one for one in text_string_to_metric_families(as_open_metrics(run))}


@pytest.mark.parametrize("name", ["demo", "traced"])
def test_the_parser_reads_what_the_run_says(name, request):
    run = request.getfixturevalue(name)
    found, course = families(run), moments(run)
    pending = found["moorage_pending_pods"].samples
    assert [(float(one.timestamp), one.value) for one in pending] == [(round(one.at_s, 6), one.pending) for one in course]
    assert pending[-1].value == len(run.in_state("Pending"))
    last = {one.labels["resource"]: one.value for one in found["moorage_requested_ratio"].samples}
    shares = {name: asked / offered for name, (offered, asked) in run.totals().items() if offered}
    assert last == pytest.approx(shares, abs=1e-6)
    states = {one.labels["state"]: one.value for one in found["moorage_pods"].samples}
    assert sum(states.values()) == len(run.pods)
    waits = {one.name: one.value for one in found["moorage_pod_wait_seconds"].samples}
    assert waits["moorage_pod_wait_seconds_count"] == sum(pod.placed_s is not None for pod in run.pods)
    assert found["moorage_scheduling_attempts"].samples[0].value == run.attempts


def test_hostile_text_stays_a_label():
    hostile = 'a"} 1\n# EOF\\'
    run = Run((PodOutcome("default", "web", hostile),), (), release=hostile)
    assert as_open_metrics(run).count("# EOF\n") == 1
    found = families(run)
    assert len(found["moorage_pods"].samples) == len(found["moorage_run"].samples) == 1
