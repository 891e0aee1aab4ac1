"""The requests about one pod's nodes: verdicts to colour the map by, and scores to weigh again.

The live scheduler answers them between two attempts, on the event loop. So that they take a small part of its time, they run
one at a time, and the next one starts only after several times as long as the last one took.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from aiohttp import web

from moorage.api.core import Pod
from moorage.cluster.apiserver.vocabulary.statuses import ApiError, not_found, too_many
from moorage.core.engine.scheduler import Scheduler
from moorage.errors import InputError
from moorage.framework.profile import Profile
from moorage.interfaces.web.sessions import Visitor
from moorage.interfaces.web.site import Site, json_response

__all__ = ["PodRoutes", "PodSource", "SchedulerTurns"]

#: How many requests may wait for their turn; and the pause after an answer, as a multiple of the time that it took.
_MOST_WAITING: Final = 16
_REST: Final = 4.0


class PodSource(Protocol):
    def pod(self, key: str) -> Pod | None:
        """Return a pod; None if there is none."""


class SchedulerTurns:
    """Runs functions on the live scheduler, one at a time. ``profiles`` are its profiles without measurements."""

    def __init__(
        self, scheduler: Scheduler, profiles: Mapping[str, Profile], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._scheduler, self._profiles, self._clock = scheduler, profiles, clock
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._free_at = 0.0

    def replace(self, scheduler: Scheduler, profiles: Mapping[str, Profile]) -> None:
        self._scheduler, self._profiles = scheduler, profiles

    async def ask(self, name: str, pod: Pod) -> dict[str, Any]:
        """Return the result of the function ``name`` of ``moorage.laboratory.explain.pod_columns`` for a pod.

        Raises  ApiError
        """
        if self._waiting >= _MOST_WAITING:
            raise too_many("too many requests, please try again later", 1)
        self._waiting += 1
        try:
            async with self._turn:
                await asyncio.sleep(max(0.0, self._free_at - self._clock()))
                function = await asyncio.to_thread(_function, name)
                began = self._clock()
                try:
                    found: dict[str, Any] = function(self._scheduler, self._profiles, pod)
                except InputError as error:
                    raise ApiError(422, "Invalid", str(error)) from None
                ended = self._clock()
                self._free_at = ended + _REST * (ended - began)
                return found
        finally:
            self._waiting -= 1


def _function(name: str) -> Callable[..., dict[str, Any]]:
    from moorage.laboratory.explain import pod_columns

    found: Callable[..., dict[str, Any]] = getattr(pod_columns, name)
    return found


class PodRoutes:
    """Adds the routes to a site. ``turns`` is None if no scheduler runs in this process."""

    def __init__(self, site: Site, source: PodSource, turns: SchedulerTurns | None) -> None:
        self._source, self._turns = source, turns
        for name, function in (("verdicts", "verdict_columns"), ("scores", "score_columns")):
            for path in (f"/lab/v1/{name}/{{namespace}}/{{name}}", f"/lab/v1/pods/{{namespace}}/{{name}}/{name}"):
                site.route("GET", path, self._handler(function))

    def _handler(self, function: str) -> Any:
        async def handle(request: web.BaseRequest, visitor: Visitor, namespace: str, name: str) -> web.StreamResponse:
            del request
            await visitor.check("list", "nodes")
            await visitor.check("get", "pods", namespace, name=name)
            pod = self._source.pod(f"{namespace}/{name}")
            if pod is None:
                raise not_found("pods", "", name)
            if self._turns is None:
                raise ApiError(404, "NotFound", "no scheduler runs in this process; ask for an explanation instead")
            return json_response(await self._turns.ask(function, pod))

        return handle
