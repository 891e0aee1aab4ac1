"""Extenders as the engine asks them: who is asked what and in which order, and what becomes of the pod whatever they answer."""

from __future__ import annotations

import json

import pytest

from moorage.api.feature_gates import FeatureGates
from moorage.basis.inputs.scheduler_config import registry_with
from moorage.core.building.builder import build_profiles
from moorage.core.config.configuration_loader import load
from moorage.core.config.configured_extenders import extenders_of
from moorage.core.cycle.cycle import Cycle
from moorage.core.engine.facts import Answered, Phase
from moorage.core.engine.scheduler import Scheduler
from moorage.core.queue import QueuePlace
from moorage.framework.effects import BindPod, BindThrough, Evict
from moorage.testing.builders import a_node, a_pod
from tests.core.engine.driving import HEAD, Driven, Outputs, bound, node, pod

DOWN = OSError("connection refused")


def one(number=0, **fields):
    return {"urlPrefix": f"http://e{number}/", "nodeCacheCapable": True, **fields}


class Consulted(Driven):
    """The engine with extenders, whose replies a function gives: the body as plain data or bytes, or an exception."""

    def __init__(self, *extenders, reply=None):
        registry, gates = registry_with(()), FeatureGates()
        configuration = load((HEAD + json.dumps({"extenders": extenders})[1:-1]).encode(), "test", registry, gates)
        self.engine = Scheduler(
            Cycle(extenders=extenders_of(configuration.extenders)),
            gates,
            lambda handle: build_profiles(configuration, registry, gates, handle).profiles,
        )
        self.now = 0.0
        self.outputs = Outputs(self.engine)
        self.reply = reply
        self.asked = []

    def answer(self, query):
        body = json.loads(query.question.body)
        self.asked.append((query.question.url, body))
        said = self.reply(query.question, body)
        if isinstance(said, Exception):
            self.engine.observe(Answered(query.ticket, error=str(said)), self.now)
        else:
            self.engine.observe(
                Answered(query.ticket, said if isinstance(said, bytes) else json.dumps(said).encode()), self.now
            )

    def step(self, seconds=0.0):
        while True:
            outcome = super().step(seconds)
            queries = self.outputs.take("queries")
            if outcome is not None or not queries:
                return outcome
            for query in queries:
                self.answer(query)

    def message(self):
        decision = None
        while decision is None:
            decision = self.attempt()
            for query in self.outputs.take("queries"):
                self.answer(query)
        # Without what DynamicResources has to say, which comes first.
        return decision.message.replace("no new claims to deallocate, ", "")


def keeps(*names):
    return lambda question, body: {"NodeNames": [name for name in body["NodeNames"] if name in names]}


THREE = [node("a"), node("b"), node("c")]


# -- filter -------------------------------------------------------------------------------------------------------------------


def test_an_extender_filters_the_nodes_that_pass_the_plugins():
    driven = Consulted(one(filterVerb="filter"), reply=keeps("b"))
    driven.see(*THREE, node("full", cpu="0"), pod("p"))
    assert driven.step() == ("p", "b")
    ((url, body),) = driven.asked
    assert url == "http://e0/filter"
    assert sorted(body["NodeNames"]) == ["a", "b", "c"]
    assert body["Pod"]["metadata"]["name"] == "p"


def test_an_extender_without_a_node_cache_receives_node_objects():
    def reply(question, body):
        assert body["NodeNames"] is None
        return {"Nodes": {"items": [item for item in body["Nodes"]["items"] if item["metadata"]["name"] == "c"]}}

    driven = Consulted(one(filterVerb="filter", nodeCacheCapable=False), reply=reply)
    driven.see(*THREE, pod("p"))
    assert driven.step() == ("p", "c")


