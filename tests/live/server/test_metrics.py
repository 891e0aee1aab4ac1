"""Metrics have kube-scheduler's names, labels and buckets, and count what happened."""

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.core.building.builder import complete_scheduler
from moorage.core.cycle.decision import Decision
from moorage.core.queue.queued_pod import QueuedPod
from moorage.errors import PluginError
from moorage.framework.points import PostFilterResult
from moorage.framework.profile import make_profile
from moorage.framework.verdicts import SKIP, Code, Hold, Status, Wait
from moorage.live.runtime.attempt_metrics import BoundPod
from moorage.live.server.plugin_metrics import (
    SAMPLED,
    CounterVec,
    Filter,
    Gauge,
    Histogram,
    MetricRegistry,
    Probe,
    Spec,
    exponential,
)
from moorage.live.server.scheduler_metrics import SchedulerMetrics, specs_of
from moorage.testing.builders import a_pod
from tests.live.server.metric_specs import NEVER_MOVED, SPECS

OF_1_36 = specs_of("1.36")
#: Written from kube-scheduler 1.36.2's metrics.go: name, stability, labels, buckets as (first, factor, how many).
UPSTREAM = """
schedule_attempts_total                       STABLE result,profile
scheduling_attempt_duration_seconds           STABLE result,profile                      0.001 2 15
scheduling_algorithm_duration_seconds         ALPHA  -                                   0.001 2 15
event_handling_duration_seconds               ALPHA  event                               0.0001 2 12
preemption_victims                            STABLE -                                   1 2 7
preemption_attempts_total                     STABLE -
pending_pods                                  STABLE queue
pod_scheduling_sli_duration_seconds           BETA   attempts                            0.01 2 20
pod_scheduling_attempts                       STABLE -                                   1 2 5
pod_scheduled_after_flush_total               ALPHA  -
framework_extension_point_duration_seconds    STABLE extension_point,status,profile      0.0001 2 12
plugin_execution_duration_seconds             ALPHA  plugin,extension_point,status       0.00001 1.5 20
queue_incoming_pods_total                     STABLE queue,event
goroutines                                    BETA   operation
permit_wait_duration_seconds                  BETA   result                              0.001 2 15
cache_size                                    ALPHA  type
unschedulable_pods                            BETA   plugin,profile
plugin_evaluation_total                       BETA   plugin,extension_point,profile
batch_attempts_total                          ALPHA  profile,result
batch_cache_flushed_total                     ALPHA  profile,reason
get_node_hint_duration_seconds                ALPHA  hinted,profile                      0.00001 2 12
store_schedule_results_duration_seconds       ALPHA  profile                             0.00001 2 12
queueing_hint_execution_duration_seconds      ALPHA  plugin,event,hint                   0.00001 1.5 20
inflight_events                               ALPHA  event
preemption_goroutines_duration_seconds        ALPHA  result                              0.01 2 20
preemption_goroutines_execution_total         ALPHA  result
async_api_call_execution_total                ALPHA  call_type,result
async_api_call_execution_duration_seconds     ALPHA  call_type,result                    0.001 2 15
pending_async_api_calls                       ALPHA  call_type
resourceclaim_creates_total                   ALPHA  status
podgroup_schedule_attempts_total              ALPHA  result,profile
podgroup_scheduling_attempt_duration_seconds  ALPHA  result,profile                      0.001 2 15
podgroup_scheduling_algorithm_duration_seconds ALPHA -                                   0.001 2 15
dra_bindingconditions_allocations_total       ALPHA  profile,driver,status
dra_bindingconditions_wait_duration_seconds   ALPHA  profile,driver,status               0.1 2 14
volume_binder_cache_requests_total            ALPHA  operation
volume_scheduling_stage_error_total           ALPHA  operation
"""


def rows():
    for line in UPSTREAM.strip().splitlines():
        name, stability, labels, *buckets = line.split()
        yield f"scheduler_{name}", stability, () if labels == "-" else tuple(labels.split(",")), buckets


