"""Find the API server for ``moorage run`` from flags and configuration, and the release of that server."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from moorage import __version__
from moorage.api.releases import Release
from moorage.api.releases.detection import detect_release
from moorage.errors import ClusterError, InputError
from moorage.interfaces.cli.cluster_files import known_release
from moorage.live.client.endpoint import Endpoint
from moorage.live.client.kubeconfig import ClientEnvironment, in_cluster, read_kubeconfig
from moorage.live.client.resources import server_version
from moorage.live.client.rest import Rest, user_agent

__all__ = ["endpoint_of_file", "live_release", "run_endpoint"]


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
    return Endpoint(
        master.rstrip("/"), endpoint.credentials, endpoint.ca, endpoint.insecure, endpoint.server_name, endpoint.proxy,
        endpoint.headers, endpoint.namespace,
    )  # fmt: skip


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