def test_extender_filters_run_in_order_with_ignorable_ones_last():
    def reply(question, body):
        drop = {"http://e1/f": "a", "http://e2/f": "b", "http://e0/f": "c"}[question.url]
        return {"NodeNames": [name for name in body["NodeNames"] if name != drop]}

    extenders = [one(at, filterVerb="f", ignorable=at == 0) for at in range(3)]
    driven = Consulted(*extenders, reply=reply)
    driven.see(*THREE, pod("p"))
    assert driven.step() == ("p", None)
    assert [(url, sorted(body["NodeNames"])) for url, body in driven.asked] == [
        ("http://e1/f", ["a", "b", "c"]), ("http://e2/f", ["b", "c"]), ("http://e0/f", ["c"]),
    ]  # fmt: skip


REFUSALS = {
    "with reasons": (
        {
            "NodeNames": [],
            "FailedNodes": {"a": "too far", "b": "too far", "missing": "unknown"},
            "FailedAndUnresolvableNodes": {"b": "never there"},
        },
        (
            "0/3 nodes are available: 1 never there, 1 too far. "
            "preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, "
            "2 Preemption is not helpful for scheduling."
        ),
    ),
    "without a word": (
        {},
        "0/3 nodes are available: preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
    ),
}


@pytest.mark.parametrize(("said", "text"), REFUSALS.values(), ids=REFUSALS)
def test_nodes_missing_in_the_reply_are_counted_by_reason(said, text):
    driven = Consulted(one(filterVerb="f"), reply=lambda question, body: said)
    driven.see(*THREE, pod("p"))
    assert driven.message() == text


def test_any_event_wakes_a_pod_rejected_by_an_extender():
    driven = Consulted(one(filterVerb="f"), reply=lambda question, body: {})
    driven.see(*THREE, pod("p"))
    driven.steps()
    assert driven.place("default/p") is QueuePlace.UNSCHEDULABLE
    driven.see(node("a", labels={"any": "thing"}))
    assert driven.place("default/p") is not QueuePlace.UNSCHEDULABLE


ERRORS = {
    "cannot be reached": (DOWN, "connection refused"),
    "says so": ({"Error": "out of order"}, "out of order"),
    "not JSON": (b"<html>", "invalid character '<' looking for beginning of value"),
    "a node that was not offered": (
        {"NodeNames": ["a", "zz"]},
        'extender "http://e0/" claims a filtered node "zz" which is not found in the input node list',
    ),
}


@pytest.mark.parametrize(("said", "text"), ERRORS.values(), ids=ERRORS)
def test_a_failed_extender_filter_fails_the_attempt(said, text):
    driven = Consulted(one(filterVerb="f"), reply=lambda question, body: said)
    driven.see(*THREE, pod("p"))
    assert driven.message() == text
    assert driven.place("default/p") is QueuePlace.BACKOFF
    assert not driven.faults


@pytest.mark.parametrize("said", [said for said, _ in ERRORS.values()], ids=ERRORS)
def test_a_failed_ignorable_extender_is_skipped(said):
    extenders = one(0, filterVerb="f", ignorable=True), one(1, filterVerb="f", ignorable=True)
    driven = Consulted(*extenders, reply=lambda q, body: keeps("b")(q, body) if q.extender else said)
    driven.see(*THREE, pod("p"))
    assert driven.step() == ("p", "b")
    (fault,) = driven.faults
    assert str(fault).startswith("extender http://e0/ failed in filter and was skipped: ")


@pytest.mark.parametrize("where", ["containers", "initContainers"])
@pytest.mark.parametrize("kind", ["requests", "limits"])
def test_an_extender_is_called_only_for_its_managed_resources(where, kind):
    managed = [{"name": "example.com/gpu"}]
    driven = Consulted(one(filterVerb="f", managedResources=managed), reply=keeps("b"))
    container = {"name": "c", "resources": {kind: {"example.com/gpu": "1"}}}
    asking = a_pod("asking", **{"containers": [{"name": "x"}], where: [container]}).pod
    gpus = {"cpu": "2", "pods": "9", "example.com/gpu": "1"}
    driven.see(*(a_node(name, allocatable=gpus) for name in "ab"), pod("plain"))
    assert driven.step()[1] in {"a", "b"}
    assert driven.asked == []
    driven.see(asking)
    assert driven.step() == ("asking", "b")
    assert len(driven.asked) == 1