@pytest.mark.parametrize(("name", "stability", "labels", "buckets"), [*rows()], ids=[row[0] for row in rows()])
def test_a_metric_matches_upstream(name, stability, labels, buckets):
    spec = OF_1_36[name]
    assert (spec.stability, spec.labels) == (stability, labels)
    if buckets:
        first, factor, count = float(buckets[0]), float(buckets[1]), int(buckets[2])
        assert len(spec.buckets) == count
        assert spec.buckets == pytest.approx([first * factor**i for i in range(count)])
    else:
        assert spec.buckets == ()
    assert spec.text == f"[{stability}] {spec.help}"


def test_every_scheduler_metric_matches_upstream():
    assert {name for name in OF_1_36 if name.startswith("scheduler_")} == {row[0] for row in rows()}
    assert set(SPECS) >= NEVER_MOVED


def shown(*families, **how):
    text = generate_latest(MetricRegistry(families, Filter(**how)).with_others()).decode()
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_counter_counts():
    counter = CounterVec(Spec("things_total", "Things.", "STABLE", ("kind",)))
    assert shown(counter) == {}
    counter.inc("a")
    counter.inc("a", by=2)
    counter.inc("b")
    assert shown(counter) == {("things_total", ("kind", "a")): 3, ("things_total", ("kind", "b")): 1}
    counter.reset()
    assert shown(counter) == {}


def test_a_metric_without_labels_is_shown_from_the_start():
    assert shown(CounterVec(Spec("things_total", "Things."))) == {("things_total",): 0}
    assert shown(Histogram(Spec("took_seconds", "Took.", buckets=(1.0,))))[("took_seconds_count",)] == 0


def test_a_histogram_fills_buckets_up_to_their_bound():
    histogram = Histogram(Spec("took_seconds", "Took.", "ALPHA", (), exponential(1, 2, 3)))
    for value in (0.5, 1.0, 1.5, 4.0, 9.0):
        histogram.observe(value)
    found = shown(histogram)
    assert [found["took_seconds_bucket", ("le", bound)] for bound in ("1.0", "2.0", "4.0", "+Inf")] == [2, 3, 4, 5]
    assert (found[("took_seconds_sum",)], found[("took_seconds_count",)]) == (16, 5)


def test_bounds_are_printed_as_go_prints_them():
    histogram = Histogram(SPECS["scheduler_plugin_execution_duration_seconds"])
    histogram.observe(1.0, "p", "Filter", "Success")
    text = generate_latest(MetricRegistry([histogram]).with_others()).decode()
    assert 'le="1e-05"' in text
    assert 'le="2.2500000000000005e-05"' in text


def test_a_gauge_is_read_at_scrape_time():
    now = {"a": 1.0}
    gauge = Gauge(Spec("depth", "Depth.", "BETA", ("queue",)), lambda: [((name,), value) for name, value in now.items()])
    assert shown(gauge) == {("depth", ("queue", "a")): 1}
    now["a"] = 5.0
    assert shown(gauge) == {("depth", ("queue", "a")): 5}


def test_a_metric_can_be_disabled_and_label_values_limited():
    counter = CounterVec(Spec("things_total", "Things.", "STABLE", ("kind", "where")))
    for kind in ("a", "b", "c"):
        counter.inc(kind, "here")
    assert shown(counter, disabled={"things_total"}) == {}
    assert shown(counter, allowed={("things_total", "kind"): frozenset("a")}) == {
        ("things_total", ("kind", "a"), ("where", "here")): 1,
        ("things_total", ("kind", "unexpected"), ("where", "here")): 2,
    }


# -- plugins watched ----------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Rule:
    """A plugin whose calls take a second each, and return what the test gives."""

    name = "Rule"

    def __init__(self, clock):
        self.clock, self.answers = clock, {}

    def _say(self, point):
        self.clock.now += 1
        answer = self.answers.get(point)
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) else answer

    def pre_enqueue(self, pod):
        return self._say("preEnqueue")

    def pre_filter(self, pod, snapshot):
        return self._say("preFilter")

    def filter(self, state, nodes):
        yield from self._say("filter") or ()

    def post_filter(self, pod, attempt):
        return self._say("postFilter")

    def permit(self, state, pod, node):
        return self._say("permit")


