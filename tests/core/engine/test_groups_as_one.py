"""Pod groups of 1.37: a group is tried and refused as one, its pods have to agree, and it preempts in one attempt.

The tables follow those of upstream's tests for pod group cycles, PlacementFeasible and group preemption.
"""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from moorage.api.meta import LabelSelector, ObjectMeta
from moorage.api.pod_groups import BasicSchedulingPolicy, DisruptionMode
from moorage.api.workloads import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.core.building.builder import build_scheduler
from moorage.core.cycle.cycle import Cycle
from moorage.core.engine.facts import Phase
from moorage.core.engine.pod_groups import _Fitting
from moorage.core.queue import QueuePlace
from tests.core.engine.driving import HEAD, Driven, Outputs, node, pod
from tests.core.engine.test_group_preemption import full, started, victims
from tests.core.engine.test_placements import racks, together
from tests.core.engine.test_pod_groups import gang, member, messages, preempted, reasons

GATES = "GenericWorkload=true"
OF_1_36 = f"{GATES},GangScheduling=true,WorkloadAwarePreemption=true"
BY_RACK = f"{GATES},TopologyAwareWorkloadScheduling=true"
FULL = "0/{} nodes are available: {} Insufficient cpu."
UNSCHEDULABLE = "pod group is unschedulable"
NO_VICTIMS = "pod group preemption: No preemption victims found for incoming preemptor"
ALL, SINGLE = DisruptionMode(all=BasicSchedulingPolicy()), DisruptionMode(single=BasicSchedulingPolicy())


def driven(gates=GATES, emulate="1.37", plugins=()):
    made = Driven.__new__(Driven)
    names = ", ".join(f"{{name: {one.name}}}" for one in plugins)
    config = (HEAD + f"profiles:\n- plugins:\n    multiPoint:\n      enabled: [{names}]\n").encode() if plugins else None
    source = load_source(ConfigSource(config, emulate=emulate, feature_gates=gates, plugins=tuple(plugins)))
    made.engine, missing = build_scheduler(source, Cycle())
    assert not missing
    made.now, made.outputs = 0.0, Outputs(made.engine)
    return made


def ranked(name="g", least=2, priority=10, mode=None, **spec):
    group = gang(name, least)
    return replace(group, spec=replace(group.spec, priority=priority, disruption_mode=mode, **spec))


def high(name, **spec):
    return member(name, priority=10, **spec)


def condition(run):
    (told,) = [work.effects[0].condition for work in run.work(Phase.GROUP_STATUS)]
    return told.type, told.reason, told.message


# -- as many as can be placed -----------------------------------------------------------------------------------------------


def test_a_gang_is_bound_at_once():
    run = driven()
    run.see(node(cpu="2"), gang(least=2), member("a"), member("b"), member("c"))
    # c is tried again at once: the group has what it needs, so it may preempt for the rest
    assert sorted(where or "" for _, where in run.steps()) == ["", "", "n", "n"]
    assert len(run.work(Phase.BIND)) == 2
    assert list(run.engine.waiting()) == []


#: Free CPUs; pods of the group that run; waiting ones; minCount → the text after the pods that were tried; how many are.
TOO_FEW = {
    "none fits": (0, 0, 2, 2, "minCount (2) cannot be satisfied: 0 scheduled, 1 remaining", 1),
    "one of two fits": (1, 0, 2, 2, "minCount (2) cannot be satisfied: 1 scheduled, 0 remaining", 2),
    "one of three may fail": (2, 0, 4, 3, "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining", 4),
    "running pods count": (0, 1, 2, 3, "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining", 1),
}


@pytest.mark.parametrize(("free", "running", "waiting", "least", "why", "tried"), TOO_FEW.values(), ids=TOO_FEW)
def test_a_group_is_refused_as_soon_as_too_few_pods_can_fit(free, running, waiting, least, why, tried):
    run = driven()
    run.see(node(cpu=str(free + running)), gang(least=least))
    run.see(*(member(f"r{at}", on="n") for at in range(running)), *(member(f"p{at}") for at in range(waiting)))
    told = list(messages(run).values())
    assert len(told) == waiting
    assert told.count(FULL.format(1, 1)) == tried - free
    assert told.count(f"{UNSCHEDULABLE}, {why}, {NO_VICTIMS}") == free
    assert told.count(why) == waiting - tried
    assert condition(run) == ("PodGroupInitiallyScheduled", "Unschedulable", f"{why}, {NO_VICTIMS}")
    assert not run.engine.cluster.assumed