# -- prioritize ---------------------------------------------------------------------------------------------------------------


def scores(**given):
    return [{"Host": name, "Score": score} for name, score in given.items()]


def test_extender_scores_count_ten_times_their_weight():
    # Alike nodes, so that what the extenders say decides.
    driven = Consulted(
        one(0, prioritizeVerb="p", weight=3), one(1, prioritizeVerb="p", weight=1),
        reply=lambda question, body: scores(a=2, b=1, missing=10) if question.extender == 0 else scores(b=4, c=6),
    )  # fmt: skip
    driven.see(*THREE, pod("p"))
    decision = None
    while decision is None:
        decision = driven.attempt(0.0)
        queries = driven.outputs.take("queries")
        assert len(queries) in {0, 2}  # both are asked at the same time
        for query in queries:
            driven.answer(query)
    assert decision.node == "b"
    a, b, c = decision.scores.total.tolist()
    assert (b - a, b - c) == (10 * (3 + 4 - 6), 10 * (3 + 4 - 6))
    assert decision.scores.raw["Extender http://e1/"].tolist() == [0, 4, 6]


@pytest.mark.parametrize(
    "said",
    [DOWN, b"", b"{}", b'[{"Host": "b", "Score": 1e18}]', b'[{"Host": "b", "Score": 1000000000000000000}]', b"NaN"],
    ids=["down", "empty", "no list", "float", "huge", "NaN"],
)  # fmt: skip
def test_a_failed_prioritize_gives_no_scores(said):
    driven = Consulted(
        one(0, prioritizeVerb="p", weight=1), one(1, prioritizeVerb="p", weight=1),
        reply=lambda question, body: said if question.extender == 0 else scores(c=1),
    )  # fmt: skip
    driven.see(*THREE, pod("p"))
    assert driven.step() == ("p", "c")
    (fault,) = driven.faults
    assert str(fault).startswith("extender http://e0/ failed in prioritize and was skipped: ")


