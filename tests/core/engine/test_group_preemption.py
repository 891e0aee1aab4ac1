"""Room for a group as a whole: whom it may send away, whom it spares, and what it waits for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from moorage.api.meta import LabelSelector, ObjectMeta
from moorage.api.pod_groups import PodGroupSchedulingConstraints, TopologyConstraint
from moorage.api.workloads import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from moorage.core.engine.facts import Phase
from moorage.core.queue import QueuePlace
from moorage.simulator.simulate import Options, simulate
from tests.core.engine.driving import HEAD, Driven, node, pod
from tests.core.engine.test_known_faults import Mounts
from tests.core.engine.test_machine_against_invariants import contents
from tests.core.engine.test_pod_groups import GANGS, gang, member, messages, preempted, reasons

GATES = "GenericWorkload=true,GangScheduling=true,WorkloadAwarePreemption=true"
NOT_ALONE = "preemption: not eligible due to workload aware preemption enabled"


def driven(**kwargs):
    return Driven(gates=GATES, **kwargs)


def ranked(name="g", least=2, priority=10, mode=None):
    group = gang(name, least)
    return replace(group, spec=replace(group.spec, priority=priority, disruption_mode=mode))


def started(one, at):
    return replace(one, status=replace(one.status, start_time=f"2026-01-01T00:00:{at:02}Z"))


def victims(run):
    return [effect.victim.name for work in run.work(Phase.PREEMPT) for effect in work.effects]


def group_message(run):
    (told,) = [work.effects[0].condition for work in run.work(Phase.GROUP_STATUS)]
    return told.message


def full(*names):
    """Nodes of one CPU, each with a pod on it, the earlier the older."""
    nodes = [node(f"n-{name}", "1") for name in names]
    return [*nodes, *(started(pod(name, on=f"n-{name}"), at) for at, name in enumerate(names))]


def test_only_the_needed_victims_are_evicted_and_the_oldest_stay():
    run = driven()
    run.see(*full("old", "young", "younger"), ranked(), member("a"), member("b"))
    text = f"0/3 nodes are available: 3 Insufficient cpu. no new claims to deallocate, {NOT_ALONE}"
    assert messages(run) == {"b": text, "a": text}
    work = run.work()
    (preempting,) = [one for one in work if one.phase is Phase.PREEMPT]
    assert [effect.victim.name for effect in preempting.effects] == ["young", "younger"]
    assert {effect.message for effect in preempting.effects} == {
        "default-scheduler: preempting to accommodate a higher priority podgroup"
    }
    assert {effect.group.name for effect in preempting.effects} == {"g"}
    held = (QueuePlace.GATED, ("waiting for the preemption for this pod group to be finished",))
    assert {name: reasons(run)[name] for name in "ab"} == {"a": held, "b": held}
    for name in ("young", "younger"):
        run.see(preempted(pod(name, on=f"n-{name}")))
    run.done(preempting)
    for name in ("young", "younger"):
        run.gone(preempted(pod(name, on=f"n-{name}")))
    assert {where for _, where in run.steps(20.0)} == {"n-young", "n-younger"}


def test_no_pod_is_evicted_if_the_group_would_still_not_fit():
    run = driven()
    run.see(*full("x"), ranked(least=2), member("a"), member("b"))
    messages(run)
    work = run.work()
    assert [one.phase for one in work] == [Phase.GROUP_STATUS]
    assert work[0].effects[0].condition.message == "pod group is unschedulable, pod group is unschedulable"


def test_the_condition_of_a_waiting_group_says_only_that_it_does_not_fit():
    run = driven()
    run.see(*full("x"), ranked(least=1), member("a"))
    messages(run)
    assert group_message(run) == "pod group is unschedulable"


@pytest.mark.parametrize(
    ("gates", "victims_of_a_round", "left"),
    [(GANGS, ["low"], []), (GATES, [], ["low"])],
    ids=["each pod preempts", "the group preempts"],
)
def test_a_gang_that_never_fits_preempts_a_pod_in_pre_bind_in_every_round(gates, victims_of_a_round, left):
    """Without WorkloadAwarePreemption a member's PostFilter preempts before Permit decides about the gang.

    Source  kube-scheduler 1.36, schedule_one_podgroup.go, podGroupPodSchedulingAlgorithm: schedulingAlgorithm runs PostFilter,
            whose executor cancels a victim in PreBind, and RunPermitPlugins follows
    """
    run = Driven(Mounts, gates=gates)
    run.see(node("n", "1"), pod("low"))
    assert run.steps() == [("low", "n")]
    run.see(ranked(), member("a", priority=10), member("b", priority=10))
    rounds = []
    for _ in range(4):
        run.steps(10.0)
        run.work()  # reports that the cancelled PreBind has ended
        rounds.append([eviction.victim.name for eviction in run.outputs.take("preempted")])
    assert rounds == [victims_of_a_round] * 4
    assert run.on("n") == left


WHY_NOT = {  # the objects; the message of the group
    "all matter as much": ([*full("x")], ranked(priority=0), {}, "No preemption victims found for incoming preemptor"),
    "no pod to evict": ([node("n", "1")], ranked(), {}, "No preemption victims found for incoming preemptor"),
    "a pod is polite": (
        [*full("x", "y")],
        ranked(),
        {"preemptionPolicy": "Never"},
        "not eligible due to preemptionPolicy=Never.",
    ),
}


@pytest.mark.parametrize(("there", "group", "spec", "why"), WHY_NOT.values(), ids=WHY_NOT)
def test_why_a_group_may_not_preempt(there, group, spec, why):
    run = driven()
    run.see(*there, group, member("a"), member("b", **spec))
    messages(run)
    assert group_message(run) == f"pod group is unschedulable, {why}"


def test_groups_with_topology_constraints_do_not_preempt():
    run = driven()
    group = ranked()
    constraints = PodGroupSchedulingConstraints(topology=(TopologyConstraint(key="rack"),))
    run.see(*full("x", "y"), replace(group, spec=replace(group.spec, scheduling_constraints=constraints)))
    run.see(member("a"), member("b"))
    messages(run)
    told = "workload aware preemption is not supported for pod groups with scheduling constraints"
    assert group_message(run) == f"pod group is unschedulable, {told}"


def test_no_group_preemption_without_default_preemption():
    run = driven(config=HEAD + "profiles:\n- plugins: {multiPoint: {disabled: [{name: DefaultPreemption}]}}\n")
    run.see(*full("x"), ranked(least=1), member("a"))
    messages(run)
    told = "default preemption plugin is not registered, workload aware preemption is disabled"
    assert group_message(run) == f"pod group is unschedulable, {told}"


def test_groups_disrupted_as_a_unit_are_evicted_whole_after_single_pods():
    run = driven()
    run.see(node("n", "1"), node("m", "1"), node("o", "1"), ranked("v", 1, 3, "PodGroup"), ranked("g", 1))
    run.see(member("v1", group="v", on="n"), member("v2", group="v", on="m"), pod("single", on="o", priority=3))
    run.see(member("a"))
    messages(run)
    assert victims(run) == ["single"]
    run = driven()
    run.see(node("n", "1"), node("m", "1"), ranked("v", 1, 3, "PodGroup"), ranked("g", 1))
    run.see(member("v1", group="v", on="n"), member("v2", group="v", on="m"), member("a"))
    messages(run)
    assert sorted(victims(run)) == ["v1", "v2"]


def test_a_group_disrupted_as_a_unit_has_the_group_priority():
    run = driven()
    run.see(node("n", "1"), ranked("v", 1, 50, "PodGroup"), ranked("g", 1), member("v1", group="v", on="n"), member("a"))
    messages(run)
    assert victims(run) == []


def test_disruption_budgets_are_respected_if_possible():
    run = driven()
    guarded = started(pod("guarded", on="n", labels={"app": "x"}), 9)
    budget = PodDisruptionBudget(
        metadata=ObjectMeta(name="b", namespace="default"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "x"})),
        status=PodDisruptionBudgetStatus(disruptions_allowed=0),
    )
    run.see(node("n", "1"), node("m", "1"), budget, guarded, started(pod("old", on="m"), 1), ranked(least=1), member("a"))
    messages(run)
    assert victims(run) == ["old"]


def test_a_simulation_evicts_victims_and_names_the_preemptor():
    found = simulate([*full("x", "y", "z"), ranked(), member("a"), member("b")], Options(feature_gates=GATES, emulate="1.36"))
    assert {one.name: one.preempted_by for one in found.pods if one.state == "Preempted"} == {
        "y": "default/g", "z": "default/g",
    }  # fmt: skip
    assert {one.name: one.node for one in found.pods if one.state == "Placed"} in (
        {"a": "n-y", "b": "n-z"}, {"a": "n-z", "b": "n-y"},
    )  # fmt: skip


pods_on = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 2), st.integers(0, 4), st.booleans()), max_size=6)


@settings(max_examples=40, deadline=None)
@given(held=pods_on, cpus=st.lists(st.integers(1, 3), min_size=1, max_size=4), least=st.integers(1, 3))
def test_victims_have_lower_priority_and_each_is_needed(held, cpus, least):
    """Once they are gone the group fits; with any one of them left it does not. And looking for them changes nothing."""
    nodes = [node(f"n{at}", "3") for at in range(3)]
    there, free = [], [3, 3, 3]
    for at, (where, cpu, priority, grouped) in enumerate(held):
        if free[where] >= cpu:
            free[where] -= cpu
            make = member if grouped else pod
            kwargs = {"group": "v"} if grouped else {}
            there.append(make(f"v{at}", str(cpu), on=f"n{where}", priority=priority, **kwargs))
    group = [*nodes, ranked("g", least, 3), ranked("v", 1, 2, "PodGroup")]
    waiting = [member(f"p{at}", str(cpu)) for at, cpu in enumerate(cpus)]

    def sent_away(present):
        run = driven()
        run.see(*group, *present, *waiting)
        before = contents(run.engine.cluster)
        told = messages(run)
        placed = len(run.engine.cluster.assumed) > 0
        if not placed:
            assert contents(run.engine.cluster) == before
        return placed, [] if placed or not told else victims(run)

    _, gone = sent_away(there)
    if not gone:
        return
    leaving = [one for one in there if one.name in gone]
    assert all(one.spec.scheduling_group is not None or one.priority < 3 for one in leaving)
    assert sent_away([one for one in there if one.name not in gone])[0]
    for spared in leaving:
        if spared.spec.scheduling_group is None:
            assert not sent_away([one for one in there if one.name not in gone or one is spared])[0]
