"""One row stands for each distinct room, and divisors and the ring equal a recomputation, after any changes of rows."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.state.ring import Ring
from moorage.testing.builders import a_cluster, a_node, a_pod

CPU = 1000
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pods"), st.integers(1, 4), st.integers(0, 9)),
        st.tuples(st.just("remove"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("node"), st.integers(0, 30), st.integers(0, 2)),
        st.tuples(st.just("drop"), st.integers(0, 30), st.just(0)),
        *[st.tuples(st.just("check"), st.just(0), st.just(0))] * 2,
    ),
    max_size=40,
)


class History:
    def __init__(self):
        self.cluster = a_cluster([a_node(f"n{at}", allocatable={"cpu": 1, "pods": 99}) for at in range(12)])
        self.placed = []
        self.found = 0

    def check(self, *_):
        table = self.cluster.snapshot.table
        numbers = table.rooms.followed().view
        found = table.distinct_rooms.find()
        if found is not None:
            self.found += 1
            assert (numbers[found.rows[found.which]] == numbers).all()
            assert found.held.tolist() == np.bincount(found.which, minlength=len(found.rows)).tolist()
            self.search(table, found)
        offered = table.allocatable("cpu").view
        amounts, everywhere, exact = table.divisors("cpu")
        assert (amounts.tolist(), everywhere) == (np.maximum(offered, 1).tolist(), bool(offered.all()))
        assert exact == (not (offered >= 1 << 46).any())
        ring, fresh = table.ring(), Ring.of(table.name_hash.view.copy())
        assert (ring.rows.tolist(), ring.place_of.tolist()) == (fresh.rows.tolist(), fresh.place_of.tolist())

    def search(self, table, found):
        """The first row with a marked room is the first of the best rows on the ring."""
        for start in (0, 1 << 62, 1 << 63, (1 << 64) - 1):
            for marked in (found.held > 0, found.held == found.held.max(), np.arange(len(found.rows)) == found.which[0]):
                best = table.ring().first_best(marked[found.which][table.ring().rows].astype(np.int64), start)
                assert table.distinct_rooms.first(marked, start) == best

    def pods(self, number, more):
        names = sorted(self.cluster.snapshot.table.row_of)
        for at in range(number if names else 0):
            asks = {"containers": [{"name": "c", "resources": {"requests": {"cpu": f"{1 + more % 3}m"}}}]}
            self.placed.append(a_pod(f"p{len(self.placed)}", **asks))
            self.cluster.assume(self.placed[-1], names[(more + at) % len(names)])

    def remove(self, at, _):
        if self.placed:
            self.cluster.remove_pod(self.placed[at % len(self.placed)].uid)

    def node(self, at, size):
        offers = ({"cpu": 1, "pods": 99}, {"cpu": 1 << 46, "pods": 99}, {"pods": 99})[size]
        self.cluster.set_node(a_node(f"n{at}", allocatable=offers))

    def drop(self, at, _):
        self.cluster.remove_node(f"n{at}")


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_rows_of_distinct_rooms_stand_for_all(steps):
    with patch("moorage.state.distinct_rooms._WORTH_IT", 1), patch("moorage.state.distinct_rooms._FIRST_SEARCHED", 2):
        history = History()
        for what, *how in steps:
            getattr(history, what)(*how)
        history.check()


def test_rooms_are_followed_while_they_are_few():
    with patch("moorage.state.distinct_rooms._WORTH_IT", 1):
        history = History()
        for at in range(6):
            history.pods(2, at)
            history.check()
            history.remove(at, 0)
            history.check()
        assert history.found == 12


def test_a_room_that_returns_finds_its_index():
    with patch("moorage.state.distinct_rooms._WORTH_IT", 1):
        history = History()
        table = history.cluster.snapshot.table
        history.pods(1, 0)
        full = table.distinct_rooms.find().which[table.row_of["n0"]]
        history.remove(0, 0)
        assert table.distinct_rooms.find().held[full] == 0
        history.pods(1, 0)
        assert table.distinct_rooms.find().which[table.row_of["n0"]] == full


def test_a_cluster_of_unlike_rooms_is_judged_as_a_whole():
    cluster = a_cluster([a_node(f"n{at}", allocatable={"cpu": 1 + at, "pods": 99}) for at in range(12)])
    with patch("moorage.state.distinct_rooms._WORTH_IT", 1):
        assert cluster.snapshot.table.distinct_rooms.find() is None