def watched():
    clock = Clock()
    rule = Rule(clock)
    points = dict.fromkeys(("preFilter", "filter", "postFilter", "permit"), ("Rule",))
    points_h = Histogram(SPECS["scheduler_framework_extension_point_duration_seconds"])
    calls = Histogram(SPECS["scheduler_plugin_execution_duration_seconds"])
    asked = CounterVec(SPECS["scheduler_plugin_evaluation_total"])
    probe = Probe(clock, points_h, calls, asked)
    profile = probe.watched(make_profile("s", {"Rule": rule}, points, {}))
    return rule, probe, profile, points_h, calls, asked


def call(profile, point, *args):
    return profile.at(point)[0].call(*args)


ANSWERS = {  # point, answer, what the call is labelled
    "nothing to say": ("preFilter", None, "Success"),
    "passed over": ("preFilter", SKIP, "Skip"),
    "turned down": ("preFilter", Hold.because("no"), "Unschedulable"),
    "turned down for good": ("preFilter", Hold.because("no", unresolvable=True), "UnschedulableAndUnresolvable"),
    "made to wait": ("permit", Wait(5.0), "Wait"),
}


@pytest.mark.parametrize(("point", "answer", "status"), ANSWERS.values(), ids=ANSWERS)
def test_a_plugin_call_is_measured_with_its_status(point, answer, status):
    rule, probe, profile, points, calls, _ = watched()
    rule.answers[point] = answer
    probe.began()
    assert call(profile, point, None, None, None) is answer if point == "permit" else call(profile, point, None, None) is answer
    probe.ended("s")
    label = point[0].upper() + point[1:]
    assert list(calls.children) == [("Rule", label, status)]
    assert [key[:2] for key in points.children] == [(label, "Success" if status == "Skip" else status)]
    assert sum(child.total for child in points.children.values()) == 1


def test_a_call_that_raises_is_measured_as_an_error_and_raises():
    rule, probe, profile, _, calls, _ = watched()
    rule.answers["preFilter"] = ValueError("broken")
    probe.began()
    with pytest.raises(ValueError, match="broken"):
        call(profile, "preFilter", None, None)
    assert list(calls.children) == [("Rule", "PreFilter", Code.ERROR.value)]


def test_an_extension_point_is_measured_once_an_attempt_with_dry_runs():
    rule, probe, profile, points, _, asked = watched()
    rule.answers["postFilter"] = lambda: [call(profile, "filter", None, None) for _ in range(3)] and None
    probe.began()
    for _ in range(2):
        call(profile, "filter", None, None)
    call(profile, "postFilter", None, None)
    probe.ended("s")
    took = {key[0]: (child.total, sum(child.counts)) for key, child in points.children.items()}
    assert took["Filter"] == (2, 1)
    assert took["PostFilter"][1] == 1
    assert asked.values == {("Rule", "Filter", "s"): 5, ("Rule", "PreFilter", "s"): 0}


def test_the_post_filter_status_is_that_of_the_successful_plugin():
    rule, probe, profile, points, _, _ = watched()
    probe.began()
    for answer in (PostFilterResult(Code.UNSCHEDULABLE), PostFilterResult(Code.SUCCESS, "n1")):
        rule.answers["postFilter"] = answer
        call(profile, "postFilter", None, None)
    probe.ended("s")
    assert list(points.children) == [("PostFilter", "Success", "s")]


def test_a_skipped_plugin_has_no_evaluation():
    rule, probe, profile, _, _, asked = watched()
    rule.answers["preFilter"] = SKIP
    probe.began()
    call(profile, "preFilter", None, None)
    assert asked.values["Rule", "PreFilter", "s"] == 0


def test_a_gated_pod_is_measured_once_for_all_plugins():
    rule, probe, _, points, _, _ = watched()
    profile = probe.watched(make_profile("s", {"A": rule, "B": rule}, {"preEnqueue": ("A", "B")}, {}))
    first, second = (step.call for step in profile.at("preEnqueue"))
    passing, held = [first, second], [first]
    for calls, answer in ((passing, None), (held, Hold.because("no")), (passing, None)):
        rule.answers["preEnqueue"] = answer
        for ask in calls:
            ask(None)
    child = points.children["PreEnqueue", "Success", "s"]
    assert (list(points.children), sum(child.counts), child.total) == ([("PreEnqueue", "Success", "s")], 3, 5)


