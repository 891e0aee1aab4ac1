"""Prepare serving from the flags: sockets, certificates, the clusters for access reviews, and the metrics to show.

Everything is prepared before anything starts, so that every fault is reported at startup.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import yaml

from moorage.cli.bounded_files import CONFIG_LIMIT, read_file
from moorage.cli.pflag import Given
from moorage.client.endpoint import Endpoint
from moorage.client.kubeconfig import ClientEnvironment, in_cluster
from moorage.config.legacy_serving import Addresses, split_host_port
from moorage.errors import InputError, MoorageError
from moorage.releases import CURRENT
from moorage.server.authentication import FrontProxies
from moorage.server.authorization import OpenPaths
from moorage.server.certificates import ServingTls, TlsRules, given_or_made, named_pair
from moorage.server.client_ca import ClientCaRules
from moorage.server.listener import listen
from moorage.server.metric_types import Filter

__all__ = ["PlainSockets", "Serving", "ServingRules", "check_flags", "metric_filter", "open_serving", "serving_rules"]

_MOST_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class ServingRules:
    """How to serve HTTPS. ``authentication`` and ``authorization`` are the clusters that review requests; None without one."""

    socket: socket.socket
    tls: ServingTls
    trust: ClientCaRules
    open_paths: OpenPaths
    authentication: Endpoint | None
    authorization: Endpoint | None
    token_ttl_s: float
    allowed_ttl_s: float
    refused_ttl_s: float


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


def check_flags(given: Given) -> None:
    """Validate the current release's serving flags.

    Raises  InputError
    """
    port = given["secure-port"]
    if port > _MOST_PORT:
        raise InputError(f"--secure-port {port} must be between 1 and {_MOST_PORT}, inclusive. It cannot be turned off with 0")
    if port < 0:
        raise InputError(f"--secure-port {port} must be between 0 and {_MOST_PORT}, inclusive. 0 for turning off secure port")
    for flag in ("username-headers", "uid-headers", "group-headers", "extra-headers-prefix", "allowed-names"):
        if any(not text.strip() for text in given[f"requestheader-{flag}"]):
            raise InputError(f'empty value in "requestheader-{flag}"')
    release = given["show-hidden-metrics-for-version"]
    if release and release != CURRENT.previous:
        raise InputError(
            f'metrics.showHiddenMetricsForVersion: Invalid value: "{release}": must be omitted or '
            f"have the value '{CURRENT.previous}'; only the previous minor version is allowed"
        )
    metric_filter(given)


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
            _trust(given),
            OpenPaths(given["authorization-always-allow-paths"]),
            _delegated(given["authentication-kubeconfig"], kubeconfig),
            _delegated(given["authorization-kubeconfig"], kubeconfig),
            given["authentication-token-webhook-cache-ttl"],
            given["authorization-webhook-cache-authorized-ttl"],
            given["authorization-webhook-cache-unauthorized-ttl"],
        )
    except MoorageError:
        opened.close()
        raise


def _trust(given: Given) -> ClientCaRules:
    proxies = FrontProxies(
        names=tuple(given["requestheader-allowed-names"]),
        user_headers=tuple(given["requestheader-username-headers"]),
        group_headers=tuple(given["requestheader-group-headers"]),
        uid_headers=tuple(given["requestheader-uid-headers"]),
        extra_prefixes=tuple(given["requestheader-extra-headers-prefix"]),
    )
    return ClientCaRules(
        given["client-ca-file"],
        given["requestheader-client-ca-file"],
        proxies,
        skip_lookup=given["authentication-skip-lookup"],
        tolerant=given["authentication-tolerate-lookup-failure"],
    )


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

    Raises  InputError for an invalid list of label values
    """
    manifest = given["allow-metric-labels-manifest"]
    lists = {**(_manifest(manifest) if manifest else {}), **given["allow-metric-labels"]}
    allowed: dict[tuple[str, str], frozenset[str]] = {}
    for key, values in lists.items():
        metric, comma, label = key.partition(",")
        if not (metric and comma and label):
            raise InputError(
                f"metrics.allowListMapping: Invalid value: {json.dumps(lists, separators=(',', ':'))}: must have keys with "
                'format `metricName,labelName` where metricName matches "[a-zA-Z_:][a-zA-Z0-9_:]*" and labelName matches '
                '"[a-zA-Z_][a-zA-Z0-9_]*"'
            )
        allowed[metric, label] = frozenset(values.split(","))
    return Filter(frozenset(filter(None, given["disabled-metrics"])), allowed)


def _manifest(path: str) -> Mapping[str, str]:
    try:
        found: Any = yaml.safe_load(read_file(path, CONFIG_LIMIT))
        lists = found["allowListMapping"]
        return {str(key): str(values) for key, values in lists.items()}
    except (yaml.YAMLError, TypeError, KeyError, AttributeError):
        raise InputError(f"{path}: cannot read allowListMapping") from None
