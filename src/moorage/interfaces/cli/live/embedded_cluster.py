"""An embedded cluster in one process: API server, controllers, nodes, and a scheduler that is an ordinary client.

The controllers read and write the store directly; the scheduler uses HTTP and gets the same watches and responses as any
other client.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from moorage.api.custom_objects import CustomKind
from moorage.api.documents.object_fields import NODES, is_condition_true, name_of, status_of
from moorage.api.documents.served_kinds import served
from moorage.basis.client.credentials import Endpoint, FixedCredentials, Identity
from moorage.basis.client.rest import Rest
from moorage.basis.serving.certificate_authority import SCHEDULER, Authority
from moorage.basis.serving.listen_addresses import LOOPBACK, Address
from moorage.cluster.apiserver.access.authentication import make_authenticator
from moorage.cluster.apiserver.access.server_objects import publish_server
from moorage.cluster.apiserver.forgetting import forget_old
from moorage.cluster.apiserver.http.audit_log import AuditLog
from moorage.cluster.apiserver.http.limits import ServerLimits
from moorage.cluster.apiserver.http.serve import serving
from moorage.cluster.apiserver.http.server import WebSite
from moorage.cluster.apiserver.http.worker import Worker
from moorage.cluster.controllers.manager import ControllerManager
from moorage.cluster.controllers.nodes.kubelets import is_down
from moorage.core.engine.scheduler import Scheduler
from moorage.framework.registry import NamedKinds
from moorage.live.runtime.attempt_metrics import Measures, Observers
from moorage.live.runtime.extender_client import ExtenderClient
from moorage.live.runtime.ports import Wall
from moorage.live.server.health import report_delays
from moorage.live.server.live_scheduler import Live, LiveSettings
from moorage.rules.store.store import Store
from moorage.rules.workloads.steps import Controller

# Grant the embedded cluster's scheduler access to the kinds that its plugins name, and to pods if a plugin changes them.
#
# No default role covers custom kinds, and a scheduler that may not list one of them schedules nothing. kube-scheduler's role
# does not allow changes of pods; a plugin that changes pods in PreBind sets ``writes_pods``.

_GROUP: Final = "rbac.authorization.k8s.io"
_ROLES, _BINDINGS = served("clusterroles", _GROUP), served("clusterrolebindings", _GROUP)
_NAME: Final = "moorage:plugin-kinds"
#: The verbs that watching needs, and effects that create, change or delete objects.
_VERBS: Final = ("create", "delete", "get", "list", "update", "watch")


def grant_kinds(store: Store, kinds: Sequence[CustomKind], *, pods: bool = False) -> None:
    """Grant the scheduler access to these kinds, and to update ``pods``; revoke access that an earlier start granted."""
    for kind in (_BINDINGS, _ROLES):
        if store.find(kind, "", _NAME) is not None:
            store.delete(kind, "", _NAME)
    if not kinds and not pods:
        return
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "update"]}] if pods else []
    rules += [
        {"apiGroups": [kind.group], "resources": [kind.plural, f"{kind.plural}/status"], "verbs": list(_VERBS)}
        for kind in kinds
    ]
    user = {"apiGroup": _GROUP, "kind": "User", "name": SCHEDULER.name}
    role = {"apiGroup": _GROUP, "kind": "ClusterRole", "name": _NAME}
    store.create(_ROLES, "", _object("ClusterRole", rules=rules))
    store.create(_BINDINGS, "", _object("ClusterRoleBinding", subjects=[user], roleRef=role))


def _object(kind: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": f"{_GROUP}/v1", "kind": kind, "metadata": {"name": _NAME}, **content}


#: A scheduler, and the client of its extenders.
BuiltScheduler = tuple[Scheduler, ExtenderClient]


@dataclass(frozen=True, slots=True)
class Ready:
    """The state of the cluster when it is ready."""

    port: int
    kubeconfig: Path
    nodes: int


@dataclass(slots=True)
class _Start:
    """Startup of the scheduler. ``live`` is set once it connects; ``synced`` at once if there is no scheduler."""

    synced: asyncio.Event = field(default_factory=asyncio.Event)
    live: Live | None = None

    @property
    def waits_for(self) -> list[str]:
        return [] if self.live is None or self.synced.is_set() else self.live.waits_for


@dataclass(slots=True)
class Embedded:
    """The parts of a cluster. ``scheduler`` None: another scheduler connects; ``extenders``: the scheduler's extenders.

    ``report`` receives warnings; ``site`` serves pages beside the API; ``measures`` count what the scheduler does; ``audit``
    records the requests.
    """

    store: Store
    authority: Authority
    kubeconfig: Path
    controllers: Sequence[Controller]
    scheduler: Scheduler | None
    port: int
    report: Callable[[str], None]
    on_ready: Callable[[Ready], None] = field(default=lambda ready: None)
    extenders: ExtenderClient = field(default_factory=lambda: ExtenderClient(()))
    address: Address = LOOPBACK
    site: WebSite | None = None
    measures: Measures | None = None
    audit: AuditLog | None = None
    _next: asyncio.Queue[BuiltScheduler] = field(default_factory=asyncio.Queue)

    def restart(self, built: BuiltScheduler) -> None:
        """Replace the running scheduler; the rest of the cluster goes on."""
        self._next.put_nowait(built)

    async def run(self) -> None:
        """Serve until cancelled.

        Raises  the error that ended a part: the cluster cannot run without it
        """
        guard = make_authenticator(self.store, self.authority, self.address.hosts)
        limits = ServerLimits()
        worker = Worker(limits)
        manager = ControllerManager(self.store, self.controllers, self.report, worker)
        # If our namespace controller is disabled, another one empties namespaces through the API.
        self.store.empties_namespaces = False
        self._admit_plugins()
        tls = self.authority.tls()
        async with serving(
            self.store, guard, self.address.listens, self.port, tls, limits, worker, self.site, self.audit
        ) as port:  # fmt: skip
            self.authority.write_kubeconfig(self.kubeconfig, port, host=self.address.dial_address)
            publish_server(self.store, self.address.dial_address, port)
            start = _Start()
            parts = [
                asyncio.create_task(manager.run(), name="controllers"),
                asyncio.create_task(forget_old(self.store), name="forget"),
            ]
            if self.scheduler is None:
                start.synced.set()
            else:
                parts.append(asyncio.create_task(self._keep_scheduling(port, start), name="scheduler"))
            parts.append(asyncio.create_task(self._serve(manager, port, start), name="ready"))
            try:
                done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
                for part in done:
                    await part
            finally:
                for part in reversed(parts):
                    part.cancel()
                await asyncio.gather(*parts, return_exceptions=True)
                manager.close()

    def _admit_plugins(self) -> None:
        """Grant the scheduler access to the kinds its plugins name, and to pods if they change pods; report invalid names."""
        named = NamedKinds() if self.scheduler is None else self.scheduler.named_kinds
        grant_kinds(self.store, named.kinds, pods=self.scheduler is not None and self.scheduler.writes_pods)
        for name in named.unusable:
            self.report(f"a plugin names the invalid kind {name}; use the form plural.version.group")

    async def _serve(self, manager: ControllerManager, port: int, start: _Start) -> None:
        """Announce the cluster when all nodes that are not down have reported and the scheduler has synced."""
        manager.refresh()
        delays = asyncio.create_task(report_delays(lambda: [*_silent(manager), *start.waits_for], self.report))
        try:
            while next(_silent_nodes(manager), None) is not None:
                await asyncio.sleep(0.01)
            await start.synced.wait()
        finally:
            delays.cancel()
        for kind in start.live.unserved if start.live is not None else ():
            self.report(f"{kind} is not served by this cluster; plugins see no objects of it")
        self.on_ready(Ready(port, self.kubeconfig, manager.world.count(NODES)))
        await asyncio.Event().wait()

    async def _keep_scheduling(self, port: int, start: _Start) -> None:
        """Run the scheduler, and each one that replaces it."""
        while self.scheduler is not None:
            running = asyncio.create_task(self._schedule(self.scheduler, port, start))
            awaiting = asyncio.create_task(self._next.get())
            try:
                await asyncio.wait({running, awaiting}, return_when=asyncio.FIRST_COMPLETED)
                if running.done():
                    await running
                    return
            finally:
                for task in (running, awaiting):
                    task.cancel()
                await asyncio.gather(running, return_exceptions=True)
            self.scheduler, self.extenders = awaiting.result()
            self._admit_plugins()
            self.report("the scheduler runs the changed plugins")

    async def _schedule(self, scheduler: Scheduler, port: int, start: _Start) -> None:
        identity = f"moorage-{uuid.uuid4()}"
        shown = self.authority.issue(SCHEDULER)
        credentials = FixedCredentials(Identity("", shown.certificate, shown.key))
        endpoint = Endpoint(self.address.url(port), credentials, self.authority.certificate)
        async with Rest(endpoint, qps=0) as rest, self.extenders as extenders:
            settings = LiveSettings(reporter=next(iter(scheduler.profiles)), extenders=extenders)
            live = Live(
                scheduler, rest, settings, identity=identity, wall=Wall(), chance=random.Random(identity),  # noqa: S311
                observers=Observers(measures=self.measures),
            )  # fmt: skip
            start.live = live
            forwarding = asyncio.create_task(_forward(live.loop.synced, start.synced))
            try:
                await live.run()
            finally:
                forwarding.cancel()


async def _forward(source: asyncio.Event, target: asyncio.Event) -> None:
    await source.wait()
    target.set()


def _silent_nodes(manager: ControllerManager) -> Iterator[str]:
    """Yield the nodes that have not reported, except those that are down."""
    nodes = ((node, status_of(node)) for node in manager.world.all(NODES))
    return (name_of(node) for node, status in nodes if not (is_condition_true(status, "Ready") or is_down(node)))


def _silent(manager: ControllerManager) -> list[str]:
    """Return a line with the number of nodes that have not reported and the first of their names; empty if all have."""
    names = list(_silent_nodes(manager))
    shown = ", ".join([*names[:3], "…"] if len(names) > 3 else names)
    return [f"{len(names)} of {manager.world.count(NODES)} nodes to be ready: {shown}"] if names else []
