"""Run a scheduler process: wire it, serve health and metrics, and shut down in order on a signal."""

from __future__ import annotations

import asyncio
import math
import platform
import random
import re
import socket
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from moorage import __version__
from moorage.api.core import Node, Pod
from moorage.basis.client.credentials import Endpoint, for_another_loop
from moorage.basis.client.reflector import Reflector
from moorage.basis.client.rest import BIND_S, Rest, user_agent
from moorage.core.building.builder import complete_scheduler
from moorage.core.config.plain_addresses import join_host_port
from moorage.core.config.scheduler_document import Loaded
from moorage.core.engine.engine_state import EngineSettings
from moorage.core.engine.scheduler import Scheduler
from moorage.core.extenders.wire import shown
from moorage.core.groups.group_cycle import PlacementWatch
from moorage.core.queue import QueueTimes
from moorage.errors import MoorageError
from moorage.framework.mistakes import mistakes_in
from moorage.framework.profile import Profile
from moorage.interfaces.cli.given_back_memory import giving_back_memory
from moorage.interfaces.cli.live.run_explain import LiveExplainer
from moorage.interfaces.cli.live.run_serving import Ending, Serving, ServingRules, metric_filter
from moorage.interfaces.cli.main import ERROR, OK
from moorage.interfaces.cli.pflag import Flag, Given
from moorage.interfaces.cli.terminal import say
from moorage.live.recording.recorder_loop import RunRecording
from moorage.live.runtime.attempt_metrics import Observers
from moorage.live.runtime.extender_client import ExtenderClient
from moorage.live.runtime.hang_watch import Hang, HangWatch, end_now
from moorage.live.runtime.leader_election import LeadershipLostError, Timing
from moorage.live.runtime.plugin_limit import TimeLimit
from moorage.live.runtime.ports import Wall
from moorage.live.runtime.set_aside import code_of, set_aside, setting_aside
from moorage.live.runtime.side_loop import SideLoop, across
from moorage.live.server.authentication import FrontProxies, RequestAuthenticator
from moorage.live.server.authorization import Delegate, RequestAuthorizer
from moorage.live.server.cache_debugger import compare, dump
from moorage.live.server.client_ca import ClientCaRules, ClientCas
from moorage.live.server.credential_expiry import watch_expiry
from moorage.live.server.endpoints import AuthenticatingSite, ProgramInfo, Served, make_app, make_plain_app
from moorage.live.server.health import PING, Check, Health, lease_answers, watchdog, watches
from moorage.live.server.klog import Klog
from moorage.live.server.listening import serving
from moorage.live.server.live_scheduler import Aside, LeaderSettings, Live, LiveSettings
from moorage.live.server.plugin_metrics import MetricRegistry
from moorage.live.server.pod_metrics import pod_registry
from moorage.live.server.scheduler_metrics import SchedulerMetrics, engine_gauges, process_gauges, registry_of

_FAILED = re.compile(r".*: cannot connect: (?P<why>.*); listing again in [\d.]+s")


def reports_for(server: str, log: Callable[[str], None]) -> Callable[[str], None]:
    """Return the function that reports recoverable errors: the log or, on a terminal, a filter in front of the log."""
    return _Terminal(server, log) if sys.stderr.isatty() else log


class _Terminal:
    """Prints once that the server cannot be reached, and why; prints it again only if the reason changes."""

    def __init__(self, server: str, log: Callable[[str], None]) -> None:
        self._server, self._log = server, log
        self._said = ""

    def __call__(self, line: str) -> None:
        failed = _FAILED.fullmatch(line)
        if failed is None:
            self._log(line)
            return
        why = failed["why"][:1].lower() + failed["why"][1:]
        if why != self._said:
            self._said = why
            say(f"cannot reach {self._server}: {why}; retrying every second or two", err=True)


