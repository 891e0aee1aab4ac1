"""Budgets: how long a question may search. Clocks here advance with every look, so that no test depends on the machine."""

from __future__ import annotations

import json
from concurrent.futures import Future
from itertools import count
from pathlib import Path

import pytest

import moorage
from moorage.errors import InputError
from moorage.laboratory.budget import BudgetSpentError, TimeBudget, results_of, usual_limit_s
from moorage.laboratory.capacity.capacity import CapacityQuestion, capacity_of
from moorage.laboratory.cluster_questions import templates_of
from moorage.laboratory.drain.drain_question import drain_report
from moorage.laboratory.drain.drain_run import DrainPlan
from moorage.laboratory.drain.kubectl_filters import DrainFlags
from moorage.laboratory.survive.survival_question import SurvivalAsked, survival_report
from moorage.report.answer import AnswerRequest
from tests.laboratory.random_world import World


def looks(seconds):
    """Return a budget that is over after so many looks at the clock."""
    return TimeBudget(seconds, count().__next__)


def test_a_budget_without_a_limit_is_never_over():
    budget = TimeBudget()
    assert not budget.part(0.01).is_over()
    assert (budget.left_s, budget.stopped) == (float("inf"), None)


def test_an_interruption_ends_a_budget_and_its_parts():
    budget = TimeBudget()
    part = budget.part()
    budget.interrupt()
    assert part.stopped is None, "nothing was ended by it yet"
    with pytest.raises(BudgetSpentError):
        part.check()
    part.leave("a fix")
    assert (part.stopped.reason, part.stopped.limit_seconds, part.stopped.left) == ("interrupted", None, ("a fix",))
    assert budget.stopped == part.stopped


def test_a_part_ends_before_the_whole():
    now = [0.0]
    budget = TimeBudget(10.0, lambda: now[0])
    part = budget.part(0.5)
    now[0] = 6.0
    assert part.is_over()
    assert (budget.stopped.reason, budget.stopped.limit_seconds) == ("timeLimit", 10.0)
    assert not budget.is_over()
    assert budget.left_s == 4.0


def test_time_before_the_budget_counts():
    assert TimeBudget(10.0, lambda: 110.0, began_s=100.0).is_over()


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_limit_is_above_0(seconds):
    with pytest.raises(InputError, match="above 0"):
        TimeBudget(seconds, lambda: 0.0)


@pytest.mark.parametrize(("objects", "seconds"), [(0, 10), (6_300, 10), (12_499, 10), (55_000, 28), (60_000, 30)])
def test_the_usual_limit_grows_with_the_cluster(objects, seconds):
    assert usual_limit_s(objects) == seconds


def test_results_end_with_the_budget_but_not_before_the_least():
    done, waits = Future(), Future()
    done.set_result("first")
    assert list(results_of([done, waits], looks(1), 1)) == ["first"]
    assert waits.cancelled()


# -- questions ---------------------------------------------------------------------------------------------------------------

ASKED = AnswerRequest(release="1.36")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DEMO = EXAMPLES / "demo"


@pytest.mark.parametrize("limit", [1, 2, 7, 40])
def test_losses_that_were_run_before_the_end_are_those_of_an_endless_run(limit):
    cluster = World(1).cluster()
    before = cluster.digest()
    whole = survival_report(cluster, ASKED, SurvivalAsked())
    found = survival_report(cluster, ASKED, SurvivalAsked(budget=looks(limit)))
    full = {loss.lost: loss for loss in whole.failures}
    assert [loss for loss in found.failures if loss != full[loss.lost]] == []
    assert len(found.failures) + found.not_run == len(whole.failures)
    assert (found.stopped is None) == (found == whole)
    assert found.survives is (
        whole.survives if not found.not_run else False if any(x.pending for x in found.failures) else None
    )
    assert cluster.digest() == before


@pytest.mark.slow
def test_a_fix_is_there_before_it_is_known_to_be_the_cheapest():
    cluster = moorage.Cluster.read(DEMO)
    whole = survival_report(cluster, ASKED, SurvivalAsked("zone"))
    found = [survival_report(cluster, ASKED, SurvivalAsked("zone", budget=looks(limit))) for limit in range(80, 440, 60)]
    searched = [one for one in found if one.fix_searched and one.stopped is not None]
    without = [one.stopped.left[0] for one in searched if one.fix is None]
    early = [one for one in searched if one.fix is not None and one.stopped.left[0].startswith("a cheaper fix (")]
    assert without
    assert all(text.startswith("changes that let every loss be survived (") for text in without)
    assert early
    assert all(one.fix.commands == whole.fix.commands for one in early)
    assert whole.stopped is None


def test_a_run_ends_in_the_middle_and_is_rolled_back():
    cluster = World(2).cluster()
    before, budget = cluster.digest(), looks(3)
    with pytest.raises(BudgetSpentError), cluster.transaction(), cluster.within(budget):
        cluster.run()
    assert cluster.digest() == before
    assert cluster.run() == World(2).cluster().run()


NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": 8, "pods": 99}}}
POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": 1}}}]},
}  # fmt: skip


def capacity(budget, **more):
    cluster = moorage.Cluster.from_objects(NODE)
    return capacity_of(cluster, ASKED, CapacityQuestion(templates_of(cluster, POD), budget=budget, **more))


