"""The embedded API server as a process that is killed, whose log is torn, whose disk is full, and whose readers are slow.

What a file may look like after that, byte by byte, is in ``tests/cluster/apiserver/test_journal.py``.
"""

import asyncio
import json
import os
import random
import resource
import sys
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.http.limits import ServerLimits
from moorage.cluster.apiserver.http.serve import open_store, serving
from tests.cluster.apiserver.test_journal import CONFIGS, HOME, SERVER, config
from tests.regressions.processes import SOURCES, Proxy, in_place

pytestmark = pytest.mark.slow

PODS = "/api/v1/namespaces/default/pods"
NODE = {
    "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "40", "memory": "64Gi", "pods": "110"}},
}  # fmt: skip


def a_pod(name):
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]},
    }  # fmt: skip


class Server:
    """A server that keeps its objects in a file, as a process that can be killed and started again."""

    def __init__(self, path):
        self.path = path

    async def start(self):
        """Start it, and return the CPU time in seconds that it took until it listened."""
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SERVER, str(self.path), "t",
            env={**os.environ, "PYTHONPATH": str(SOURCES)}, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self.port = int(await asyncio.wait_for(self.process.stdout.readline(), 30))
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def kill(self):
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def ask(self, method, path, document=None):
        """Return the code and the object that are answered; (0, None) without an answer."""
        with suppress(aiohttp.ClientError, ConnectionError):
            async with (
                aiohttp.ClientSession(headers={"Authorization": "Bearer t"}) as session,
                session.request(method, f"http://127.0.0.1:{self.port}{path}", json=document) as response,
            ):
                return response.status, json.loads(await response.read())
        return 0, None


@asynccontextmanager
async def a_server(path):
    server = Server(path)
    await server.start()
    try:
        yield server
    finally:
        await server.kill()


def version_of(found):
    return int(found["metadata"]["resourceVersion"])


def test_f45_a_killed_server_keeps_acknowledged_writes_and_continues(tmp_path):
    async def run():
        async with a_server(tmp_path / "data") as server:
            seen = 0
            for turn in range(2):
                kept = []

                async def write(turn=turn, kept=kept):
                    for number in range(1000):
                        code, found = await server.ask("POST", HOME, config(f"c{turn}-{number}"))
                        if code != 201:
                            return
                        kept.append(found)

                writing = asyncio.ensure_future(write())
                while len(kept) < 10 and not writing.done():
                    await asyncio.sleep(0.01)
                await server.kill()
                await writing
                assert len(kept) >= 10
                seen = max(seen, *map(version_of, kept))
                assert await server.start() < 5
                _, listed = await server.ask("GET", HOME)
                assert {one["metadata"]["name"] for one in kept} <= {one["metadata"]["name"] for one in listed["items"]}
                assert version_of(listed) >= seen
                _, event = await server.ask("GET", f"{HOME}?watch=1&resourceVersion={seen - 5}&timeoutSeconds=1")
                assert (event["type"], event["object"]["code"]) == ("ERROR", 410)

    asyncio.run(run())


def test_f45_a_torn_log_keeps_the_entries_before_the_tear(tmp_path):
    async def run():
        async with a_server(tmp_path / "data") as server:
            for number in range(20):
                assert (await server.ask("POST", HOME, config(f"c{number:02}")))[0] == 201
            await server.kill()
            log = tmp_path / "data-wal"
            os.truncate(log, log.stat().st_size - random.Random(1).randrange(1, 12_000))
            await server.start()
            _, listed = await server.ask("GET", HOME)
            found = [one["metadata"]["name"] for one in listed["items"]]
            assert found == [f"c{number:02}" for number in range(len(found))]
            assert len(found) >= 15
            assert (await server.ask("POST", HOME, config("after")))[0] == 201

    asyncio.run(run())


