"""The inbox: facts keep their order, and it is whole only where every list that has arrived was taken in."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.core.engine.facts import Done, Seen
from moorage.live.runtime.inbox import FactSource, Inbox
from moorage.testing.builders import a_node
from moorage.testing.virtual_time import run_virtually


def take(inbox, most=1000):
    """Take facts in as the loop does."""
    taken = inbox.take(most)
    for one in taken:
        if isinstance(one, FactSource):
            one.close()
    return [one for one in taken if not isinstance(one, FactSource)]


def test_the_inbox_is_synced_after_the_first_list_of_every_source():
    inbox = Inbox()
    assert inbox.is_whole, "where nothing is followed"
    nodes, pods = inbox.source("nodes"), inbox.source("pods")
    for source in (nodes, pods):
        assert not inbox.is_whole
        source.begin()
        source.end()
        assert (source.synced, inbox.is_whole) == (False, False), "its mark waits"
        take(inbox)
        assert source.synced
    assert inbox.is_whole


def test_a_list_longer_than_one_turn_is_open_until_its_last_fact():
    inbox = Inbox()
    pods = inbox.source("pods")
    pods.begin()
    for ticket in range(5):
        inbox.put_now(Done(ticket))
    pods.end()
    taken = []
    while not inbox.is_whole:
        taken += take(inbox, 2)
    assert taken == [Done(ticket) for ticket in range(5)]


def test_a_producer_waits_while_the_inbox_is_full():
    async def main():
        inbox = Inbox(limit=2)
        bringing = [asyncio.create_task(inbox.put(Done(ticket))) for ticket in range(4)]
        await asyncio.sleep(0)
        assert (len(inbox), [task.done() for task in bringing]) == (2, [True, True, False, False])
        inbox.put_now(Done(9))
        assert take(inbox) == [Done(0), Done(1), Done(9)]
        await asyncio.gather(*bringing)
        assert len(inbox) == 2

    run_virtually(main())


def test_many_facts_wait_for_room_together_and_keep_their_order():
    async def main():
        inbox = Inbox(limit=2)
        source = inbox.source("pods")
        bringing = asyncio.create_task(source.put_all([Done(ticket) for ticket in range(5)]))
        taken = []
        for left in (2, 2, 1):
            await asyncio.wait_for(inbox.wait(None), 1.0)
            await asyncio.sleep(0)
            assert (len(inbox), bringing.done()) == (left, left == 1)
            taken += take(inbox)
        assert taken == [Done(ticket) for ticket in range(5)]

    run_virtually(main())


def test_a_relist_opens_at_once_before_the_previous_marker_is_taken():
    inbox = Inbox()
    pods = inbox.source("pods")
    pods.begin()
    pods.end()
    pods.begin()
    take(inbox)
    assert (pods.synced, inbox.is_whole) == (True, False)
    pods.end()
    take(inbox)
    assert inbox.is_whole


def test_a_source_waits_for_space_and_its_marker_does_not():
    async def main():
        inbox = Inbox(limit=2)
        pods = inbox.source("pods")
        facts = [Seen(a_node(f"n{number}")) for number in range(5)]

        async def deliver():
            pods.begin()
            for fact in facts:
                await pods.put(fact)
            pods.end()

        task = asyncio.create_task(deliver())
        taken = []
        while not inbox.is_whole:
            await asyncio.sleep(1)
            assert len(inbox) <= 3, "two facts and a mark"
            taken += take(inbox, 1)
        await task
        return taken == facts

    assert run_virtually(main())


STEPS = st.lists(st.tuples(st.sampled_from(["begin", "put", "end", "take"]), st.integers(0, 1), st.integers(1, 4)), max_size=60)


@pytest.mark.slow
@given(STEPS)
def test_the_inbox_is_synced_only_after_all_of_every_list(steps):
    """Compared with a plain account of which facts of which lists are still to be taken."""
    inbox = Inbox()
    sources = [inbox.source("a"), inbox.source("b")]
    begun, lists, waiting, count = [False, False], [0, 0], [], 0
    for what, at, number in steps:
        if what == "begin" and not begun[at]:
            begun[at] = True
            sources[at].begin()
        elif what == "put":
            count += 1
            inbox.put_now(Done(count))
            waiting.append(Done(count))
        elif what == "end" and begun[at]:
            begun[at] = False
            sources[at].end()
            waiting.append(at)
        elif what == "take":
            for one in waiting[:number]:
                if isinstance(one, int):
                    lists[one] += 1
            expected = [one for one in waiting[:number] if not isinstance(one, int)]
            del waiting[:number]
            assert take(inbox, number) == expected
        assert inbox.is_whole == (all(lists) and not any(begun) and not any(isinstance(one, int) for one in waiting))
        assert [source.synced for source in sources] == [bool(taken) for taken in lists]
