"""What becomes of a pod, its nomination and other pods after a failed attempt, in each release."""

from __future__ import annotations

import pytest

from moorage.api.releases import find_release
from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.core.building.builder import build_scheduler
from moorage.core.cycle.cycle import Cycle
from moorage.core.queue import QueuePlace
from moorage.framework.verdicts import Hold
from moorage.live.runtime.status_writer import failure_condition
from tests.core.engine.driving import Driven, Outputs, Phase, node, pod

FIRST = ["1.19", "1.21", "1.22"]
ALL = [f"1.{minor}" for minor in range(19, 38)]
#: Minor releases until which the rules hold, and all others.
KEEPS, CLEARS = ["1.19", "1.20", "1.21", "1.22"], ["1.23", "1.24", "1.25", "1.28", "1.29", "1.31", "1.32", "1.36"]
PARKS, BACKS_OFF = ["1.19", "1.22", "1.23", "1.25", "1.28"], ["1.29", "1.31", "1.32", "1.36", "1.37"]


class Fails:
    """Raises an error for a pod with the label ``fails``, in PreFilter or Reserve, or rejects it in Reserve."""

    name = "Fails"

    def filter(self, state, nodes, pod=None):
        yield from ()

    def pre_filter(self, pod, snapshot):
        if pod.metadata.labels.get("fails") == "preFilter":
            raise RuntimeError("no answer")
        return pod

    def reserve(self, state, pod, node):
        how = pod.metadata.labels.get("fails")
        if how == "reserve":
            raise RuntimeError("no answer")
        return Hold.because("not this one") if how == "reserveRejects" else None


def config(release):
    minor = int(release[2:])
    version = "v1beta1" if minor <= 22 else "v1beta3" if minor <= 24 else "v1"
    points = "".join(f"\n    {point}: {{enabled: [{{name: Fails}}]}}" for point in ("preFilter", "filter", "reserve"))
    return (
        f"apiVersion: kubescheduler.config.k8s.io/{version}\nkind: KubeSchedulerConfiguration\nprofiles:\n- plugins:{points}\n"
    )


def driven(release, feature_gates=""):
    made = Driven.__new__(Driven)
    source = ConfigSource(
        config(release).encode(), "config.yaml", emulate=release, feature_gates=feature_gates, plugins=(Fails,)
    )
    made.engine, missing = build_scheduler(load_source(source), Cycle())
    assert not missing
    made.now, made.outputs = 0.0, Outputs(made.engine)
    return made


def failing(how, **kwargs):
    return pod("p", labels={"fails": how}, **kwargs)


@pytest.mark.parametrize("how", ["preFilter", "reserve"])
@pytest.mark.parametrize(("release", "kept"), [*((one, True) for one in KEEPS), *((one, False) for one in CLEARS)])
def test_an_error_clears_the_nomination_from_1_23_on(release, kept, how):
    engine = driven(release)
    engine.see(node("n"), failing(how, nominated="n"))
    assert engine.step() == ("p", None)
    assert (engine.engine.queue.nomination("default/p") == "n") is kept
    assert [work.node for work in engine.work(Phase.NOMINATE)] == ([] if kept else [""])


@pytest.mark.parametrize(("release", "kept"), [*((one, True) for one in KEEPS), *((one, False) for one in CLEARS)])
def test_a_failed_bind_clears_the_nomination_from_1_23_on(release, kept):
    engine = driven(release)
    engine.see(node("n"), pod("p", nominated="n"))
    assert engine.step() == ("p", "n")
    engine.done(engine.only_work(Phase.BIND), "409 Conflict")
    assert (engine.engine.queue.nomination("default/p") == "n") is kept
    assert [work.node for work in engine.work(Phase.NOMINATE)] == ([] if kept else [""])


@pytest.mark.parametrize(("release", "wakes"), [*((one, False) for one in KEEPS), *((one, True) for one in CLEARS)])
def test_a_failed_bind_wakes_other_pods_from_1_23_on(release, wakes):
    engine = driven(release)
    engine.see(node("n", "1"), pod("p"), pod("next", priority=-1))
    assert engine.steps() == [("p", "n"), ("next", None)]
    assert engine.place("default/next") is QueuePlace.UNSCHEDULABLE
    engine.done(engine.only_work(Phase.BIND), "409 Conflict")
    assert (engine.place("default/next") is not QueuePlace.UNSCHEDULABLE) is wakes
    assert (engine.place("default/p") is QueuePlace.BACKOFF) is wakes


@pytest.mark.parametrize("how", ["reserve", "reserveRejects"])
@pytest.mark.parametrize("release", ALL)
def test_a_failed_reserve_wakes_no_pod(release, how):
    engine = driven(release)
    engine.see(node("n", "1"), pod("next", "2"), failing(how, priority=-1))
    assert engine.steps() == [("next", None), ("p", None)]
    assert engine.place("default/next") is QueuePlace.UNSCHEDULABLE


@pytest.mark.parametrize(
    ("release", "place"),
    [*((one, QueuePlace.UNSCHEDULABLE) for one in PARKS), *((one, QueuePlace.BACKOFF) for one in BACKS_OFF)],
)
@pytest.mark.parametrize("how", ["preFilter", "reserve"])
def test_after_an_error_a_pod_waits_for_any_event_up_to_1_28(release, place, how):
    engine = driven(release)
    engine.see(node("n"), failing(how))
    assert engine.step() == ("p", None)
    assert engine.place("default/p") is place
    engine.see(node("m"))
    assert engine.step(2.0) == ("p", None)
    assert not engine.engine.queue.rejections()


def test_with_hints_1_28_waits_for_an_event_after_an_error_too():
    engine = driven("1.28", "SchedulerQueueingHints=true")
    engine.see(node("n"), failing("preFilter"))
    assert engine.step() == ("p", None)
    assert engine.place("default/p") is QueuePlace.UNSCHEDULABLE
    engine.see(node("m"))
    assert engine.step(2.0) == ("p", None)


@pytest.mark.parametrize(
    ("release", "how", "reason"),
    [
        ("1.19", "preFilter", "Unschedulable"), ("1.22", "preFilter", "Unschedulable"), ("1.23", "preFilter", "Unschedulable"),
        ("1.24", "preFilter", "SchedulerError"), ("1.36", "preFilter", "SchedulerError"),
        ("1.22", "reserve", "SchedulerError"), ("1.36", "reserveRejects", "Unschedulable"),
    ],
)  # fmt: skip
def test_up_to_1_23_an_error_has_the_reason_of_a_rejection(release, how, reason):
    engine = driven(release)
    engine.see(node("n"), failing(how))
    condition = failure_condition(engine.attempt(), "2026-11-21T11:23:49Z", find_release(release).error_reason)
    assert condition.reason == reason