HOSTS = {"topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
SPREAD = {"topologySpreadConstraints": [{**HOSTS, "labelSelector": {"matchLabels": {"app": "a"}}}]}


@pytest.mark.parametrize("capable", [True, False])
def test_returned_node_objects_are_scored_without_pods_and_images(capable):
    def keeps_all(question, body):
        return {"NodeNames": body["NodeNames"]} if capable else {"Nodes": body["Nodes"]}

    driven = Consulted(one(filterVerb="f", nodeCacheCapable=capable), reply=keeps_all)
    for name in "ab":
        images = [{"names": ["i:v1"], "sizeBytes": 900 << 20}] if name == "a" else []
        driven.see(node(name, labels={"kubernetes.io/hostname": name}, images=images))
    driven.see(pod("there", on="a", labels={"app": "a"}))
    container = {"name": "c", "image": "i:v1", "resources": {"requests": {"cpu": "100m", "memory": "4Gi"}}}
    driven.see(a_pod("p", {"app": "a"}, containers=[container], **SPREAD).pod)
    decision = None
    while decision is None:
        decision = driven.attempt(0.0)
        for query in driven.outputs.take("queries"):
            driven.answer(query)
    alike = {name: len(set(raw.tolist())) == 1 for name, raw in decision.scores.raw.items()}
    for plugin in ("NodeResourcesFit", "NodeResourcesBalancedAllocation", "ImageLocality", "PodTopologySpread"):
        assert alike[plugin] is not capable, plugin


def test_a_single_feasible_node_needs_no_prioritize_call():
    driven = Consulted(one(0, filterVerb="f", prioritizeVerb="p", weight=1), reply=keeps("b"))
    driven.see(*THREE, pod("p"))
    assert driven.step() == ("p", "b")
    assert [url for url, _ in driven.asked] == ["http://e0/f"]


# -- while it is asked --------------------------------------------------------------------------------------------------------


def test_an_attempt_decides_on_its_snapshot():
    driven = Consulted(one(filterVerb="f"))
    driven.see(node("a", cpu="1"), pod("p"))
    assert driven.attempt(0.0) is None
    (query,) = driven.outputs.take("queries")
    driven.see(bound(pod("other"), "a"), node("b"))
    driven.gone(node("c"))
    assert driven.on("a") == []
    assert driven.attempt(1.0) is None
    driven.engine.observe(Answered(query.ticket, b'{"NodeNames": ["a"]}'), 1.0)
    assert driven.attempt(1.0).node == "a"
    assert driven.on("a") == ["other", "p"]
    assert driven.engine.snapshot.node("b") is not None


def test_a_pod_deleted_during_an_extender_call_is_not_bound():
    driven = Consulted(one(filterVerb="f"))
    driven.see(node("a"), pod("p"))
    driven.attempt(0.0)
    (query,) = driven.outputs.take("queries")
    driven.gone(pod("p"))
    driven.engine.observe(Answered(query.ticket, b'{"NodeNames": ["a"]}'), 1.0)
    driven.attempt(1.0)
    assert driven.work(Phase.BIND) == []
    assert driven.on("a") == []
    driven.check_settled()


def test_binds_continue_during_an_extender_call():
    driven = Consulted(one(filterVerb="f"), reply=keeps("a"))
    driven.see(node("a"), pod("first"), pod("second"))
    assert driven.step() == ("first", "a")
    (bind,) = driven.work(Phase.BIND)
    assert driven.attempt(0.0) is None
    driven.done(bind)
    assert "default/first" not in driven.engine.state.bindings.by_uid


def test_an_extender_call_ends_at_its_http_timeout():
    driven = Consulted(one(filterVerb="f", httpTimeout="7s"))
    driven.see(node("a"), pod("p"))
    assert driven.attempt(0.0) is None
    assert driven.engine.next_deadline() == 8.0
    assert driven.attempt(7.9) is None
    decision = driven.attempt(8.0)
    text = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
    assert decision.message == f'Post "http://e0/f": {text}'
    assert driven.place("default/p") is QueuePlace.BACKOFF


def test_an_attempt_can_be_broken_off():
    driven = Consulted(one(filterVerb="f"))
    driven.see(node("a"), pod("p"))
    driven.attempt(0.0)
    (query,) = driven.outputs.take("queries")
    driven.see(node("b"))
    driven.engine.break_off(1.0, "shutting down")
    assert driven.place("default/p") is QueuePlace.BACKOFF
    assert driven.engine.snapshot.node("b") is not None
    driven.engine.observe(Answered(query.ticket, b"{}"), 1.0)  # comes too late
    assert driven.attempt(1.0) is None


def test_a_nominated_node_is_filtered_alone_and_then_with_the_others():
    seen = []

    def reply(question, body):
        seen.append(sorted(body["NodeNames"]))
        return DOWN if len(seen) == 1 else keeps("b")(question, body)

    driven = Consulted(one(filterVerb="f"), reply=reply)
    driven.see(*THREE, pod("p", nominated="a"))
    assert driven.step() == ("p", "b")
    assert seen == [["a"], ["a", "b", "c"]]


# -- preempt ------------------------------------------------------------------------------------------------------------------


def crowded(names="ab"):
    lesser = [pod(f"low-{name}", "2", on=name, priority=at) for at, name in enumerate(names)]
    return [*map(node, names), *lesser, pod("high", "2", priority=100)]


def victims_of(driven):
    (work,) = driven.work(Phase.PREEMPT)
    return work.node, [effect.victim.name for effect in work.effects if isinstance(effect, Evict)]


def naming(**victims):
    return {"NodeNameToMetaVictims": {node: {"Pods": [{"UID": uid} for uid in uids]} for node, uids in victims.items()}}


def test_an_extender_may_remove_preemption_candidates():
    driven = Consulted(one(preemptVerb="p"), reply=lambda question, body: naming(b=["default/low-b"]))
    driven.see(*crowded())
    assert driven.steps() == [("high", None)]
    ((_, body),) = driven.asked
    assert body["NodeNameToMetaVictims"] == {
        name: {"Pods": [{"UID": f"default/low-{name}"}], "NumPDBViolations": 0} for name in "ab"
    }
    assert victims_of(driven) == ("b", ["low-b"])


def test_a_victim_named_twice_is_evicted_once():
    driven = Consulted(one(preemptVerb="p"), reply=lambda question, body: naming(b=["default/low-b"] * 3))
    driven.see(*crowded())
    driven.steps()
    assert victims_of(driven) == ("b", ["low-b"])


def test_no_pod_is_preempted_without_candidates():
    driven = Consulted(one(preemptVerb="p"), reply=lambda question, body: {})
    driven.see(*crowded())
    assert driven.message() == "0/2 nodes are available: 2 Insufficient cpu. preemption: no candidate node for preemption"
    assert driven.work(Phase.PREEMPT) == []


WRONG_VICTIMS = {
    "not on the node": (
        naming(a=["default/low-b"]),
        "extender: http://e0/ claims to preempt pod (UID: &{default/low-b}) on node: a, but the pod is not found on that node",
    ),
    "no such node": (naming(zz=["default/low-b"]), 'nodeinfo not found for node name "zz"'),
    "no victim": (naming(a=[]), 'expected at least one victim pod on node "a"'),
    "down": (DOWN, "connection refused"),
}


@pytest.mark.parametrize(("said", "text"), WRONG_VICTIMS.values(), ids=WRONG_VICTIMS)
def test_no_pod_is_preempted_on_an_invalid_reply(said, text):
    driven = Consulted(one(preemptVerb="p"), reply=lambda question, body: said)
    driven.see(*crowded())
    assert driven.message() == f"0/2 nodes are available: 2 Insufficient cpu. preemption: {text}"
    assert driven.work(Phase.PREEMPT) == []


@pytest.mark.parametrize("case", ["not on the node", "no such node", "down"])
def test_a_failed_ignorable_extender_does_not_block_preemption(case):
    driven = Consulted(one(preemptVerb="p", ignorable=True), reply=lambda question, body: WRONG_VICTIMS[case][0])
    driven.see(*crowded())
    driven.steps()
    assert victims_of(driven) == ("a", ["low-a"])


def test_an_extender_without_a_preempt_verb_is_not_called():
    driven = Consulted(one(bindVerb="b"), reply=None)
    driven.see(*crowded())
    driven.steps()
    assert victims_of(driven) == ("a", ["low-a"])


# -- bind ---------------------------------------------------------------------------------------------------------------------


def test_a_binding_extender_runs_before_bind_plugins():
    driven = Consulted(one(bindVerb="bind"))
    driven.see(node("a"), pod("p"))
    assert driven.step() == ("p", "a")
    (work,) = driven.work(Phase.BIND)
    (effect,) = work.effects
    assert isinstance(effect, BindThrough)
    assert (effect.question.url, effect.question.timeout_s) == ("http://e0/bind", 5.0)
    told = json.loads(effect.question.body)
    assert told == {"PodName": "p", "PodNamespace": "default", "PodUID": "default/p", "Node": "a"}
    driven.done(work)
    driven.see(bound(pod("p"), "a"))
    driven.check_settled()


def test_a_failed_extender_bind_retries_the_pod():
    driven = Consulted(one(bindVerb="bind"))
    driven.see(node("a"), pod("p"))
    driven.step()
    driven.done(driven.only_work(Phase.BIND), "busy")
    assert driven.place("default/p") is QueuePlace.BACKOFF
    assert driven.on("a") == []


def test_bind_plugins_run_after_a_failed_ignorable_extender():
    driven = Consulted(one(bindVerb="bind", ignorable=True))
    driven.see(node("a"), pod("p"))
    driven.step()
    driven.done(driven.only_work(Phase.BIND), "busy")
    work = driven.only_work(Phase.BIND)
    assert [type(effect) for effect in work.effects] == [BindPod]
    assert [str(fault) for fault in driven.faults] == ["busy"]
    driven.done(work, "busy, too")
    assert driven.place("default/p") is QueuePlace.BACKOFF
