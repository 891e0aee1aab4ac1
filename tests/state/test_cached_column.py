"""A cached column equals a recomputation after any changes of its rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.state.view import KeptColumn, NodeView
from moorage.testing.builders import a_cluster, a_node, a_pod

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pods"), st.integers(1, 12), st.integers(0, 9)),
        st.tuples(st.just("remove"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("node"), st.integers(0, 9), st.integers(1, 9)),
        st.tuples(st.just("drop"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("ask"), st.just(0), st.just(0)),
        st.tuples(st.just("what if"), st.integers(0, 9), st.just(0)),
    ),
    max_size=30,
)


def worth(nodes):
    return nodes.pod_count * 10 + nodes.allocatable("cpu") // 1000


class History:
    def __init__(self):
        self.cluster = a_cluster([a_node(f"n{at}", allocatable={"cpu": at, "pods": 99}) for at in range(4)])
        self.columns_asked = 0
        self.kept = KeptColumn(self._columns, lambda node: node.pod_count * 10 + node.allocatable("cpu") // 1000)
        self.placed = []

    def _columns(self, nodes):
        self.columns_asked += 1
        return worth(nodes)

    def check(self):
        snapshot = self.cluster.snapshot
        some = NodeView(snapshot, np.arange(0, len(snapshot.table), 2))
        for view in (snapshot.nodes, some):
            assert self.kept.of(view).tolist() == worth(view).tolist()

    def play(self, what, at, more):
        names = sorted(self.cluster.snapshot.table.row_of)
        if what == "pods" and names:
            for _ in range(at):
                self.placed.append(a_pod(f"p{len(self.placed)}"))
                self.cluster.assume(self.placed[-1], names[more % len(names)])
        elif what == "remove" and self.placed:
            self.cluster.remove_pod(self.placed[at % len(self.placed)].uid)
        elif what == "node":
            self.cluster.set_node(a_node(f"n{at}", allocatable={"cpu": more, "pods": 99}))
        elif what == "drop":
            self.cluster.remove_node(f"n{at}")
        elif what == "what if" and names:
            table = self.cluster.snapshot.table
            row = at % len(names)
            with table.what_if(row):
                table.add_pod(row, a_pod("tried"))
                self.check()
            self.check()
        elif what == "ask":
            self.check()


@settings(max_examples=30, deadline=None)
@given(STEPS)
def test_the_cached_column_equals_a_recomputation(steps):
    history = History()
    for step in steps:
        history.play(*step)
    history.check()


def test_a_few_changed_rows_are_recomputed_singly():
    history = History()
    history.check()
    assert history.columns_asked == 1
    history.play("pods", 3, 1)
    history.check()
    assert history.columns_asked == 1
    history.play("pods", 12, 1)
    history.check()
    assert history.columns_asked == 2


def test_few_rows_are_computed_alone_after_many_changes():
    history = History()
    history.check()
    history.play("pods", 12, 1)
    some = NodeView(history.cluster.snapshot, np.array([2, 1]))
    assert history.kept.of(some).tolist() == worth(some).tolist()
    assert history.columns_asked == 1
    history.check()
    assert history.columns_asked == 2
