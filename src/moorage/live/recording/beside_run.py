"""``moorage run --record``: the scheduler's own watches are written into a log, in the order in which they deliver changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from moorage.basis.recording.log_writer import LogWriter
from moorage.core.engine.facts import Fact, Gone, Seen
from moorage.live.client.reflector import Sink
from moorage.live.recording.recorder import ChangeRecorder, LogClock, ObjectEncoder
from moorage.live.recording.watching import ALIVE_S, FLUSH_S
from moorage.live.runtime.attempt_metrics import Log

__all__ = ["RunRecording"]


class RunRecording:
    """Records in the process of a scheduler; a log that cannot be written never stops it.

    Raises  InputError if the directory cannot be used
    """

    def __init__(self, directory: str, log: Log) -> None:
        writer = LogWriter(directory)
        self.recorder = ChangeRecorder(writer, LogClock(time.time_ns, time.monotonic, writer.last_at), ObjectEncoder())
        self._log, self._failed = log, False

    def beside(self, sink: Sink) -> Sink:
        """Return a sink that records facts and passes them on."""
        return _Recorded(sink, self.recorder)

    async def run(self, not_synced: Callable[[], Sequence[str]], facts: Mapping[str, Any]) -> None:
        """Write until cancelled. ``not_synced`` returns the kinds that are not listed yet; ``facts`` describe the cluster."""
        turns = 0
        while True:
            try:
                if not self.recorder.has_started and not not_synced():
                    self.recorder.start(facts)
                    self._log.info(0, "Recording", objects=len(self.recorder), to=str(self.recorder.writer.directory))
                while self.recorder.turn():
                    await asyncio.sleep(0)
                self._failed = False
            except OSError as error:
                if not self._failed:
                    self._log.error(error, "the log of --record cannot be written; trying again")
                self._failed = True
            await asyncio.sleep(FLUSH_S)
            turns += 1
            if self.recorder.has_started and turns % round(ALIVE_S / FLUSH_S) == 0:
                self.recorder.mark("alive", {}, last=True)

    def close(self) -> None:
        """Write what waits."""
        try:
            self.recorder.close()
        except OSError as error:
            self._log.error(error, "the end of the log of --record is lost")


class _Recorded:
    """Passes the facts of one kind to the recorder and then to the engine."""

    def __init__(self, sink: Sink, recorder: ChangeRecorder) -> None:
        self._sink, self._recorder = sink, recorder
        self.begin, self.end = sink.begin, sink.end

    async def put(self, fact: Fact) -> None:
        self._record(fact)
        await self._sink.put(fact)

    async def put_all(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            self._record(fact)
        await self._sink.put_all(facts)

    def _record(self, fact: Fact) -> None:
        if isinstance(fact, Seen | Gone):
            self._recorder.observe(fact)
