"""Run the embedded server: listen on a port, and write a kubeconfig for it."""

from __future__ import annotations

import asyncio
import errno
import random
import secrets
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from aiohttp import web

from moorage.api.feature_gates import FeatureGates
from moorage.basis.files import Warn
from moorage.basis.serving.connections import BACKLOG, AcceptLimits, ConnectionAcceptor
from moorage.basis.serving.listen_addresses import cannot_listen, is_loopback
from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.access.bootstrap import bootstrap_cluster
from moorage.cluster.apiserver.address_objects import keep_service_addresses
from moorage.cluster.apiserver.admission_configuration import AdmissionConfiguration
from moorage.cluster.apiserver.http.audit_log import AuditLog
from moorage.cluster.apiserver.http.limits import ServerLimits
from moorage.cluster.apiserver.http.server import Front, WebSite
from moorage.cluster.apiserver.http.worker import DeferredWork, Worker
from moorage.cluster.apiserver.sqlite_log import SQLiteLog
from moorage.errors import ConfigError
from moorage.rules.store.event_apis import mirror_events
from moorage.rules.store.store import Store

#: Seconds that a stopping server waits for requests in progress.
_SHUTDOWN_S: Final = 1.0


@asynccontextmanager
async def serving(
    store: Store, guard: Authenticator, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None,
    limits: ServerLimits | None = None, worker: Worker | None = None, site: WebSite | None = None,
    audit: AuditLog | None = None,
) -> AsyncIterator[int]:  # fmt: skip
    """Serve a store while the context lasts, and yield the port. Port 0 selects a free one.

    kubectl sends a token over TLS only. ``site`` adds pages beside the API; ``audit`` records the requests.

    Raises  ConfigError for an address that other machines can reach without TLS, or that cannot be listened on
    """
    if tls is None and not is_loopback(host):
        raise ConfigError(f"--bind-address: {host} can be reached from other machines, requiring TLS; use 127.0.0.1 or ::1")
    limits = limits or ServerLimits()
    worker = worker or Worker(limits)
    front, deferred = Front(store, guard, limits, worker, site, audit), DeferredWork(worker)
    manager = web.Server(front.handle, request_factory=front.make_request)
    acceptor = ConnectionAcceptor(manager, AcceptLimits(limits.connections, limits.client_s, limits.answer_s, _SHUTDOWN_S, tls))
    listening = _listen(host, port)
    log_writer = asyncio.create_task(store.log.keep_up()) if store.log is not None else None
    store.defer = deferred.add
    try:
        acceptor.open([listening])
        yield int(listening.getsockname()[1])
    finally:
        acceptor.shut()
        front.end_watches()
        manager.pre_shutdown()
        await manager.shutdown(_SHUTDOWN_S)
        await acceptor.close(_SHUTDOWN_S)
        store.defer = None
        await deferred.close()
        if log_writer is not None:
            log_writer.cancel()
            await asyncio.gather(log_writer, return_exceptions=True)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            why = f"--bind-address: {host} is not an address of this machine; 0.0.0.0 stands for all of them"
            raise ConfigError(why) from None
        raise cannot_listen("--port", host, port, error) from None


#: How far resource versions jump at each start. The file may lack the last changes that watches have seen, whose versions must
#: not be reused.
_VERSION_JUMP: Final = 1_000_000


def open_store(
    path: Path | None = None, *, clock: Callable[[], float] = time.time, seed: int | None = None,
    gates: FeatureGates | None = None, runtime_config: frozenset[str] = frozenset(), warn: Warn = lambda line: None,
    server_version: str = "", admission: AdmissionConfiguration | None = None,
) -> Store:  # fmt: skip
    """Return a store with the bootstrap objects and the content of the file. Close it with ``store.close()``.

    Without a path nothing is persisted. With one, changes are on disk once ``store.settle()`` has returned, and the HTTP
    server responds no earlier. Watches and paged lists from before the start get 410, as history is not persisted.

    ``seed`` makes uids and generated names the same in each run; without it they are random. ``gates`` and ``runtime_config``
    determine which kinds are served, and ``gates`` which gated fields are kept. ``/version`` reports ``server_version``, or
    the release of the gates. ``admission`` configures admission plugins. ``warn`` receives a warning if others could read the
    file, whose permissions are then restricted.

    Raises  ConfigError if the file cannot be opened or another process has it open, InputError if it is damaged
    """

    def made(version: int) -> Store:
        # The seed of the uid generator differs at each start, as uids must not repeat.
        draw = random.Random(secrets.randbits(128) if seed is None else f"{seed}/{version}")  # noqa: S311
        security = None if admission is None else admission.pod_security((gates or FeatureGates()).emulated.minor)
        made = Store(
            clock, draw, secrets.token_bytes(32), gates=gates, runtime_config=runtime_config, server_version=server_version,
            pod_security=security,
        )  # fmt: skip
        made.limited = () if admission is None else admission.limited
        return made

    if path is None:
        store = made(0)
        bootstrap_cluster(store)
        mirror_events(store)
        keep_service_addresses(store)
        return store
    log = SQLiteLog(path, warn)
    try:
        version = log.version
        store = made(version)
        if version:
            store.restore(log.load(store.find_stored_kind), version + _VERSION_JUMP)
            log.start_at(version + _VERSION_JUMP)
        store.attach_log(log)
        bootstrap_cluster(store)
        mirror_events(store)
        keep_service_addresses(store)
        log.flush()
    except BaseException:
        log.close()
        raise
    return store
