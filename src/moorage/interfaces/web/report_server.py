"""A small server for the web interface of a cluster that was read from files. It listens on loopback only."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Final

from aiohttp import web

from moorage.api.documents.statuses import ApiError, internal, no_such_page
from moorage.basis.recording.log_reader import ClusterLog
from moorage.basis.serving.connections import HEADERS, answering
from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.http.limits import Seats, ServerLimits
from moorage.cluster.apiserver.http.responses import error_response
from moorage.interfaces.web.atlas_route import AtlasRoute
from moorage.interfaces.web.change_stream import Hub
from moorage.interfaces.web.mirror import PriceOf
from moorage.interfaces.web.pod_routes import ClusterSource, PodRoutes, SchedulerTurns
from moorage.interfaces.web.question_folders import question_folder
from moorage.interfaces.web.question_processes import Answering
from moorage.interfaces.web.questions import Board, QuestionRoutes
from moorage.interfaces.web.recorded_past import RecordedPast, run_in
from moorage.interfaces.web.setup_route import SetupRoute
from moorage.interfaces.web.site import Sessions, Site, is_own_path
from moorage.live.recording.status import agreement_of
from moorage.live.server.listening import listen, serving

_LOCAL: Final = "127.0.0.1"
_JSON: Final = "application/json"
_LOG: Final = logging.getLogger(__name__)


class _Reader:
    """The user of every session: the person who started the command and opened its link."""

    name = "reader"
    credential = None

    def holds(self) -> bool:
        """Return True: nothing can end the right of the person at this machine."""
        return True

    async def check(self, verb: str, resource: str, namespace: str = "", group: str = "", name: str = "") -> None:
        """Allow everything, as the cluster cannot be changed here."""


async def serve_cluster(
    source: ClusterSource, port: int, answer: Answering, words: Sequence[str], on_ready: Callable[[str], None],
    logs: Sequence[tuple[ClusterLog, int]] = (), price_of: PriceOf | None = None,
) -> None:  # fmt: skip
    """Serve until cancelled; ``on_ready`` gets the link. Questions are about the input that the options in ``words`` name.

    ``logs`` are the logs of recorders among the input, each with the moment that is read; one log is the past of the cluster.
    ``price_of`` says what a node costs.

    Raises  ConfigError if the port cannot be listened on
    """

    async def words_given(_: Path) -> tuple[Sequence[str], None]:
        return words, None

    sessions: Sessions[_Reader] = Sessions()
    past = RecordedPast(*logs[0], price_of) if len(logs) == 1 else None
    hub = Hub(source, time.time if past is None else lambda: past.span[1], price_of, past)
    if past is not None:
        Thread(target=past.read_ahead, daemon=True).start()
    site = Site(hub, sessions, namespaces=source.namespaces)
    PodRoutes(
        site, source.pod, SchedulerTurns(source.scheduler, source.scheduler.profiles), lambda uid: source.queue_state(uid).cause
    )
    AtlasRoute(site)
    SetupRoute(site, source.scheduler, source.notes, recorded=lambda: [agreement_of(log.directory) for log, _ in logs])
    with question_folder() as folder:
        board = Board(folder, words_given, answer, on_change=hub.wake, past_of=partial(run_in, price_of=price_of))
        QuestionRoutes(site, board, tuple, answer.prepare)
        async with serving(_application(site), listen(_LOCAL, port, option="--port"), None) as bound:
            on_ready(f"http://{_LOCAL}:{bound}/ui/#token={sessions.make_token(_Reader())}")
            try:
                await asyncio.Event().wait()
            finally:
                site.end()


def _application(site: Site) -> web.Application:
    guard, seats = Authenticator({}), Seats(ServerLimits())

    async def handle(request: web.Request) -> web.StreamResponse:
        with answering(request):
            response = await _respond(site, guard, seats, request)
        if not response.prepared:
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
        return response

    app = web.Application(client_max_size=1 << 20)
    app.router.add_route("*", "/{path:.*}", handle)
    return app


async def _respond(site: Site, guard: Authenticator, seats: Seats, request: web.Request) -> web.StreamResponse:
    try:
        guard.check_source(request.headers)
        if request.path == "/":
            return web.Response(status=308, headers={"Location": "/ui/"})
        if not is_own_path(request.path):
            raise no_such_page()
        return await site.respond(request, site.session_user(request), seats)
    except ApiError as error:
        return error_response(error, _JSON)
    except TimeoutError:
        return error_response(ApiError(408, "Timeout", "the request's body did not arrive in time"), _JSON)
    except (ConnectionError, web.HTTPException):
        raise
    except Exception as error:  # a bug must not end the server
        _LOG.exception("the web interface")
        return error_response(internal(type(error).__name__), _JSON)
