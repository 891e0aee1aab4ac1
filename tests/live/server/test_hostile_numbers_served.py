"""A faulty API server serves hostile numbers in every field of every kind: commands that read it leave them out, and go on.

Each command runs as a process of its own, as users run it. Beside the hostile objects stand a node and a pod that are sound.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from collections import defaultdict
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from moorage.basis.inputs.simulated_kinds import KINDS
from tests.hostile_numbers import document, every

SOURCES = Path(__file__).resolve().parents[3] / "src"
#: Numbers that JSON has: a list with another one is no JSON, and nothing in it can be read.
HELD = ("max", "beyond", "wide", "minus")
SOUND = [
    {"kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}},
    {
        "kind": "Pod", "metadata": {"name": "plain", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "schedulerName": "default-scheduler"},
    },
]  # fmt: skip
pytestmark = pytest.mark.slow


def served():
    """Return the objects of each kind; of many numbers in a field, some."""
    found = defaultdict(list)
    chosen = [one for one in every() if one[2] in HELD]
    for count, (kind, path, number) in enumerate(random.Random(5).sample(chosen, 600)):
        made = json.loads(document(kind, path, number))
        made["metadata"].update(name=f"hostile-{count}", uid=f"u{count}", resourceVersion="7")
        if kind == "Pod":
            made["spec"].setdefault("schedulerName", "default-scheduler")
        found[kind].append(made)
    for number, one in enumerate(SOUND):
        found[one["kind"]].append({**one, "metadata": {**one["metadata"], "uid": f"s{number}", "resourceVersion": "7"}})
    return found


class FaultyServer:
    """Answers lists with hostile objects, never ends a watch, and keeps what is bound."""

    def __init__(self):
        self.objects = served()
        self.bound = asyncio.Event()
        self.serving = set()

    def answer(self, method, target, body):
        url = urlsplit(target)
        parts = url.path.strip("/").split("/")
        if method == "POST" and url.path.endswith("/binding"):
            if json.loads(body)["metadata"]["name"] == "plain":
                self.bound.set()
            return 201, {"kind": "Status", "status": "Success"}
        if method != "GET":
            return 200, json.loads(body or "{}")
        if "sendInitialEvents" in url.query:  # as an API server that knows no watch-lists
            return 422, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422}
        if url.path == "/version":
            return 200, {"major": "1", "minor": "37", "gitVersion": "v1.37.2"}
        kind = next((kind for kind in KINDS if kind.resource == parts[-1]), None)
        found = self.objects.get(kind.name, []) if kind is not None else []
        form = {"kind": f"{kind.name if kind else 'Status'}List", "apiVersion": "/".join(parts[1:-1])}
        return 200, {**form, "metadata": {"resourceVersion": "7"}, "items": found}

    async def serve(self, reader, writer):
        self.serving.add(asyncio.current_task())
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self.serving.discard(asyncio.current_task())

    async def _serve(self, reader, writer):
        while line := await reader.readline():
            method, target, _ = line.decode("latin-1").split(" ", 2)
            length = 0
            while (header := await reader.readline()).strip():
                name, _, value = header.decode("latin-1").partition(":")
                length = int(value) if name.lower() == "content-length" else length
            body = await reader.readexactly(length)
            asked = parse_qs(urlsplit(target).query)
            if asked.get("watch") and not asked.get("sendInitialEvents"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
                await writer.drain()
                await reader.read(1)
                return
            status, document = self.answer(method, target, body)
            data = json.dumps(document).encode()
            head = f"HTTP/1.1 {status} OK\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
            writer.write(head.encode() + data)
            await writer.drain()


@contextlib.asynccontextmanager
async def beside(folder):
    """Serve, and yield the server and the kubeconfig for it."""
    held = FaultyServer()
    server = await asyncio.start_server(held.serve, "127.0.0.1", 0)
    config = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"}}],
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],
    }  # fmt: skip
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    try:
        yield held, path
    finally:
        server.close()
        held.serving = [task for task in held.serving if task.cancel()]
        await asyncio.gather(*held.serving, return_exceptions=True)
        await asyncio.sleep(0.05)  # the sockets close in the next turns of the loop


async def started(*words):
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "moorage", *map(str, words), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCES), "MOORAGE_CACHE_DIR": ""},
    )  # fmt: skip


async def ended(process, *, stop=False):
    """Return the status of a process and what it said."""
    if stop:
        process.send_signal(signal.SIGTERM)
    said, _ = await asyncio.wait_for(process.communicate(), 120)
    text = said.decode()
    assert "Traceback" not in text, text[-3000:]
    return process.returncode, text


def test_a_dump_has_what_can_be_read_and_is_redacted(tmp_path):
    async def main():
        async with beside(tmp_path) as (_, config):
            dump = tmp_path / "dump.json"
            status, said = await ended(await started("dump", "--kubeconfig", config, "-o", dump))
            assert status == 0, said[-2000:]
            names = {(one["kind"], one["metadata"]["name"]) for one in json.loads(dump.read_text())["items"]}
            assert {("Node", "n1"), ("Pod", "plain")} <= names
            key = tmp_path / "key"
            key.write_text("0123456789abcdef")
            # What an API server would not take is left out by name, and the sound pod is placed.
            for words in (("redact", "-f", dump, "--key", key, "-o", tmp_path / "hidden.json"), ("simulate", "-f", dump)):
                status, said = await ended(await started(*words, "--validate=warn"))
                assert status in {0, 2}
                assert "warning: left out, as it cannot be read: " in said
                assert "hostile-" in said
            assert "default" in said

    asyncio.run(main())


def test_the_scheduler_binds_the_sound_pod(tmp_path):
    async def main():
        async with beside(tmp_path) as (held, config):
            process = await started("run", "--kubeconfig", config, "--secure-port=0", "--leader-elect=false")
            reading = asyncio.create_task(ended(process))
            bound = asyncio.create_task(held.bound.wait())
            done, _ = await asyncio.wait({reading, bound}, timeout=120, return_when=asyncio.FIRST_COMPLETED)
            assert bound in done, reading.result() if reading.done() else "no binding"
            process.send_signal(signal.SIGTERM)
            _, said = await reading
            assert "hostile-" in said

    asyncio.run(main())


def test_the_recorder_writes_a_log_that_can_be_read(tmp_path):
    async def main():
        async with beside(tmp_path) as (_, config):
            log = tmp_path / "log"
            process = await started("record", "--to", log, "--kubeconfig", config)
            reading = asyncio.create_task(ended(process))
            said = ""
            for _ in range(20):  # until all kinds were listed
                await asyncio.sleep(1)
                assert not reading.done(), reading.result()
                covered, said = await ended(await started("record", "status", log))
                if covered in {0, 2}:
                    break
            process.send_signal(signal.SIGTERM)
            status, _ = await reading
            assert status in {0, 143}
            assert covered in {0, 2}, said

    asyncio.run(main())
