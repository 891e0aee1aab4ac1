"""Where facts wait until the engine is told of them: watch events, and outcomes of work."""

from __future__ import annotations

import asyncio
from collections import deque

from moorage.engine.facts import Fact

__all__ = ["Inbox"]


class Inbox:
    """Facts in the order they came. Whoever watches the cluster is slowed down while it is full; outcomes never wait."""

    def __init__(self, limit: int = 10_000) -> None:
        self._facts: deque[Fact] = deque()
        self._limit = limit
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._facts)

    async def put(self, fact: Fact) -> None:
        """Add a fact once there is room for it."""
        while len(self._facts) >= self._limit:
            self._room.clear()
            await self._room.wait()
        self.put_now(fact)

    def put_now(self, fact: Fact) -> None:
        self._facts.append(fact)
        self._news.set()

    def poke(self) -> None:
        """Wake whoever waits for facts although there is none."""
        self._news.set()

    def take(self, most: int) -> list[Fact]:
        """Return the oldest facts, at most so many."""
        taken = [self._facts.popleft() for _ in range(min(most, len(self._facts)))]
        if len(self._facts) < self._limit:
            self._room.set()
        return taken

    async def wait(self, seconds: float | None) -> None:
        """Wait for a fact or a poke, at most so long."""
        if not self._facts:
            try:
                async with asyncio.timeout(seconds):
                    await self._news.wait()
            except TimeoutError:
                pass
        self._news.clear()
