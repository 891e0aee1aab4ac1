"""A small server for the web interface of a cluster that was read from files. It listens on loopback only."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, Thread
from typing import Final

import msgspec
from aiohttp import web
from msgspec.structs import replace

from moorage.api.core import Node, Pod
from moorage.basis.recording.log_reader import ClusterLog, LogChange, log_of
from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.http.connections import HEADERS, answering
from moorage.cluster.apiserver.http.limits import Seats, ServerLimits
from moorage.cluster.apiserver.http.responses import error_response
from moorage.cluster.apiserver.vocabulary.statuses import ApiError, internal, no_such_page
from moorage.errors import InputError
from moorage.interfaces.web.hub import Hub, TimelineRows
from moorage.interfaces.web.live_site import SetupRoute
from moorage.interfaces.web.mirror import Mirror, PriceOf, SnapshotRows
from moorage.interfaces.web.pod_routes import ClusterSource, PodRoutes, SchedulerTurns
from moorage.interfaces.web.question_arguments import RUN, TYPES, Answering
from moorage.interfaces.web.questions import Board, QuestionRoutes
from moorage.interfaces.web.rows import PodRow, pod_row
from moorage.interfaces.web.site import Sessions, Site, is_own_path
from moorage.live.recording.status import agreement_of
from moorage.live.server.certificates import listen, serving

_LOCAL: Final = "127.0.0.1"
_JSON: Final = "application/json"
_LOG: Final = logging.getLogger(__name__)


class _Reader:
    """The user of every session: the person who started the command and opened its link."""

    name = "reader"
    credential = None

    async def check(self, verb: str, resource: str, namespace: str = "", group: str = "", name: str = "") -> None:
        """Allow everything, as the cluster cannot be changed here."""


async def serve_cluster(
    source: ClusterSource, port: int, answer: Answering, words: Sequence[str], on_ready: Callable[[str], None],
    logs: Sequence[tuple[ClusterLog, int]] = (), price_of: PriceOf | None = None,
) -> None:  # fmt: skip
    """Serve until cancelled; ``on_ready`` gets the link. Questions are about the input that the options in ``words`` name.

    ``logs`` are the logs of recorders among the input, each with the moment that is read; one log is the past of the cluster.
    ``price_of`` says what a node costs.

    Raises  InputError if the port cannot be listened on
    """

    async def words_given(_: Path) -> tuple[Sequence[str], None]:
        return words, None

    sessions: Sessions[_Reader] = Sessions()
    past = RecordedPast(*logs[0], price_of) if len(logs) == 1 else None
    hub = Hub(source, time.time if past is None else lambda: past.span[1], price_of, past)
    if past is not None:
        Thread(target=past.read_ahead, daemon=True).start()
    site = Site(hub, sessions, namespaces=source.namespaces)
    PodRoutes(site, source.pod, SchedulerTurns(source.scheduler, source.scheduler.profiles))
    SetupRoute(site, source.scheduler, source.notes, recorded=lambda: [agreement_of(log.directory) for log, _ in logs])
    with TemporaryDirectory(prefix="moorage-questions-", ignore_cleanup_errors=True) as folder:
        board = Board(Path(folder), words_given, answer, on_change=hub.wake, past_of=partial(run_in, price_of=price_of))
        QuestionRoutes(site, board, tuple, answer.prepare)
        async with serving(_application(site), listen(_LOCAL, port), None) as bound:
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


# -- recorded past -----------------------------------------------------------------------------------------------------
# The past of a cluster as a log of ``moorage record`` has it: its pods and nodes over time, and its state at any moment.

_node: Final = msgspec.json.Decoder(Node).decode
_pod: Final = msgspec.json.Decoder(Pod).decode
#: How many pods that are gone are kept: those of a day of a large cluster.
_MOST_GONE: Final = 500_000


class RecordedPast:
    """The part of a log that ends at a moment, in microseconds since 1970.

    ``span``: its first and its last moment, in seconds since 1970; ``price_of`` says what a node costs
    """

    def __init__(self, log: ClusterLog, until: int, price_of: PriceOf | None = None) -> None:
        self._log, self._first, self._last, self._price_of = log, log.span()[0], until, price_of
        self.span = self._first / 1e6, until / 1e6
        self._reading = Lock()
        self._rows: TimelineRows | None = None

    def state(self, at: float) -> SnapshotRows:
        """Return the nodes and pods at a time.

        Raises  InputError if the log is damaged there
        """
        moment = min(max(round(at * 1e6), self._first), self._last)
        mirror = Mirror()
        for (kind, _), (_, body) in self._log.state_at(moment).objects.items():
            if kind == "Node":
                mirror.put_node(_node(body))
            elif kind == "Pod":
                mirror.put_pod(pod_row(_pod(body)), at)
        mirror.refresh()
        mirror.learn_shapes()
        return SnapshotRows.of(mirror)

    def rows(self) -> TimelineRows:
        """Return all pods and nodes of the time, which are read once.

        Raises  InputError if the log is damaged
        """
        with self._reading:
            self._rows = self._rows or self._read()
            return self._rows

    def read_ahead(self) -> None:
        """Read the time before anyone asks for it."""
        with suppress(InputError, OSError):
            self.rows()

    def _read(self) -> TimelineRows:
        mirror = Mirror()
        mirror.gone, mirror.price_of = deque(maxlen=_MOST_GONE), self._price_of
        #: What each node offers now, and since when; and what nodes offered from when to when.
        nodes: dict[str, tuple[float, Mapping[str, int]]] = {}
        offered: list[tuple[float, float, Mapping[str, int]]] = []
        state = self._log.state_at(self._first).objects
        listed = (LogChange(self._first, *key, None, body) for key, (_, body) in state.items())
        for one in chain(listed, self._log.changes_between(self._first, self._last)):
            at = one.at / 1e6
            if one.kind == "Node":
                if one.after is None:
                    mirror.drop_node(one.key, at)
                else:
                    mirror.put_node(_node(one.after))
                amounts = None if one.after is None else mirror.nodes[one.key].allocatable
                since, before = nodes.get(one.key, (at, None))
                if before is not None and before != amounts:
                    offered.append((since, at, before))
                    del nodes[one.key]
                if amounts is not None:
                    nodes.setdefault(one.key, (at, amounts))
            elif one.kind == "Pod" and one.after is None:
                mirror.drop_pod(one.key, at)
            elif one.kind == "Pod" and one.after is not None:
                waited = mirror.pods.get(one.key)
                if waited is None or waited.node is None:  # later changes of a pod are no news here
                    mirror.put_pod(_timed(pod_row(_pod(one.after)), waited, at, is_listed=one.at == self._first), at)
        offered += ((since, float("inf"), amounts) for since, amounts in nodes.values())
        return replace(TimelineRows.of(mirror), capacity=offered, began=self.span[0])


def run_in(folder: Path, price_of: PriceOf | None) -> RecordedPast | None:
    """Return the run that a question recorded in its folder. Nodes cost what instance types that came with it say."""
    from moorage.simulator.autoscalers.instance_types import read_price_list  # rarely needed

    found, types = log_of(str(folder / RUN)), folder / TYPES
    prices = read_price_list(str(types)).price_of if types.exists() else price_of
    return None if found is None else RecordedPast(*found, prices)


def _timed(pod: PodRow, waited: PodRow | None, at: float, *, is_listed: bool) -> PodRow:
    """Return a pod with the times of the log, as those in objects are whole seconds; ``waited``: the pod before."""
    came = waited.arrived if waited is not None else pod.arrived if is_listed else at
    return replace(pod, arrived=came, bound_at=pod.bound_at if is_listed or pod.node is None else at)
