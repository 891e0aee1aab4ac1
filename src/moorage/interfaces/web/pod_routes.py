"""The requests about one pod: why it waits, verdicts on its nodes to colour the map by, and scores to weigh again.

The live scheduler answers them between two attempts, on the event loop. So that they take a small part of its time, they run
one at a time, and the next one starts only after several times as long as the last one took.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

from moorage.api.core import Node, Pod
from moorage.api.documents.statuses import ApiError, not_found, too_many
from moorage.core.engine.scheduler import Scheduler
from moorage.errors import InputError
from moorage.framework.profile import Profile
from moorage.interfaces.web.change_stream import Make
from moorage.interfaces.web.mirror import Header, Mirror, SnapshotRows, View, snapshot_document
from moorage.interfaces.web.rows import QueueState, WorkloadRow, is_ended, pod_row, queue_state
from moorage.interfaces.web.site import Site, Visitor, json_response
from moorage.laboratory.cluster import Cluster

#: How many requests may wait for their turn; and the pause after an answer, as a multiple of the time that it took.
_MOST_WAITING: Final = 16
_REST: Final = 4.0


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
        """Return the result of a function for a pod: ``cause_document``, or one of the reports on placements.

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
    from moorage.laboratory.explain import live_changes
    from moorage.laboratory.explain import placement_report as pod_columns

    found: Callable[..., dict[str, Any]] = getattr(live_changes if name == "cause_document" else pod_columns, name)
    return found


class PodRoutes:
    """Adds the routes to a site. ``find`` returns a pod by its key; ``turns`` is None if no scheduler runs in this process.

    ``told``  the message of a pod's last attempt, by its UID
    """

    def __init__(
        self, site: Site, find: Callable[[str], Pod | None], turns: SchedulerTurns | None,
        told: Callable[[str], str] = lambda _: "",
    ) -> None:  # fmt: skip
        self._find, self._turns, self._told = find, turns, told
        site.route("GET", "/lab/v1/pods/{namespace}/{name}/cause", self._cause)
        for name, function in (("verdicts", "verdict_columns"), ("scores", "score_columns")):
            for path in (f"/lab/v1/{name}/{{namespace}}/{{name}}", f"/lab/v1/pods/{{namespace}}/{{name}}/{name}"):
                site.route("GET", path, self._handler(function))

    def _handler(self, function: str) -> Any:
        async def handle(request: web.BaseRequest, visitor: Visitor, namespace: str, name: str) -> web.StreamResponse:
            await visitor.check("list", "nodes")
            await visitor.check("get", "pods", namespace, name=name)
            return json_response(await self._asked(function, namespace, name))

        return handle

    async def _cause(self, request: web.BaseRequest, visitor: Visitor, namespace: str, name: str) -> web.StreamResponse:
        """Return the explanation without changes, which names other pods; it takes no process of its own."""
        await visitor.check("list", "nodes")
        await visitor.check("list", "pods")
        if self._turns is None:
            return web.Response(status=204)  # a browser would note an error
        found = await self._asked("cause_document", namespace, name)
        pod = self._find(f"{namespace}/{name}")
        if pod is not None and not found["answer"].get("message") and (message := self._told(pod.uid)):
            found["answer"]["message"] = message
        return json_response(found)

    async def _asked(self, function: str, namespace: str, name: str) -> dict[str, Any]:
        pod = self._find(f"{namespace}/{name}")
        if pod is None:
            raise not_found("pods", "", name)
        if self._turns is None:
            raise ApiError(404, "NotFound", "no scheduler runs in this process; ask for an explanation instead")
        return await self._turns.ask(function, pod)


# -- cluster source ----------------------------------------------------------------------------------------------------


class ClusterSource:
    """The nodes and pods of a cluster at the time when the source is created."""

    live = False

    def __init__(self, cluster: Cluster) -> None:
        objects = cluster.objects()
        self._nodes = [one for one in objects if isinstance(one, Node)]
        self._pods = {one.key: one for one in objects if isinstance(one, Pod)}
        self._records = cluster.simulation.records
        self.scheduler = cluster.scheduler
        self.release = cluster.scheduler.gates.release
        self.notes = tuple(note.text for note in cluster.notes)

    def nodes(self) -> Iterator[Node]:
        return iter(self._nodes)

    def pods(self) -> Iterator[Pod]:
        return iter(self._pods.values())

    def workloads(self) -> Iterator[WorkloadRow]:
        """Return nothing: the controllers of these pods are not part of the input."""
        return iter(())

    def pod(self, key: str) -> Pod | None:
        return self._pods.get(key)

    def namespaces(self) -> list[str]:
        return sorted({pod.namespace for pod in self._pods.values()})

    def follow(self, on_change: Callable[[str, str, Make | None], None]) -> None:
        pass

    def unfollow(self) -> None:
        pass

    def queue_state(self, uid: str) -> QueueState:
        record = self._records.get(uid)
        found = queue_state(self.scheduler, uid)
        if record is None:
            return found
        return msgspec.structs.replace(found, cause=record.message, attempts=record.attempts or found.attempts)


def snapshot_of(cluster: Cluster, at: str) -> dict[str, Any]:
    """Return the snapshot document of a cluster, to embed in a file."""
    source, mirror = ClusterSource(cluster), Mirror()
    for node in source.nodes():
        mirror.put_node(node)
    for pod in source.pods():
        if not is_ended(pod):
            mirror.put_pod(pod_row(pod, source.queue_state(pod.uid) if not pod.spec.node_name else QueueState()), 0.0)
    mirror.refresh()
    mirror.learn_shapes()
    header = Header(release=source.release, id="", at=at, live=False, writable=False, user="", notes=source.notes)
    return snapshot_document(SnapshotRows.of(mirror), header, View())
