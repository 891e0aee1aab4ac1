"""The routes for questions: ask one, read its state or answer, cancel it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from aiohttp import web

from moorage.apiserver.vocabulary.statuses import ApiError
from moorage.web.question_arguments import QuestionBody, arguments_of
from moorage.web.questions import AskedQuestion, Board
from moorage.web.site import Site, json_response, read_body
from moorage.web.visitors import Visitor, check_may_list

__all__ = ["QuestionRoutes"]

#: Seconds to wait for the answer to a new question before its id is returned instead.
_AT_ONCE_S: Final = 1.0
_PATH: Final = "/lab/v1/questions"


class QuestionRoutes:
    """Adds the routes to a site. ``kinds`` are those that answers may show; ``prepare`` is called when a session begins."""

    def __init__(
        self, site: Site, board: Board, kinds: Sequence[tuple[str, str]], prepare: Callable[[], None]
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
        site.notices = self._notices

    async def _ask(self, request: web.BaseRequest, visitor: Visitor) -> web.StreamResponse:
        return await self._answer(visitor, await read_body(request, QuestionBody))

    async def _explain(self, request: web.BaseRequest, visitor: Visitor, namespace: str, name: str) -> web.StreamResponse:
        del request
        return await self._answer(visitor, QuestionBody({"explain": f"{namespace}/{name}"}))

    async def _answer(self, visitor: Visitor, body: QuestionBody) -> web.StreamResponse:
        await check_may_list(visitor, self._kinds)
        question = self._board.ask(visitor.name, arguments_of(body))
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
        del request
        return json_response({"items": [one.document() for one in self._board.of(visitor.name)]})

    async def _look(self, request: web.BaseRequest, visitor: Visitor, id_: str) -> web.StreamResponse:
        del request
        question = self._find(visitor, id_)
        await check_may_list(visitor, self._kinds)
        answer = {"answer": msgspec.Raw(question.answer)} if question.answer else {}
        return json_response({**question.document(), **answer})

    async def _cancel(self, request: web.BaseRequest, visitor: Visitor, id_: str) -> web.StreamResponse:
        del request
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
