"""A busy loop takes many messages at each wake-up; an idle one wakes up at once."""

from __future__ import annotations

import asyncio
import selectors
import socket

import pytest

from moorage.basis.client.gathering_selector import GatheringSelector, gathering_loop, waiting_bytes


@pytest.fixture
def watched():
    """A selector that watches one end of three pairs of sockets; its clock; and what it slept. Sleeping sends a message.

    It keeps no wake-ups that were earned.
    """
    pairs = [socket.socketpair() for _ in range(3)]
    now, slept = [10.0], []

    def sleep(seconds):
        slept.append(round(seconds, 6))
        now[0] += seconds
        pairs[1][1].send(b"x")

    selector = GatheringSelector(lambda: now[0], sleep, most_earned=0)
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
        now[0] += 0.021
    assert slept == []


@pytest.mark.parametrize("timeout", [None, 5.0])
@pytest.mark.parametrize(
    ("busy_s", "waits"), [(0.0001, 0.0029), (0.0005, 0.0045), (0.001, 0.009), (0.005, 0.015), (0.019, 0.001)]
)
def test_the_longer_a_loop_was_busy_the_longer_it_waits_for_more(watched, timeout, busy_s, waits):
    selector, pairs, now, slept = watched
    pairs[0][1].send(b"x")
    assert len(selector.select(timeout)) == 1
    now[0] += busy_s
    assert len(selector.select(timeout)) == 2
    assert slept == [waits]


def test_idle_time_earns_wake_ups_at_once():
    now, slept = [10.0], []
    mine, theirs = socket.socketpair()

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    def exchange(messages):
        """Take messages that arrive one millisecond after each other; return how many had to wait."""
        slept.clear()
        for _ in range(messages):
            theirs.send(b"x")
            assert selector.select(None)
            mine.recv(9)
            now[0] += 0.001
        return len(slept)

    with GatheringSelector(lambda: now[0], sleep, most_earned=3) as selector, mine, theirs:
        selector.register(mine, selectors.EVENT_READ)
        assert exchange(10) == 10 - 1 - 3
        assert exchange(10) >= 9  # all are used
        now[0] += 0.15  # and the waiting took 0.09 s
        assert exchange(10) == 10 - 1 - 2
        now[0] += 60.0
        assert exchange(10) == 10 - 1 - 3


def test_a_wake_up_that_comes_late_enough_uses_nothing_that_was_earned(watched):
    _, pairs, now, slept = watched
    with GatheringSelector(lambda: now[0], slept.append, most_earned=1) as selector:
        selector.register(pairs[0][0], selectors.EVENT_READ)
        for _ in range(5):
            pairs[0][1].send(b"x")
            assert selector.select(None)
            pairs[0][0].recv(9)
            now[0] += 0.021
        assert slept == []
        pairs[0][1].send(b"x")
        assert selector.select(None)
        now[0] += 0.001
        assert selector.select(None)
    assert slept == []


def test_messages_wait_while_a_loop_has_other_work(watched):
    selector, pairs, now, slept = watched
    pairs[0][1].send(b"x")
    assert len(selector.select(0)) == 1
    for _ in range(4):
        assert selector.select(0) == []
        now[0] += 0.005
    assert len(selector.select(0)) == 1
    assert slept == []


def test_a_timer_is_not_late_and_takes_no_messages(watched):
    selector, pairs, now, slept = watched
    pairs[0][1].send(b"x")
    assert len(selector.select(0.001)) == 1
    now[0] += 0.0005
    assert selector.select(0.001) == []
    assert slept == [0.001]
    assert len(selector.select(0.5)) == 2
    assert len(slept) == 2


@pytest.mark.parametrize(("size", "waits"), [(60_000, [0.009]), (70_000, [])])
def test_a_loop_with_much_to_read_does_not_wait(watched, size, waits):
    selector, pairs, now, slept = watched
    pairs[0][1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    pairs[0][1].send(bytes(size))
    assert len(selector.select(5.0)) == 1
    now[0] += 0.001
    assert selector.select(5.0)
    assert slept == waits


def test_a_listening_socket_has_nothing_to_read():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert waiting_bytes(server.fileno()) == 0


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
