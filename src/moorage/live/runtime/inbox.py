"""The queue of facts for the engine: watch events and outcomes of work.

Facts about one kind of object come from a ``FactSource``. When a list of the kind arrives, its source opens: from then on the
engine may have only a part of the list. ``Source.end`` puts a mark after the last fact of the list, and the source closes when
the loop takes that mark. Facts and marks share one queue, so a closed source means that the engine has the whole list.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from moorage.core.engine.facts import Fact


class FactSource:
    """Delivers the facts about one kind. It calls ``begin`` when it has a list, puts its facts, and calls ``end``."""

    def __init__(self, inbox: Inbox, name: str) -> None:
        self._inbox, self.name = inbox, name
        #: True once the engine has the first list.
        self.synced = False
        #: The number of lists that have arrived and that the engine has only in part.
        self._open = 0

    @property
    def is_whole(self) -> bool:
        """True if at least one list has arrived and the engine has all of them."""
        return self.synced and not self._open

    @property
    def is_listing(self) -> bool:
        """True while the engine does not have all facts of a list that has arrived."""
        return self._open > 0

    def begin(self) -> None:
        """Open the source: a list has arrived, and its facts follow."""
        self._inbox.in_part += self.is_whole
        self._open += 1

    async def put(self, fact: Fact) -> None:
        await self._inbox.put(fact)

    async def put_all(self, facts: Sequence[Fact]) -> None:
        await self._inbox.put_all(facts)

    def end(self) -> None:
        """Put the mark after the last fact of the list."""
        self._inbox.put_now(self)

    def close(self) -> None:
        """Close the source: the engine has processed every fact that was put before ``end``."""
        self._open -= 1
        self.synced = True
        self._inbox.in_part -= self.is_whole


class Inbox:
    """Facts and marks in order of arrival. Sources wait while it is full; marks and outcomes of work do not."""

    def __init__(self, limit: int = 10_000) -> None:
        self.sources: list[FactSource] = []
        #: The number of sources that are not whole. Each source maintains it.
        self.in_part = 0
        self._waiting: deque[Fact | FactSource] = deque()
        self._limit = limit
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_whole(self) -> bool:
        """True if the engine has all lists of all sources."""
        return not self.in_part

    def source(self, name: str) -> FactSource:
        """Return a new source. The inbox is not whole until the engine has its first list."""
        source = FactSource(self, name)
        self.sources.append(source)
        self.in_part += 1
        return source

    async def put(self, fact: Fact) -> None:
        """Add a fact once there is room for it."""
        while len(self._waiting) >= self._limit:
            self._room.clear()
            await self._room.wait()
        self.put_now(fact)

    async def put_all(self, facts: Sequence[Fact]) -> None:
        """Add facts in order, as many at a time as there is room for."""
        at = 0
        while at < len(facts):
            room = self._limit - len(self._waiting)
            if room <= 0:
                self._room.clear()
                await self._room.wait()
                continue
            if not self._waiting:
                self._news.set()
            self._waiting.extend(facts[at : at + room])
            at += room

    def put_now(self, one: Fact | FactSource) -> None:
        """Add a fact, or the mark of a source, even if the inbox is full."""
        if not self._waiting:  # otherwise no task waits for facts
            self._news.set()
        self._waiting.append(one)

    def poke(self) -> None:
        """Wake the task that waits for facts."""
        self._news.set()

    def take(self, most: int) -> list[Fact | FactSource]:
        """Remove and return the oldest facts and marks, at most ``most``."""
        if len(self._waiting) <= most:
            taken = list(self._waiting)
            self._waiting.clear()
        else:
            taken = [self._waiting.popleft() for _ in range(most)]
        if len(self._waiting) < self._limit:
            self._room.set()
        return taken

    async def wait(self, seconds: float | None) -> None:
        """Wait for a fact or a poke, for at most ``seconds``."""
        if not self._waiting and not self._news.is_set():
            timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self._news.set)
            try:
                await self._news.wait()
            finally:
                if timer is not None:
                    timer.cancel()
        self._news.clear()
