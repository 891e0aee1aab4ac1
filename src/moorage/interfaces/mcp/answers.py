"""Answers for agents: the text of a command, clipped, marked as data, and kept for those who want all of it.

Each answer is that of the command, run on a copy of the cluster in a process of its own, so that no question can change
anything. The first answer is the short text; the wide text and the document are computed when they are read.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from moorage.cluster.apiserver.vocabulary.statuses import ApiError
from moorage.errors import InputError
from moorage.interfaces.web.question_arguments import (
    Answering,
    AnswerProcess,
    Arguments,
    ProcessLimits,
    QuestionBody,
    arguments_of,
)

#: The forms of an answer → the output of the command.
FORMS: Final[Mapping[str, str]] = {"text": "text", "wide": "wide", "json": "json"}
#: Where a command has another name for a form, or not that form.
_OUTPUTS: Final = {("simulate", "text"): "table", ("sweep", "wide"): "text"}
#: How many answers can be read again, and how many questions are computed at once.
_KEPT: Final = 64
_AT_ONCE: Final = 2
_OPEN, _CLOSE = "<cluster-data>", "</cluster-data>"


class AgentAnswer(NamedTuple):
    """An answer: its number, the first part of its text, and whether there is more."""

    number: int
    text: str
    is_whole: bool


def as_data(text: str) -> str:
    """Return text between marks that say that it is data. The text itself cannot end the marks."""
    return f"{_OPEN}\n{text.replace(_CLOSE, '</cluster_data>').rstrip()}\n{_CLOSE}"


class AgentAnswers:
    """Answers questions with a command; ``words`` are the options for the command's input and scheduler.

    ``most``: how many characters of a text an agent gets at once
    """

    def __init__(
        self, folder: Path, answering: Answering, words: Sequence[str], most: int, limits: ProcessLimits | None = None
    ) -> None:
        self._folder, self._answering, self._words, self._most = folder, answering, tuple(words), most
        self._limits = limits or ProcessLimits()
        self._asked: OrderedDict[int, Arguments] = OrderedDict()
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._number = 0

    async def ask(self, question: Mapping[str, Any], changes: Sequence[str] = ()) -> AgentAnswer:
        """Answer a question, whose fields are those of ``question`` in the command's document.

        Raises  InputError with what would work
        """
        arguments = _arguments(question, changes)
        text = await self._run(arguments, "text")
        self._number += 1
        self._asked[self._number] = arguments
        while len(self._asked) > _KEPT:
            self._asked.popitem(last=False)
        return AgentAnswer(self._number, clipped(text, self._most), len(text) <= self._most)

    async def text_of(self, question: Mapping[str, Any]) -> str:
        """Return the whole answer to a question, which is not kept.

        Raises  InputError
        """
        return await self._run(_arguments(question, ()), "text")

    async def read(self, number: int, form: str) -> str:
        """Return the whole of an earlier answer in one of ``FORMS``.

        Raises  InputError
        """
        arguments = self._asked.get(number)
        if arguments is None:
            raise InputError(f"no answer {number}: the last {_KEPT} are kept; ask again")
        if form not in FORMS:
            raise InputError(f"no form {form!r}; use one of {', '.join(FORMS)}")
        return await self._run(arguments, form)

    async def _run(self, arguments: Arguments, form: str) -> str:
        command, *rest = arguments.words
        output = _OUTPUTS.get((command, form), FORMS[form])
        async with self._turn:
            folder = self._folder / f"{self._number}-{id(arguments)}-{form}"
            folder.mkdir(mode=0o700)
            try:
                for name, text in arguments.files.items():
                    (folder / name).write_text(text, "utf-8")
                process = AnswerProcess(self._answering, (command, *self._words, "-o", output, *rest), folder, None)
                await process.run(self._limits, lambda _: None)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        if process.error:
            raise InputError(process.error)
        return process.answer.decode("utf-8", "replace")


def _arguments(question: Mapping[str, Any], changes: Sequence[str]) -> Arguments:
    try:
        return arguments_of(QuestionBody(dict(question), changes=list(changes)))
    except ApiError as error:
        raise InputError(str(error)) from None


def clipped(text: str, most: int) -> str:
    """Return the first whole lines of a text that have at most ``most`` characters together, and the rest of its last line."""
    if len(text) <= most:
        return text
    end = text.rfind("\n", 0, most)
    return text[: end if end > 0 else most]
