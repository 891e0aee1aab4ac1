"""Test the engine in virtual time: waits, wakes, preemption, Permit, failures in the binding cycle, and runs that end."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.core.engine.facts import Gone, Seen
from moorage.framework.effects import BindPod, Call
from moorage.framework.verdicts import SKIP, Hold, Wait
from moorage.simulator.simulate import Options, prepare
from moorage.testing.builders import a_node, a_pod

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def node(name, cpu="2", **kwargs):
    return a_node(name, allocatable={"cpu": cpu, "memory": "8Gi", "pods": 110}, **kwargs)


def pod(name, cpu="1", labels=None, owner=None, **spec):
    references = [{"kind": owner, "name": "set", "uid": "u", "controller": True}] if owner else []
    return a_pod(
        name, labels, metadata={"ownerReferences": references},
        containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **spec,
    ).pod  # fmt: skip


def enabling(point, names):
    listed = ", ".join(f"{{name: {name}}}" for name in names)
    return f"profiles:\n- plugins:\n    {point}:\n      enabled: [{listed}]\n"


def run(objects, *plugins, later=(), durations=None, enabled=None):
    """Simulate; return the simulation and its attempts as (seconds, pod, node or None)."""
    names = enabled or [p.name for p in plugins]
    config = HEAD + enabling("multiPoint", names)
    seen = []
    simulation, _ = prepare(
        Options(config=config.encode(), plugins=plugins),
        lambda attempt: seen.append((attempt.time_s, attempt.decision.pod.name, attempt.decision.node)),
    )
    simulation.durations.update(durations or {})
    simulation.load(objects)
    for when, fact in later:
        simulation.at(when, fact)
    simulation.run()
    return simulation, seen


def states(simulation):
    return {record.pod.name: record.state for record in simulation.records.values()}


def check_settled(simulation):
    """Check the invariants at the end of any run."""
    scheduler = simulation.scheduler
    assert not scheduler.cluster.assumed
    assert not list(scheduler.waiting())
    counts = scheduler.queue.counts()
    pending = sum(record.state == "Pending" for record in simulation.records.values())
    assert sum(counts.values()) == len(scheduler.queue) == pending
    assert scheduler.queue.logged_events == 0
    table = scheduler.cluster.table
    assert (table.requested("cpu").view <= table.allocatable("cpu").view).all()


def test_pods_are_scheduled_by_priority_then_creation():
    simulation, seen = run([node("n", "2"), pod("low"), pod("first", priority=5), pod("second", priority=5)])
    assert [name for _, name, _ in seen] == ["first", "second", "low"]
    assert states(simulation) == {"low": "Pending", "first": "Placed", "second": "Placed"}
    check_settled(simulation)


def test_every_decision_of_a_run_is_reported_while_copies_are_placed_in_runs(monkeypatch):
    attempts, decided = [], []
    simulation, _ = prepare(Options(on_decision=lambda decision: decided.append((decision.pod.name, decision.node))))
    monkeypatch.setattr(simulation, "_place_attempted", attempts.append)
    copies = [pod(f"p{number}") for number in range(5)]
    simulation.load([node("n", cpu="4"), *copies])
    simulation.run()
    assert decided == [("p0", "n"), ("p1", "n"), ("p2", "n"), ("p3", "n"), ("p4", None)]
    assert attempts == []


def test_a_pod_waits_for_a_helpful_event_and_its_backoff():
    _, seen = run([node("n", "1"), pod("big", "2")], later=[(0.2, Seen(node("m", "4")))])
    assert seen == [(0.0, "big", None), (0.2, "big", "m")]  # no other pod is ready, so backoff is cut short
    _, seen = run([node("n", "1"), pod("big", "2")], later=[(100.0, Seen(node("m", "1"))), (200.0, Seen(node("o", "2")))])
    assert seen == [(0.0, "big", None), (200.0, "big", "o")]  # a node that is too small wakes no pod


def test_a_pod_that_ends_frees_its_resources():
    simulation, seen = run([node("n", "1"), pod("a"), pod("b")], durations={"default/a": 60.0})
    assert seen[-1] == (60.0, "b", "n")
    assert states(simulation) == {"a": "Finished", "b": "Placed"}


def test_preemption_waits_for_the_grace_period_and_controllers_replace_victims():
    victim = replace(
        pod("victim-1", owner="ReplicaSet"), spec=replace(pod("x").spec, node_name="n", termination_grace_period_seconds=7)
    )
    simulation, seen = run([node("n", "1"), victim, pod("vip", priority=100)])
    assert seen[0] == (0.0, "vip", None)
    assert (7.0, "vip", "n") in seen
    assert simulation.victims["default/victim-1"].preempted_by == "default/vip"
    replacement = simulation.victims["default/victim-1"].replaced
    assert replacement.startswith("victim-")
    assert states(simulation)[replacement] == "Pending"
    check_settled(simulation)


def test_the_replacement_of_a_pod_that_finishes_runs_as_long():
    victim = replace(
        pod("victim-1", owner="Job"), spec=replace(pod("x").spec, node_name="n", termination_grace_period_seconds=0)
    )
    vip = pod("vip", priority=100)
    durations = {"default/victim-1": 60.0, "default/vip": 10.0}
    simulation, _ = run([node("n", "1"), victim, vip], durations=durations)
    assert set(states(simulation).values()) == {"Finished"}
    assert simulation.now == 70.0


def test_a_call_happens_at_its_time_and_may_schedule_others():
    simulation, _ = prepare(Options())
    simulation.load([node("n", "2"), pod("big", "3")])
    happened = []

    def grow():
        happened.append(simulation.now)
        if len(happened) < 3:
            simulation.at(simulation.now + 10.0, grow)
        else:
            simulation.tell([Seen(node("m", "4"))])

    simulation.at(5.0, grow)
    simulation.run()
    assert happened == [5.0, 15.0, 25.0]
    assert states(simulation) == {"big": "Placed"}
    assert simulation.records["default/big"].placed_s == 25.0


def test_a_simulation_without_records_forgets_pods_that_end():
    simulation, _ = prepare(Options())
    simulation.keeps_records = False
    simulation.durations["default/a"] = 60.0
    simulation.load([node("n", "1"), pod("a"), pod("b")])
    simulation.run()
    assert states(simulation) == {"b": "Placed"}
    assert not simulation.durations
    check_settled(simulation)


def test_a_gated_pod_is_not_attempted_until_its_gates_are_removed():
    gated = pod("gated", schedulingGates=[{"name": "x"}])
    open_ = replace(gated, spec=replace(gated.spec, scheduling_gates=()))
    simulation, seen = run([node("n"), gated])
    assert seen == []
    assert states(simulation) == {"gated": "Pending"}
    _, seen = run([node("n"), gated], later=[(50.0, Seen(open_))])
    assert seen == [(50.0, "gated", "n")]


class Gate:
    """A Permit plugin with a settable result, at first a wait."""

    name = "Gate"

    def __init__(self):
        self.answer = Wait(30.0)

    def permit(self, state, pod, node):
        return self.answer


def test_a_permit_timeout_frees_the_node():
    simulation, seen = run([node("n", "1"), pod("held"), pod("next", priority=-1)], Gate)
    # Neither is allowed: one reserves the node for 30 s, then the other does.
    assert seen[0] == (0.0, "held", "n")
    assert seen[2:4] == [(30.0, "held", None), (30.0, "next", "n")]
    assert simulation.records["default/held"].message.endswith("at plugin Gate when the run ended.")
    check_settled(simulation)


def test_a_permit_timeout_is_capped_at_fifteen_minutes():
    class Patient(Gate):
        name = "Patient"

        def permit(self, state, pod, node):
            return Wait(36_000.0)

    simulation, _ = run([node("n"), pod("held")], Patient)
    assert simulation.now >= 900.0
    assert states(simulation) == {"held": "Pending"}
    check_settled(simulation)


def test_a_pod_deleted_while_waiting_frees_its_node_at_once():
    held = pod("held")
    simulation, seen = run([node("n", "1"), held], Gate, later=[(5.0, Gone(held)), (6.0, Seen(pod("next")))])
    assert [(t, name) for t, name, _ in seen][:2] == [(0.0, "held"), (6.0, "next")]
    assert "default/held" not in simulation.scheduler.cluster.assumed
    check_settled(simulation)


def reserving(name, log, answer=None):
    class Reserves:
        def reserve(self, state, pod, node):
            log.append(f"{name}+")
            if isinstance(answer, Exception):
                raise answer
            return answer

        def unreserve(self, state, pod, node):
            log.append(f"{name}-")

    Reserves.name = name
    return Reserves


@pytest.mark.parametrize("answer", [Hold.because("not mine"), RuntimeError("broken")], ids=["says no", "raises"])
def test_a_failed_reserve_is_undone_in_reverse_order(answer):
    log = []
    simulation, _ = run([node("n"), pod("p")], reserving("A", log), reserving("B", log, answer), reserving("C", log))
    assert log[:5] == ["A+", "B+", "C-", "B-", "A-"]
    assert states(simulation) == {"p": "Pending"}
    check_settled(simulation)


def test_a_failed_pre_bind_is_retried_after_backoff():
    class Flaky:
        name = "Flaky"
        failures = 2

        def pre_bind(self, state, pod, node):
            yield Call(run=None, stand_in=self.stand_in, what="mount")

        def stand_in(self):
            if self.failures:
                self.failures -= 1
                raise TimeoutError("no answer")

    simulation, seen = run([node("n"), pod("p")], Flaky)
    # backoffs of 1 s and 2 s, each rounded up to the end of its second
    assert seen == [(t, "p", outcome) for t in (0.0, 2.0) for outcome in ("n", None)] + [(5.0, "p", "n")]
    assert states(simulation) == {"p": "Placed"}
    check_settled(simulation)


def test_a_bind_plugin_may_skip_the_pod():
    bound = []

    class Mine:
        name = "Mine"

        def bind(self, state, pod, node):
            if pod.name == "theirs":
                return SKIP
            bound.append(pod.name)
            return [BindPod(pod, node)]

    names = ["Mine", "DefaultBinder"]
    config = HEAD + enabling("bind", names) + "      disabled: [{name: '*'}]\n"
    simulation, _ = prepare(Options(config=config.encode(), plugins=(Mine,)))
    simulation.load([node("n"), pod("mine"), pod("theirs")])
    simulation.run()
    assert bound == ["mine"]
    assert states(simulation) == {"mine": "Placed", "theirs": "Placed"}


POINTS = ["pre_enqueue", "pre_filter", "filter", "post_filter", "pre_score", "score", "reserve", "permit", "pre_bind", "bind"]


@pytest.mark.parametrize("method", POINTS)
@pytest.mark.parametrize("error", [ValueError("x"), KeyError("y"), RecursionError()], ids=lambda e: type(e).__name__)
def test_an_exception_in_a_plugin_delays_only_its_pod(method, error):
    def breaks(self, *args):
        subject = next((a for a in args if hasattr(a, "spec")), None)
        if subject is None or subject.name == "bad":
            raise error

    body = {"name": "Breaks", method: breaks, "unreserve": lambda self, *args: None}
    if method in {"filter", "score"}:
        body["pre_filter"] = lambda self, pod, snapshot: pod if pod.name == "bad" else SKIP
        body["pre_score"] = lambda self, pod, snapshot, nodes: pod if pod.name == "bad" else SKIP
    if method == "bind":
        body["bind"] = lambda self, state, pod, node: breaks(self, pod) or SKIP
    plugin = type("Breaks", (), body)
    objects = [node("n"), node("m"), pod("good"), pod("bad", "64" if method == "post_filter" else "1"), pod("fine")]
    simulation, _ = run(objects, plugin)
    got = states(simulation)
    assert got["good"] == got["fine"] == "Placed"
    if method != "bind" or got["bad"] == "Pending":
        assert got["bad"] == "Pending"
    check_settled(simulation)


def test_a_pod_of_another_scheduler_stays_untouched():
    simulation, seen = run([node("n"), pod("other", schedulerName="other-scheduler")])
    assert seen == []
    assert simulation.records == {}


def test_finished_pods_use_no_resources():
    done = replace(
        pod("done", "2"), spec=replace(pod("x", "2").spec, node_name="n"), status=replace(Pod().status, phase="Succeeded")
    )
    simulation, _ = run([node("n", "2"), done, pod("p", "2")])
    assert states(simulation) == {"p": "Placed"}


def test_pods_on_a_node_added_later_are_counted():
    early = replace(pod("early", "2"), spec=replace(pod("x", "2").spec, node_name="late"))
    simulation, _ = run([early, node("late", "2"), pod("p", "1")])
    assert states(simulation) == {"p": "Pending"}


def test_a_hint_that_misses_an_event_is_detected():
    class Late:
        """Reject until a node is labelled, and return hints that never wake the pod."""

        name = "Late"

        def filter_node(self, pod, one):
            return None if "ready" in one.labels else Hold.because("not ready")

        def wakes_on(self):
            return ()

    ready = a_node("n", {"ready": ""}, allocatable={"cpu": "2", "memory": "8Gi", "pods": 110})
    simulation, seen = run([node("n"), pod("p")], Late, later=[(50.0, Seen(ready))])
    assert seen[-1] == (50.0, "p", "n")
    assert simulation.overslept == ["default/p"]
