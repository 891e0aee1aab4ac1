"""Test the order of the queue: by priority, then by the time of queueing."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from moorage.plugins.priority_sort import PrioritySort
from moorage.state.pod_info import PodInfo
from moorage.testing.builders import a_pod


class Queued(NamedTuple):
    pod: PodInfo
    timestamp: float


def queued(name, priority, timestamp):
    return Queued(a_pod(name, **({} if priority is None else {"priority": priority})), timestamp)


def test_sorts():
    waiting = [queued("late", 5, 9.0), queued("none", None, 0.0), queued("early", 5, 1.0), queued("low", -3, 0.0)]
    in_order = sorted(waiting, key=PrioritySort().sort_key)
    assert [one.pod.name for one in in_order] == ["early", "late", "none", "low"]


@given(st.tuples(st.integers(-3, 3), st.floats(0, 3)), st.tuples(st.integers(-3, 3), st.floats(0, 3)))
def test_agrees_with_pairwise_comparison(one, other):
    key = PrioritySort().sort_key
    (p, t), (q, u) = one, other
    assert (key(queued("a", p, t)) < key(queued("b", q, u))) == (p > q or (p == q and t < u))
