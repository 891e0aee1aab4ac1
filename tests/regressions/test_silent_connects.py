"""Connections that never speak, against whole processes with few descriptors: others are served, and the log stays short."""

import asyncio
import json
import os
import re
import resource
import socket
import ssl
import sys
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.ports import reserve_port
from tests.regressions.processes import SOURCES, START_S

pytestmark = pytest.mark.slow

DESCRIPTORS = 256
SILENT = 450
#: Who never sent a request makes room after a second; all that wait before us make three rounds of that.
ANSWERED_S = 8.0

ANYONE = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
ANYONE.check_hostname, ANYONE.verify_mode = False, ssl.CERT_NONE


def few_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


@asynccontextmanager
async def started(folder, *arguments):
    """Run a command with few descriptors, what it says going to ``folder / "log"``."""
    with (folder / "log").open("w") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "moorage", *arguments, stdout=log, stderr=log, preexec_fn=few_descriptors,
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
        )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def port_of(process, log, pattern):
    """Wait until a command says where it serves."""
    async with asyncio.timeout(START_S):
        while not (found := re.search(pattern, log.read_text())):
            assert process.returncode is None, log.read_text()
            await asyncio.sleep(0.05)
    return int(found[1])


async def is_ready(port):
    """Ask a probe over a connection of its own; return how long that took."""
    begin = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=ANYONE)
    writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert b" 200 " in await reader.readline()
    writer.close()
    return time.monotonic() - begin


def descriptors(process):
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


async def attack(process, port, log):
    await is_ready(port)
    before = descriptors(process)
    silent = []
    try:
        for _ in range(SILENT):
            opened = socket.socket()
            opened.setblocking(False)
            silent.append(opened)
            opened.connect_ex(("127.0.0.1", port))
        async with asyncio.timeout(60):
            assert max([await is_ready(port) for _ in range(3)]) < ANSWERED_S
        assert process.returncode is None
        assert descriptors(process) < DESCRIPTORS - 32
    finally:
        for opened in silent:
            opened.close()
    async with asyncio.timeout(20):
        while descriptors(process) > before + 8:
            await asyncio.sleep(0.1)
    said = log.read_text()
    assert "Traceback" not in said
    assert 1 <= said.count("connections: ") <= 2, said


def test_silent_connections_do_not_block_the_embedded_server(tmp_path):
    async def test():
        flags = ("--nodes=0", "--no-scheduler", f"--home={tmp_path}", "--for=120s")
        async with started(tmp_path, "up", *flags) as process:
            port = await port_of(process, tmp_path / "log", r"https://127\.0\.0\.1:(\d+)")
            await attack(process, port, tmp_path / "log")

    asyncio.run(test())


def test_silent_connections_do_not_block_the_health_endpoints(tmp_path):
    port = reserve_port()
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [cluster],
              "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}]}  # fmt: skip
    (tmp_path / "config").write_text(json.dumps(config))

    async def test():
        flags = (
            f"--kubeconfig={tmp_path}/config",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={tmp_path}",
        )
        async with started(tmp_path, "run", *flags) as process:
            await port_of(process, tmp_path / "log", r"Serving securely on 127\.0\.0\.1:(\d+)")
            await attack(process, port, tmp_path / "log")

    asyncio.run(test())