def test_a_basic_group_places_what_fits_and_is_refused_if_nothing_does():
    run = driven()
    run.see(node(cpu="1"), gang(least=None), member("a"), member("b"))
    assert {run.step(), run.step()} in ({("a", "n"), ("b", None)}, {("b", "n"), ("a", None)})
    assert condition(run)[:2] == ("PodGroupInitiallyScheduled", "Scheduled")
    run = driven()
    run.see(node(cpu="0"), gang(least=None), member("a"))
    assert messages(run) == {"a": FULL.format(1, 1)}
    assert condition(run)[2] == f"minCount (1) cannot be satisfied: 0 scheduled, 0 remaining, {NO_VICTIMS}"


def test_a_lower_min_count_wakes_the_pods_that_wait_for_more():
    run = driven()
    run.see(node(cpu="8"), gang(least=3), member("a"), member("b"))
    assert reasons(run)["a"][0] is QueuePlace.GATED
    run.see(gang(least=3, generation=2))
    assert reasons(run)["a"][0] is QueuePlace.GATED
    run.see(gang(least=2, generation=3))
    assert sorted(run.steps()) == [("a", "n"), ("b", "n")]


# -- what all pods share ----------------------------------------------------------------------------------------------------

SAME = "all pods in a single pod group should have the same"
DIFFER = {  # the gates, the group, a second pod, another one that runs → why the group fails
    "priority": (GATES, {"priority": 10}, {"priority": 5}, None, f"{SAME} priority as the pod group's priority, got 5 and 10"),
    "priority of a running pod": (
        GATES, {"priority": 10}, {"priority": 10}, {"priority": 3}, f"{SAME} priority as the pod group's priority, got 3 and 10"
    ),
    "policy": (
        GATES, {"priority": 10}, {"priority": 10, "preemptionPolicy": "Never"}, None,
        f"{SAME} preemption policy, got {{}} and {{}}",
    ),
    "policy of the group": (
        f"{GATES},PodGroupPreemptionPolicy=true", {"priority": 10, "preemption_policy": "Never"}, {"priority": 10}, None,
        f"{SAME} preemption policy as the pod group's preemption policy, got PreemptLowerPriority and Never",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("gates", "group", "second", "running", "why"), DIFFER.values(), ids=DIFFER)
def test_pods_that_differ_in_what_they_must_share_fail_together(gates, group, second, running, why):
    run = driven(gates)
    run.see(node(cpu="8"), ranked(**group), high("a"), member("b", **second))
    if running is not None:
        run.see(member("r", on="n", **running))
    policies = ("Never", "PreemptLowerPriority"), ("PreemptLowerPriority", "Never")
    told = messages(run)
    assert told.keys() == {"a", "b"}
    assert set(told.values()) <= {why.format(*pair) for pair in policies}
    assert condition(run)[:2] == ("PodGroupInitiallyScheduled", "SchedulerError")


# -- preemption -------------------------------------------------------------------------------------------------------------


def holding(*names, on="n"):
    """A node that is full of pods: ``low-x`` is a single pod of that rank, ``v-x`` one of the group v."""
    ranks = {"low": 1, "mid": 5, "high": 10}
    yield node(on, str(len(names)))
    for name in names:
        what, _, _ = name.partition("-")
        yield pod(name, on=on, priority=ranks[what]) if what in ranks else member(name, group=what, on=on, priority=5)


#: What stands on the nodes; groups; minCount, and the number of pods that preempt → who is evicted.
EVICTED = {
    "one lower pod": ([*holding("low-x")], [], 1, 1, ["low-x"]),
    "the lower of two": ([*holding("low-x", "mid-y")], [], 1, 1, ["low-x"]),
    "as many as can be scheduled, not only minCount": ([*holding("low-x", "low-y", "high-z")], [], 1, 3, ["low-x", "low-y"]),
    "the same for a basic group": ([*holding("low-x", "low-y", "high-z")], [], None, 3, ["low-x", "low-y"]),
    "a group as a whole, for one pod": (
        [*holding("v-1"), *holding("v-2", on="m")], [ranked("v", 1, 5, ALL)], 1, 1, ["v-1", "v-2"],
    ),
    "one pod of a group that may lose it": ([*holding("v-1", "v-2")], [ranked("v", 1, 5, SINGLE)], 1, 1, ["v-2"]),
    "a single pod rather than a group": ([*holding("mid-x", "v-1", "v-2")], [ranked("v", 1, 5, ALL)], 1, 1, ["mid-x"]),
    "a group and a single pod": (
        [*holding("v-1", "v-2", "low-x")], [ranked("v", 1, 5, ALL)], 1, 3, ["low-x", "v-1", "v-2"],
    ),
    "not a group of equal priority": ([*holding("v-1", "low-x")], [ranked("v", 1, 10, ALL)], 1, 2, ["low-x"]),
}  # fmt: skip


@pytest.mark.parametrize(("there", "groups", "least", "pods", "gone"), EVICTED.values(), ids=EVICTED)
def test_a_group_preempts_for_as_many_pods_as_possible(there, groups, least, pods, gone):
    run = driven()
    run.see(*there, *groups, ranked(least=least), *(high(f"p{at}") for at in range(pods)))
    messages(run)
    work = run.work()
    evicted = [effect.victim.name for one in work if one.phase is Phase.PREEMPT for effect in one.effects]
    assert sorted(evicted) == gone
    (told,) = [one.effects[0].condition.message for one in work if one.phase is Phase.GROUP_STATUS]
    assert told.endswith(f"pod group preemption: found a placement for podgroup, preempting {len(gone)} victims")
    assert run.steps() == []  # the group waits for its victims
    for one in work:
        if one.phase is Phase.PREEMPT:
            run.done(one)
            for effect in one.effects:
                run.gone(effect.victim.pod)
    placed = [where for _, where in run.steps(20.0) if where]
    assert len(placed) == min(pods, len(gone))


def test_disruption_budgets_come_before_priorities():
    run = driven()
    budget = PodDisruptionBudget(
        metadata=ObjectMeta(name="b", namespace="default"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "x"})),
        status=PodDisruptionBudgetStatus(disruptions_allowed=0),
    )
    run.see(node("n", "2"), budget, pod("guarded", on="n", labels={"app": "x"}, priority=1), pod("mid", on="n", priority=5))
    run.see(ranked(least=1), high("a"))
    messages(run)
    assert victims(run) == ["mid"]


