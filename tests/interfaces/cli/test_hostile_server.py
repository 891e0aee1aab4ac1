"""An API server with evil in mind: whatever it says, the scheduler's log stays a log, line by line and within bounds."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.interfaces.cli.hostile import EVIL, check_harmless

SOURCES = Path(__file__).resolve().parents[3] / "src"
LONG = EVIL * 2_000
STATUS = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": LONG, "reason": EVIL, "code": 500}
AMOUNTS = {"cpu": "4", "memory": "8Gi", "pods": "9"}


def metadata(name, **more):
    return {"name": name, "uid": name, "resourceVersion": "1", "labels": {EVIL: EVIL}, "annotations": {EVIL: EVIL}, **more}


NODE = {"metadata": metadata(f"n{EVIL}"), "status": {"allocatable": AMOUNTS, "capacity": AMOUNTS}}
PODS = [
    {"metadata": metadata(f"p{EVIL}", namespace=f"s{EVIL}"), "spec": {"schedulerName": "default-scheduler", **more}}
    for more in (
        {"containers": [{"name": EVIL, "image": EVIL}]},
        {"containers": [{"name": EVIL, "resources": {"requests": {EVIL: "1"}}}], "nodeSelector": {EVIL: EVIL}},
        {"containers": [], "volumes": [{"name": EVIL, "persistentVolumeClaim": {"claimName": EVIL}}]},
        {"containers": [{"name": EVIL, "resources": {"requests": {"cpu": EVIL}}}]},
    )
]
for number, one in enumerate(PODS):
    one["metadata"]["name"] += str(number)
    one["metadata"]["uid"] += str(number)
LISTS = {"/api/v1/nodes": ("NodeList", [NODE]), "/api/v1/pods": ("PodList", PODS)}


def answer(method, target):
    """Return the status and the body of an answer."""
    url = urlsplit(target)
    asked = parse_qs(url.query)
    if method == "GET" and asked.get("watch"):
        return 200, json.dumps({"type": "ERROR", "object": STATUS}) + "\n"
    if method == "GET" and url.path in LISTS:
        kind, items = LISTS[url.path]
        return 200, json.dumps({"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items})
    if method == "GET":
        return 200, json.dumps({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []})
    return 500, json.dumps(STATUS)


async def serve(reader, writer):
    try:
        while line := await reader.readline():
            method, target, _ = line.decode("latin-1").split(" ", 2)
            length = 0
            while (header := await reader.readline()).strip():
                name, _, value = header.decode("latin-1").partition(":")
                length = int(value) if name.lower() == "content-length" else length
            await reader.readexactly(length)
            status, body = answer(method, target)
            data = body.encode()
            writer.write(
                f"HTTP/1.1 {status} {status}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode()
            )
            writer.write(data)
            await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "json"])
def test_the_log_holds(tmp_path, form):
    async def main():
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            config = {
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}], "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c"}}],
            }  # fmt: skip
            path = tmp_path / "kubeconfig"
            path.write_text(json.dumps(config))
            flags = ["--kubeconfig", str(path), "--secure-port=0", "--leader-elect=false", "-v=10", f"--logging-format={form}"]
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "moorage", "run", *flags, stderr=asyncio.subprocess.PIPE,
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCES)},
            )  # fmt: skip
            said = b""
            try:
                async with asyncio.timeout(60):
                    # Binding was refused, and so was all else that is written.
                    while not (b"Error scheduling pod" in said and b"again in" in said):
                        part = await process.stderr.read(1 << 16)
                        assert part, said
                        said += part
            finally:
                process.send_signal(signal.SIGTERM)
                said += await process.stderr.read()
                await process.wait()
            return said.decode()

    said = asyncio.run(main())
    assert "Traceback" not in said
    check_harmless(said)
    assert "a\\x1b[31m" in said if form == "text" else "a\\u001b[31m" in said
    assert max(map(len, said.splitlines())) < 16_384
