"""A busy loop takes many messages at each wake-up; an idle one wakes up at once."""

from __future__ import annotations

import asyncio
import selectors
import socket

import pytest

from moorage.client.gathering import GatheringSelector, gathering_loop, waiting_bytes


@pytest.fixture
def watched():
    """A selector that watches one end of three pairs of sockets; its clock; and what it slept. Sleeping sends a message."""
    pairs = [socket.socketpair() for _ in range(3)]
    now, slept = [10.0], []

    def sleep(seconds):
        slept.append(round(seconds, 6))
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