#: Access reviews delay health probes, so they get a higher rate limit than other requests.
_REVIEW_QPS, _REVIEW_BURST = 200.0, 400
#: The limits of requests about the lease, and how long a last write may take, in seconds.
_LEASE_QPS, _LEASE_BURST, _WRITE_S = 20.0, 40, 3.0
#: The name of the lease in health checks and metrics, independent of the lease object's name.
_COMPONENT = "kube-scheduler"
_PATHS = ("/configz", "/flagz", "/healthz", "/livez", "/metrics", "/readyz")


@dataclass(frozen=True, slots=True)
class Process:
    """The settings of a process, complete before it starts. ``document`` is the configuration as /configz shows it."""

    loaded: Loaded
    document: Mapping[str, Any]
    given: Given
    flags: tuple[Flag, ...]
    leader: LeaderSettings | None
    endpoint: Endpoint
    extenders: ExtenderClient
    max_disks: int | None
    serving: Serving
    log: Klog


async def run_process(process: Process) -> int:
    """Schedule until a signal arrives or the lease is lost. Return the exit status."""
    log, endpoint = process.log, process.endpoint
    log.info(0, "Starting Moorage", version=f"v{__version__}", emulating=process.loaded.release)
    meter = SchedulerMetrics(time.monotonic, process.loaded.gates)
    bare: dict[str, Profile] = {}

    limit = TimeLimit(process.given["plugin-timeout"]) if process.given["plugin-timeout"] else None

    def watched(profile: Profile) -> Profile:
        bare[profile.scheduler_name] = profile
        return setting_aside(meter.probe.watched(profile if limit is None else limit.limited(profile)))

    scheduler = complete_scheduler(
        process.loaded,
        process.given["seed"],
        EngineSettings(
            QueueTimes(max_unschedulable_s=process.given["pod-max-in-unschedulable-pods-duration"]), process.max_disks
        ),
        watched=watched,
        verified=process.given["verify"],
    )
    for line in mistakes_in(scheduler.profiles.values()):
        log.warning(line)
    _measure(scheduler, meter)
    connection = process.loaded.configuration.client_connection
    scheme, _, place = endpoint.server.partition("://")
    host = place.rpartition("@")[2]  # drop user name and password
    ending = Ending(log, "Received a signal to terminate: requests in progress finish first, then the lease is released")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(giving_back_memory())
        rest = await stack.enter_async_context(
            Rest(
                endpoint,
                qps=float(connection.qps or 50),
                burst=int(connection.burst or 100),
                agent=user_agent(__version__),
                bind_s=BIND_S if process.leader is None else process.leader.timing.spare_s,
                on_response=lambda method, *of: meter.requested(method, host, *of),
                on_throttled=lambda method, *of: meter.waited(method, host, *of),
            )
        )
        identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        main = asyncio.get_running_loop()
        side = await stack.enter_async_context(SideLoop("lease and probes"))

        def rest_aside() -> Rest:
            return Rest(
                for_another_loop(endpoint), qps=_LEASE_QPS, burst=_LEASE_BURST,
                agent=f"{user_agent(__version__)}/leader-election",
                on_response=lambda method, *of: _later(main, meter.requested, method, host, *of),
                on_throttled=lambda method, *of: _later(main, meter.waited, method, host, *of),
            )  # fmt: skip

        settings = LiveSettings(
            process.leader, next(iter(scheduler.profiles)), process.loaded.configuration.delay_cache_until_active,
            await stack.enter_async_context(process.extenders), aside=Aside(side, rest_aside),
        )  # fmt: skip
        recording = RunRecording(process.given["record"], log) if process.given["record"] else None
        if recording is not None:
            stack.callback(recording.close)
            settings = replace(settings, sink_of=recording.beside)
        live = Live(
            scheduler, rest, settings, identity=identity, wall=Wall(), chance=random.Random(identity),  # noqa: S311
            observers=Observers(reports_for(f"{scheme}://{host}", log.warning), log, meter),
        )  # fmt: skip
        explainer = LiveExplainer(live, bare, process.loaded)
        site = _site(live, bare, explainer, meter) if process.given["ui"] else None
        hangs = _Hangs(process, live, side, rest_aside, meter)
        limit_s = process.given["hang-limit"] or math.inf
        watch = HangWatch(
            scheduler.profiles.values, log, limit_s=limit_s, end_s=2 * limit_s, on_hang=hangs.noticed,
            on_limit=hangs.set_aside, on_end=hangs.end,
        )  # fmt: skip
        ending.before_end = hangs.release
        served = replace(_served(process, live, meter, ending, explainer, watch), site=site)
        # The web interface reads what the scheduler changes, so with it the scheduler's loop serves.
        serving_loop = main if site is not None else side.loop
        await stack.enter_async_context(_serving(process, served, serving_loop))
        if site is not None:
            stack.callback(site.end)  # before the server waits for its streams
        watch.start()
        stack.callback(watch.stop)
        expiring = asyncio.create_task(watch_expiry(endpoint.credentials, log, time.time), name="expiry")
        stack.callback(expiring.cancel)
        log.info(0, "Scheduling", profiles=list(scheduler.profiles), server=f"{scheme}://{host}", identity=identity)
        if recording is not None:
            facts = {"server": f"{scheme}://{host}", "release": process.loaded.release, "moorage": __version__, "own": True}
            writing = asyncio.create_task(recording.run(lambda: live.not_synced, facts), name="record")
            stack.callback(writing.cancel)
        running = asyncio.ensure_future(live.run())
        ending.listen(running, lambda: _debug(live, scheduler, log))
        return await _outcome(running, ending, process)