def test_the_nodes_of_the_first_try_decide_who_is_spared():
    """In 1.36 each victim's return tries the group again, on any node; 1.37 asks whether its pods still fit their nodes."""
    chosen = {}
    for emulate in ("1.36", "1.37"):
        run = driven(GATES if emulate == "1.37" else OF_1_36, emulate)
        run.see(node("a", "1"), node("b", "1"), started(pod("old", on="a", priority=1), 1))
        run.see(started(pod("young", on="b", priority=1), 9), ranked(least=1), preferring("p", "a"))
        messages(run)
        chosen[emulate] = victims(run)
    assert chosen == {"1.36": ["young"], "1.37": ["old"]}


def preferring(name, where):
    terms = [{"weight": 100, "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [where]}]}}]
    return high(name, affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}})


def test_a_group_waits_for_victims_that_terminate_on_its_nodes():
    run = driven()
    leaving = preempted(started(pod("x", on="n"), 1))
    run.see(node("n", "1"), leaving, ranked(least=1), replace_nomination(high("a"), "n"))
    messages(run)
    work = run.work()
    assert not [one for one in work if one.phase is Phase.PREEMPT]
    (told,) = [one.effects[0].condition.message for one in work if one.phase is Phase.GROUP_STATUS]
    assert told.endswith("pod group preemption: ongoing preemption on nominated nodes")
    assert run.engine.queue.nomination(high("a").metadata.uid) == "n"


def replace_nomination(one, where):
    return replace(one, status=replace(one.status, nominated_node_name=where))


def test_a_single_pod_says_where_preemption_makes_room_and_of_how_many():
    run = driven("")
    run.see(*full("x"), pod("p", priority=10))
    found = "preemption: found a potential placement for pod on node n-x, preempting 1 victims"
    assert messages(run) == {"p": f"{FULL.format(1, 1)} {found}"}


#: What stands on the nodes; groups → who goes for a single pod of high rank that needs one CPU.
FOR_ONE_POD = {
    "a group as a whole, on both nodes": (
        [*holding("v-1", "high-x"), *holding("v-2", "high-y", on="m")], [ranked("v", 1, 5, ALL)], ["v-1", "v-2"],
    ),
    "one pod of a group that may lose it": (
        [*holding("v-1", "high-x"), *holding("high-y", on="m")], [ranked("v", 1, 5, SINGLE)], ["v-1"],
    ),
    "a single pod of the same rank": ([*holding("v-1", "v-2", "mid-x")], [ranked("v", 1, 5, ALL)], ["mid-x"]),
    "a pod of lower rank elsewhere": (
        [*holding("v-1", "v-2"), *holding("low-x", on="m")], [ranked("v", 1, 5, ALL)], ["low-x"],
    ),
    "not a group of equal rank": ([*holding("v-1")], [ranked("v", 1, 10, ALL)], []),
    "a group that does not exist is pods": ([*holding("v-1", "v-2")], [], ["v-2"]),
}  # fmt: skip


