"""Questions as the arguments of the command that answers them.

A question has the fields of ``question`` in the command's document. Nothing in it may name a file: templates, node types and
configurations come with the question and are written to a folder of its own, in which the command runs.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import multiprocessing
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.context import ForkProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from moorage.basis import table_of
from moorage.basis.printable import clip
from moorage.cluster.apiserver.vocabulary.statuses import ApiError, bad_request

_MOST_TEXT: Final = 4096
_MOST_LIST: Final = 2000
_MOST_FILE: Final = 512 << 10
#: A reference to a workload or pod, such as KIND/NAME. It cannot be the path of a file outside of the question's folder.
_REFERENCE: Final = re.compile(r"[a-zA-Z0-9-]+(/[a-z0-9][a-z0-9.-]*){1,2}")
#: In the folder of a question: the log of an autoscaler's run, and the instance types that came with the question.
RUN: Final = "run"
TYPES: Final = "instance-types.json"
TYPES_OPTION: Final = "--instance-types="
#: Commands that have a time limit.
_SEARCHING: Final = frozenset({"explain", "capacity", "plan", "drain", "survive", "compare", "report", "sweep"})
#: How edits begin: KIND/NAME or config, and what to change. A path does not.
_EDIT: Final = re.compile(r"(?:config|[A-Za-z]+/\S+)\s+\S")
_ADDED: Final = re.compile(r"add ([0-9]{1,6}) nodes? like (\S+)")


class QuestionBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a question."""

    question: dict[str, Any]
    kind: str = ""
    changes: list[Any] = []
    seed: int | None = None


class Arguments(NamedTuple):
    """A command's arguments, and the files that they name."""

    words: tuple[str, ...]
    files: Mapping[str, str]


