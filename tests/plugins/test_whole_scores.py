"""Filter and scores over all rows, from kept usage, equal those that a view computes from the columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.framework.verdicts import SKIP
from moorage.plugins.earlier.balanced_allocation import NodeResourcesBalancedAllocationV134, NodeResourcesBalancedAllocationV135
from moorage.plugins.earlier.node_resources_fit import NodeResourcesFitV134, NodeResourcesFitV135
from moorage.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from moorage.plugins.node_resources_fit import NodeResourcesFit, NodeResourcesFitArgs
from moorage.plugins.resources.scoring_strategies import ResourceSpec, ScoringStrategy
from moorage.state.view import FewRows, NodeView
from moorage.testing.builders import a_cluster, a_node, a_pod

#: More than sixteen, so that a few changes are followed row by row.
NODES = 40
NODE = {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "9Gi", "example.com/gpu": "2", "pods": "5"}
amounts = {
    "cpu": st.sampled_from(["0", "1m", "300m", "1333m", "4", "9"]),
    "memory": st.sampled_from(["0", "1", "300Mi", "3Gi", "8Gi", "70Gi", str(2**45), str(2**46), str(2**60)]),
    "ephemeral-storage": st.sampled_from(["1Gi", "8Gi", "99Gi"]),
    "example.com/gpu": st.sampled_from(["1", "2", "3"]),
}
requests = st.fixed_dictionaries({}, optional=amounts)
rows = st.integers(0, NODES - 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("place"), st.tuples(rows, requests)),
        st.tuples(st.just("remove"), rows),
        st.tuples(st.just("offer"), st.tuples(rows, st.fixed_dictionaries({"pods": st.just("5")}, optional=amounts))),
        st.tuples(st.just("drop"), rows),
        st.tuples(st.just("what if"), st.tuples(rows, requests)),
        st.tuples(st.just("ask"), requests),
    ),
    min_size=1,
    max_size=25,
)
weights = st.tuples(st.integers(1, 3), st.integers(1, 3))


class History:
    def __init__(self, kind="LeastAllocated", weights=(1, 1)):
        resources = tuple(ResourceSpec(name=name, weight=w) for name, w in zip(("cpu", "memory"), weights, strict=True))
        strategy = ScoringStrategy(type=kind, resources=resources)
        self.fit = NodeResourcesFit(NodeResourcesFitArgs(scoring_strategy=strategy))
        self.balance = NodeResourcesBalancedAllocation()
        self.cluster = a_cluster([a_node(f"n{at}", allocatable=NODE) for at in range(NODES)])
        self.placed = []

    def pod(self, requests):
        return a_pod(f"p{len(self.placed)}", containers=[{"name": "c", "resources": {"requests": requests}}])

    def ask(self, requests):
        snapshot, pod = self.cluster.snapshot, self.pod(requests)
        whole, some = snapshot.nodes, NodeView(snapshot, np.arange(len(snapshot.table)))
        wants = self.fit.pre_filter(pod, snapshot)
        one, other = (list(self.fit.filter(wants, view)) for view in (whole, some))
        assert [reject.reason for reject in one] == [reject.reason for reject in other]
        for found, expected in zip(one, other, strict=True):
            assert found.rows.tolist() == expected.rows.tolist()
            assert np.array_equal(found.unresolvable, expected.unresolvable)
        for plugin in (self.fit, self.balance):
            state = plugin.pre_score(pod, snapshot, whole)
            if state is not SKIP:
                scores = plugin.score(state, whole)
                assert scores.dtype == np.int64
                assert scores.tolist() == plugin.score(state, some).tolist()
        self.judge_at_once(pod, wants)

    def judge_at_once(self, pod, wants):
        """Compare the rule that both plugins share with what each of them says."""
        snapshot = self.cluster.snapshot
        table, nodes = snapshot.table, snapshot.nodes
        scored = [
            (plugin, plugin.pre_score(pod, snapshot, nodes), weight) for plugin, weight in ((self.fit, 3), (self.balance, 2))
        ]
        scored = [one for one in scored if one[1] is not SKIP]
        fit, balance = self.fit.reuse.share, self.balance.reuse.share
        parts = [fit.part("filter", 0), fit.part("score", 3), balance.part("score", 2)]
        rule = None if None in parts else fit.rules(parts)(pod)
        self.was_ruled = rule is not None
        if not self.was_ruled:
            return
        refused = np.logical_or.reduce([nodes.false(), *[reject.rows for reject in self.fit.filter(wants, nodes)]])
        totals = sum(plugin.score(state, nodes) * weight for plugin, state, weight in scored)
        expected = np.where(refused, -1, totals).tolist()
        nodes.usage()  # from here on the table has the columns that ``row`` reads
        alone = [rule.row(row, table) for row in range(len(table))]
        assert all(one in {None, other} for one, other in zip(alone, expected, strict=True))
        for view in (nodes, FewRows(snapshot, np.arange(len(table))[::-1])):
            if (usage := view.usage()) is not None:
                assert None not in alone
                worths, closed = rule.rows(usage)
                found = np.where(view.false() if closed is None else closed, -1, worths)
                assert found.tolist() == (expected if view is nodes else expected[::-1])

    def play(self, what, how):
        table = self.cluster.snapshot.table
        if what == "place":
            row, requests = how
            self.placed.append(self.pod(requests))
            self.cluster.assume(self.placed[-1], f"n{row}")
        elif what == "remove" and self.placed:
            self.cluster.remove_pod(self.placed[how % len(self.placed)].uid)
        elif what == "offer":
            self.cluster.set_node(a_node(f"n{how[0]}", allocatable=NODE | how[1]))
        elif what == "drop":
            self.cluster.remove_node(f"n{how}")
        elif what == "what if" and len(table):
            row = how[0] % len(table)
            with table.what_if(row):
                table.add_pod(row, self.pod(how[1]))
                self.ask({"cpu": "1"})
        elif what == "ask":
            self.ask(how)


@settings(max_examples=60, deadline=None)
@given(steps, st.sampled_from(["LeastAllocated", "MostAllocated"]), weights, requests)
def test_answers_over_all_rows_equal_those_of_a_view(steps, kind, weights, last):
    history = History(kind, weights)
    history.ask({"cpu": "1"})
    for step in steps:
        history.play(*step)
    history.ask(last)
    history.ask({"cpu": "300m", "memory": "3Gi"})


@pytest.mark.parametrize(
    ("requests", "kind", "weights", "is_ruled"),
    [
        ({"cpu": "1", "memory": "1Gi"}, "LeastAllocated", (1, 1), True),
        ({}, "LeastAllocated", (1, 1), True),
        ({"cpu": "1", "example.com/gpu": "1"}, "LeastAllocated", (1, 1), False),
        ({"memory": str(2**46)}, "LeastAllocated", (1, 1), False),
        ({"cpu": "1"}, "MostAllocated", (1, 1), True),
        ({"cpu": "1"}, "LeastAllocated", (1, 2), False),
    ],
)
def test_pods_that_both_plugins_judge_at_once(requests, kind, weights, is_ruled):
    history = History(kind, weights)
    history.ask(requests)
    assert history.was_ruled == is_ruled


@pytest.mark.parametrize("large", [str(2**46), str(2**60)])
def test_amounts_too_large_for_floats_take_the_view_until_they_are_gone(large):
    history = History()
    usage = history.cluster.snapshot.nodes.usage
    assert usage() is not None
    history.play("place", (3, {"memory": large}))
    assert usage() is None
    history.ask({"cpu": "1", "memory": "1Gi"})
    history.play("remove", 0)
    for _ in range(NODES):
        assert usage() is None
        history.play("place", (4, {"cpu": "1m"}))
    assert usage() is not None


def test_a_cluster_without_nodes_or_with_a_node_that_lacks_a_resource_has_no_usage():
    assert a_cluster([]).snapshot.nodes.usage() is None
    assert a_cluster([a_node("n", allocatable={"cpu": "4", "pods": "5"})]).snapshot.nodes.usage() is None
    assert a_cluster([a_node("n", allocatable=NODE)]).snapshot.nodes.usage() is not None


def test_an_open_what_if_hides_the_usage():
    snapshot = History().cluster.snapshot
    table = snapshot.table
    with table.what_if(0):
        assert snapshot.nodes.usage() is None
    assert snapshot.nodes.usage() is not None


def test_the_variants_of_earlier_releases_have_no_part_in_the_rule():
    """They score otherwise, although they keep the promises of today's plugins."""
    variants = [
        NodeResourcesFitV135,
        NodeResourcesFitV134,
        NodeResourcesBalancedAllocationV135,
        NodeResourcesBalancedAllocationV134,
    ]
    assert [cls.name for cls in variants if cls().reuse.share is not None] == []
    assert NodeResourcesFit().reuse.share is not None
    assert NodeResourcesBalancedAllocation().reuse.share is not None