@pytest.mark.parametrize(("there", "groups", "gone"), FOR_ONE_POD.values(), ids=FOR_ONE_POD)
def test_a_group_is_evicted_as_a_whole_for_a_single_pod(there, groups, gone):
    run = driven()
    run.see(*there, *groups, pod("p", priority=10))
    (told,) = messages(run).values()
    assert sorted(victims(run)) == gone
    assert told.endswith(f"preempting {len(gone)} victims" if gone else "No preemption victims found for incoming pod.")


def test_pods_of_a_victim_elsewhere_do_not_repel_the_preemptor_any_more():
    """The group's pod on the other node refuses the preemptor in the whole zone; it goes with the group."""
    terms = [{"labelSelector": {"matchLabels": {"app": "p"}}, "topologyKey": "zone"}]
    refusing = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    run = driven()
    run.see(node("n", "1", labels={"zone": "z"}), node("m", "1", labels={"zone": "z"}), ranked("v", 1, 5, ALL))
    run.see(member("v-1", group="v", on="n", priority=5), member("v-2", group="v", on="m", priority=5, affinity=refusing))
    run.see(pod("p", labels={"app": "p"}, priority=10))
    messages(run)
    assert sorted(victims(run)) == ["v-1", "v-2"]


# -- placements -------------------------------------------------------------------------------------------------------------


def test_a_group_that_fits_no_rack_preempts_within_one():
    run = driven(BY_RACK)
    group = together(least=2)
    run.see(*racks(a=[1, 1], b=[1]), replace(group, spec=replace(group.spec, priority=10)))
    run.see(pod("x", on="a1"), pod("y", on="a2"), pod("z", on="b1"), high("p"), high("q"))
    messages(run)
    work = run.work()
    assert sorted(e.victim.name for one in work if one.phase is Phase.PREEMPT for e in one.effects) == ["x", "y"]
    (told,) = [one.effects[0].condition.message for one in work if one.phase is Phase.GROUP_STATUS]
    cannot = "minCount (2) cannot be satisfied: 0 scheduled, 1 remaining"
    assert told.startswith(f"{UNSCHEDULABLE}, 0/2 placements are available, first placement status: {cannot}")


def test_placements_and_preemptions_are_counted():
    run = driven(BY_RACK)
    group = together(least=2)
    run.see(
        *racks(a=[1, 1], b=[1]), replace(group, spec=replace(group.spec, priority=10)), pod("x", on="a1"), high("p"), high("q")
    )
    messages(run)
    (report,) = [told for told in run.outputs.groups if told.victims]
    # once as it is: neither rack has room for two; once without x: one has
    assert dict(report.placements) == {"generated": 4, "infeasible": 3, "feasible": 1}
    assert (report.preempted, report.victims) == ("Success", 1)
    assert set(run.engine.queue.entities().items()) == {((QueuePlace.GATED, "podgroup"), 1)}


def test_the_rack_of_the_nominated_nodes_competes_with_the_others():
    """Only 1.38 tries it first (#139472): in 1.37 the rack that the group fills best is used."""
    run = driven(BY_RACK)
    run.see(*racks(a=[2, 2], b=[1, 1]), together(least=2), *(replace_nomination(member(name), "a1") for name in "pq"))
    assert {where[0] for _, where in run.steps() if where} == {"b"}


# -- asking only about what came back -----------------------------------------------------------------------------------------


def crowded(seed):
    """Full nodes with pods and groups of several ranks, some of which repel the pods of the group that preempts."""
    rng = random.Random(seed)
    objects = [node(f"n{at}", "3", labels={"zone": f"z{at % 2}"}) for at in range(4)]
    objects += [ranked(f"v{at}", 1, rng.choice([1, 5]), rng.choice([ALL, SINGLE, None])) for at in range(2)]
    repels = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "p"}}, "topologyKey": "zone"}
    ]}}  # fmt: skip
    for at in range(12):
        group = rng.choice([None, None, "v0", "v1"])
        spec = {"priority": rng.choice([1, 5, 10]), "on": f"n{at % 4}", "cpu": rng.choice(["1", "1", "500m"])}
        if rng.random() < 0.1:
            spec["affinity"] = repels
        objects.append(started(pod(f"x{at}", **spec) if group is None else member(f"x{at}", group=group, **spec), at))
    pods = [high(f"p{at}", labels={"app": "p"}) for at in range(rng.choice([1, 2, 4]))]
    return [*objects, ranked(least=rng.choice([1, len(pods)])), *pods]


@pytest.mark.parametrize("seed", range(30))
def test_victims_are_the_same_if_all_pods_are_asked_about_again(seed, monkeypatch):
    chosen = []
    for _ in range(2):
        run = driven()
        run.see(*crowded(seed))
        messages(run)
        chosen.append((victims(run), [where for _, where in run.steps(0.0)]))
        monkeypatch.delattr(_Fitting, "beside", raising=False)
    assert chosen[0] == chosen[1]