def _measure(scheduler: Scheduler, meter: SchedulerMetrics) -> None:
    """Measure the queueing hints of a scheduler and the placements of groups."""
    scheduler.queue.time_hints(time.monotonic, meter.hinted)
    scheduler.pod_groups.watch = PlacementWatch(time.monotonic, meter.evaluated)


def _later(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: Any) -> None:
    """Let a loop call a function, unless it is closed."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *args)


class _Hangs:
    """What happens when a plugin does not return, on the watch's thread."""

    def __init__(
        self, process: Process, live: Live, side: SideLoop, rest: Callable[[], Rest], meter: SchedulerMetrics
    ) -> None:  # fmt: skip
        self._process, self._live, self._side, self._rest, self._meter = process, live, side, rest, meter

    def noticed(self, hang: Hang) -> None:
        self._meter.hung(hang.plugin, hang.point, hang.profile)

    def set_aside(self, hang: Hang) -> None:
        """Write to the pod that a plugin does not return from it."""
        profile = self._live.loop.scheduler.profiles.get(hang.profile)
        if hang.pod is None or profile is None or not self._live.leads:
            return
        code, now = code_of(profile.plugins[hang.plugin]), Wall()()

        async def write() -> None:
            async with self._rest() as rest:
                await set_aside(rest, hang, code, self._process.given["hang-limit"], now, hang.profile)

        self._do(write, "The pod cannot be set aside")

    def release(self) -> None:
        """Release the lease."""

        async def write() -> None:
            async with self._rest() as rest:
                await self._live.give_up(rest)

        self._do(write, "Failed to release lease")

    def end(self, hang: Hang) -> None:
        """End the process, so that it is started again or another replica leads."""
        self._process.log.error(None, "The scheduling loop does not come back, so the process ends")
        self.release()
        end_now(ERROR)

    def _do(self, write: Callable[[], Coroutine[Any, Any, None]], otherwise: str) -> None:
        try:
            asyncio.run_coroutine_threadsafe(write(), self._side.loop).result(_WRITE_S)
        except (MoorageError, TimeoutError, RuntimeError) as error:
            self._process.log.error(str(error) or "the API server did not answer in time", otherwise)


