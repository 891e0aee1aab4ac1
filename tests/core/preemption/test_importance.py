"""Who matters more: priority, then running time; and what Go's sort makes of pods that have not started."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.core.preemption.row_importance import NOT_STARTED, by_importance, earliest_start, started
from moorage.testing.builders import a_pod

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def runs(name, priority=0, start=None):
    return a_pod(name, priority=priority, status={} if start is None else {"startTime": start})


CASES = {  # pods in the order they came, and in the order they matter
    "higher priority first": ([runs("a", 1), runs("b", 2)], "ba"),
    "no priority is 0": ([runs("a", -1), runs("b", None)], "ba"),
    "then the one that started earlier": ([runs("a", 1, LATE), runs("b", 1, EARLY)], "ba"),
    "priority before running time": ([runs("a", 1, EARLY), runs("b", 2, LATE)], "ba"),
    "one that has not started matters least": ([runs("a"), runs("b", 0, LATE)], "ba"),
    "equals stay as they came": ([runs("a", 1, EARLY), runs("b", 1, EARLY), runs("c", 1, EARLY)], "abc"),
    "equals that have not started are turned round": ([runs("a"), runs("b"), runs("c")], "cba"),
    "the offset of a time counts": ([runs("a", 0, "2026-01-01T00:00:00Z"), runs("b", 0, "2026-01-01T00:30:00+01:00")], "ba"),
}


@pytest.mark.parametrize(("pods", "order"), CASES.values(), ids=CASES)
def test_pods_are_ordered_by_importance(pods, order):
    assert "".join(pod.name for pod in by_importance(pods)) == order


def matters_more(one, other):
    """The comparison as kube-scheduler makes it; a pod that has not started reads the clock when it is compared."""
    if one.priority != other.priority:
        return one.priority > other.priority
    return started(one) < started(other) or started(one) == started(other) == NOT_STARTED


def sorted_by_insertion(pods):
    """What Go's ``sort.Slice`` does to a dozen elements at most."""
    done = list(pods)
    for end in range(1, len(done)):
        at = end
        while at > 0 and matters_more(done[at], done[at - 1]):
            done[at - 1 : at + 1] = done[at], done[at - 1]
            at -= 1
    return done


@given(st.lists(st.builds(runs, st.just("p"), st.integers(-1, 1), st.sampled_from([None, EARLY, LATE])), max_size=12))
def test_the_order_is_that_of_an_insertion_sort(pods):
    assert list(map(id, by_importance(pods))) == list(map(id, sorted_by_insertion(pods)))


STARTS = {
    "the earliest of the highest priority": ([runs("a", 2, LATE), runs("b", 2, EARLY), runs("c", 1, EARLY)], EARLY),
    "others do not count": ([runs("a", 2, LATE), runs("b", 1, EARLY)], LATE),
    "in any order": ([runs("b", 1, EARLY), runs("a", 2, LATE)], LATE),
    "started before not started": ([runs("a", 2), runs("b", 2, LATE)], LATE),
    "none has started": ([runs("a", 2), runs("b", 1, EARLY)], None),
}


@pytest.mark.parametrize(("pods", "start"), STARTS.values(), ids=STARTS)
def test_the_earliest_start_time(pods, start):
    assert earliest_start(pods) == started(runs("x", 0, start))


def test_times_are_epoch_microseconds_in_any_time_zone():
    assert started(runs("a", 0, "1970-01-01T00:00:10Z")) == 10_000_000
    assert started(runs("a", 0, "1970-01-01T00:00:10.5Z")) == 10_500_000
    assert started(runs("a", 0, "1970-01-01T00:00:10")) == 10_000_000
    assert started(runs("a", 0, "2026-01-01T00:00:00.000001Z")) - started(runs("a", 0, "2026-01-01T00:00:00Z")) == 1
    assert started(runs("a")) == NOT_STARTED
