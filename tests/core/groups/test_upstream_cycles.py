"""The rows of upstream's tables about the scheduling cycle of pod groups, as of 1.37: what all pods must share, which placement
is taken, in trees too, and what the group's condition says.

Placements are proposed and scored by plugins of the test, as upstream's are. Left out are rows that need another plugin in the
place of GangScheduling, and two that only a scheduler with no such profile or no pods can reach.

Source  kube-scheduler, schedule_one_podgroup_test.go
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from moorage.api.pod_groups import Condition, find_condition, with_condition
from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.core.building.builder import build_scheduler
from moorage.core.cycle.cycle import Cycle
from moorage.core.engine.facts import Phase
from moorage.errors import AttemptError
from moorage.framework.placements import Placement
from tests.core.engine.driving import HEAD, Driven, Outputs, node
from tests.core.engine.test_group_trees import composite, leaf
from tests.core.engine.test_groups_as_one import driven, ranked
from tests.core.engine.test_pod_groups import gang, member, messages

GATES = "GenericWorkload=true"
TREES = f"{GATES},TopologyAwareWorkloadScheduling=true,CompositePodGroup=true"
BY_POLICY = f"{GATES},PodGroupPreemptionPolicy=true"

# -- what all pods must share -----------------------------------------------------------------------------------------------


def configured(config, gates, *plugins):
    made = Driven.__new__(Driven)
    source = load_source(ConfigSource(config.encode(), emulate="1.37", feature_gates=gates, plugins=plugins))
    made.engine, missing = build_scheduler(source, Cycle())
    assert not missing
    made.now, made.outputs = 0.0, Outputs(made.engine)
    return made


TWO = HEAD + "profiles: [{schedulerName: default-scheduler}, {schedulerName: other}]\n"
LOWER, NEVER = "PreemptLowerPriority", "Never"
THERE = {"on": "n"}

#: The gates; priority and policy of the group; what is said of two pods; whether the group may be scheduled.
SHARED = {
    "the same scheduler": (GATES, 0, None, {}, {}, True),
    "two schedulers": (GATES, 0, None, {}, {"schedulerName": "other"}, False),
    "the same priority": (GATES, 10, None, {"priority": 10}, {"priority": 10}, True),
    "two priorities": (GATES, 10, None, {"priority": 9}, {"priority": 10}, False),
    "not the group's priority": (GATES, 9, None, {"priority": 10}, {"priority": 10}, False),
    "as a placed pod": (GATES, 10, None, {"priority": 10, **THERE}, {"priority": 10}, True),
    "not the scheduler of a placed pod": (
        GATES, 10, None, {"priority": 10, "schedulerName": "other", **THERE}, {"priority": 10}, False,
    ),
    "not the priority of a placed pod": (GATES, 10, None, {"priority": 9, **THERE}, {"priority": 10}, False),
    "the same policy": (BY_POLICY, 0, NEVER, {"preemptionPolicy": NEVER}, {"preemptionPolicy": NEVER}, True),
    "two policies": (BY_POLICY, 0, NEVER, {"preemptionPolicy": LOWER}, {"preemptionPolicy": NEVER}, False),
    "not the group's policy": (BY_POLICY, 0, NEVER, {"preemptionPolicy": LOWER}, {"preemptionPolicy": LOWER}, False),
    "the group's policy does not count yet": (
        GATES, 0, NEVER, {"preemptionPolicy": LOWER}, {"preemptionPolicy": LOWER}, True,
    ),
    "two policies, whatever the group's": (GATES, 0, NEVER, {"preemptionPolicy": LOWER}, {"preemptionPolicy": NEVER}, False),
}  # fmt: skip


@pytest.mark.parametrize(("gates", "priority", "policy", "one", "other", "may"), SHARED.values(), ids=SHARED)
def test_what_all_pods_must_share(gates, priority, policy, one, other, may):
    run = configured(TWO, gates)
    run.see(node("n", cpu="8"), ranked("g", 1, priority, None, preemption_policy=policy))
    run.see(member("a", **one), member("b", **other))
    told = messages(run)
    (work,) = run.work(Phase.GROUP_STATUS)
    assert work.effects[0].condition.reason == ("Scheduled" if may else "SchedulerError"), told


# -- what the condition says ------------------------------------------------------------------------------------------------

KIND = "PodGroupInitiallyScheduled"
TRUE = Condition(KIND, "True", "Scheduled", "", "2026-01-01T00:00:00Z")
UNSCHEDULABLE = Condition(KIND, "False", "Unschedulable", "too small", "2026-01-01T00:00:00Z")
ERROR = Condition(KIND, "False", "SchedulerError", "internal", "2026-01-01T00:00:00Z")

#: The condition that the group has; what becomes of its pod; the status and reason that it gets, None if it keeps what it has;
#: whether the time of the last transition stays.
CONDITIONS = {
    "set to True": (None, "fits", ("True", "Scheduled"), False),
    "set to False": (None, "too large", ("False", "Unschedulable"), False),
    "set to False by an error": (None, "differs", ("False", "SchedulerError"), False),
    "from unschedulable to scheduled": (UNSCHEDULABLE, "fits", ("True", "Scheduled"), False),
    "from an error to scheduled": (ERROR, "fits", ("True", "Scheduled"), False),
    "scheduled stays, though a pod does not fit": (TRUE, "too large", None, True),
    "scheduled stays, though a pod fails": (TRUE, "differs", None, True),
    "from unschedulable to an error": (UNSCHEDULABLE, "differs", ("False", "SchedulerError"), True),
    "from an error to unschedulable": (ERROR, "too large", ("False", "Unschedulable"), True),
    "scheduled again": (TRUE, "fits", ("True", "Scheduled"), True),
}


@pytest.mark.parametrize(("held", "outcome", "expected", "stays"), CONDITIONS.values(), ids=CONDITIONS)
def test_conditions(held, outcome, expected, stays):
    run = driven()
    group = replace(gang("g", None, generation=7, conditions=() if held is None else (held,)))
    run.see(
        node(cpu="1"), group, member("p", "9" if outcome == "too large" else "1", priority=5 if outcome == "differs" else 0)
    )
    run.attempt()
    told = [work.effects[0].condition for work in run.work(Phase.GROUP_STATUS)]
    if expected is None:
        assert told == []
        return
    (condition,) = told
    assert (condition.type, condition.status, condition.reason, condition.observed_generation) == (KIND, *expected, 7)
    written = find_condition(with_condition(group, condition, "2026-02-02T00:00:00Z"), KIND)
    assert (held is not None and written.last_transition_time == held.last_transition_time) is stays


# -- which placement is taken -----------------------------------------------------------------------------------------------


class Given:
    """Proposes and scores the placements of a row, fails where the row says so, and notes what it has to score."""

    name = "Given"
    nodes, scores, fails, seen = {}, {}, {}, {}

    def generate_placements(self, group, everywhere, snapshot):
        if group.name in self.fails:
            raise AttemptError(self.name, self.fails[group.name])
        proposed = ((name, everywhere.nodes.named(nodes.split())) for name, nodes in self.nodes[group.name].items())
        return [Placement(name, everywhere.nodes.only(rows)) for name, rows in proposed if rows.any()]

    def score_placement(self, group, proposal, snapshot):
        name = proposal.placement.name
        self.seen.setdefault(group.name, {})[name] = {pod.name: node for pod, node in proposal.assigned}
        if name in self.fails:
            raise AttemptError(self.name, self.fails[name])
        return self.scores.get(group.name, {}).get(name, 0)

    def filter_node(self, state, node):
        if node.name in self.fails:
            raise AttemptError(self.name, f'running "{self.name}" filter plugin: {self.fails[node.name]}')


class Also:
    """Scores placements a second time, with weight 2."""

    name = "Also"
    scores = {}

    def score_placement(self, group, proposal, snapshot):
        return self.scores.get(group.name, {}).get(proposal.placement.name, 0)


ONLY_GIVEN = (
    HEAD + "profiles:\n- plugins:\n"
    "    multiPoint: {disabled: [{name: TopologyPlacementGenerator}, {name: PodGroupPodsCount}]}\n"
    "    filter: {enabled: [{name: Given}]}\n"
    "    placementGenerate: {enabled: [{name: Given}]}\n"
    "    placementScore: {disabled: [{name: '*'}], enabled: [{name: Given, weight: 1}, {name: Also, weight: 2}]}\n"
)


def placing(nodes, scores=(), also=(), fails=()):
    """An engine in which groups are tried on the given placements."""
    given = type("Given", (Given,), {"nodes": nodes, "scores": dict(scores), "fails": dict(fails), "seen": {}})
    made = configured(ONLY_GIVEN, TREES, given, type("Also", (Also,), {"scores": dict(also)}))
    made.given = given
    return made


ONE = {"pg": {"x": "node1", "y": "node2"}}
CANNOT = "minCount (1) cannot be satisfied: 0 scheduled, 0 remaining"

#: Placements and their nodes; scores; scores of weight 2; CPUs of the two nodes; what fails; the pod's node, or its message.
OF_ONE = {
    "a higher score of the first": (ONE, {"x": 2, "y": 1}, {}, "11", {}, "node1"),
    "a higher score of the second": (ONE, {"x": 1, "y": 2}, {}, "11", {}, "node2"),
    "no placement": ({"pg": {}}, {}, {}, "11", {}, "no feasible placements found"),
    "the pod fits on none": (ONE, {"x": 1, "y": 2}, {}, "00", {}, "0/1 nodes are available: 1 Insufficient cpu."),
    "it does not fit on the second": (ONE, {"x": 1, "y": 2}, {}, "10", {}, "node1"),
    "the placements fail": (ONE, {}, {}, "11", {"pg": "error for test"}, "error for test"),
    "a score fails": (
        ONE, {"x": 1}, {}, "11", {"y": "error for test"},
        'running PlacementScore plugins: plugin "Given" failed with: error for test',
    ),
    "a placement fails": (
        {"pg": {"x": "node1"}}, {"x": 1}, {}, "11", {"node1": "error for test"},
        'running "Given" filter plugin: error for test',
    ),
    "the first by weight": (ONE, {"x": 50, "y": 75}, {"x": 25, "y": 10}, "11", {}, "node1"),
    "the second by weight": (ONE, {"x": 75, "y": 50}, {"x": 10, "y": 25}, "11", {}, "node2"),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "scores", "also", "cpus", "fails", "expected"), OF_ONE.values(), ids=OF_ONE)
def test_placements_of_a_group(nodes, scores, also, cpus, fails, expected):
    run = placing(nodes, {"pg": scores}, {"pg": also}, fails)
    run.see(*(node(f"node{at}", cpu) for at, cpu in enumerate(cpus, 1)), gang("pg", None), member("p", group="pg"))
    decision = run.attempt()
    assert (decision.node or decision.message) == expected
    if cpus == "00":
        (told,) = run.work(Phase.GROUP_STATUS)
        assert f"0/2 placements are available, first placement status: {CANNOT}" in told.effects[0].condition.message


HALVES, QUARTERS = {"x": "node1 node2", "y": "node3 node4"}, {str(at): f"node{at}" for at in range(1, 5)}
OF_TWO = {"top": HALVES, "pg1": QUARTERS, "pg2": QUARTERS}
APART = {"pg1": {"1": 10, "2": 5, "3": 10, "4": 5}, "pg2": {"1": 5, "2": 10, "3": 5, "4": 10}}
CROSSED = {"pg1": {"1": 5, "2": 5, "3": 1, "4": 2}, "pg2": {"1": 5, "2": 5, "3": 2, "4": 1}}

#: Scores; scores of weight 2; CPUs of the four nodes; what fails; the nodes of the pods of both groups, or the message of all.
OF_A_TREE = {
    "a higher score of the parent": ({"top": {"x": 1, "y": 2}, **CROSSED}, {}, "2222", {}, ["node4", "node3"]),
    "the parent's other placement is too small": ({"top": {"x": 2, "y": 1}, **CROSSED}, {}, "0022", {}, ["node4", "node3"]),
    "beside pods of a sibling": (
        {"top": {"x": 1}, "pg1": {"1": 2, "2": 1}, "pg2": {"1": 2, "2": 1}}, {}, "1111", {}, ["node1", "node2"],
    ),
    "the placements of the parent fail": ({}, {}, "2222", {"top": "injected error"}, "injected error"),
    "the placements of a group fail": (
        {}, {}, "2222", {"pg2": "injected error"}, "composite pod group evaluation failed due to child error: injected error",
    ),
    "the first of the root by weight": (
        {"top": {"x": 50, "y": 75}, **APART}, {"top": {"x": 25, "y": 10}, **APART}, "2222", {}, ["node1", "node2"],
    ),
    "the second of the root by weight": (
        {"top": {"x": 75, "y": 50}, **APART}, {"top": {"x": 10, "y": 25}, **APART}, "2222", {}, ["node3", "node4"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("scores", "also", "cpus", "fails", "expected"), OF_A_TREE.values(), ids=OF_A_TREE)
def test_placements_of_a_tree(scores, also, cpus, fails, expected):
    run = placing(OF_TWO, scores, also, fails)
    run.see(*(node(f"node{at}", cpu) for at, cpu in enumerate(cpus, 1)), composite("top", 1))
    for group in ("pg1", "pg2"):
        run.see(leaf(group, "top"), member(f"of-{group}", group=group, priority=10))
    told = {}
    while (decision := run.attempt()) is not None and decision.pod.name not in told:
        told[decision.pod.name] = decision.node or decision.message
    values = [told["of-pg1"], told["of-pg2"]]
    assert values == (expected if isinstance(expected, list) else [expected] * 2)


#: The groups of a tree below its root, each with minCount, pods and the group in between; CPUs of the four nodes; what there
#: is to score for the root's placements.
SCORED = {
    "all groups fit": (
        {"pg1": (1, 1, "top"), "pg2": (1, 1, "top")}, "1111",
        {"x": {"pg1-0": "node1", "pg2-0": "node2"}, "y": {"pg1-0": "node3", "pg2-0": "node4"}},
    ),
    "a group in between fails on one placement": (
        {"pg1": (1, 1, "mid1"), "pg2": (2, 2, "mid2")}, "1012",
        {"x": {"pg1-0": "node1"}, "y": {"pg1-0": "node3", "pg2-0": "node4", "pg2-1": "node4"}},
    ),
    "a pod of a group fails": (
        {"pg1": (1, 1, "top"), "pg3": (1, 2, "top")}, "1112",
        {"x": {"pg1-0": "node1", "pg3-0": "node2"}, "y": {"pg1-0": "node3", "pg3-0": "node4", "pg3-1": "node4"}},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("groups", "cpus", "expected"), SCORED.values(), ids=SCORED)
def test_what_the_placements_of_a_tree_score(groups, cpus, expected):
    everywhere = {"all": "node1 node2 node3 node4"}
    odd, even = {"all": "node1 node3"}, {"all": "node2 node4"}
    between = {name for _, _, name in groups.values()} - {"top"}
    inner = dict.fromkeys(between, everywhere) | {name: odd if name == "pg1" else even for name in groups}
    run = placing({"top": HALVES, **inner})
    run.see(*(node(f"node{at}", cpu) for at, cpu in enumerate(cpus, 1)), composite("top", 1))
    run.see(*(composite(name, 1, "top") for name in between))
    for name, (least, number, parent) in groups.items():
        run.see(leaf(name, parent, least), *(member(f"{name}-{at}", group=name, priority=10) for at in range(number)))
    run.attempt()
    assert run.given.seen["top"] == expected
