"""Follow a cluster: watches fill an inbox, and one task takes the facts in order, decides beside the scheduler and writes them.

Nothing is written to the cluster. While the task is behind, it leaves comparisons out until it has caught up, and says so; the
order of facts stays, and watches wait when the inbox is full.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from moorage.api.core import Node, Pod
from moorage.basis.change_recorder import ChangeRecorder, LogClock, ObjectEncoder
from moorage.basis.client.reflector import Reflector, Sink
from moorage.basis.client.rest import Rest
from moorage.basis.client.watched_resources import watched
from moorage.basis.inputs.components import CONFIG_MAP_TYPE, RUNNERS
from moorage.basis.printable import counted
from moorage.basis.recording.log_writer import LogWriter
from moorage.core.engine.facts import Fact, Gone, Seen
from moorage.errors import MoorageError
from moorage.live.recording.companion_watches import Companions, ConfigMapReader
from moorage.live.recording.decision_comparison import ComparedDecision, Shadow
from moorage.live.runtime.attempt_metrics import UNOBSERVED, Log, Observers
from moorage.live.runtime.inbox import FactSource, Inbox

#: Facts in one turn of the task; then others run.
_TURN: Final = 100
#: How often records are written, how often the recorder says that it runs, and how often counts are kept.
FLUSH_S: Final = 1.0
ALIVE_S: Final = 10.0
#: From this delay on, the recorder is behind, and leaves comparisons out.
BEHIND_S: Final = 5.0


class RecorderLoop:
    """Records a cluster until ``run`` is cancelled. ``facts`` describe it in the log; ``on_status`` is called now and then.

    ``companions``: what is recorded beside the kinds of the scheduler
    """

    def __init__(
        self, recorder: ChangeRecorder, shadow: Shadow, rest: Rest, facts: Mapping[str, Any], *,
        observers: Observers = UNOBSERVED, on_status: Callable[[RecorderLoop], None] = lambda loop: None,
        clock: Callable[[], float] = time.monotonic, inbox: int = 50_000, companions: Companions | None = None,
    ) -> None:  # fmt: skip
        self.recorder, self.shadow, self.about = recorder, shadow, facts
        self._log, self._on_status, self._clock = observers.log, on_status, clock
        shadow.on_difference = self.difference
        self.inbox = Inbox(inbox)
        chance = random.Random()  # noqa: S311 (spreads retries)
        own, beside = watched(shadow.scheduler.gates), companions or Companions((), {})
        self.reflectors: list[Reflector[Any]] = [
            Reflector(one, rest, self.inbox.source(one.plural), clock=clock, rng=chance, report=observers.report, streams=True)
            for one in (*own, *beside.resources)
        ]
        self._beside = frozenset(one.type for one in beside.resources) | {CONFIG_MAP_TYPE}
        self._config_maps = (
            ConfigMapReader(rest.get, self.inbox.source("configmaps"), beside.config_maps, observers.report)
            if companions is not None else None
        )  # fmt: skip
        #: By type, the sources whose lists lose an order that decisions depend on, and what follows these kinds.
        self._ordered: dict[type, tuple[FactSource, Reflector[Any]]] = {
            pair[1].resource.type: pair
            for pair in zip(self.inbox.sources, self.reflectors, strict=False)  # config maps have no reflector
            if pair[1].resource.type in {Pod, Node}
        }
        self._flushed = self._said = self._empty_at = clock()
        #: The number of facts that were taken.
        self.facts = 0
        #: Seconds since the inbox was last empty: the oldest fact in it is at most that old.
        self.behind_s = 0.0
        #: The last error of writing the log; "" if the last write succeeded.
        self.write_error = ""

    @property
    def not_synced(self) -> list[str]:
        """Kinds that are not listed yet."""
        return [source.name for source in self.inbox.sources if not source.synced]

    @property
    def is_behind(self) -> bool:
        return self.behind_s >= BEHIND_S

    def difference(self, found: ComparedDecision, at: int) -> None:
        """Write a difference into the log, and into the log of the process."""
        self.recorder.mark("difference", self.recorder.encoder.facts({"state": at, **found.facts()}))
        ours = f"Moorage chooses {found.ours}" if found.ours else "Moorage finds no node"
        theirs = f"was bound to {found.node}" if found.node else "was found unschedulable"
        plugins = f" ({', '.join(found.plugins)})" if found.plugins else ""
        self._log.info(1, f"pod {theirs}; {ours}{plugins}", pod=found.pod, margin=found.margin)

    async def run(self) -> None:
        """Record until cancelled.

        Raises  the error that ended a watch
        """
        async with asyncio.TaskGroup() as tasks:
            for one in self.reflectors:
                tasks.create_task(one.run(), name=f"watch {one.resource.plural}")
            if self._config_maps is not None:
                ready = [one.synced.wait() for one in self.reflectors if one.resource.type in RUNNERS.values()]
                tasks.create_task(self._config_maps.run(ready), name="read config maps")
            while True:
                busy = self._turn()
                if busy:
                    await asyncio.sleep(0)
                else:
                    await self.inbox.wait(FLUSH_S)

    def _turn(self) -> bool:
        """Take some facts, and write what is due. Return whether there is more to do at once."""
        now = self._clock()
        taken = self.inbox.take(_TURN)
        for fact in taken:
            self._take(fact, now)
        more = False
        if not self.inbox:
            self._empty_at = self._clock()
            told = [(one.told_until, one.told_version) for _, one in self._ordered.values()]
            more = self.shadow.settle(*map(min, zip(*told, strict=True)))
        self._sign(self._clock())
        if self._clock() - self._flushed >= FLUSH_S or not (taken and self.recorder.has_started):
            more = self._write() or more
        return more or len(self.inbox) > 0

    def _take(self, fact: object, now: float) -> None:
        if isinstance(fact, FactSource):
            fact.close()
        elif isinstance(fact, Seen | Gone):
            self.facts += 1
            if type(fact.obj) in self._beside:
                self.recorder.observe(fact)
                return
            compares, early, surely = self.recorder.has_started and not self.is_behind, now, now
            if (ordered := self._ordered.get(type(fact.obj))) is not None:
                early, surely = min(now, ordered[1].told_until), ordered[1].told_surely
                if ordered[0].is_listing:
                    self.shadow.lost_order(now, ordered[1].told_version)
            self.shadow.observe(fact, now, self.recorder.writer.last_at, early, surely, compares=compares)
            self.recorder.observe(fact)

    def _sign(self, now: float) -> None:
        """Say when the recorder falls behind, and when it has caught up."""
        was_behind, self.behind_s = self.is_behind, now - self._empty_at
        if self.is_behind is not was_behind:
            waiting = f"{counted(len(self.inbox), 'change')} wait; comparing nothing until it caught up"
            self._log.warning(
                f"the recorder is {self.behind_s:.0f} s behind: {waiting}" if self.is_behind else "the recorder has caught up"
            )
            if self.recorder.has_started:
                self.recorder.mark("behind", {"seconds": round(self.behind_s, 1)})

    def _write(self) -> bool:
        """Write the log. A failed write is tried again; what waits stays in memory and in order."""
        now = self._clock()
        self._flushed = now
        if self.recorder.has_started and now - self._said >= ALIVE_S:
            self._said = now
            self.recorder.mark("agreement", self.shadow.agreement.facts(), last=True)
            self._on_status(self)
        ready = self.inbox.is_whole and not self.inbox
        unserved = [one.resource.plural for one in self.reflectors if one.unserved]
        more, self.write_error = _turn(
            self.recorder, {**self.about, "unserved": unserved} if ready else None, self.write_error, self._log
        )
        return more

    def close(self) -> None:
        """Write what waits, and release the log.

        Raises  MoorageError if the log cannot be written
        """
        self.shadow.end()
        self._on_status(self)
        if self.recorder.has_started:
            self.recorder.mark("agreement", self.shadow.agreement.facts(), last=True)
        try:
            self.recorder.close()
        except OSError as error:
            raise MoorageError(f"{self.recorder.writer.directory}: {error.strerror or error}") from None


def _turn(recorder: ChangeRecorder, facts: Mapping[str, Any] | None, before: str, log: Log) -> tuple[bool, str]:
    """Write what waits. Return whether there is more to do at once, and why it failed; ``before``: why it failed before.

    ``facts`` describe the cluster for a recorder that has to start; None while it cannot.
    """
    try:
        if facts is not None and not recorder.has_started:
            recorder.start(facts)
            log.info(0, "Recording", objects=len(recorder), to=str(recorder.writer.directory))
        return recorder.turn(), ""
    except OSError as error:
        if str(error) != before:
            log.error(error, "the log cannot be written; trying again")
        return False, str(error)


# -- beside run --------------------------------------------------------------------------------------------------------
# ``moorage run --record``: the scheduler's own watches are written into a log, in the order in which they deliver changes.


class RunRecording:
    """Records in the process of a scheduler; a log that cannot be written never stops it.

    Raises  InputError if the directory cannot be used
    """

    def __init__(self, directory: str, log: Log) -> None:
        writer = LogWriter(directory)
        self.recorder = ChangeRecorder(writer, LogClock(time.time_ns, time.monotonic, writer.last_at), ObjectEncoder())
        self._log, self.write_error = log, ""

    def beside(self, sink: Sink) -> Sink:
        """Return a sink that records facts and passes them on."""
        return _Recorded(sink, self.recorder)

    async def run(self, not_synced: Callable[[], Sequence[str]], facts: Mapping[str, Any]) -> None:
        """Write until cancelled. ``not_synced`` returns the kinds that are not listed yet; ``facts`` describe the cluster."""
        said = time.monotonic()
        while True:
            more, self.write_error = _turn(self.recorder, None if not_synced() else facts, self.write_error, self._log)
            await asyncio.sleep(0 if more else FLUSH_S)
            if self.recorder.has_started and (now := time.monotonic()) - said >= ALIVE_S:
                said = now
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
        self._sink, self._recorder, self.begin, self.end = sink, recorder, sink.begin, sink.end

    async def put(self, fact: Fact) -> None:
        await self.put_all((fact,))

    async def put_all(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, Seen | Gone):
                self._recorder.observe(fact)
        await self._sink.put_all(facts)
