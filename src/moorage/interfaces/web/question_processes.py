"""The processes that answer questions: forked from one host process that has everything ready, with limits on each.

The host of ``moorage up`` starts when a session begins, because importing everything takes a while. The host of
``moorage report --serve`` is a fork of the command itself, so that its questions need not read the files again.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import multiprocessing
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.context import ForkProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, TypeAlias

from moorage.api.documents.statuses import ApiError
from moorage.basis.printable import clip

#: The names of the files for a command's standard output and standard error.
ANSWER: Final = "answer"
ERRORS: Final = "errors"
_MOST_ERROR: Final = 2000
_MOST_PROGRESS: Final = 200
#: Minimum number of seconds between two progress reports.
_EVERY_S: Final = 0.25
#: Seconds to wait for the exit of a process that was killed.
_EXIT_S: Final = 5.0
_SMALLER: Final = "ask a smaller one, or use the command"
_ENDED: Final = "the process that answers questions has ended"


@dataclass(frozen=True)
class ProcessLimits:
    """What a question may take: CPU time, time by the clock, ``memory`` (address space) and size of its answer in bytes.

    A question on a large cluster takes its CPU time in several times as long by the clock when others compute as well, so the
    clock only ends one that waits for something.
    """

    cpu_s: float = 60.0
    wall_s: float = 600.0
    memory: int = 4 << 30
    answer: int = 64 << 20


#: Runs a command in a new process, and exits. It gets the arguments, the working folder, the file for standard input, the
#: limits and the pipe for progress.
Run: TypeAlias = Callable[[Sequence[str], str, str | None, ProcessLimits, Connection], None]


class Answering:
    """How questions are answered: ``run`` is called in a process that the host forks.

    The host imports ``modules`` first. With ``inherits`` it is a fork of this process instead, as it is when ``prepare`` is
    called; there must be no other thread then.
    """

    def __init__(self, run: Run, modules: Sequence[str] = (), *, inherits: bool = False) -> None:
        self._run, self.modules, self._inherits = run, tuple(modules), inherits
        self._host: BaseProcess | None = None
        self._line: socket.socket | None = None
        self._starting = threading.Lock()

    def prepare(self) -> None:
        """Begin to import the modules, or fork. Neither is waited for."""
        if self._inherits:
            self._hosted()
            return
        multiprocessing.get_context("forkserver").set_forkserver_preload(list(self.modules))
        from multiprocessing import forkserver

        forkserver.ensure_running()

    def _hosted(self) -> socket.socket:
        """Return the line to the host, which starts if there is none."""
        with self._starting:
            if self._host is not None and self._line is not None and self._host.is_alive():
                return self._line
            if self._host is not None and self._inherits:
                raise ApiError(503, "ServiceUnavailable", f"{_ENDED}; start the command again")
            self.close()
            context: Any = multiprocessing.get_context("fork" if self._inherits else "forkserver")
            self._line, theirs = socket.socketpair()
            self._host = context.Process(target=_host, args=(self._run, theirs, self._line), name="questions")
            with theirs:
                self._host.start()
            atexit.register(self.close)  # before multiprocessing waits for the host
            return self._line

    def ask(self, words: Sequence[str], folder: Path, stdin: Path | None, limits: ProcessLimits) -> Connection:
        """Start a process for a question. The connection gives texts about its progress, and at last its exit code.

        To send anything, or to close the connection, kills the process.

        Raises  ApiError if the host was a fork and has ended
        """
        self.prepare()
        ours, theirs = Pipe()
        with theirs:
            try:
                socket.send_fds(self._hosted(), [b"?"], [theirs.fileno()])
            except OSError:  # the host ended right after it was looked at
                self.close()
                socket.send_fds(self._hosted(), [b"?"], [theirs.fileno()])
        with suppress(OSError):  # the host ended meanwhile: the connection gives no exit code
            ours.send((tuple(words), str(folder), None if stdin is None else str(stdin), limits))
        return ours

    def close(self) -> None:
        """End the host, and with it all questions."""
        atexit.unregister(self.close)
        if self._line is not None:
            self._line.close()
        if self._host is not None:
            self._host.join(_EXIT_S)


def _host(run: Run, line: socket.socket, other: socket.socket) -> None:
    """Fork a process for each question that arrives, until the other end of ``line`` is closed."""
    other.close()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which then closes the line
    gc.collect()
    gc.freeze()  # so that processes share what they do not change
    running: dict[Connection, ForkProcess] = {}
    while True:
        ready = wait([line, *running, *(one.sentinel for one in running.values())])
        for question, process in list(running.items()):
            if not process.is_alive():
                with suppress(OSError):
                    question.send(process.exitcode)
                question.close()
                del running[question]
            elif question in ready:
                process.kill()
                process.join()
        if line not in ready:
            continue
        _, given, _, _ = socket.recv_fds(line, 1, 1)
        if not given:
            break
        question = Connection(given[0])
        with suppress(EOFError):
            process = ForkProcess(target=run, args=(*question.recv(), question))
            process.start()
            running[question] = process
    for process in running.values():
        process.kill()


async def answered_by_process(
    answering: Answering, words: Sequence[str], folder: Path, stdin: Path | None, limits: ProcessLimits,
    show: Callable[[str], None],
) -> tuple[bytes, str]:  # fmt: skip
    """Answer a question in a process of its own. Return the document, or b"" and why there is none.

    ``show`` gets the progress. A cancelled call kills the process.
    """
    starting = asyncio.ensure_future(asyncio.to_thread(answering.ask, words, folder, stdin, limits))
    try:
        replies = _Replies(await asyncio.shield(starting), show)
    except asyncio.CancelledError:
        with suppress(Exception):
            await _Replies(await starting, show).kill()
        raise
    try:
        async with asyncio.timeout(limits.wall_s):
            exit_code = await asyncio.shield(replies.exit_code)
            if exit_code in {0, 2, 3}:
                return (folder / ANSWER).read_bytes(), ""
            return b"", _why_failed(exit_code, folder, limits)
    except TimeoutError:
        return b"", f"the question takes longer than {limits.wall_s:g} seconds; {_SMALLER}"
    finally:
        await replies.kill()


def _why_failed(exit_code: int | None, folder: Path, limits: ProcessLimits) -> str:
    text = ""
    with suppress(OSError):
        text = (folder / ERRORS).read_text("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip()]
    errors = _errors_in(lines)
    if exit_code is None:
        return _ENDED
    if exit_code == -signal.SIGXCPU:
        return f"the question takes more than {limits.cpu_s:g} seconds of CPU time; {_SMALLER}"
    if exit_code < 0:
        return f"the question was stopped by signal {-exit_code}: it needs more time or memory than it may use"
    if "MemoryError" in text or any("out of memory" in line for line in errors):
        return f"the question needs more than {limits.memory >> 20} MiB of memory"
    said = lines[-1:] if "Traceback" in text else lines
    return clip(" ".join(errors or said) or "the command failed", _MOST_ERROR)


def _errors_in(lines: Sequence[str]) -> list[str]:
    """Return the lines of errors, those that follow the first one of each included, as they list faults."""
    found: list[str] = []
    is_error = False
    for line in lines:
        if line.lower().startswith("error:"):
            is_error = True
            found.append(line.partition(":")[2].strip())
        elif is_error and line.startswith(" "):
            found.append(line.strip())
        else:
            is_error = False
    return found


class _Replies:
    """Reads what comes from a process: ``exit_code``, None if the host has ended; and the latest progress, now and then."""

    def __init__(self, connection: Connection, show: Callable[[str], None]) -> None:
        self._loop, self._connection, self._show = asyncio.get_running_loop(), connection, show
        self._latest = ""
        self._timer: asyncio.TimerHandle | None = None
        self.exit_code: asyncio.Future[int | None] = self._loop.create_future()
        self._loop.add_reader(connection.fileno(), self._read)

    def _read(self) -> None:
        try:
            while not self.exit_code.done() and self._connection.poll():
                said = self._connection.recv()
                if isinstance(said, int):
                    self._end(said)
                else:
                    self._latest = clip(str(said), _MOST_PROGRESS)
        except (EOFError, OSError):
            self._end(None)
        if self._timer is None and not self.exit_code.done():
            self._timer = self._loop.call_later(_EVERY_S, self._report)

    def _end(self, exit_code: int | None) -> None:
        self._loop.remove_reader(self._connection.fileno())
        self.exit_code.set_result(exit_code)

    def _report(self) -> None:
        self._timer = None
        if self._latest:
            self._show(self._latest)

    async def kill(self) -> None:
        """Kill the process, unless it has ended, and wait until it has."""
        try:
            if not self.exit_code.done():
                with suppress(OSError):
                    self._connection.send(None)
                await asyncio.wait({self.exit_code}, timeout=_EXIT_S)
        finally:
            self._loop.remove_reader(self._connection.fileno())
            self._connection.close()
            if self._timer is not None:
                self._timer.cancel()
