"""Trees of pod groups, as 1.37 tries them behind the gate CompositePodGroup: from the root down, level within level."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from moorage.api.meta import ObjectMeta
from moorage.api.pod_groups import (
    BasicSchedulingPolicy,
    CompositeGangSchedulingPolicy,
    CompositePodGroup,
    CompositePodGroupSchedulingPolicy,
    CompositePodGroupSpec,
    DisruptionMode,
    PodGroupSchedulingConstraints,
    TopologyConstraint,
)
from moorage.core.engine.facts import Phase
from moorage.core.queue import QueuePlace
from moorage.framework.verdicts import Hold
from tests.core.engine.driving import node, pod
from tests.core.engine.test_group_preemption import victims
from tests.core.engine.test_groups_as_one import driven, ranked
from tests.core.engine.test_pod_groups import member, messages

GATES = "GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true"
ALL = DisruptionMode(all=BasicSchedulingPolicy())


def composite(name, least=None, parent=None, topology=None, priority=10, mode=None):
    gang = None if least is None else CompositeGangSchedulingPolicy(min_group_count=least)
    basic = BasicSchedulingPolicy() if least is None else None
    within = None if topology is None else PodGroupSchedulingConstraints(topology=(TopologyConstraint(key=topology),))
    return CompositePodGroup(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}"),
        spec=CompositePodGroupSpec(
            parent_composite_pod_group_name=parent,
            scheduling_policy=CompositePodGroupSchedulingPolicy(basic=basic, gang=gang),
            scheduling_constraints=within, disruption_mode=mode, priority=priority,
        ),
    )  # fmt: skip


def leaf(name, parent, least=1, topology=None, priority=10, mode=None):
    within = None if topology is None else PodGroupSchedulingConstraints(topology=(TopologyConstraint(key=topology),))
    return ranked(
        name, least, priority, mode, parent_composite_pod_group_name=parent, scheduling_constraints=within
    )  # fmt: skip


def workers(group, number, priority=10):
    return [member(f"{group}-{at}", group=group, priority=priority) for at in range(number)]


def where(run):
    return {name: on for name, on in run.steps() if on}


def racks(**cpus):
    return [
        node(f"{rack}{at}", str(cpu), labels={"rack": rack, "zone": "z"})
        for rack, each in cpus.items()
        for at, cpu in enumerate(each)
    ]


def test_a_tree_waits_until_enough_of_its_groups_are_complete():
    run = driven(GATES)
    run.see(node(cpu="8"), *workers("a", 2), leaf("a", "top", 2))
    assert {line.place for line in run.engine.queue.pending()} == {QueuePlace.GATED}
    run.see(leaf("b", "top", 2), composite("top", 2), *workers("b", 1))
    assert {line.reasons for line in run.engine.queue.pending()} == {
        ('waiting for composite pod group "top" tree to meet quorum',)
    }
    assert run.steps() == []
    run.see(member("b-1", group="b", priority=10))
    assert where(run) == {"a-0": "n", "a-1": "n", "b-0": "n", "b-1": "n"}


#: minGroupCount of the root; minCount and pods of the groups; CPUs → which groups are placed, the text of the first one.
TREES = {
    "all fit": (2, {"a": (2, 2), "b": (1, 1)}, 3, {"a", "b"}),
    "one of two is enough": (1, {"a": (2, 2), "b": (2, 2)}, 3, {"a"}),
    "neither, as both are needed": (2, {"a": (2, 2), "b": (2, 2)}, 3, set()),
    "a basic tree takes what fits": (None, {"a": (2, 2), "b": (2, 2)}, 2, {"a"}),
    "the second, as the first is too large": (1, {"a": (4, 4), "b": (1, 1)}, 3, {"b"}),
}


@pytest.mark.parametrize(("least", "groups", "cpus", "placed"), TREES.values(), ids=TREES)
def test_enough_groups_are_placed_together_or_none(least, groups, cpus, placed):
    run = driven(GATES)
    run.see(node(cpu=str(cpus)), composite("top", least))
    for name, (needed, pods) in groups.items():
        run.see(leaf(name, "top", needed), *workers(name, pods))
    assert {name.partition("-")[0] for name in where(run)} == placed
    assert run.engine.cluster.assumed.keys() == run.engine.state.bindings.by_uid.keys()
    # The groups that were left over are tried again before the conditions of the first attempt are written.
    said = {one.effects[0].group.name: one.effects[0].condition.status for one in reversed(run.work(Phase.GROUP_STATUS))}
    assert {name for name, status in said.items() if status == "True"} == placed


def test_the_group_that_was_created_first_is_tried_first():
    run = driven(GATES)
    groups = [leaf("a", "top"), leaf("b", "top"), composite("c", 1, "top"), leaf("d", "c")]
    for at, one in zip((3, 1, 2, 0), groups, strict=True):
        run.see(replace(one, metadata=replace(one.metadata, creation_timestamp=f"2026-01-01T00:00:0{at}Z")))
    run.see(node(cpu="2"), composite("top", 1), *workers("a", 1), *workers("b", 1), *workers("d", 1))
    assert where(run).keys() == {"b-0", "d-0"}


def test_a_tree_stays_in_a_zone_and_each_group_in_a_rack():
    run = driven(GATES)
    nodes = [node(f"{zone}{rack}", "2", labels={"zone": zone, "rack": f"{zone}{rack}"}) for zone in "xy" for rack in "12"]
    run.see(*nodes, pod("held", on="x1"), composite("top", 2, topology="zone"))
    run.see(leaf("a", "top", 2, "rack"), leaf("b", "top", 2, "rack"), *workers("a", 2), *workers("b", 2))
    placed = where(run)
    assert {on[0] for on in placed.values()} == {"y"}
    assert placed["a-0"] == placed["a-1"] != placed["b-0"] == placed["b-1"]


def test_a_tree_below_a_tree():
    run = driven(GATES)
    run.see(*racks(r=[1, 1], s=[2, 2]), composite("top", 2), composite("mid", 2, "top", "rack"))
    run.see(leaf("a", "mid", 2), leaf("b", "mid", 2), leaf("c", "top", 1))
    run.see(*workers("a", 2), *workers("b", 2), *workers("c", 1))
    placed = where(run)
    assert {placed[name][0] for name in placed if not name.startswith("c")} == {"s"}
    assert placed["c-0"][0] == "r"


#: What exists beside a pod of the group a → why it waits.
NOT_READY = {
    "no group": ((), "failed to build hierarchy snapshot: pod group object not found in state for podgroup/default/a"),
    "no parent": (
        (leaf("a", "top"),),
        "failed to build hierarchy snapshot: composite pod group object not found in state for compositepodgroup/default/top",
    ),
    "no parent of the parent": (
        (leaf("a", "sub"), composite("sub", 1, "top")),
        "failed to build hierarchy snapshot: composite pod group object not found in state for compositepodgroup/default/top",
    ),
    "a group above itself": (
        (leaf("a", "x"), composite("x", 1, "y"), composite("y", 1, "x")),
        "failed to build hierarchy snapshot: cycle detected in composite pod group hierarchy: compositepodgroup/default/y",
    ),
    "a gang of its own": ((leaf("a", None, 2),), "waiting for minCount pods from a gang to appear in scheduling queue"),
    "the other group has no pods": (
        (leaf("a", "top"), leaf("b", "top", None), composite("top", 2)),
        'waiting for composite pod group "top" tree to meet quorum',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("others", "why"), NOT_READY.values(), ids=NOT_READY)
def test_why_a_pod_of_a_tree_waits(others, why):
    run = driven(GATES)
    run.see(node(cpu="8"), *others, *workers("a", 1))
    assert run.steps() == []
    assert [(line.place, line.reasons) for line in run.engine.queue.pending()] == [(QueuePlace.GATED, (why,))]


class Fickle:
    """Reserve has no place for ``b-0`` any more when it is to go there in earnest."""

    name = "Fickle"

    turn = 2

    def __init__(self):
        self.left = self.turn

    def reserve(self, state, pod, node):
        self.left -= pod.name == "b-0"
        return Hold.because("not here") if pod.name == "b-0" and self.left <= 0 else None

    def unreserve(self, state, pod, node):
        pass


@pytest.mark.parametrize(
    ("gates", "turn", "groups", "why"),
    [
        ("GenericWorkload=true", 2, ["b"], "waiting for minCount pods from a gang to be scheduled"),
        (GATES, 3, ["a", "b"], 'waiting for composite pod group "top" tree to meet quorum'),
    ],
)  # fmt: skip
def test_pods_wait_at_permit_for_one_that_is_turned_down_after_all(gates, turn, groups, why):
    run = driven(gates, plugins=[type("Fickle", (Fickle,), {"turn": turn})])
    one = len(groups) == 1
    run.see(node(cpu="8"), *([] if one else [composite("top", 2)]))
    for name in groups:
        run.see(leaf(name, None if one else "top", 2 if one else 1), *workers(name, 2 if one else 1))
    messages(run)
    assert [(held.pod.name, held.waits_for) for held in run.engine.waiting()] == [("b-1" if one else "a-0", (why,))]


def test_a_group_of_a_tree_that_differs_fails_the_tree():
    run = driven(GATES)
    run.see(node(cpu="8"), composite("top", 1), leaf("a", "top"), leaf("b", "top"), *workers("a", 1), *workers("b", 1, 5))
    same = "all pods in a single pod group should have the same priority as the pod group's priority, got 5 and 10"
    assert set(messages(run).values()) == {same}


def test_a_tree_preempts_and_is_preempted_as_one():
    run = driven(GATES)
    run.see(node("n", "2"), node("m", "1"), composite("low", 1, priority=1, mode=ALL))
    run.see(leaf("v", "low", priority=1), leaf("w", "low", priority=1))
    run.see(member("v-1", group="v", on="n", priority=1), member("w-1", group="w", on="m", priority=1))
    run.see(pod("other", on="n", priority=10))
    run.see(composite("top", 2), leaf("a", "top"), leaf("b", "top"), *workers("a", 1), *workers("b", 1))
    messages(run)
    assert sorted(victims(run)) == ["v-1", "w-1"]


def test_a_single_pod_evicts_a_whole_tree():
    run = driven(GATES)
    run.see(node("n", "1"), node("m", "1"), composite("low", 1, priority=1, mode=ALL))
    run.see(leaf("v", "low", priority=1), leaf("w", "low", priority=1))
    run.see(member("v-1", group="v", on="n", priority=1), member("w-1", group="w", on="m", priority=1))
    run.see(pod("p", priority=10))
    messages(run)
    assert sorted(victims(run)) == ["v-1", "w-1"]


def test_parents_do_not_count_while_the_gate_is_closed():
    run = driven("GenericWorkload=true,TopologyAwareWorkloadScheduling=true")
    run.see(node(cpu="8"), leaf("a", "top"), *workers("a", 1))
    assert where(run) == {"a-0": "n"}
