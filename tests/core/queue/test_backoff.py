"""How long a failed pod waits, and who may leave early."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.core.queue.backoff import BackoffQueue
from moorage.core.queue.queued_pod import QueuedPod
from moorage.testing.builders import a_pod


def by_priority(queued):
    return -queued.pod.priority, queued.timestamp


def a_queue(*, initial_s=1.0, max_s=10.0, pop_early=True):
    return BackoffQueue(by_priority, initial_s, max_s, pop_early)


def failed(name="p", *, at=0.0, times=1, errors=0, priority=0, order=0):
    plugins = frozenset() if errors else frozenset({"Fit"})
    return QueuedPod(
        a_pod(name, priority=priority),
        at,
        order,
        unschedulable_count=times,
        consecutive_errors=errors,
        unschedulable_plugins=plugins,
    )


DELAYS = {  # initial, max, failures, seconds
    "never failed": (1, 10, 0, 0),
    "first failure": (1, 10, 1, 1),
    "second": (1, 10, 2, 2),
    "third": (1, 10, 3, 4),
    "fourth": (1, 10, 4, 8),
    "fifth, capped": (1, 10, 5, 10),
    "exactly the cap": (1, 8, 4, 8),
    "a thousand failures": (1, 10, 1000, 10),
    "begins above the cap": (20, 10, 1, 10),
    "other settings": (3, 100, 4, 24),
}


@pytest.mark.parametrize(("initial_s", "max_s", "failures", "wait_s"), DELAYS.values(), ids=DELAYS)
def test_backoff_doubles_up_to_the_maximum(initial_s, max_s, failures, wait_s):
    assert a_queue(initial_s=initial_s, max_s=max_s).delay_s(failures) == wait_s


@given(failures=st.integers(1, 10**9), initial_s=st.integers(1, 100), max_s=st.integers(1, 1000))
def test_backoff_stays_in_bounds_and_never_shrinks(failures, initial_s, max_s):
    queue = a_queue(initial_s=initial_s, max_s=max_s)
    assert min(initial_s, max_s) <= queue.delay_s(failures) <= queue.delay_s(failures + 1) <= max_s


ENDS = {  # pod, settings, end of its backoff
    "one rejection, to the whole second": (failed(at=5.7), {}, 6.0),
    "one rejection, to the instant": (failed(at=5.7), {"pop_early": False}, 6.7),
    "three rejections": (failed(at=5.0, times=3), {}, 9.0),
    "errors decide while there are any": (failed(at=5.0, times=1, errors=4), {}, 13.0),
    "rejections count again once errors are over": (failed(at=5.0, times=2, errors=0), {}, 7.0),
    "switched off": (failed(at=5.0, times=3), {"max_s": 0}, float("-inf")),
    "never tried": (failed(at=5.0, times=0), {}, float("-inf")),
}


@pytest.mark.parametrize(("queued", "settings", "end"), ENDS.values(), ids=ENDS)
def test_backoff_counts_from_the_last_attempt(queued, settings, end):
    queued.backoff_until = None
    assert a_queue(**settings).until(queued) == end


HOLDS = {  # end of the backoff 6.7, or its window 6; now; still waiting?
    "before": (True, 5.0, True),
    "in its window": (True, 6.9, True),
    "in the next window": (True, 7.0, False),
    "to the instant: at its end": (False, 6.7, True),
    "to the instant: just after": (False, 6.75, False),
}


@pytest.mark.parametrize(("pop_early", "now", "waits"), HOLDS.values(), ids=HOLDS)
def test_a_pod_is_in_backoff_at_the_exact_end(pop_early, now, waits):
    assert a_queue(pop_early=pop_early).holds(failed(at=5.7), now) is waits


@pytest.mark.parametrize("pop_early", [True, False])
def test_backoff_ends_on_whole_seconds(pop_early):
    queue = a_queue(pop_early=pop_early)
    queue.push(failed("rejected", at=5.7))
    queue.push(failed("errored", at=5.7, errors=1))
    queue.push(failed("later", at=5.7, times=2))
    assert queue.next_completion() == 7.0
    assert list(queue.pop_completed(6.99)) == []
    assert [queued.pod.name for queued in queue.pop_completed(7.3)] == ["rejected", "errored"]
    assert queue.next_completion() == 8.0
    assert len(queue) == 1


def test_within_a_window_the_higher_priority_pod_is_first():
    queue = a_queue()
    queue.push(failed("small", at=5.1, priority=1, order=1))
    queue.push(failed("great", at=5.9, priority=9, order=2))
    queue.push(failed("earlier window", at=4.9, priority=0, order=3))
    assert [queue.pop_early().pod.name for _ in range(3)] == ["earlier window", "great", "small"]


def test_pods_with_an_error_never_leave_backoff_early():
    queue = a_queue()
    queue.push(failed("errored", errors=1))
    assert queue.pop_early() is None
    assert len(queue) == 1


def test_no_pod_leaves_backoff_early_while_that_is_disabled():
    queue = a_queue(pop_early=False)
    queue.push(failed())
    assert queue.pop_early() is None


def test_a_pod_can_be_removed_from_either_backoff_queue():
    queue = a_queue()
    rejected, errored = failed("rejected"), failed("errored", errors=1)
    queue.push(rejected)
    queue.push(errored)
    queue.discard(rejected)
    queue.discard(errored)
    assert len(queue) == 0
    assert queue.next_completion() is None
