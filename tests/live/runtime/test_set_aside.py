"""A pod on which a plugin hung is gated as long as the condition stands, and the profile runs that plugin with that code."""

import asyncio
import json
import sys

import pytest

from moorage.api.core import ObjectMeta, Pod, PodCondition, PodStatus
from moorage.core.building.builder import complete_scheduler
from moorage.live.runtime.hang_watch import Hang, described
from moorage.live.runtime.set_aside import REASON, HungPlugin, code_of, set_aside, setting_aside
from moorage.live.runtime.side_loop import SideLoop
from moorage.simulator.simulate import Options, load_options
from moorage.state.pod_info import PodInfo


def pod(name, namespace="default", status=None):
    return Pod(metadata=ObjectMeta(name=name, namespace=namespace, uid=name), status=status or PodStatus())


HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


class Bad:
    name = "Bad"

    def __init__(self):
        self.seen = None

    def pre_filter(self, pod, snapshot):
        self.seen = described(sys._getframe(), [PROFILES["default-scheduler"]])
        return helper()

    def wakes_on(self):
        yield from ()


def helper():
    return None


PROFILES = {}


def profile():
    config = f"{HEAD}profiles: [{{plugins: {{multiPoint: {{enabled: [{{name: Bad}}]}}}}}}]\n".encode()
    scheduler = complete_scheduler(load_options(Options(config=config, plugins=(Bad,))), 0)
    return scheduler.profiles["default-scheduler"]


class Rest:
    def __init__(self):
        self.sent = []

    async def send(self, method, path, body, **options):
        self.sent.append((method, path, json.loads(body)))


def written(plugin, code):
    """Return the requests about a pod on which a plugin hangs."""
    rest, one = Rest(), pod("p", namespace="ns")
    hang = Hang(plugin, "filter", "default-scheduler", one, "stack")
    asyncio.run(set_aside(rest, hang, code, 30.0, "2026-01-01T00:00:00.5Z", "default-scheduler"))
    return rest.sent


def test_the_condition_gates_the_pod_and_the_event_says_the_same():
    (_, path, patch), (_, where, event) = written("Bad", "0123abcd")
    (condition,) = patch["status"]["conditions"]
    assert path == "/api/v1/namespaces/ns/pods/p/status"
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", REASON)
    assert where == "/apis/events.k8s.io/v1/namespaces/ns/events"
    assert condition["message"] == event["note"]
    assert condition["message"].startswith("plugin Bad (0123abcd) did not return from filter for 30s; ")
    assert (event["reason"], event["type"], event["regarding"]["name"]) == (REASON, "Warning", "p")


GATED = {
    "the same plugin and code": ({"Bad": "0123abcd"}, REASON, "PodScheduled", True),
    "other code": ({"Bad": "0123abce"}, REASON, "PodScheduled", False),
    "another plugin": ({"Good": "0123abcd"}, REASON, "PodScheduled", False),
    "another reason": ({"Bad": "0123abcd"}, "Unschedulable", "PodScheduled", False),
    "another condition": ({"Bad": "0123abcd"}, REASON, "Ready", False),
}


@pytest.mark.parametrize(("codes", "reason", "kind", "gated"), GATED.values(), ids=GATED)
def test_who_is_gated(codes, reason, kind, gated):
    (condition,) = written("Bad", "0123abcd")[0][2]["status"]["conditions"]
    status = PodStatus(conditions=(PodCondition(kind, "False", reason, condition["message"]),))
    answer = HungPlugin(codes).pre_enqueue(PodInfo(pod("p", status=status)))
    assert (answer is not None) is gated


def test_a_pod_without_conditions_is_not_gated():
    assert HungPlugin({"Bad": "0123abcd"}).pre_enqueue(PodInfo(pod("p"))) is None


def test_the_gate_stands_before_the_other_ones():
    before = profile()
    made = setting_aside(before)
    assert [one.name for one in made.at("preEnqueue")] == ["HungPlugin", *(one.name for one in before.at("preEnqueue"))]
    assert {point: steps for point, steps in made.steps.items() if point != "preEnqueue"} == {
        point: steps for point, steps in before.steps.items() if point != "preEnqueue"
    }


def test_code_is_that_of_the_file(tmp_path, monkeypatch):
    codes = set()
    for number, text in enumerate(["class Bad: pass", "class Bad: pass", "class Bad: name = 1"]):
        (tmp_path / f"coded_{number}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        codes.add(code_of(__import__(f"coded_{number}").Bad()))
    assert len(codes) == 2


def test_what_runs_is_named_by_plugin_point_and_pod():
    PROFILES["default-scheduler"] = found = profile()
    plugin, asked = found.plugins["Bad"], PodInfo(pod("p", namespace="ns"))
    plugin.pre_filter(asked, None)
    assert (plugin.seen.plugin, plugin.seen.point, plugin.seen.profile) == ("Bad", "preFilter", "default-scheduler")
    assert plugin.seen.pod_key == "ns/p"
    assert "in pre_filter" in plugin.seen.stack


def test_without_a_plugin_no_pod_is_named():
    asked = PodInfo(pod("p"))
    found = described(sys._getframe(), [profile()])
    assert asked is not None
    assert (found.plugin, found.point, found.pod) == ("", "", None)


def test_a_side_loop_returns_results_errors_and_waits_for_what_it_cancels():
    steps = []

    async def answer():
        return 7

    async def fails():
        raise ValueError("no")

    async def lasts():
        steps.append("began")
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            steps.append("ended")

    async def main():
        async with SideLoop("test") as side:
            assert await side.run(answer) == 7
            with pytest.raises(ValueError, match="no"):
                await side.run(fails)
            task = asyncio.ensure_future(side.run(lasts))
            while not steps:
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
            assert steps == ["began", "ended"]

    asyncio.run(main())
