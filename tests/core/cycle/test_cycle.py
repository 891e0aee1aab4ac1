"""The cycle over whole clusters: the pick, ties, sampling, nominated nodes, and broken plugins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.search import NodeOrder, draw, feasible_nodes_to_find
from moorage.framework.points import Reuse, Scope
from moorage.framework.profile import make_profile
from moorage.framework.verdicts import Code, Narrow, Reject
from moorage.state.pod_info import PodInfo
from moorage.testing.builders import a_cluster, a_node, a_pod


class Only:
    name = "Only"

    def __init__(self, allowed):
        self.allowed = allowed

    def filter(self, pod, nodes):
        yield Reject(~nodes.named(self.allowed), "not allowed")


class ByName:
    """Scores a node by the number in its name."""

    name = "ByName"

    def score_node(self, pod, node):
        return int(node.name[1:])


class Room:
    """Lets so many pods on a node."""

    name = "Room"

    def __init__(self, pods):
        self.pods = pods

    def filter(self, pod, nodes):
        yield Reject(nodes.pod_count >= self.pods, "full")


def profile(*plugins, **kwargs):
    points = {"filter": [], "score": []}
    for plugin in plugins:
        points["score" if hasattr(plugin, "score_node") else "filter"].append(plugin.name)
    return make_profile("default-scheduler", {p.name: p for p in plugins}, points, {}, **kwargs)


def cluster(count, **spec):
    return a_cluster([a_node(f"n{at}", **spec) for at in range(count)])


def test_the_highest_total_wins():
    assert Cycle().decide(profile(ByName()), a_pod(), cluster(5).snapshot).node == "n4"


def test_one_feasible_node_needs_no_scores():
    decision = Cycle().decide(profile(Only({"n1"}), ByName()), a_pod(), cluster(3).snapshot)
    assert (decision.node, decision.scores, decision.feasible) == ("n1", None, 1)


def test_a_cluster_without_nodes():
    decision = Cycle().decide(profile(), a_pod(), cluster(0).snapshot)
    assert (decision.node, decision.message) == (None, "no nodes available to schedule pods")


def test_no_node_is_feasible():
    decision = Cycle().decide(profile(Only(())), a_pod(), cluster(3).snapshot)
    assert decision.code is Code.UNSCHEDULABLE
    assert decision.message == "0/3 nodes are available: 3 not allowed."
    assert decision.rejected_by == ("Only",)


def test_a_raising_plugin_fails_only_the_attempt():
    class Breaks:
        name = "Breaks"

        def filter(self, pod, nodes):
            raise RuntimeError("oops")

    decision = Cycle().decide(profile(Breaks()), a_pod(), cluster(1).snapshot)
    assert decision.code is Code.ERROR
    raised = Breaks.filter.__code__.co_firstlineno + 1
    assert decision.message == f"plugin Breaks failed in filter: RuntimeError: oops (test_cycle.py, line {raised})"
    assert decision.rejected_by == ()


def test_the_pods_own_nominated_node_is_tried_first():
    bare = a_pod().pod
    pod = PodInfo(type(bare)(metadata=bare.metadata, spec=bare.spec, status=type(bare.status)(nominated_node_name="n0")))
    assert Cycle().decide(profile(ByName()), pod, cluster(3).snapshot).node == "n0"
    assert Cycle().decide(profile(Only({"n1", "n2"}), ByName()), pod, cluster(3).snapshot).node == "n2"


NOMINATED = {  # priority of the pod nominated to n1, may a pod of priority 5 take its last place?
    "higher": (9, False),
    "equal": (5, False),
    "lower": (1, True),
}


@pytest.mark.parametrize(("priority", "may"), NOMINATED.values(), ids=NOMINATED)
def test_resources_are_reserved_for_nominated_pods(priority, may):
    state = cluster(2)
    other = a_pod("other", priority=priority)
    decision = Cycle().decide(
        profile(Only({"n1"}), Room(1)), a_pod(priority=5), state.snapshot, {"n1": (other,), "gone": (other,)}
    )
    assert (decision.node == "n1") is may
    assert state.table.pod_count.view.tolist() == [0, 0]


@given(st.lists(st.integers(0, 60), min_size=1, unique=True), st.integers(0, 2**40), st.uuids())
def test_a_draw_depends_on_seed_pod_and_names_only(rows, seed, uid):
    names = [f"n{at}" for at in range(61)]
    table = a_cluster([a_node(n) for n in names]).table
    turned = a_cluster([a_node(n) for n in reversed(names)]).table
    chosen = draw(table, np.array(rows), str(uid), seed)
    assert chosen in rows
    assert turned.nodes[draw(turned, np.array([60 - r for r in rows]), str(uid), seed)].name == table.nodes[chosen].name


def test_draws_spread():
    table = cluster(20).table
    taken = [draw(table, np.arange(20), f"pod-{at}", 0) for at in range(2000)]
    assert len(set(taken)) == 20
    assert len({draw(table, np.arange(20), "pod", seed) for seed in range(200)}) > 10


#: percentage, nodes, feasible nodes to find: worked by hand from kube-scheduler's documentation of percentageOfNodesToScore
FOUND = [
    (0, 50, 50),
    (0, 100, 100),
    (0, 1000, 420),
    (0, 5000, 500),
    (0, 6000, 300),
    (30, 1000, 300),
    (5, 1000, 100),
    (100, 500, 500),
]


@pytest.mark.parametrize(("percentage", "nodes", "wanted"), FOUND)
def test_the_number_of_feasible_nodes_to_find(percentage, nodes, wanted):
    assert feasible_nodes_to_find(percentage, nodes) == wanted


def test_nodes_are_searched_zone_by_zone_in_turn():
    zones = {"a1": "a", "a2": "a", "b1": "b", "c1": "c", "a3": "a", "b2": "b"}
    table = a_cluster([a_node(n, {"topology.kubernetes.io/zone": z}) for n, z in zones.items()]).table
    order = NodeOrder()
    assert [table.nodes[r].name for r in order.rows(table)] == ["a1", "b1", "c1", "a2", "b2", "a3"]
    order.advance(4, 6)
    assert [table.nodes[r].name for r in order.rows(table)] == ["b2", "a3", "a1", "b1", "c1", "a2"]


def test_a_given_percentage_samples_and_rotates():
    state = cluster(400)
    asked = []

    class Counts:
        name = "Counts"

        def filter_node(self, pod, node):
            asked.append(node.name)

    ran = make_profile("s", {"Counts": Counts(), "ByName": Zero()}, {"filter": ["Counts"], "score": ["ByName"]}, {})
    cycle = Cycle(percentage_of_nodes_to_score=25)
    first = cycle.decide(ran, a_pod(), state.snapshot)
    assert (len(asked), first.feasible) == (101, 100)  # the search ends when it comes upon one too many
    asked.clear()
    cycle.decide(ran, a_pod(), state.snapshot)
    assert asked[0] == "n100"
    asked.clear()
    Cycle().decide(ran, a_pod(), state.snapshot)
    assert len(asked) == 400


def test_the_next_search_starts_after_all_evaluated_nodes():
    """As kube-scheduler 1.36.2 goes on: closed nodes behind the last feasible one count, and so do those PreFilter names."""
    state = a_cluster(
        a_node(f"n{at:03}", allocatable={"pods": 9}, unschedulable=100 <= at < 107 or 113 <= at < 114) for at in range(400)
    )
    looked_at = []

    class Open:
        name = "Open"

        def pre_filter(self, pod, snapshot):
            return Narrow(frozenset(pod.spec.node_selector), None) if pod.spec.node_selector else None

        def filter(self, state, nodes):
            looked_at.append(nodes.names()[0])
            yield Reject(nodes.unschedulable, "closed", unresolvable=True)

    ran = make_profile(
        "s", {"Open": Open(), "ByName": Zero()}, {"preFilter": ["Open"], "filter": ["Open"], "score": ["ByName"]}, {}
    )
    cycle = Cycle(percentage_of_nodes_to_score=25)
    first = cycle.decide(ran, a_pod("first"), state.snapshot)
    assert first.feasible == 100
    assert cycle.order.start == 107
    assert first.status_of(106) is not None
    cycle.decide(ran, a_pod("named", nodeSelector={"n001": "", "n002": ""}), state.snapshot)
    assert cycle.order.start == 109
    looked_at.clear()
    cycle.decide(ran, a_pod("second"), state.snapshot)
    assert looked_at[0] == "n109"
    assert cycle.order.start == 210


def test_a_percentage_of_100_is_decided_by_class():
    asked = []

    class Counts:
        name = "Counts"
        reuse = Reuse(Scope.NODE_PODS, signature=lambda pod: {})

        def filter(self, pod, nodes):
            asked.append(len(nodes))
            return ()

    state = cluster(300)
    for cycle, own in [
        (Cycle(percentage_of_nodes_to_score=100), None),
        (Cycle(), 100),
        (Cycle(percentage_of_nodes_to_score=9), 100),
    ]:
        ran = make_profile("s", {"Counts": Counts()}, {"filter": ["Counts"]}, {}, own)
        asked.clear()
        for at in range(3):
            pod = a_pod(f"{at}-{own}-{cycle.percentage_of_nodes_to_score}")
            quick = cycle.at_once(ran).decide_known(pod, state.snapshot, 0)
            state.assume(pod, state.table.nodes[quick.row].name)
        assert cycle.decide(ran, a_pod(), state.snapshot).feasible == 300
        assert asked == [300, 300, 1, 1]


@pytest.mark.parametrize("named", [2, 9])
@pytest.mark.parametrize("scope", [Scope.NODE, Scope.NODE_PODS, Scope.CLUSTER])
def test_the_cached_path_moves_the_start_of_the_next_search(scope, named):
    """One profile filters all nodes, another samples, and both share the order of nodes."""

    class Named:
        name = "Named"
        reuse = Reuse(
            scope, lambda pod: {"names": frozenset(pod.spec.node_selector)}, (),
            narrows_to=lambda pod: frozenset(pod.spec.node_selector),
        )  # fmt: skip

        def pre_filter(self, pod, snapshot):
            return Narrow(frozenset(pod.spec.node_selector), None)

        def filter(self, state, nodes):
            yield Reject(~nodes.named(["n1"]), "another")

    ran = make_profile("s", {"Named": Named()}, {"preFilter": ["Named"], "filter": ["Named"]}, {}, 100)
    state = cluster(20)
    pod = a_pod(nodeSelector={f"n{at}": "" for at in range(1, 1 + named)})
    for by_class in (False, True):
        cycle = Cycle(by_class=by_class)
        assert [cycle.decide(ran, pod, state.snapshot).node for _ in range(2)] == ["n1", "n1"]
        assert cycle.order.start == 2 * named


class Zero:
    name = "ByName"

    def score_node(self, pod, node):
        return 0


def test_equal_runs_are_equal_for_any_node_order():
    names = [f"n{at}" for at in range(30)]
    ran = make_profile("s", {"ByName": Zero()}, {"score": ["ByName"]}, {})
    one = [Cycle(seed=3).decide(ran, a_pod(f"p{at}"), a_cluster(map(a_node, names)).snapshot).node for at in range(20)]
    two = [Cycle(seed=3).decide(ran, a_pod(f"p{at}"), a_cluster(map(a_node, names[::-1])).snapshot).node for at in range(20)]
    assert one == two
    assert one != [Cycle(seed=4).decide(ran, a_pod(f"p{at}"), a_cluster(map(a_node, names)).snapshot).node for at in range(20)]
