"""A busy loop takes several messages at each wake-up; an idle one wakes up at once."""

from __future__ import annotations

import asyncio
import selectors
import socket

import pytest

from moorage.client.gathering import GatheringSelector, gathering_loop


@pytest.fixture
def watched():
    """A selector that watches one end of three pairs of sockets; its clock; and what it slept. Sleeping sends a message."""
    pairs = [socket.socketpair() for _ in range(3)]
    now, slept = [10.0], []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds
        pairs[1][1].send(b"x")

    selector = GatheringSelector(lambda: now[0], sleep)
    for mine, _ in pairs:
        selector.register(mine, selectors.EVENT_READ)
    yield selector, pairs, now, slept
    selector.close()
    for pair in pairs:
        for one in pair:
            one.close()


def test_an_idle_loop_wakes_up_at_once(watched):
    selector, pairs, now, slept = watched
    for _ in range(3):
        pairs[0][1].send(b"x")
        assert len(selector.select(5.0)) == 1
        assert pairs[0][0].recv(9) == b"x"
        now[0] += 0.01
    assert slept == []


@pytest.mark.parametrize(("timeout", "waits"), [(None, 0.003), (5.0, 0.003), (0.0004, 0.0004)])
def test_a_busy_loop_waits_for_more(watched, timeout, waits):
    selector, pairs, now, slept = watched
    pairs[0][1].send(b"x")
    assert len(selector.select(timeout)) == 1
    now[0] += 0.0005
    assert len(selector.select(timeout)) == 2
    assert slept == [waits]


def test_a_loop_with_something_to_do_does_not_wait(watched):
    selector, pairs, _, slept = watched
    pairs[0][1].send(b"x")
    for _ in range(3):
        assert len(selector.select(0)) == 1
    assert slept == []


def test_a_timeout_passes_without_messages(watched):
    selector, _, _, slept = watched
    assert selector.select(0.001) == []
    assert slept == []


def test_the_loop_runs_tasks_and_timers():
    async def main():
        left, right = await asyncio.gather(asyncio.sleep(0.01, 1), asyncio.to_thread(lambda: 2))
        return left + right

    with asyncio.Runner(loop_factory=gathering_loop) as runner:
        assert runner.run(main()) == 3
