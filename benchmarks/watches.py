"""Measure the embedded API server's memory for watches and lists that the client does not read.

The server runs in a separate process, full of pods or of large ConfigMaps. Its clients request everything, as a watch with its
initial events or as a list, and do not read the response. The result is the peak of the server's resident memory minus the
memory of its objects.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from moorage.api.documents.http_messages import User
from moorage.api.documents.served_kinds import served
from moorage.basis.serving.certificate_authority import make_authority
from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.http.limits import ServerLimits
from moorage.cluster.apiserver.http.serve import open_store, serving

__all__ = ["measure_watches", "serve"]

_TOKEN: Final = "a-token-for-measuring"
_PATHS: Final = {"pods": "/api/v1/pods", "configmaps": "/api/v1/configmaps"}
_LISTED: Final = "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
_AT_ONCE: Final = 20


def _pod(i: int) -> dict[str, Any]:
    resources = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}}
    variables = [{"name": f"VARIABLE_{j}", "value": f"value {j} of pod {i}"} for j in range(8)]
    container = {"name": "main", "image": "registry.example.com/team/app:1.2.3", "resources": resources, "env": variables}
    labels = {"app": f"app-{i % 500}", "pod-template-hash": "7d4b9c", "team": f"team-{i % 20}"}
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"app-{i:06}", "namespace": "default", "labels": labels},
        "spec": {"containers": [container], "nodeName": f"node-{i % 1000}"},
        "status": {"phase": "Running", "conditions": [condition], "podIP": "10.0.0.1"},
    }  # fmt: skip


def _config(i: int, size: int) -> dict[str, Any]:
    metadata = {"name": f"config-{i}", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": f"{i} " + "x" * size}}


async def serve(resource: str, count: int, size: int, folder: str, plain: str) -> None:
    """Serve ``count`` objects until standard input ends; print the address and the memory of the objects."""
    store = open_store(seed=1)
    kind = served(resource)
    for i in range(count):
        store.adopt(kind, _pod(i) if resource == "pods" else _config(i, size))
    tls = None if plain else make_authority(Path(folder)).tls()
    limits = ServerLimits(client_s=600)  # keep unread watches open, to measure them together
    guard = Authenticator({_TOKEN: User("admin", ("system:masters",))})
    async with serving(store, guard, tls=tls, limits=limits) as port:
        sys.stdout.write(json.dumps({"port": port, "rss_mib": _memory(os.getpid(), "VmRSS")}) + "\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def _memory(process: int, what: str) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) // 1024
    raise LookupError(what)


@contextlib.asynccontextmanager
async def _opened(port: int, request: str, tls: ssl.SSLContext | None) -> AsyncIterator[asyncio.StreamReader]:
    """Send a request over a new connection, and do not read the response."""
    host = "localhost" if tls else None
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=host, limit=4096)
    writer.write(request.encode())
    try:
        yield reader
    finally:
        writer.transport.abort()


async def _ask(
    port: int, tls: ssl.SSLContext | None, resource: str, watches: int, hold_s: float, *, listed: bool
) -> float:  # fmt: skip
    """Send the requests, keep the connections open for a while, and return how long sending took."""
    query = "" if listed else f"?{_LISTED}"
    request = f"GET {_PATHS[resource]}{query} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {_TOKEN}\r\n\r\n"
    async with contextlib.AsyncExitStack() as stack:
        began = time.perf_counter()
        for _ in range(watches // _AT_ONCE):
            opened = [_opened(port, request, tls) for _ in range(_AT_ONCE)]
            await asyncio.gather(*(stack.enter_async_context(one) for one in opened))
        took_s = time.perf_counter() - began
        await asyncio.sleep(hold_s)
    return took_s


def measure_watches(
    resource: str, count: int, size: int, watches: int, *, plain: bool = False, listed: bool = False, hold_s: float = 5.0
) -> dict[str, Any]:  # fmt: skip
    """Return the server's memory for so many watches, or lists, that are not read.

    ``resource``: ``pods`` or ``configmaps``; ``size``: of a ConfigMap, in bytes; ``plain``: without TLS.
    """
    with tempfile.TemporaryDirectory() as folder:
        arguments = [resource, str(count), str(size), folder, "plain" if plain else ""]
        command = [sys.executable, "-m", "benchmarks.watches", *arguments]
        here = Path(__file__).parents[1]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=here) as server:
            assert server.stdout is not None
            told = json.loads(server.stdout.readline())
            tls = None
            if not plain:
                tls = ssl.create_default_context(cafile=f"{folder}/ca.crt")
            took_s = asyncio.run(_ask(told["port"], tls, resource, watches, hold_s, listed=listed))
            peak = _memory(server.pid, "VmHWM")
            server.communicate()
    return {
        "objects": count, "watches": watches, "with_objects_mib": told["rss_mib"], "peak_mib": peak,
        "kib_each": round((peak - told["rss_mib"]) * 1024 / watches), "opened_s": round(took_s, 1),
    }  # fmt: skip


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]))
