"""Where facts wait until the engine takes them in: watch events, and outcomes of work.

Facts about one kind of object come from a ``Source``. When a list of the kind arrives, its source opens: from then on the
engine may know only a part of the list. ``Source.end`` puts a mark behind the last fact of the list, and the source closes when
the loop comes to that mark. Facts and marks share one queue, so a closed source means that the engine has the whole list.
"""

from __future__ import annotations

import asyncio
from collections import deque

from moorage.engine.facts import Fact

__all__ = ["Inbox", "Source"]


class Source:
    """Delivers the facts about one kind. It calls ``begin`` when it has a list, puts its facts, and calls ``end``."""

    def __init__(self, inbox: Inbox, name: str) -> None:
        self._inbox, self.name = inbox, name
        #: True once the engine has the first list.
        self.synced = False
        #: Lists that have arrived, and of which the engine does not have all.
        self._open = 0

    @property
    def is_whole(self) -> bool:
        """True when the engine has every list that has arrived, and there was one."""
        return self.synced and not self._open

    def begin(self) -> None:
        """A list has arrived, and its facts follow."""
        self._open += 1

    async def put(self, fact: Fact) -> None:
        await self._inbox.put(fact)

    def end(self) -> None:
        """All facts of the list were put."""
        self._inbox.put_now(self)

    def close(self) -> None:
        """The engine has taken in all that was put before ``end``."""
        self._open -= 1
        self.synced = True


class Inbox:
    """Facts and marks in the order they came. Sources wait while it is full; marks and outcomes of work never do."""

    def __init__(self, limit: int = 10_000) -> None:
        self.sources: list[Source] = []
        self._waiting: deque[Fact | Source] = deque()
        self._limit = limit
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_whole(self) -> bool:
        """True when the engine has all lists of all sources."""
        return all(source.is_whole for source in self.sources)

    def source(self, name: str) -> Source:
        """Return a new source. The inbox is not whole until the engine has its first list."""
        source = Source(self, name)
        self.sources.append(source)
        return source

    async def put(self, fact: Fact) -> None:
        """Add a fact once there is room for it."""
        while len(self._waiting) >= self._limit:
            self._room.clear()
            await self._room.wait()
        self.put_now(fact)

    def put_now(self, one: Fact | Source) -> None:
        """Add a fact, or the mark of a source, also where there is no room."""
        self._waiting.append(one)
        self._news.set()

    def poke(self) -> None:
        """Wake whoever waits for facts although there is none."""
        self._news.set()

    def take(self, most: int) -> list[Fact | Source]:
        """Return the oldest facts and marks, at most so many."""
        taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        if len(self._waiting) < self._limit:
            self._room.set()
        return taken

    async def wait(self, seconds: float | None) -> None:
        """Wait for a fact or a poke, at most so long."""
        if not self._waiting:
            try:
                async with asyncio.timeout(seconds):
                    await self._news.wait()
            except TimeoutError:
                pass
        self._news.clear()