def test_f45_a_scheduler_survives_a_restart_of_its_server(tmp_path):
    async def main(place):
        async with a_server(tmp_path / "data") as server, Proxy(server.port) as proxy:
            await server.ask("POST", "/api/v1/nodes", NODE)
            process = await place.scheduler("--leader-elect=false", port=proxy.port)
            where = {}
            for turn in range(3):
                for number in range(10):
                    assert (await server.ask("POST", PODS, a_pod(f"p{turn}-{number}")))[0] == 201
                await server.kill()
                await server.start()
                proxy.target = server.port
                begin = time.monotonic()
                while time.monotonic() - begin < 120:  # it takes a few seconds, but not on every machine
                    pods = (await server.ask("GET", PODS))[1]["items"]
                    if all(one["spec"].get("nodeName") for one in pods):
                        break
                    await asyncio.sleep(0.05)
                for one in pods:
                    node = one["spec"].get("nodeName")
                    assert node, f"{one['metadata']['name']} still waits:\n{process.log.read_text()[-3000:]}"
                    assert where.setdefault(one["metadata"]["uid"], node) == node
                assert len(where) == 10 * (turn + 1)
            assert process.returncode is None

    in_place(main, tmp_path)


def test_f40_a_full_disk_rejects_writes_and_loses_nothing(tmp_path):
    async def run():
        async with a_server(tmp_path / "data") as server:
            kept = []
            most = max(file.stat().st_size for file in tmp_path.iterdir()) + 100_000
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
            for number in range(50):
                code, found = await server.ask("POST", HOME, config(f"c{number}", x="x" * 9000))
                if code != 201:
                    break
                kept.append(f"c{number}")
            assert (code, found["reason"]) == (507, "InsufficientStorage")
            assert 0 < len(kept) < 49
            assert (await server.ask("GET", f"{HOME}/{kept[0]}"))[0] == 200
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            assert (await server.ask("POST", HOME, config("after")))[0] == 201
            await server.kill()
            await server.start()
            _, listed = await server.ask("GET", HOME)
            assert {"after", *kept} <= {one["metadata"]["name"] for one in listed["items"]}

    asyncio.run(run())


# -- slow readers ------------------------------------------------------------------------------------------------------

WATCHERS, CHANGES, BIG = 200, 40, 900_000


async def watching(port, selector, **options):
    """Begin to watch config maps that are chosen so."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
    path = f"{HOME}?watch=1&fieldSelector=metadata.name{selector}"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer t\r\n\r\n".encode())
    return reader, writer


async def hears(port, last):
    """Return when a watcher of all small objects saw this name."""
    reader, writer = await watching(port, "!%3Dbig")
    seen = b""
    while last not in seen:
        chunk = await reader.read(1 << 20)
        assert chunk, "a watcher that reads was cut off"
        seen = seen[-100:] + chunk
    writer.close()
    return time.monotonic()


def test_f46_a_slow_watcher_is_disconnected_without_delaying_others():
    async def run():
        store = open_store(seed=1)
        guard = Authenticator({"t": User("admin", ("system:masters",))})
        async with serving(store, guard, limits=ServerLimits(client_s=1.0)) as port:
            others = [asyncio.create_task(hears(port, b'"the-last"')) for _ in range(WATCHERS)]
            reader, writer = await watching(port, "%3Dbig", limit=1024)
            await asyncio.sleep(0.5)
            store.create(CONFIGS, "default", config("big"))
            for number in range(CHANGES):
                store.change(
                    CONFIGS, "default", "big", lambda document, at=number: {**document, "data": {"x": "x" * BIG + str(at)}}
                )
                store.create(CONFIGS, "default", config(f"small{number}"))
                await asyncio.sleep(0.01)
            await asyncio.sleep(1.5)
            store.create(CONFIGS, "default", config("the-last"))
            begin = time.monotonic()
            lags = [at - begin for at in await asyncio.gather(*others)]
            assert max(lags) < 1
            got = 0
            with suppress(ConnectionError):
                async with asyncio.timeout(5):
                    while chunk := await reader.read(1 << 20):
                        got += len(chunk)
            assert 0 < got < CHANGES * BIG
            writer.close()

    asyncio.run(run())
