"""Every extension point runs when it should, for the profiles that enable it, and says how long it took."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from moorage.framework.effects import Call
from moorage.framework.points import POINTS
from moorage.framework.reuse import Reuse
from moorage.framework.verdicts import Hold, Wait
from moorage.simulator.simulate import Options, prepare, simulate
from tests.core.engine.driving import HEAD, Driven, node, pod


class Everywhere:
    """Implements every point a plugin may have beside QueueSort and Bind, and writes down where it was called."""

    name = "Everywhere"
    calls: list

    def _note(self, point):
        self.calls.append(point)

    def pre_enqueue(self, pod):
        self._note("preEnqueue")

    def pre_filter(self, pod, snapshot):
        self._note("preFilter")
        return pod

    def filter_node(self, state, node):
        self._note("filter")

    def post_filter(self, pod, attempt):
        self._note("postFilter")
        raise RuntimeError("of no help")

    def pre_score(self, pod, snapshot, feasible):
        self._note("preScore")
        return pod

    def score(self, state, nodes):
        self._note("score")
        return nodes.zeros()

    def normalize(self, state, scores):
        self._note("normalize")
        return scores

    def reserve(self, state, pod, node):
        self._note("reserve")

    def unreserve(self, state, pod, node):
        self._note("unreserve")

    def permit(self, state, pod, node):
        self._note("permit")

    def pre_bind(self, state, pod, node):
        self._note("preBind")
        yield Call(run=None, stand_in=lambda: self._note("stand-in"))

    def post_bind(self, state, pod, node):
        self._note("postBind")


def everywhere():
    return type("Everywhere", (Everywhere,), {"calls": []})


ALL = HEAD + "profiles:\n- plugins:\n    multiPoint:\n      enabled: [{name: Everywhere}]\n"


def test_multi_point_enables_a_plugin_at_every_point_it_implements_in_order():
    plugin = everywhere()
    run = simulate([node("n"), node("m"), pod("p")], Options(config=ALL.encode(), plugins=(plugin,)))
    assert [record.node in {"n", "m"} for record in run.pods] == [True]
    assert plugin.calls == [
        "preEnqueue", "preFilter", "filter", "filter", "preScore", "score", "normalize", "reserve", "permit", "preBind",
        "stand-in", "postBind",
    ]  # fmt: skip


def test_post_filter_runs_only_without_feasible_nodes():
    plugin = everywhere()
    config = ALL + "    postFilter:\n      disabled: [{name: DefaultPreemption}]\n"
    simulate([node("n"), pod("large", "9")], Options(config=config.encode(), plugins=(plugin,)))
    assert "postFilter" in plugin.calls
    assert "reserve" not in plugin.calls


def test_every_call_at_every_point_is_timed():
    ticks = itertools.count()
    heard = Counter()
    took = set()

    def timer(point, plugin, seconds):
        heard[point, plugin] += 1
        took.add(seconds)

    options = Options(config=ALL.encode(), plugins=(everywhere(),), clock=lambda: float(next(ticks)), timer=timer)
    simulate([node("n"), node("m"), pod("p"), pod("large", "9", priority=3)], options)
    for_pods = {point for point in POINTS if not point.startswith("placement")}  # the others are for groups
    assert {point for point, _ in heard} == for_pods
    for point in for_pods - {"queueSort", "bind", "postFilter"}:
        assert heard[point, "Everywhere"] >= 1, point
    assert heard["bind", "DefaultBinder"] == 1
    assert heard["postBind", "Everywhere"] == 1
    assert min(took) >= 1.0


def test_timing_changes_no_decision():
    objects = [node(f"n{at}", str(1 + at % 3)) for at in range(6)] + [pod(f"p{at}") for at in range(8)]
    plain = simulate(objects)
    timed = simulate(objects, Options(clock=lambda: 0.0, timer=lambda *call: None))
    assert plain.pods == timed.pods


# -- profiles ---------------------------------------------------------------------------------------------------------------

TWO = (
    HEAD
    + """
profiles:
- schedulerName: default-scheduler
- schedulerName: strict
  plugins:
    filter: {enabled: [{name: Even}]}
    score: {disabled: [{name: '*'}]}
    preScore: {disabled: [{name: '*'}]}
