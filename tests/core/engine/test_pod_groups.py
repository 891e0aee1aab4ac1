"""Pod groups in the engine: when their turn comes, what becomes of their pods, and what is written of the group."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from moorage.api.core import PodCondition
from moorage.api.meta import ObjectMeta
from moorage.api.pod_groups import (
    BasicSchedulingPolicy,
    Condition,
    GangSchedulingPolicy,
    PodGroup,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
    PodGroupStatus,
)
from moorage.core.engine.facts import Phase
from moorage.core.queue import QueuePlace
from moorage.framework.verdicts import Hold
from tests.core.engine.driving import HEAD, Driven, bound, dying, node, pod

GANGS = "GenericWorkload=true,GangScheduling=true"
WAITS = (
    "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, "
    "one or more plugins asked to wait and no plugin rejected pod"
)


def gang(name="g", least=2, generation=1, conditions=()):
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=least)) if least else None
    return PodGroup(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", generation=generation),
        spec=PodGroupSpec(scheduling_policy=policy or PodGroupSchedulingPolicy(basic=BasicSchedulingPolicy())),
        status=PodGroupStatus(conditions=conditions),
    )


def member(name, cpu="1", group="g", **spec):
    return pod(name, cpu, schedulingGroup={"podGroupName": group}, **spec)


def driven(*plugins, gates=GANGS, **kwargs):
    return Driven(*plugins, gates=gates, **kwargs)


def messages(run, seconds=0.0):
    """Return the messages of the pods, until one is tried again."""
    run.now += seconds
    told = {}
    while (decision := run.attempt()) is not None and decision.pod.name not in told:
        told[decision.pod.name] = decision.message
    return told


def reasons(run):
    return {line.pod.name: (line.place, line.reasons) for line in run.engine.queue.pending()}


# -- before its turn ------------------------------------------------------------------------------------------------------


def test_pods_wait_for_their_group_and_for_min_count():
    run = driven()
    run.see(node(cpu="8"), member("a"))
    assert reasons(run)["a"] == (QueuePlace.GATED, ('waiting for pods\'s pod group "g" to appear in scheduling queue',))
    run.see(gang(least=3))
    too_few = (QueuePlace.GATED, ("waiting for minCount pods from a gang to appear in scheduling queue",))
    assert reasons(run)["a"] == too_few
    run.see(member("b"))
    assert reasons(run) == {"a": too_few, "b": too_few}
    assert run.step() is None
    run.see(member("c"))
    assert run.steps() == [("c", "n"), ("a", "n"), ("b", "n")]


def test_without_the_gates_group_pods_are_scheduled_singly():
    run = driven(gates="")
    run.see(node(cpu="8"), member("a"), gang(least=3))
    assert run.steps() == [("a", "n")]
    assert run.work(Phase.GROUP_STATUS) == []


def test_a_basic_group_waits_for_no_other_pods():
    run = driven()
    run.see(node(cpu="2"), gang(least=None), member("a"), member("b"), member("c"))
    assert run.steps()[:3] == [("a", "n"), ("b", "n"), ("c", None)]


def test_pods_of_other_groups_and_of_none_do_not_count():
    run = driven()
    run.see(node(cpu="8"), gang(least=2), gang("other", 1), member("a"), member("x", group="other"), pod("single"))
    assert sorted(run.steps()) == [("single", "n"), ("x", "n")]
    assert reasons(run)["a"][0] is QueuePlace.GATED


def test_running_pods_count_towards_min_count():
    run = driven()
    run.see(node(cpu="8"), gang(least=2), member("running", on="n"), member("a"))
    assert run.steps() == [("a", "n")]


# -- its turn -------------------------------------------------------------------------------------------------------------


def test_all_pods_are_bound_together_if_min_count_fit():
    run = driven()
    run.see(node(cpu="2"), gang(least=2), member("a"), member("b"), member("c"))
    assert run.steps() == [("b", "n"), ("a", "n"), ("c", None)]
    binds = run.work(Phase.BIND)
    assert sorted(work.pod.name for work in binds) == ["a", "b"]
    assert list(run.engine.waiting()) == []


def test_later_pods_of_a_running_gang_are_scheduled_singly():
    run = driven()
    run.see(node(cpu="2"), gang(least=2), member("a"), member("b"), member("c"))
    run.steps()
    for work in run.work(Phase.BIND):
        run.see(bound(work.pod.pod, work.node))
        run.done(work)
    assert run.steps(20.0) == [("c", None)]
    run.see(node("m", "1"))
    assert run.steps() == [("c", "m")]


def test_no_pod_is_bound_below_min_count():
    run = driven()
    run.see(node(cpu="1"), gang(least=2), member("a"), member("b"))
    told = messages(run)
    assert told == {
        "b": WAITS,
        "a": "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: "
        "0/1 nodes are available: 1 No preemption victims found for incoming pod.",
    }
    assert run.work(Phase.BIND) == []
    assert run.on("n") == []
    assert not run.engine.cluster.assumed


def test_a_group_is_retried_together_after_backoff():
    run = driven()
    run.see(node("n", "1"), gang(least=2), member("a"), member("b"))
    assert run.steps() == [("b", None), ("a", None)]
    assert {run.place("default/a"), run.place("default/b")} == {QueuePlace.BACKOFF}
    assert run.steps() == []  # in the same state nothing else would come of it
    run.see(node("m", "1"))
    assert sorted(run.steps()) == [("a", "m"), ("b", "n")] or sorted(run.steps()) == [("a", "n"), ("b", "m")]


def test_groups_pop_by_priority_then_by_ready_time():
    run = driven()
    run.see(node(cpu="8"), gang(least=3), member("a"), member("b", priority=5), member("c"), member("d"))
    assert [name for name, _ in run.steps()] == ["b", "c", "a", "d"]


def test_a_terminating_pod_is_skipped():
    run = driven()
    run.see(node(cpu="8"), gang(least=2), member("a"), dying(member("b")), member("c"))
    assert dict(run.steps()) == {"a": "n", "c": "n"}
    assert [skipped.name for skipped in run.outputs.skipped] == ["b"]


def test_pods_of_one_group_must_name_one_scheduler():
    run = driven(config=HEAD + "profiles:\n- {schedulerName: default-scheduler}\n- {schedulerName: x}\n")
    run.see(node(cpu="8"), gang(least=2), member("a"), member("b", schedulerName="x"))
    text = 'all pods in a single pod group should have the same .spec.schedulerName set, got: "default-scheduler" and "x"'
    assert messages(run) == {"b": text, "a": text}
    assert run.on("n") == []
    assert run.work(Phase.GROUP_STATUS) == []


class Breaks:
    """Reserve fails for one pod."""

    name = "Breaks"
    kind = "raise"
    undone: list

    def reserve(self, state, pod, node):
        if pod.name == "bad" and self.kind == "raise":
            raise RuntimeError("broken")
        return Hold.because("not here") if pod.name == "bad" else None

    def unreserve(self, state, pod, node):
        self.undone.append(pod.name)


@pytest.mark.parametrize("kind", ["raise", "hold"])
def test_a_reserve_rejection_unreserves_in_reverse_order(kind):
    plugin = type("Breaks", (Breaks,), {"kind": kind, "undone": []})
    run = driven(plugin)
    run.see(node(cpu="8"), gang(least=3), member("a", priority=9), member("bad", priority=5), member("c", priority=1))
    told = {name: said.partition(" (test_pod_groups.py")[0] for name, said in messages(run).items()}
    broken = "plugin Breaks failed in reserve: RuntimeError: broken"
    if kind == "raise":
        others = f"failed to schedule other pod from a pod group: {broken}"
        assert told == {"a": others, "bad": broken, "c": others}
        assert plugin.undone[:2] == ["bad", "a"]
    else:
        assert told == {"a": WAITS, "bad": "0/1 nodes are available: 1 not here.", "c": WAITS}
        assert plugin.undone[:3] == ["bad", "c", "a"]
    assert run.on("n") == []
    assert run.work(Phase.BIND) == []


class Moody:
    """Reserve has no place for ``b`` when it is to go there in earnest, and ``c`` breaks Filter once ``b`` was turned down."""

    name = "Moody"

    def __init__(self):
        self.asked = 0

    def filter_node(self, pod, node):
        if pod.name == "c" and self.asked >= 2:
            raise RuntimeError("broken")
        return Hold.because("not yet") if pod.name == "c" else None

    def reserve(self, state, pod, node):
        self.asked += pod.name == "b"
        return Hold.because("not here") if pod.name == "b" and self.asked == 2 else None

    def unreserve(self, state, pod, node):
        pass


def test_a_waiting_pod_is_allowed_by_a_group_trial_that_fails():
    """As in kube-scheduler, which asks Permit in the trial too: its GangScheduling lets the others go there and then."""
    run = driven(Moody)
    run.see(node(cpu="8"), gang(least=2), member("a", priority=9), member("b", priority=5), member("c", priority=1))
    assert [run.step(), run.step(), run.step()] == [("a", "n"), ("b", None), ("c", None)]
    assert [one.pod.name for one in run.engine.waiting()] == ["a"]
    assert run.work(Phase.BIND) == []
    said = {name: text.partition(" (test_pod_groups.py")[0] for name, text in messages(run, 20.0).items()}
    assert said == {
        "b": "failed to schedule other pod from a pod group: plugin Moody failed in filter: RuntimeError: broken",
        "c": "plugin Moody failed in filter: RuntimeError: broken",
    }
    assert list(run.engine.waiting()) == []
    run.step()
    assert [work.pod.name for work in run.work(Phase.BIND)] == ["a"]


# -- what is written of it ------------------------------------------------------------------------------------------------


def condition(run):
    return [(work.effects[0].group.key, work.effects[0].condition) for work in run.work(Phase.GROUP_STATUS)]


def test_a_scheduled_group_has_the_condition():
    run = driven()
    run.see(node(cpu="8"), gang(least=1, generation=4), member("a"))
    run.steps()
    expected = Condition(type="PodGroupScheduled", status="True", reason="Scheduled", observed_generation=4)
    assert condition(run) == [("default/g", expected)]


def test_an_unschedulable_group_has_the_condition_written_once():
    run = driven()
    group = gang(least=1, generation=4)
    run.see(node(cpu="1"), group, member("a", "2"))
    run.step()
    expected = Condition(
        type="PodGroupScheduled", status="False", reason="Unschedulable", message="pod group is unschedulable",
        observed_generation=4,
    )  # fmt: skip
    assert condition(run) == [("default/g", expected)]
    run.see(gang(least=1, generation=4, conditions=(expected,)))
    run.step(20.0)
    assert condition(run) == []


def test_a_group_that_was_scheduled_stays_so():
    run = driven()
    true = Condition(type="PodGroupScheduled", status="True", reason="Scheduled", observed_generation=1)
    run.see(node(cpu="1"), gang(least=1, conditions=(true,)), member("a", "2"))
    assert run.step() == ("a", None)
    assert condition(run) == []


# -- preemption -----------------------------------------------------------------------------------------------------------


def preempted(victim):
    """The victim as the API server has it once it was evicted, and has not ended yet."""
    mark = PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    return replace(dying(victim), status=replace(victim.status, conditions=(mark,)))


def test_a_gang_waits_on_its_nodes_until_its_victims_are_deleted():
    run = driven()
    low = pod("low", on="m")
    run.see(node("n", "1"), node("m", "1"), gang(least=2), low, member("a", priority=5), member("b", priority=5))
    assert messages(run) == {
        "b": "pod group is unschedulable, pod group is waiting for preemption to complete",
        "a": "0/2 nodes are available: 2 Insufficient cpu.",
    }
    assert {name: [pod.name for pod in pods] for name, pods in run.engine.queue.nominated.items()} == {"n": ["b"], "m": ["a"]}
    work = run.work()
    (preempting,) = [one for one in work if one.phase is Phase.PREEMPT]
    assert [effect.victim.name for effect in preempting.effects] == ["low"]
    (told,) = [one.effects[0].condition for one in work if one.phase is Phase.GROUP_STATUS]
    assert told.message == "pod group is unschedulable, pod group is waiting for preemption to complete"
    assert reasons(run)["a"] == (QueuePlace.GATED, ("waiting for the preemption for this pod to be finished",))
    run.see(preempted(low), member("a", priority=5, nominated="m"), member("b", priority=5, nominated="n"))
    run.done(preempting)
    assert run.place("default/a") is QueuePlace.GATED
    assert messages(run, 3.0) == {
        "b": WAITS,
        "a": "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: "
        "not eligible due to a terminating pod on the nominated node.",
    }
    run.gone(preempted(low))
    assert dict(run.steps(20.0)) == {"a": "m", "b": "n"}


def test_a_victim_is_evicted_even_if_the_gang_fails():
    run = driven()
    run.see(node("n", "1"), gang(least=2), pod("low", on="n"), member("a", priority=5), member("b", "9", priority=5))
    told = messages(run)
    assert told["a"] == WAITS
    (preempting,) = run.work(Phase.PREEMPT)
    assert [effect.victim.name for effect in preempting.effects] == ["low"]
    assert not run.engine.queue.nominated