class _Reader:
    """Turns the fields of a question into options, one by one. ``finish`` rejects fields that are left over."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._left = dict(fields)
        self.options: list[str] = []
        self.positional: list[str] = []
        self.files: dict[str, str] = {}

    def take(self, name: str, form: Any, default: Any) -> Any:
        value = self._left.pop(name, None)
        if value is None:
            return default
        try:
            return msgspec.convert(value, form)
        except msgspec.ValidationError as error:
            raise bad_request(f"question.{name}: {error}") from None

    def text(self, name: str, option: str) -> None:
        value = self.take(name, str, "")
        if value:
            self.options.append(f"--{option}={_checked(name, value)}")

    def number(self, name: str, option: str, least: float, most: float, form: Any = int) -> None:
        value = self.take(name, form, None)
        if value is None:
            return
        if not least <= value <= most:
            raise bad_request(f"question.{name}: {value} is not between {least:g} and {most:g}")
        self.options.append(f"--{option}={value}")

    def flag(self, name: str, option: str) -> None:
        if self.take(name, bool, False):
            self.options.append(f"--{option}")

    def texts(self, name: str) -> list[str]:
        value = self.take(name, list[str] | str, [])
        found = [value] if isinstance(value, str) else value
        if len(found) > _MOST_LIST:
            raise bad_request(f"question.{name}: more than {_MOST_LIST} entries")
        return [_checked(name, one) for one in found]

    def file(self, name: str, value: Any) -> str:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if len(text) > _MOST_FILE:
            raise bad_request(f"{name}: larger than {_MOST_FILE >> 10} KiB")
        self.files[name] = text
        return name

    @contextmanager
    def fields_of(self, name: str) -> Iterator[_Reader]:
        """Yield a reader of the fields of a field, whose options become those of this one."""
        inner = _Reader(self.take(name, dict[str, Any], {}))
        yield inner
        inner.finish()
        self.options += inner.options
        self.files |= inner.files

    def finish(self) -> None:
        if self._left:
            raise bad_request(f"question: unknown fields: {', '.join(sorted(map(repr, self._left)))}")


def arguments_of(body: QuestionBody) -> Arguments:
    """Return the arguments of the command for a question, except those for its input and its scheduler.

    Raises  ApiError 400
    """
    fields = dict(body.question)
    changes = [*fields.pop("changes", []), *body.changes]
    if len(changes) > _MOST_LIST:
        raise bad_request(f"changes: more than {_MOST_LIST} entries")
    table = _questions().items()
    known = [(field, command, one) for part in ("fields", "also") for command, one in table for field in one.get(part, ())]
    found = next(((command, one) for field, command, one in known if field in fields), None)
    if found is None or (body.kind and body.kind != found[1]["kind"]):
        named = ", ".join(f"{one['kind']} ({field})" for field, _, one in known)
        raise bad_request(f"question: has no field of a known question, or of another kind; known: {named}")
    command, question = found
    reader = _Reader(fields)
    with reader.fields_of(question["inside"]) if "inside" in question else nullcontext(reader) as inner:
        _read_options(command, question, inner)
    if command in _SEARCHING:
        reader.number("timeLimitSeconds", "time-limit", 0.1, 50, float)
    reader.finish()
    seed = () if body.seed is None else (f"--seed={body.seed}",)
    options = sorted(reader.options, key=lambda option: option.partition("=")[0])
    words = (command, *options, *seed, *map(_change, changes), "--", *reader.positional)
    return Arguments(words, reader.files)


def _checked(name: str, text: str) -> str:
    if not text or len(text) > _MOST_TEXT or not text.isprintable():
        raise bad_request(f"question.{name}: expected a line of at most {_MOST_TEXT} characters")
    return text


def _change(change: Any) -> str:
    """Return the option for a change, which is an edit, an atom of an explanation, or a change as documents describe it."""
    if isinstance(change, dict):
        return f"--edit={_checked('changes', msgspec.json.encode(change).decode())}"
    if not isinstance(change, str):
        raise bad_request("changes: expected edits as text, or atoms")
    text = _checked("changes", change)
    added = _ADDED.fullmatch(text)
    if added is not None:
        return f"--add-nodes=like={added[2]},count={added[1]}"
    for words, option in (("cordon ", "cordon"), ("remove nodes ", "remove-nodes"), ("scale ", "scale")):
        if text.startswith(words):
            return f"--{option}={text.removeprefix(words)}"
    if not _EDIT.match(text) and not text.startswith("{"):  # a command would read a file of this name
        raise bad_request(f"changes: {text[:100]!r} is not a change; write KIND/NAME FIELD=VALUE, such as pod/web cpu=500m")
    return f"--edit={text}"


# -- each question ------------------------------------------------------------------------------------------------------


def _explain(reader: _Reader) -> None:
    named = [*reader.texts("explain"), *reader.texts("pods")]
    reader.positional += named
    every, by_cause = reader.take("all", bool, False), reader.take("byCause", bool, False)
    if every or not named:
        reader.options.append("--pending" if by_cause else "--all")


def _capacity(reader: _Reader) -> None:
    numbers = reader.take("numbers", dict[str, int], {})
    template = reader.take("template", str | dict[str, Any], None)
    named = [_reference("capacity", name) for name in reader.texts("capacity")]
    if template is not None:
        named.append(reader.file("template.yaml", template))
    if numbers:
        for name in numbers:
            _reference("numbers", name)
        reader.positional.append(",".join(f"{name}={count}" for name, count in numbers.items()))
    else:
        reader.positional += named
    for name in ("quota", "gains"):
        if not reader.take(name, bool, True):
            reader.options.append(f"--no-{name}")


def _plan(reader: _Reader) -> None:
    reader.take("plan", list[str], [])
    types = reader.take("types", list[dict[str, Any]], [])
    if types:
        reader.options.append(f"--types={reader.file('types.yaml', types)}")
    for name, given in reader.take("flags", dict[str, bool], {}).items():
        if name not in {"delete_emptydir_data", "force"}:
            raise bad_request(f"question.flags: unknown flag {name!r}")
        reader.options += [f"--{name.replace('_', '-')}"] if given else []
    reader.options += [f"--pods={_reference('pods', name)}" for name in reader.texts("pods")]


def _fail(reader: _Reader) -> None:
    named = reader.texts("fail")
    zone = reader.take("zone", str, "")
    if zone:
        reader.options.append(f"--zone={_checked('zone', zone)}")
    else:
        reader.positional += named


def _compare(reader: _Reader) -> None:
    for side in ("a", "b"):
        if config := reader.take(side, str | dict[str, Any], ""):
            reader.options.append(f"--{side}={reader.file(f'{side}.yaml', config)}")


def _simulate(reader: _Reader) -> None:
    if pools := reader.take("pools", str | list[Any], ""):
        reader.options.append(f"--autoscale={reader.file('pools.yaml', pools)}")
    elif autoscaler := reader.take("autoscaler", Literal["karpenter", "cluster-autoscaler"], ""):
        reader.options += [f"--autoscale={autoscaler}", f"--record={RUN}"]
        if types := reader.take("instanceTypes", str | list[Any] | dict[str, Any], ""):
            reader.options.append(f"{TYPES_OPTION}{reader.file(TYPES, types)}")
        reader.number("spotInterruptions", "spot-interruptions", 0, 3600, float)


def _sweep(reader: _Reader) -> None:
    grid = reader.take("sweep", dict[str, Any], {})
    if unknown := grid.keys() - _GRID:
        raise bad_request(f"question.sweep: unknown fields: {', '.join(sorted(map(repr, unknown)))}")
    configs = _Reader(grid).take("configs", dict[str, str], {})
    files = {name: reader.file(f"config{at}.yaml", text) if text else None for at, (name, text) in enumerate(configs.items())}
    reader.options += ["--store=store", "--processes=1"]
    reader.positional.append(reader.file("grid.yaml", {**grid, **({"configs": files} if files else {})}))


#: The fields of a grid that name no file of the server, and run no code.
_GRID: Final = frozenset(
    {"configs", "releases", "parameters", "seeds", "metrics", "against", "replaceAll", "allNodes", "prices"}
)
#: What reads fields of a command that are no plain options.
_OTHERS: Final[Mapping[str, Callable[[_Reader], None]]] = {
    "explain": _explain, "capacity": _capacity, "plan": _plan, "fail": _fail, "compare": _compare, "simulate": _simulate,
    "sweep": _sweep,
}  # fmt: skip
_WORD: Final = re.compile("_|(?=[A-Z])")


def _reference(field: str, name: str) -> str:
    """Check that a name is KIND/NAME or KIND/NAMESPACE/NAME, and so no path to a file elsewhere."""
    if not _REFERENCE.fullmatch(name) or ".." in name:
        raise bad_request(f"question.{field}: {name!r} is not KIND/NAME; send a manifest as template")
    return name


@cache
def _questions() -> Mapping[str, Any]:
    """Return the questions by their commands, see ``questions.toml``."""
    return table_of("moorage.interfaces.web", "questions.toml")


def _read_options(command: str, question: Mapping[str, Any], reader: _Reader) -> None:
    if command in _OTHERS:
        _OTHERS[command](reader)
    if "names" in question:
        reader.positional += reader.texts(question["names"])
    for field, name, *option in question.get("files", ()):
        given = reader.file(name, reader.take(field, str | dict[str, Any], ""))
        (reader.options if option else reader.positional).append(f"--{option[0]}={given}" if option else given)
    for given in question.get("flags", ()):
        reader.flag(*_field_and_option(given))
    for given in question.get("texts", ()):
        reader.text(*_field_and_option(given))
    for given in question.get("lists", ()):
        field, option = _field_and_option(given)
        reader.options += [f"--{option}={one}" for one in reader.texts(field)]
    for given, (least, most) in question.get("numbers", {}).items():
        form = float if isinstance(most, float) else int
        reader.number(*_field_and_option(given), least, most, form)


def _field_and_option(given: str) -> tuple[str, str]:
    """Return the name of a field and its option: ``failOn`` is ``--fail-on``, ``returns:return`` is ``--return``."""
    field, _, option = given.partition(":")
    return field, option or "-".join(_WORD.split(field)).lower()


# -- question processes ------------------------------------------------------------------------------------------------
# The processes that answer questions: forked from one host process that has everything ready, with limits on each.
#
# The host of ``moorage up`` starts when a session begins, because importing everything takes a while. The host of
# ``moorage report --serve`` is a fork of the command itself, so that its questions need not read the files again.

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
    errors = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("error:")]
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