def test_a_count_that_ends_early_is_a_lower_bound():
    found = capacity(looks(3))
    assert (found.instances, found.upper_bound, found.fail_type) == (3, 8, "Stopped")
    assert found.summary == "At least 3 more instances of p fit, and at most 8: not counted to the end."
    assert found.stopped.left == ("how many more fit",)
    assert found.holds
    assert capacity(looks(1)).summary == "At least 1 more instance of p fits, and at most 8: not counted to the end."


def test_gains_and_seeds_that_were_not_counted_are_named():
    assert capacity(looks(9)).stopped.left == ("what 2 more changes would gain",)
    assert capacity(looks(9), gains=False, seeds=(1, 2, 3)).stopped.left == ("the numbers with 2 more seeds",)


def test_whether_numbers_fit_is_open_until_they_are_tried():
    cluster = moorage.Cluster.from_objects(NODE)
    parts = templates_of(cluster, {"p": (POD, 8)})
    found = capacity_of(cluster, ASKED, CapacityQuestion(parts, replicas=True, budget=looks(3)))
    assert (found.holds, found.summary) == (None, "Undecided: of 8 p, 5 p were not tried.")


def test_a_comparison_has_the_pairs_that_were_run():
    cluster = World(3).cluster()
    whole = moorage.compare(cluster, seeds=range(4))
    found = moorage.compare(cluster, seeds=range(4), budget=looks(4))
    made = len(found.runs[1])
    assert 1 <= made < 4
    for some, every in zip(found.runs, whole.runs, strict=True):
        assert [(one.metrics, one.placements) for one in some] == [(one.metrics, one.placements) for one in every[:made]]
    assert found.request.seeds == tuple(range(made))
    assert found.stopped.left == (f"the differences with {4 - made} more seed{'s' if made < 3 else ''}",)


# -- speed -----------------------------------------------------------------------------------------------------------------


def unread():
    raise AssertionError("a question without a limit read the clock")


TYPES = [
    {"name": name, "node": {**NODE, "metadata": {"name": name}, "status": {"allocatable": amounts}}, "price": amounts["cpu"]}
    for name, amounts in (("small", {"cpu": 4, "pods": 99}), ("large", {"cpu": 9, "pods": 99}))
]
NODES = ("general-a1", "general-b1", "general-c1")


def full():
    """Return a cluster with two nodes, which have room for some of its eleven pods."""
    pods = [
        {**POD, "metadata": {"name": f"p{at}"}, "spec": {"containers": [
            {"name": "c", "image": "x", "resources": {"requests": {"cpu": 1 + at % 3}}}]}}
        for at in range(11)
    ]  # fmt: skip
    return moorage.Cluster.from_objects(NODE, {**NODE, "metadata": {"name": "m"}}, *pods)


#: Each returns the answer of a question within a budget.
SEARCHES = {
    "plan": lambda limit, clock: full().plan(TYPES, time_limit_s=limit, clock=clock),
    "consolidate": lambda limit, clock: moorage.Cluster.read(DEMO).consolidate(time_limit_s=limit, clock=clock),
    "consolidate with prices": lambda limit, clock: full().consolidate(
        [*TYPES, {"name": "own", "like": "n", "price": 8}], time_limit_s=limit, clock=clock, buy=True, force=True
    ),
    "survive": lambda limit, clock: survival_report(
        moorage.Cluster.read(DEMO), ASKED, SurvivalAsked("zone", spare="general-a1", budget=TimeBudget(limit, clock))
    ),
    "drain": lambda limit, clock: drain_report(
        moorage.Cluster.read(DEMO), ASKED, NODES, DrainPlan(DrainFlags(ignore_daemonsets=True)), find_order=True,
        budget=TimeBudget(limit, clock),
    ),
    "capacity": lambda limit, clock: capacity(TimeBudget(limit, clock)),
    "compare": lambda limit, clock: moorage.compare(World(3).cluster(), seeds=range(4), budget=TimeBudget(limit, clock)),
}  # fmt: skip


def written(answer):
    return json.dumps(answer.to_dict(), sort_keys=True).encode()


@pytest.mark.slow
@pytest.mark.parametrize("ask", SEARCHES.values(), ids=SEARCHES)
def test_an_answer_depends_on_the_clock_only_if_it_says_so(ask):
    """The clock goes at 1 to 50,000 seconds a look: the answers of a fast and of a slow machine."""
    whole = ask(None, unread)
    endless = written(whole)
    assert written(ask(None, unread)) == endless
    for pace in (1, 40, 500, 5_000, 50_000):
        found = ask(50_000, count(0, pace).__next__)
        if found.stopped is None:
            assert written(found) == endless
        else:
            assert found.stopped.left
            assert found.holds in {whole.holds, None}
    assert found.stopped is not None, "the slowest machine"


def test_a_removal_ends_in_the_middle_of_its_run():
    """A run of one removal can take longer than the limit: the search ends with the decision at which it is over."""
    whole = moorage.Cluster.read(DEMO).consolidate(time_limit_s=None, clock=unread)
    assert whole.remove
    found = [moorage.Cluster.read(DEMO).consolidate(time_limit_s=limit, clock=count().__next__) for limit in range(1, 30, 4)]
    assert all(one.stopped is not None for one in found)
    early = [one for one in found if not one.remove]
    assert [one.summary for one in early] == ["Undecided: no node that can be removed was found in time."] * len(early)
    assert {one.holds for one in early} == {None}
    assert any(reason.text == "not tried in time" for one in early for reasons in one.blocked.values() for reason in reasons)
