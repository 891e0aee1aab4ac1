"""Groups that have to keep together: tried on one placement after another, and sent to the best."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from moorage.api.pod_groups import PodGroupSchedulingConstraints, TopologyConstraint
from moorage.core.engine.facts import Phase
from moorage.framework.placements import Placement
from moorage.framework.verdicts import Hold
from tests.core.engine.driving import HEAD, Driven, node, pod
from tests.core.engine.test_pod_groups import WAITS, gang, member, messages

GATES = "GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true"


def driven(*plugins, **kwargs):
    return Driven(*plugins, gates=GATES, **kwargs)


def together(name="g", least=2, key="rack"):
    group = gang(name, least)
    constraints = PodGroupSchedulingConstraints(topology=(TopologyConstraint(key=key),))
    return replace(group, spec=replace(group.spec, scheduling_constraints=constraints))


def racks(**cpus):
    """Nodes a1, a2, … of rack a, and so on: ``a=[1, 2]`` are two of one and two CPUs."""
    return [
        node(f"{rack}{at}", str(cpu), labels={"rack": rack}) for rack, sizes in cpus.items() for at, cpu in enumerate(sizes, 1)
    ]


def group_message(run):
    (told,) = [work.effects[0].condition for work in run.work(Phase.GROUP_STATUS)]
    return told.message


def test_all_pods_are_placed_in_one_rack_that_fits_them():
    run = driven()
    run.see(*racks(a=[1], b=[1, 1], c=[1]), node("bare", "8"), together(), member("p"), member("q"))
    assert {where for _, where in run.steps()} == {"b1", "b2"}


def test_a_group_without_constraints_is_placed_anywhere():
    run = driven()
    run.see(*racks(a=[1], b=[1]), gang(least=2), member("p"), member("q"))
    assert {where for _, where in run.steps()} == {"a1", "b1"}


def test_no_rack_is_large_enough():
    run = driven()
    run.see(*racks(a=[1], b=[1]), together(), member("p"), member("q"))
    told = messages(run)
    assert told == {
        "q": WAITS,
        "p": "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: "
        "not eligible due to placement-based pod group scheduling limitation",
    }
    assert group_message(run) == "0/2 placements are available, first placement status: pod group is unschedulable"
    assert not run.engine.cluster.assumed


def test_no_node_has_the_label():
    run = driven()
    run.see(node("bare", "8"), together(), member("p"), member("q"))
    assert set(messages(run).values()) == {"no feasible placements found"}
    assert group_message(run) == "no feasible placements found"


def test_later_pods_follow_the_rack_of_running_pods():
    run = driven()
    run.see(*racks(a=[1], b=[4]), together(least=1), member("first", on="a1"), member("p"))
    told = messages(run)["p"]
    assert told.startswith("0/1 nodes are available: 1 Insufficient cpu.")


def test_running_pods_in_two_racks_are_a_scheduler_error():
    run = driven()
    run.see(*racks(a=[4], b=[4]), together(least=1), member("x", on="a1"), member("y", on="b1"), member("p"))
    text = "cannot determine domain for already scheduled pods: more than 1 domain found for pod group: a, b"
    assert messages(run) == {"p": text}
    (told,) = [work.effects[0].condition for work in run.work(Phase.GROUP_STATUS)]
    assert (told.reason, told.message) == ("SchedulerError", text)


def test_a_rack_that_fits_more_pods_beats_a_fuller_one():
    run = driven()
    run.see(*racks(a=[2], b=[9]), together(), *map(member, "pqr"))
    assert {where for _, where in run.steps()} == {"b1"}


def test_among_racks_that_fit_all_pods_the_fuller_one_wins():
    run = driven()
    run.see(*racks(a=[9], b=[3], c=[9]), together(), *map(member, "pqr"))
    assert {where for _, where in run.steps()} == {"b1"}


def test_ties_depend_only_on_the_seed():
    drawn = Counter()
    for seed in range(14):
        where = set()
        for order in (1, -1):
            run = driven()
            run.engine.cycle.seed = seed
            run.see(*racks(a=[2], b=[2], c=[2])[::order], together(), member("p"), member("q"))
            where |= {name for _, name in run.steps()}
        (only,) = where
        drawn[only] += 1
    assert set(drawn) == {"a1", "b1", "c1"}


def test_no_preemption_while_racks_are_compared():
    run = driven()
    low = [pod(f"low-{name}", on=name) for name in ("a1", "b1")]
    run.see(*racks(a=[1], b=[1]), *low, together(least=1), member("p", priority=9))
    assert messages(run)["p"].endswith("preemption: not eligible due to placement-based pod group scheduling limitation")
    assert run.work(Phase.PREEMPT) == []


# -- plugins of others ----------------------------------------------------------------------------------------------------


class Halves:
    """Proposes the nodes with even numbers, and those with odd ones; prefers the configured one."""

    name = "Halves"
    answer = None
    best = "odd"
    scores = None

    def generate_placements(self, group, everywhere, snapshot):
        if self.answer is not None:
            return self.answer
        mask = np.array([name.endswith(("1", "3")) for name in everywhere.nodes.names()])
        return [Placement("odd", everywhere.nodes.only(mask)), Placement("even", everywhere.nodes.only(~mask))]

    def score_placement(self, group, proposal, snapshot):
        return self.scores if self.scores is not None else 100 * (proposal.placement.name == self.best)


ONLY_HALVES = HEAD + (
    "profiles:\n- plugins:\n"
    "    multiPoint: {disabled: [{name: TopologyPlacementGenerator}, {name: PodGroupPodsCount}]}\n"
    "    placementGenerate: {enabled: [{name: Halves}]}\n"
    "    placementScore: {enabled: [{name: Halves, weight: 5}]}\n"
)


def halves(**changes):
    return type("Halves", (Halves,), changes)


@pytest.mark.parametrize(("best", "nodes"), [("odd", {"a1", "a3"}), ("even", {"a2", "a4"})])
def test_a_python_plugin_may_propose_and_score(best, nodes):
    run = driven(halves(best=best), config=ONLY_HALVES)
    run.see(*racks(a=[1, 1, 1, 1]), gang(least=2), member("p"), member("q"))
    assert {where for _, where in run.steps()} == nodes


def test_placement_scores_have_separate_weights():
    run = driven(halves(), config=ONLY_HALVES)
    profile = run.engine.profiles["default-scheduler"]
    assert [step.name for step in profile.at("placementScore")] == ["NodeResourcesFit", "Halves"]
    assert profile.placement_weights == {"NodeResourcesFit": 1, "Halves": 5}
    assert "Halves" not in profile.weights


WRONG = {  # what the plugin does; the message
    "proposes nothing": ({"answer": []}, "no feasible placements found"),
    "holds": ({"answer": Hold.because("closed")}, "closed"),
    "answers nonsense": ({"answer": [1]}, "plugin Halves returned [1] in placementGenerate; return Placements or Hold"),
    "scores out of range": (
        {"scores": 101},
        (
            'applying score defaultWeights on PlacementScore plugins: plugin "Halves" returns an invalid score 101, '
            "it should in the range of [0, 100] after normalizing"
        ),
    ),
    "scores nonsense": (
        {"scores": "much"},
        (
            "running PlacementScore plugins: plugin \"Halves\" failed with: plugin Halves returned 'much' in placementScore; "
            "return a whole number"
        ),
    ),
}


@pytest.mark.parametrize(("changes", "told"), WRONG.values(), ids=WRONG)
def test_errors_of_placement_plugins_are_reported(changes, told):
    run = driven(halves(**changes), config=ONLY_HALVES)
    run.see(*racks(a=[1, 1, 1, 1]), gang(least=2), member("p"), member("q"))
    assert set(messages(run).values()) == {told}
    assert run.on("a1") == []


# -- always ---------------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1, max_size=3),
    cpus=st.lists(st.integers(1, 2), min_size=1, max_size=5), least=st.integers(1, 5), seed=st.integers(0, 3),
)  # fmt: skip
def test_a_group_is_never_split_over_racks_nor_below_min_count(sizes, cpus, least, seed):
    run = driven()
    run.engine.cycle.seed = seed
    run.see(*racks(**dict(zip("abc", sizes, strict=False))), together(least=least))
    run.see(*(member(f"p{at}", str(cpu)) for at, cpu in enumerate(cpus)))
    placed = [where for _, where in run.steps() if where is not None]
    assert len({where[0] for where in placed}) <= 1
    assert not placed or len(placed) >= least
    enough_of_one = any(sum(rack) >= least for rack in sizes) and all(cpu == 1 for cpu in cpus)
    if enough_of_one and len(cpus) >= least:
        assert placed
