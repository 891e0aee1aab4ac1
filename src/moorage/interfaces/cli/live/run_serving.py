"""Prepare serving from the flags: sockets, certificates, the clusters for access reviews, and the metrics to show.

Everything is prepared before anything starts, so that every fault is reported at startup.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from moorage import __version__
from moorage.api.releases import CURRENT
from moorage.api.releases.detection import detect_release
from moorage.api.releases.release import Release
from moorage.basis.client.credentials import Endpoint
from moorage.basis.client.kubeconfig import ClientEnvironment, in_cluster, read_kubeconfig
from moorage.basis.client.rest import Rest, user_agent
from moorage.basis.client.server_version import server_version
from moorage.core.config.plain_addresses import Addresses, split_host_port
from moorage.errors import ClusterError, InputError, MoorageError
from moorage.interfaces.cli.cluster_files import CONFIG_LIMIT, known_release, read_file
from moorage.interfaces.cli.main import ERROR
from moorage.interfaces.cli.pflag import Given
from moorage.live.runtime.attempt_metrics import SILENT, Log
from moorage.live.server.authorization import OpenPaths
from moorage.live.server.certificates import ServingTls, TlsRules, given_or_made, named_pair
from moorage.live.server.listening import listen
from moorage.live.server.plugin_metrics import Filter

_MOST_PORT: Final = 65535
#: A key of --allow-metric-labels.
_METRIC_LABEL: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*,[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class ServingRules:
    """How to serve HTTPS. ``authentication`` and ``authorization`` are the clusters that review requests; None without one."""

    socket: socket.socket
    tls: ServingTls
    open_paths: OpenPaths
    authentication: Endpoint | None
    authorization: Endpoint | None


@dataclass(frozen=True, slots=True)
class PlainSockets:
    """Sockets for plain HTTP of 1.19 to 1.21. ``metrics`` is None where ``healthz`` also serves metrics, or none are served."""

    healthz: socket.socket | None = None
    metrics: socket.socket | None = None
    together: bool = True

    def close(self) -> None:
        for one in (self.healthz, self.metrics):
            if one is not None:
                one.close()


@dataclass(frozen=True, slots=True)
class Serving:
    """All serving; ``secure`` is None where HTTPS is disabled."""

    secure: ServingRules | None
    plain: PlainSockets = PlainSockets()


def check_flags(given: Given, release: Release = CURRENT) -> None:
    """Validate the serving flags of a release from 1.23 on.

    Raises  InputError
    """
    port = given["secure-port"]
    if port > _MOST_PORT:
        raise InputError(f"--secure-port {port} must be between 1 and {_MOST_PORT}, inclusive. It cannot be turned off with 0")
    if port < 0:
        raise InputError(f"--secure-port {port} must be between 0 and {_MOST_PORT}, inclusive. 0 for turning off secure port")
    for fault in empty_header_faults(given):
        raise InputError(fault)
    for fault in metric_faults(given, release, _label_lists(given)):
        raise InputError(fault)


def metric_faults(given: Given, release: Release, lists: Mapping[str, str]) -> Iterator[str]:
    """Yield the faults of the flags for metrics. ``lists``: the allowed values of labels."""
    value = given["show-hidden-metrics-for-version"]
    if value not in {"", release.previous}:
        yield release.hidden_metrics_fault.format(value=value, previous=release.previous)
    if not all(_METRIC_LABEL.fullmatch(key) for key in lists):
        yield release.metric_labels_fault.format(lists=json.dumps(lists, separators=(",", ":")))


def empty_header_faults(given: Given) -> Iterator[str]:
    """Yield the fault of the first flag for request headers that has an empty value."""
    for flag in ("username-headers", "uid-headers", "group-headers", "extra-headers-prefix", "allowed-names"):
        if any(not text.strip() for text in given[f"requestheader-{flag}"]):
            yield f'empty value in "requestheader-{flag}"'
            return


def open_serving(given: Given, kubeconfig: Callable[[str], Endpoint], addresses: Addresses | None) -> Serving:
    """Return how to serve. Listens at once, so that a port in use is reported at startup.

    Raises  InputError for unusable files and ports in use
    """
    plain = _plain_sockets(addresses) if addresses is not None else PlainSockets()
    try:
        return Serving(serving_rules(given, kubeconfig), plain)
    except MoorageError:
        plain.close()
        raise


def _plain_sockets(addresses: Addresses) -> PlainSockets:
    healthz = _listen_at(addresses.healthz)
    if addresses.metrics == addresses.healthz:
        return PlainSockets(healthz)
    try:
        return PlainSockets(healthz, _listen_at(addresses.metrics), together=False)
    except MoorageError:
        if healthz is not None:
            healthz.close()
        raise


def _listen_at(address: str) -> socket.socket | None:
    parts = split_host_port(address) if address else None
    return None if parts is None else listen(parts[0], int(parts[1]))


def serving_rules(given: Given, kubeconfig: Callable[[str], Endpoint]) -> ServingRules | None:
    """Return how to serve HTTPS; None if it is disabled. Listens at once, so that a port in use is reported at startup.

    Raises  InputError for unusable files and ports in use
    """
    port = given["secure-port"]
    if port == 0:
        return None
    address = given["bind-address"] or "0.0.0.0"  # noqa: S104
    rules = TlsRules(given["tls-min-version"], given["tls-cipher-suites"], given["tls-curve-preferences"])
    opened = listen(address, port, share_port=given["permit-port-sharing"])
    try:
        now = datetime.now(UTC)
        pair, files = given_or_made(given["tls-cert-file"], given["tls-private-key-file"], given["cert-dir"], address, now)
        return ServingRules(
            opened,
            ServingTls(rules, pair, files, [named_pair(text) for text in given["tls-sni-cert-key"]]),
            OpenPaths(given["authorization-always-allow-paths"]),
            _delegated(given["authentication-kubeconfig"], kubeconfig),
            _delegated(given["authorization-kubeconfig"], kubeconfig),
        )
    except MoorageError:
        opened.close()
        raise


def check_tls(given: Given) -> None:
    """Check the flags of TLS and their files, without listening.

    Raises  InputError
    """
    rules = TlsRules(given["tls-min-version"], given["tls-cipher-suites"], given["tls-curve-preferences"])
    pair, _ = given_or_made(given["tls-cert-file"], given["tls-private-key-file"], "", given["bind-address"], datetime.now(UTC))
    ServingTls(rules, pair, None, [named_pair(text) for text in given["tls-sni-cert-key"]])


def _delegated(path: str, kubeconfig: Callable[[str], Endpoint]) -> Endpoint | None:
    """Return the cluster of a kubeconfig; without one, the cluster that this pod runs in; None outside of a cluster."""
    if path:
        return kubeconfig(path)
    try:
        return in_cluster(ClientEnvironment(os.environ, time.monotonic, lambda: datetime.now(UTC)))
    except InputError:
        return None


# -- metrics ------------------------------------------------------------------------------------------------------------


def metric_filter(given: Given) -> Filter:
    """Return the filter for metrics that the flags describe.

    Raises  InputError for an unusable manifest
    """
    allowed: dict[tuple[str, str], frozenset[str]] = {}
    for key, values in _label_lists(given).items():
        metric, _, label = key.partition(",")
        allowed[metric, label] = frozenset(values.split(","))
    hidden_too = bool(given["show-hidden-metrics-for-version"])
    return Filter(frozenset(filter(None, given["disabled-metrics"])), allowed, hidden_too)


def _label_lists(given: Given) -> Mapping[str, str]:
    manifest = given["allow-metric-labels-manifest"]
    return {**(_manifest(manifest) if manifest else {}), **given["allow-metric-labels"]}


def _manifest(path: str) -> Mapping[str, str]:
    try:
        found: Any = yaml.safe_load(read_file(path, CONFIG_LIMIT))
        lists = found["allowListMapping"]
        return {str(key): str(values) for key, values in lists.items()}
    except (yaml.YAMLError, TypeError, KeyError, AttributeError):
        raise InputError(f"{path}: cannot read allowListMapping") from None


# -- run connection ----------------------------------------------------------------------------------------------------


def run_endpoint(kubeconfig: str, master: str, warn: Callable[[str], None]) -> Endpoint:
    """Return the endpoint from a kubeconfig file and ``--master``; either may be "".

    Raises  InputError
    """
    listed = [Path(one) for one in os.environ.get("KUBECONFIG", "").split(os.pathsep) if one]
    if kubeconfig:
        endpoint = endpoint_of_file(kubeconfig, warn)
    elif listed:
        endpoint = read_kubeconfig(listed, must_exist=False, warn=warn).endpoint(_around(warn))
    elif master:
        endpoint = Endpoint("")
    else:
        endpoint = in_cluster(_around(warn))
    if not master:
        return endpoint
    if not master.startswith(("http://", "https://")):
        raise InputError(f"--master {master}: the address must start with http:// or https://")
    return replace(endpoint, server=master.rstrip("/"))


def endpoint_of_file(path: str, warn: Callable[[str], None]) -> Endpoint:
    """Return the endpoint of a kubeconfig file that must exist.

    Raises  InputError
    """
    return read_kubeconfig([Path(path)], must_exist=True, warn=warn).endpoint(_around(warn))


def live_release(endpoint: Endpoint, note: Callable[[str], None]) -> Release:
    """Return the release of the API server at an endpoint.

    Raises  InputError if the server cannot be reached, or its release is not known
    """

    async def ask() -> str:
        async with Rest(endpoint, agent=user_agent(__version__)) as rest:
            return await server_version(rest.get)

    try:
        version = asyncio.run(ask())
    except ClusterError as error:
        raise InputError(f"--emulate auto: {error}") from None
    found = detect_release(server=version)
    if found is None:
        raise InputError(f"--emulate auto: {endpoint.server} reports no version; name the release")
    return known_release(found, note)


def _around(warn: Callable[[str], None]) -> ClientEnvironment:
    return ClientEnvironment(os.environ, time.monotonic, lambda: datetime.now(UTC), warn=warn)


#: How long a process whose loop hangs may take to end after the first signal, in seconds: less than the 30 of a pod.
GRACE_S: Final = 15.0
_ANSWER_S: Final = 1.0


class Ending:
    """Shuts the process down gracefully on the first signal, which ``text`` logs, and immediately on the second.

    Signals come to a thread, so that they work while the loop hangs. ``before_end`` is called before the process ends because
    its loop does not answer.
    """

    def __init__(
        self, log: Log = SILENT, text: str = "", *, grace_s: float = GRACE_S, before_end: Callable[[], None] = lambda: None
    ) -> None:
        self.asked = False
        self.before_end = before_end
        self._log, self._text, self._grace_s = log, text, grace_s
        self._signals = 0

    def listen(self, running: asyncio.Future[None], debug: Callable[[], None] | None = None) -> None:
        """Install the handlers: SIGTERM and SIGINT cancel ``running``, SIGUSR2 calls ``debug``. Call it on the main thread."""
        loop = asyncio.get_running_loop()
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        numbers = {signal.SIGTERM, signal.SIGINT, *(() if debug is None else (signal.SIGUSR2,))}
        for number in numbers:
            signal.signal(number, lambda *_: None)  # the C handler below it wakes the thread
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

        def end() -> None:
            if not self.asked:
                self.asked = True
                self._log.info(0, self._text)
                running.cancel()

        def wait() -> None:
            with writer:
                for number in iter(lambda: reader.recv(1), b""):
                    if number[0] == signal.SIGUSR2 and debug is not None:
                        _tell(loop, debug)
                    elif number[0] in {signal.SIGTERM, signal.SIGINT}:
                        self._signals += 1
                        if self._signals > 1:
                            os._exit(ERROR)
                        threading.Thread(target=self._end_in_time, args=(loop,), name="grace", daemon=True).start()
                        _tell(loop, end)

        threading.Thread(target=wait, name="signals", daemon=True).start()

    def _end_in_time(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the process if the loop does not answer when the time is over."""
        time.sleep(self._grace_s)
        while True:
            answered = threading.Event()
            if not _tell(loop, answered.set):
                return  # the loop has ended, and the process ends
            if not answered.wait(_ANSWER_S):
                self._log.error(None, "The loop does not answer, so the process ends without it", grace=f"{self._grace_s:g}s")
                self.before_end()
                os._exit(ERROR)
            time.sleep(_ANSWER_S)


def _tell(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> bool:
    """Let a loop call a function; return False if it is closed."""
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:
        return False
    return True
