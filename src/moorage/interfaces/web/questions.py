"""Questions of browsers: each is answered by its own process, with limits, and kept for a while.

A question runs the command that answers it, on a copy of the cluster, in a process that is forked from one that has
everything imported. So a question can change neither the cluster nor the server, and takes none of the event loop's time.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from aiohttp import web

from moorage.api.documents.statuses import ApiError, too_many
from moorage.interfaces.web import question_arguments, question_processes
from moorage.interfaces.web.history import Past
from moorage.interfaces.web.site import Site, Visitor, check_may_list, json_response, read_body

_RUNNING: Final = "running"
_PARTS: Final = re.compile(r"\b([0-9,]{1,12}) of ([0-9,]{1,12})\b")
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class QuestionLimits:
    """Maximum number of ``running`` and ``waiting`` questions, of both ``per_user``, and of answers ``kept`` for ``kept_s``."""

    running: int = 2
    waiting: int = 32
    per_user: int = 8
    kept: int = 64
    kept_bytes: int = 128 << 20
    kept_s: float = 600.0
    process: question_processes.ProcessLimits = field(default_factory=question_processes.ProcessLimits)


#: Returns the current cluster as arguments of a command and a file for its standard input, which it writes to a folder.
InputOf: TypeAlias = Callable[[Path], Awaitable[tuple[Sequence[str], Path | None]]]


class AskedQuestion(msgspec.Struct, gc=False):
    """A question: its state, and its answer when it has one. ``version`` grows with each change; ``run``: what it recorded."""

    id: str
    user: str
    state: str = _RUNNING
    text: str = "waiting for its turn"
    done: int = 0
    total: int = 0
    answer: bytes = b""
    error: str = ""
    version: int = 0
    ended_at: float = 0.0
    run: Past | None = None
    task: asyncio.Task[None] | None = None

    def document(self) -> dict[str, Any]:
        """Return the state without the answer."""
        progress = {"text": self.text, "done": self.done, "total": self.total}
        return {"id": self.id, "state": self.state, "progress": progress, **({"error": self.error} if self.error else {})}


def _words(arguments: question_arguments.Arguments, given: Sequence[str]) -> tuple[str, ...]:
    """Return all arguments of the command; ``given`` are those for the cluster and the scheduler."""
    command, *rest = arguments.words
    if f"--record={question_arguments.RUN}" not in rest:
        given = [word for word in given if not word.startswith(question_arguments.TYPES_OPTION)]
    if command != "config":
        return (command, *given, "-o", "json", *rest)
    kept = [word for word in given if word.startswith(("--plugins=", "--feature-gates="))]
    return (command, "show", *kept, "-o", "json", *rest)


def _parts(text: str) -> tuple[int, int]:
    """Return 3 and 20 for a progress text such as "run 3 of 20"; 0 and 0 for a text without numbers."""
    found = _PARTS.search(text)
    return (0, 0) if found is None else (int(found[1].replace(",", "")), int(found[2].replace(",", "")))


class Board:
    """All questions. ``on_change`` is called when the state of a question changes."""

    def __init__(
        self, folder: Path, input_of: InputOf, answer: question_processes.Answering, limits: QuestionLimits | None = None,
        on_change: Callable[[], None] = lambda: None, past_of: Callable[[Path], Past | None] = lambda folder: None,
    ) -> None:  # fmt: skip
        self.limits = limits or QuestionLimits()
        self._folder, self._input_of, self._answer, self._on_change = folder, input_of, answer, on_change
        self._past_of = past_of
        self._questions: OrderedDict[str, AskedQuestion] = OrderedDict()
        self._turn = asyncio.Semaphore(self.limits.running)
        self._copying = asyncio.Lock()
        self._number = 0

    def ask(self, user: str, arguments: question_arguments.Arguments) -> AskedQuestion:
        """Begin to answer a question.

        Raises  ApiError 429 if there are too many
        """
        self._forget()
        running = Counter(one.user for one in self._questions.values() if one.state == _RUNNING)
        if running[user] >= self.limits.per_user or running.total() >= self.limits.running + self.limits.waiting:
            raise too_many("too many questions, please try again later", 1)
        self._number += 1
        question = AskedQuestion(str(self._number), user)
        self._questions[question.id] = question
        question.task = asyncio.create_task(self._carry_out(question, arguments), name=f"question {question.id}")
        return question

    def find(self, user: str, id_: str) -> AskedQuestion | None:
        """Return a user's question; None if there is none with this id."""
        found = self._questions.get(id_)
        return found if found is not None and found.user == user else None

    def of(self, user: str) -> list[AskedQuestion]:
        return [one for one in self._questions.values() if one.user == user]

    def cancel(self, question: AskedQuestion) -> None:
        """Stop answering."""
        if question.state == _RUNNING:
            self._end(question, "cancelled", "cancelled")
            if question.task is not None:
                question.task.cancel()

    def end(self) -> None:
        """Stop answering all questions, because the server stops."""
        for question in self._questions.values():
            self.cancel(question)

    # -- answering -----------------------------------------------------------------------------------------------------

    async def _carry_out(self, question: AskedQuestion, arguments: question_arguments.Arguments) -> None:
        folder = self._folder / f"question-{question.id}"
        try:
            async with self._turn:
                self._change(question, "copying the cluster")
                folder.mkdir(mode=0o700)
                for name, text in arguments.files.items():
                    (folder / name).write_text(text, "utf-8")
                async with self._copying:
                    given, stdin = await self._input_of(self._folder)
                self._change(question, "computing")
                question.answer, error = await question_processes.answered_by_process(
                    self._answer, _words(arguments, given), folder, stdin, self.limits.process, partial(self._change, question)
                )
                if question.answer and (folder / question_arguments.RUN).is_dir():
                    question.run = await asyncio.to_thread(self._past_of, folder)
                if question.run is not None:
                    question.answer = b'{"run":"%s",' % question.id.encode() + question.answer.lstrip()[1:]
                self._end(question, "done" if question.answer else "failed", "", error)
        except asyncio.CancelledError:
            self._end(question, "cancelled", "cancelled")
            raise
        except ApiError as error:
            self._end(question, "failed", "", str(error))
        except Exception as error:  # a bug must not end the server
            _LOG.exception("question %s", question.id)
            self._end(question, "failed", "", f"{type(error).__name__}: {error}")
        finally:
            if question.run is None:
                shutil.rmtree(folder, ignore_errors=True)

    def _change(self, question: AskedQuestion, text: str) -> None:
        if question.state == _RUNNING:
            question.text = text
            question.done, question.total = _parts(text)
            question.version += 1
            self._on_change()

    def _end(self, question: AskedQuestion, state: str, text: str, error: str = "") -> None:
        if question.state == _RUNNING:
            question.state, question.text, question.error = state, text, error
            question.ended_at = time.monotonic()
            question.version += 1
            self._on_change()

    def _forget(self) -> None:
        """Drop old answers."""
        ended = [one for one in self._questions.values() if one.state != _RUNNING]
        size = sum(len(one.answer) for one in ended)
        for at, one in enumerate(ended):
            old = time.monotonic() - one.ended_at > self.limits.kept_s
            if old or len(ended) - at > self.limits.kept or size > self.limits.kept_bytes:
                size -= len(one.answer)
                del self._questions[one.id]
                shutil.rmtree(self._folder / f"question-{one.id}", ignore_errors=True)