"""
)


class Even:
    """Takes nodes with even numbers only."""

    name = "Even"

    def filter_node(self, state, node):
        return Hold.because("odd") if int(node.name[1:]) % 2 else None


def test_each_pod_uses_the_profile_of_its_scheduler_name():
    nodes = [node("n1", "8"), node("n3", "8"), node("n2", "1")]
    pods = [pod(f"strict-{at}", schedulerName="strict") for at in range(2)] + [pod("plain", "4")]
    run = simulate([*nodes, *pods], Options(config=TWO.encode(), plugins=(Even,)))
    by_name = {record.name: record for record in run.pods}
    assert by_name["strict-0"].node == "n2"
    assert by_name["strict-1"].node == ""
    assert "2 odd" in by_name["strict-1"].message
    assert by_name["plain"].node in {"n1", "n3"}


SAMPLED = (
    HEAD
    + """
percentageOfNodesToScore: 10
profiles:
- schedulerName: default-scheduler
- schedulerName: wide
  percentageOfNodesToScore: 100
- schedulerName: half
  percentageOfNodesToScore: 50
"""
)


def scored_rows(attempts):
    return {attempt.decision.pod.name: sorted(map(int, attempt.decision.scores.rows)) for attempt in attempts}


def test_a_sample_of_nodes_is_scored_and_the_next_search_starts_where_the_last_one_ended():
    attempts = []
    simulation, _ = prepare(Options(config=SAMPLED.encode()), attempts.append)
    simulation.load([node(f"n{at}", "8") for at in range(250)])
    names = ["default-scheduler", "default-scheduler", "wide", "half", "default-scheduler"]
    simulation.load([pod(f"p{at}", schedulerName=name) for at, name in enumerate(names)])
    simulation.run()
    # p2 may be on any node, so it is decided by its class, without scores of its own.
    assert scored_rows([one for one in attempts if one.decision.pod.name != "p2"]) == {
        "p0": list(range(100)),  # never fewer than a hundred
        "p1": list(range(100, 200)),
        "p3": [*range(75), *range(200, 250)],
        "p4": list(range(75, 175)),
    }


def test_infeasible_nodes_are_skipped_and_count_as_evaluated():
    attempts = []
    simulation, _ = prepare(Options(config=SAMPLED.encode()), attempts.append)
    simulation.load([node(f"n{at}", "8", unschedulable=at % 2 == 0) for at in range(240)])
    simulation.load([pod("p0"), pod("p1")])
    simulation.run()
    assert scored_rows(attempts) == {"p0": list(range(1, 200, 2)), "p1": sorted([*range(201, 240, 2), *range(1, 160, 2)])}


# -- Permit -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "waits"), [(0.0, 0.0), (5.0, 5.0), (900.0, 900.0), (86_400.0, 900.0)], ids=["none", "5 s", "15 min", "a day"]
)
def test_permit_waits_for_its_timeout_of_at_most_fifteen_minutes(asked, waits):
    class Waits:
        name = "Waits"

        def permit(self, state, pod, node):
            return Wait(asked)

    driven = Driven(Waits)
    driven.see(node("n"), pod("p"))
    driven.step()
    assert driven.engine.next_deadline() == waits
    driven.steps(waits / 2)
    assert bool(driven.engine.cluster.assumed) == (waits > 0)
    driven.steps(waits)
    assert len(driven.outputs.take("revoked")) >= 1


@pytest.mark.parametrize("method", ["signature", "sort_key"])
def test_raising_signatures_and_sort_keys_do_not_block_pods(method):
    def breaks(self, subject):
        if subject.pod.metadata.name == "bad" if method == "sort_key" else subject.name == "bad":
            raise ZeroDivisionError
        return {} if method == "signature" else 0

    own = {"reuse": Reuse(signature=lambda pod: breaks(None, pod))} if method == "signature" else {"sort_key": breaks}
    body = {"name": "Raises", **own, "filter": lambda self, state, nodes: ()}
    config = HEAD + "profiles:\n- plugins:\n    filter: {enabled: [{name: Raises}]}\n"
    if method == "sort_key":
        config += "    queueSort: {enabled: [{name: Raises}], disabled: [{name: '*'}]}\n"
    driven = Driven(type("Raises", (), body), config=config)
    driven.see(node("n", "8"), pod("bad"), pod("good"))
    assert sorted(driven.steps()) == [("bad", "n"), ("good", "n")]
    assert len(driven.faults) == (method == "sort_key")