def _site(
    live: Live, profiles: Mapping[str, Profile], explainer: LiveExplainer, meter: SchedulerMetrics
) -> AuthenticatingSite:  # fmt: skip
    from moorage.interfaces.web.live_site import LiveSite  # loaded only if it is served

    return LiveSite(live, profiles, explainer.answer, meter.plugin_times)


async def _outcome(running: asyncio.Future[None], ending: Ending, process: Process) -> int:
    await asyncio.wait({running})
    log = process.log
    if not running.cancelled():
        try:
            await running
        except LeadershipLostError as error:
            log.error(error, "Leaderelection lost")
            return ERROR
    if process.leader is None:
        log.error(None, "finished without leader elect")
        return ERROR
    if ending.asked:
        log.info(0, "Requested to terminate, exiting")
        return OK
    log.error(None, "lost lease")
    return ERROR


# -- serving ------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _serving(process: Process, served: Served, loop: asyncio.AbstractEventLoop) -> AsyncIterator[None]:
    """Serve on a loop, which may be another one, while the block runs."""
    main = asyncio.get_running_loop()
    begun: asyncio.Future[None] = main.create_future()
    given = replace(served, scheduling=main)

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            await _serve_plainly(stack, process, given)
            if process.serving.secure is not None:
                await _serve_securely(stack, process, process.serving.secure, given)
            main.call_soon_threadsafe(begun.set_result, None)
            await asyncio.Event().wait()

    running = asyncio.create_task(across(loop, serve), name="serve")
    try:
        await asyncio.wait({running, begun}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
        yield
    finally:
        running.cancel()
        await asyncio.wait({running})


async def _serve_plainly(stack: AsyncExitStack, process: Process, served: Served) -> None:
    """Serve over plain HTTP if a release that does so (1.19 to 1.21) is emulated."""
    plain, log = process.serving.plain, process.log
    profiles = ("/debug/pprof",) if served.profiling else ()
    counted = (
        "/metrics",
        "/configz",
        *(("/metrics/resources",) if process.loaded.gates.emulated.serves_resource_metrics else ()),
    )
    healthz = ("/healthz", *(counted if plain.together else ()), *profiles)
    for opened, paths in ((plain.healthz, healthz), (plain.metrics, (*counted, *profiles))):
        if opened is not None:
            host = opened.getsockname()[0]
            port = await stack.enter_async_context(serving(make_plain_app(served, log, paths), opened, None))
            log.line(0, f"Serving insecurely on {join_host_port(host, str(port))}")


async def _serve_securely(stack: AsyncExitStack, process: Process, rules: ServingRules, served: Served) -> None:
    log, clock, given = process.log, time.monotonic, process.given
    stack.callback(rules.socket.close)
    token_delegate = await _delegate(stack, rules.authentication)
    access_delegate = await _delegate(stack, rules.authorization)
    if access_delegate is None:
        log.warning("No authorization-kubeconfig provided, so SubjectAccessReview of authorization tokens won't work.")
    review = None if token_delegate is None else token_delegate.review
    authenticator = RequestAuthenticator(review, clock, given["authentication-token-webhook-cache-ttl"])
    ttls_s = (given[f"authorization-webhook-cache-{answer}-ttl"] for answer in ("authorized", "unauthorized"))
    authorizer = RequestAuthorizer(access_delegate, clock, rules.open_paths, *ttls_s)
    trust = ClientCaRules(
        given["client-ca-file"], given["requestheader-client-ca-file"], FrontProxies.read(lambda name: given[name]),
        skip_lookup=given["authentication-skip-lookup"], tolerant=given["authentication-tolerate-lookup-failure"],
    )  # fmt: skip
    client_cas = ClientCas(trust, token_delegate, authenticator, rules.tls, log)
    await client_cas.start()
    port = await stack.enter_async_context(
        serving(make_app(served, authenticator, authorizer, log), rules.socket, rules.tls.context)
    )
    log.line(0, f"Serving securely on {given['bind-address']}:{port}")
    keeping = asyncio.create_task(client_cas.run(), name="client CAs")
    stack.callback(keeping.cancel)


async def _delegate(stack: AsyncExitStack, endpoint: Endpoint | None) -> Delegate | None:
    if endpoint is None:
        return None
    rest = Rest(endpoint, qps=_REVIEW_QPS, burst=_REVIEW_BURST, agent=user_agent(__version__))
    return Delegate(await stack.enter_async_context(rest))


def _served(
    process: Process, live: Live, meter: SchedulerMetrics, ending: Ending, explainer: LiveExplainer, watch: HangWatch
) -> Served:  # fmt: skip
    given, scheduler, shown = process.given, live.loop.scheduler, metric_filter(process.given)
    lease = _COMPONENT if process.leader is not None else ""
    health = Health(_checks(live, lease, ending, watch), process.log, process.loaded.release)
    families = [
        *meter.families,
        *engine_gauges(scheduler, live.loop.follower),
        *process_gauges(scheduler, live.loop, __version__, lease, lambda: live.leads),
    ]
    counted, metrics = registry_of(families, shown, process.loaded.release)
    started = datetime.now(UTC)
    return Served(
        health=health,
        metrics=metrics,
        counted=counted,
        slis=MetricRegistry(health.families, shown).with_others(),
        pod_metrics=lambda: pod_registry(_known(live, Pod)).with_others() if live.leads else None,
        configuration=lambda: with_hidden_passwords(process.document),
        flags={**given.shown(process.flags), "help": "false"},
        program=ProgramInfo(f"moorage v{__version__}", process.loaded.release, platform.python_version(), started, _PATHS),
        set_verbosity=lambda level: setattr(process.log, "verbosity", level),
        profiling=process.loaded.configuration.enable_profiling,
        hidden=closed_pages(given["feature-gates"]),
        explain=explainer.answer,
    )


def with_hidden_passwords(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration as authorized users may see it: extender addresses without their passwords."""
    extenders = [{**one, "urlPrefix": shown(one.get("urlPrefix", ""))} for one in document.get("extenders") or ()]
    return {**document, "extenders": extenders} if extenders else document


def closed_pages(gates: Sequence[str]) -> frozenset[str]:
    """Return the pages whose feature gate is disabled. The gates were validated before."""
    set_gates = {
        name.strip(): word.strip().lower() in {"1", "t", "true"} for name, _, word in (gate.partition("=") for gate in gates)
    }
    betas = set_gates.get("AllBeta", True)
    names = {"/flagz": "ComponentFlagz", "/statusz": "ComponentStatusz"}
    return frozenset(path for path, name in names.items() if not set_gates.get(name, set_gates.get(f"kube:{name}", betas)))


def _checks(live: Live, lease: str, ending: Ending, watch: HangWatch) -> dict[str, list[Check]]:
    def synced() -> str | None:
        return "handlers are not fully synchronized" if live.not_synced else None

    def shutting_down() -> str | None:
        return "process is shutting down" if ending.asked else None

    watched = [] if live.election is None else [watchdog(live.election, lease, time.monotonic)]
    patience_s = (Timing() if live.election is None else live.election.timing).lease_s
    answers = Check("scheduling-loop", lambda: watch.fault)
    ready = [
        *watched, Check("shutdown", shutting_down), Check("sched-handler-sync", synced), answers,
        watches(live.reflectors, patience_s, time.monotonic),
        *([] if live.election is None else [lease_answers(live.election, lease, time.monotonic)]),
    ]  # fmt: skip
    return {"healthz": [*watched, answers], "livez": [PING, answers], "readyz": ready}


def _known(live: Live, kind: Any) -> list[Any]:
    return [obj for one in live.reflectors if isinstance(one, Reflector) and one.resource.type is kind for obj in one.known]


def _debug(live: Live, scheduler: Scheduler, log: Klog) -> None:
    compare(scheduler, _known(live, Node), _known(live, Pod), log)
    dump(scheduler, log)