def test_calls_are_measured_one_by_one_in_one_attempt_out_of_ten():
    _, probe, profile, points, calls, asked = watched()
    for _ in range(3 * SAMPLED):
        probe.began()
        call(profile, "preFilter", None, None)
        probe.ended("s")
    assert sum(sum(child.counts) for child in calls.children.values()) == 3
    assert sum(sum(child.counts) for child in points.children.values()) == 3 * SAMPLED
    assert asked.values["Rule", "PreFilter", "s"] == 3 * SAMPLED


def test_an_unmeasured_profile_is_unchanged():
    rule = Rule(Clock())
    profile = make_profile("s", {"Rule": rule}, {"preFilter": ("Rule",)}, {})
    _, probe, _, _, _, _ = watched()
    assert probe.watched(profile) is not profile
    assert profile.at("preFilter")[0].call == rule.pre_filter


def test_client_rate_limiter_waits_are_measured():
    meter = SchedulerMetrics(lambda: 0.0)
    meter.waited("GET", "api:443", [0.2])
    (turns,) = [one for one in meter.families if one.spec.name == "rest_client_rate_limiter_duration_seconds"]
    assert [(labels, child.total) for labels, child in turns.children.items()] == [(("GET", "api:443"), 0.2)]
    assert turns.spec.buckets[::11] == (0.005, 60.0)


def test_an_attempt_ended_by_a_plugin_is_counted_under_its_name():
    meter = SchedulerMetrics(lambda: 0.0)
    pod = a_pod("p", schedulerName="s").pod
    meter.failed(Decision(pod, error=PluginError("Odd", "returned 7 in permit")), 1.0)
    meter.failed(Decision(pod, refused_after=Status(Code.ERROR, "Odd", ("no",))), 1.0)
    meter.failed(Decision(pod, refused_after=Status(Code.UNSCHEDULABLE, "Odd", ("no",))), 1.0)
    (errors,) = [one for one in meter.families if one.spec.name == "moorage_attempt_errors_total"]
    assert errors.values == {("Odd", "s"): 2}


def test_measured_profiles_keep_the_fast_lane_and_count_the_points_after_a_decision():
    measures = SchedulerMetrics(Clock())
    scheduler = complete_scheduler(load_source(ConfigSource()), 0, watched=measures.probe.watched)
    assert scheduler.lane._profile_of("default-scheduler") is not None
    measures.began()
    measures.probe.ended("default-scheduler", placed=True)
    measures.probe.ended("default-scheduler", placed=False)
    counts = {key: sum(child.counts) for key, child in measures._points.children.items()}
    assert counts[("Reserve", "Success", "default-scheduler")] == 1


def figures(measures):
    values = {one.spec.name: dict(one.values) for one in measures.families if isinstance(one, CounterVec)}
    for one in measures.families:
        if isinstance(one, Histogram):
            values[one.spec.name] = {labels: (child.counts, child.total) for labels, child in one.children.items()}
    return values


@pytest.mark.parametrize("attempts", [(1, 1, 1), (1, 2, 1)])
def test_a_run_of_pods_is_measured_as_its_pods_one_by_one(attempts):
    together, alone = SchedulerMetrics(Clock()), SchedulerMetrics(Clock())
    for measures in (together, alone):
        complete_scheduler(load_source(ConfigSource()), 0, watched=measures.probe.watched)
    ended = []
    for at, tries in enumerate(attempts):
        pod = a_pod(f"p{at}")
        queued = QueuedPod(pod, 0.0, attempts=tries)
        ended.append(BoundPod(Decision(pod, "n"), queued, 0.25 * at, None if at == 2 else 0.5, 0.125))
    together.began()
    together.placed([one.decision for one in ended], 0.25)
    together.all_bound(ended)
    for one in ended:
        alone.began()
        alone.attempted(one.decision, 0.25)
        alone.bound(one)
    assert figures(together) == figures(alone)


def test_a_histogram_counts_every_value_however_many_it_keeps():
    family = Histogram(Spec("h", "help", buckets=(1.0, 2.0)))
    for value in range(1300):
        family.observe(value % 3)
    family.observe_all([5.0] * 700)
    (child,) = family.children.values()
    assert (sum(child.counts), child.counts[0], child.counts[2]) == (2000, 867, 700)
    family.reset()
    assert [sum(child.counts) for child in family.children.values()] == [0]