#: Seconds to wait for the answer to a new question before its id is returned instead.
_AT_ONCE_S: Final = 1.0
_PATH: Final = "/lab/v1/questions"


class QuestionRoutes:
    """Adds the routes to a site: ask a question, read its state or answer, cancel it.

    ``kinds`` returns those that answers may show; ``prepare`` is called when a session begins.
    """

    def __init__(
        self, site: Site, board: Board, kinds: Callable[[], Sequence[tuple[str, str]]], prepare: Callable[[], None]
    ) -> None:  # fmt: skip
        self._board, self._kinds = board, kinds
        site.asks = True
        site.route("POST", _PATH, self._ask)
        site.route("GET", _PATH, self._list)
        site.route("GET", f"{_PATH}/{{id_}}", self._look)
        site.route("DELETE", f"{_PATH}/{{id_}}", self._cancel)
        site.route("GET", "/lab/v1/pods/{namespace}/{name}/explanation", self._explain)
        site.on_enter.append(prepare)
        site.on_end.append(board.end)
        site.run_of = lambda user, id_: found.run if (found := board.find(user, id_)) is not None else None
        site.notices = self._notices

    async def _ask(self, request: web.BaseRequest, visitor: Visitor) -> web.StreamResponse:
        return await self._answer(visitor, await read_body(request, question_arguments.QuestionBody))

    async def _explain(self, request: web.BaseRequest, visitor: Visitor, namespace: str, name: str) -> web.StreamResponse:
        return await self._answer(visitor, question_arguments.QuestionBody({"explain": f"{namespace}/{name}"}))

    async def _answer(self, visitor: Visitor, body: question_arguments.QuestionBody) -> web.StreamResponse:
        await check_may_list(visitor, self._kinds())
        question = self._board.ask(visitor.name, question_arguments.arguments_of(body))
        if question.task is not None:
            await asyncio.wait([question.task], timeout=_AT_ONCE_S)
        if question.state == "done":
            return web.Response(body=question.answer, content_type="application/json")
        if question.state == "failed":
            raise ApiError(422, "Invalid", question.error)
        location = {"Location": f"{_PATH}/{question.id}"}
        return web.Response(
            body=msgspec.json.encode(question.document()), status=202, content_type="application/json", headers=location
        )

    async def _list(self, request: web.BaseRequest, visitor: Visitor) -> web.StreamResponse:
        return json_response({"items": [one.document() for one in self._board.of(visitor.name)]})

    async def _look(self, request: web.BaseRequest, visitor: Visitor, id_: str) -> web.StreamResponse:
        question = self._find(visitor, id_)
        await check_may_list(visitor, self._kinds())
        answer = {"answer": msgspec.Raw(question.answer)} if question.answer else {}
        return json_response({**question.document(), **answer})

    async def _cancel(self, request: web.BaseRequest, visitor: Visitor, id_: str) -> web.StreamResponse:
        question = self._find(visitor, id_)
        self._board.cancel(question)
        return json_response(question.document())

    def _find(self, visitor: Visitor, id_: str) -> AskedQuestion:
        question = self._board.find(visitor.name, id_)
        if question is None:
            raise ApiError(404, "NotFound", f'question "{id_}" not found', kind="questions", name=id_)
        return question

    def _notices(self, user: str) -> Callable[[], list[bytes]]:
        """Return a function that returns the events of a user's questions since its last call."""
        seen: dict[str, int] = {one.id: one.version for one in self._board.of(user) if one.state != "running"}

        def changed() -> list[bytes]:
            events = []
            for one in self._board.of(user):
                if seen.get(one.id) != one.version:
                    seen[one.id] = one.version
                    events.append(b"event: question\ndata: " + msgspec.json.encode(one.document()) + b"\n\n")
            return events

        return changed
