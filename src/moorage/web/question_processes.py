"""The processes that answer questions: forked from one server process with everything imported, with limits on each.

``prepare`` starts that server process when a session begins, because importing everything takes a while.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from moorage.printable import clip

__all__ = ["ANSWER", "ERRORS", "AnswerProcess", "Answering", "ProcessLimits", "ProgressPipe", "limit_process", "prepare"]

#: The names of the files for a command's standard output and standard error.
ANSWER: Final = "answer"
ERRORS: Final = "errors"
_MOST_ERROR: Final = 2000
_MOST_PROGRESS: Final = 200
#: Minimum number of seconds between two progress reports.
_EVERY_S: Final = 0.25
#: Seconds to wait for the exit of a process that has finished its work.
_EXIT_S: Final = 5.0
_NICE: Final = 5


@dataclass(frozen=True)
class ProcessLimits:
    """``wall_s``: how long a question may take; ``memory``: address space; ``answer``: size of an answer; both in bytes."""

    wall_s: float = 60.0
    memory: int = 4 << 30
    answer: int = 64 << 20


class ProgressPipe(Protocol):
    """The writing end of the pipe for progress reports."""

    def send(self, text: Any) -> None: ...


class Answering(NamedTuple):
    """How questions are answered.

    ``run`` is called in a new process. It runs a command and exits; it gets the arguments, the working folder, the file for
    standard input, the limits and the pipe for progress. ``modules`` are imported before processes are forked.
    """

    run: Callable[[Sequence[str], str, str | None, ProcessLimits, ProgressPipe], None]
    modules: tuple[str, ...]


@cache
def _context(modules: tuple[str, ...]) -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    return context


def prepare(answer: Answering) -> None:
    """Start the server process from which the others are forked, without waiting for it."""
    _context(answer.modules)
    from multiprocessing import forkserver

    forkserver.ensure_running()


def limit_process(limits: ProcessLimits) -> None:
    """Set the limits of this process."""
    for what, most in (
        (resource.RLIMIT_AS, limits.memory),
        (resource.RLIMIT_CPU, int(limits.wall_s) + 1),
        (resource.RLIMIT_FSIZE, limits.answer),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        resource.setrlimit(what, (most if hard < 0 else min(most, hard), hard))
    os.nice(_NICE)


class AnswerProcess:
    """One process with one question. ``answer`` is the document, or ``error`` says why there is none."""

    def __init__(self, answer: Answering, words: Sequence[str], folder: Path, stdin: Path | None) -> None:
        self._answering, self._words, self._folder, self._stdin = answer, tuple(words), folder, stdin
        self.answer = b""
        self.error = ""

    async def run(self, limits: ProcessLimits, show: Callable[[str], None]) -> None:
        """Answer the question. A cancelled run kills the process."""
        context = _context(self._answering.modules)
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(
            target=self._answering.run, daemon=True,
            args=(self._words, str(self._folder), None if self._stdin is None else str(self._stdin), limits, sender),
        )  # fmt: skip
        loop = asyncio.get_running_loop()
        starting = asyncio.ensure_future(asyncio.to_thread(process.start))
        try:
            await asyncio.shield(starting)
            sender.close()
            progress = _Progress(loop, receiver, show)
            try:
                async with asyncio.timeout(limits.wall_s):
                    await _ended(loop, process.sentinel)
                self._read(process, limits)
            except TimeoutError:
                self.error = f"the question takes longer than {limits.wall_s:g} seconds; ask a smaller one, or use the command"
            finally:
                progress.close()
        finally:
            await _kill(starting, process)
            receiver.close()

    def _read(self, process: Any, limits: ProcessLimits) -> None:
        process.join(_EXIT_S)
        if process.exitcode in {0, 2, 3}:
            self.answer = (self._folder / ANSWER).read_bytes()
            return
        text = ""
        with suppress(OSError):
            text = (self._folder / ERRORS).read_text("utf-8", "replace")
        lines = [line for line in text.splitlines() if line.strip()]
        errors = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("error:")]
        if process.exitcode is not None and process.exitcode < 0:
            self.error = f"the question was stopped by signal {-process.exitcode}: it needs more time or memory than it may use"
        elif "MemoryError" in text or any("out of memory" in line for line in errors):
            self.error = f"the question needs more than {limits.memory >> 20} MiB of memory"
        else:
            said = lines[-1:] if "Traceback" in text else lines
            self.error = clip(" ".join(errors or said) or "the command failed", _MOST_ERROR)


class _Progress:
    """Reads progress reports from a pipe, and passes on the latest one a few times a second."""

    def __init__(self, loop: asyncio.AbstractEventLoop, receiver: Connection, show: Callable[[str], None]) -> None:
        self._loop, self._pipe, self._show = loop, receiver, show
        self._latest = ""
        self._timer: asyncio.TimerHandle | None = None
        loop.add_reader(receiver.fileno(), self._read)

    def _read(self) -> None:
        try:
            while self._pipe.poll():
                self._latest = clip(str(self._pipe.recv()), _MOST_PROGRESS)
        except (EOFError, OSError):
            self._loop.remove_reader(self._pipe.fileno())
        if self._timer is None:
            self._timer = self._loop.call_later(_EVERY_S, self._report)

    def _report(self) -> None:
        self._timer = None
        if self._latest:
            self._show(self._latest)

    def close(self) -> None:
        self._loop.remove_reader(self._pipe.fileno())
        if self._timer is not None:
            self._timer.cancel()


async def _ended(loop: asyncio.AbstractEventLoop, sentinel: int) -> None:
    ended = loop.create_future()

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    loop.add_reader(sentinel, end)
    try:
        await ended
    finally:
        loop.remove_reader(sentinel)


async def _kill(starting: asyncio.Future[None], process: Any) -> None:
    """Kill a process, once it has started."""
    with suppress(Exception):
        await starting
    if process.pid is not None:
        if process.is_alive():
            process.kill()
        await asyncio.to_thread(process.join, _EXIT_S)
        with suppress(ValueError):
            process.close()
