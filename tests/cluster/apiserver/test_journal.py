"""The log on disk: every answered change is in it, whatever happens to the process, the end of the file or the disk."""

import asyncio
import contextlib
import itertools
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading

import aiohttp
import pytest

from moorage.api.documents.served_kinds import KINDS, find_kind
from moorage.api.documents.statuses import ApiError
from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.http.serve import open_store, serving
from moorage.errors import ConfigError, InputError
from moorage.rules.store.list_selection import ALL
from tests.fork_server import forkable

CONFIGS = find_kind("configmaps")
NAMESPACES = find_kind("namespaces")
HOME = "/api/v1/namespaces/default/configmaps"
TOKEN = "a-token-for-tests"


def config(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def bodies(store):
    return {(kind.qualified, record.key): record.body for kind in KINDS for record in store.all(kind)}


def names(store):
    return [record.name for record in store.all(CONFIGS)]


def test_created_changed_and_deleted_objects_are_restored(tmp_path):
    store = open_store(tmp_path / "data")
    store.create(CONFIGS, "default", config("a", x="1"))
    store.create(CONFIGS, "default", config("b"))
    store.change(CONFIGS, "default", "a", lambda document: {**document, "data": {"x": "2"}})
    store.delete(CONFIGS, "default", "b")
    store.create(NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    held, version = bodies(store), store.version
    store.close()
    again = open_store(tmp_path / "data")
    assert bodies(again) == held
    assert again.version > version
    assert again.create(CONFIGS, "shop", config("c")).version > version
    again.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_any_sequence_of_changes_is_restored(tmp_path, seed):
    chance = random.Random(seed)
    for _ in range(4):
        store = open_store(tmp_path / "data", seed=seed)
        for _ in range(chance.randrange(60)):
            name = f"c{chance.randrange(8)}"
            with contextlib.suppress(ApiError):
                match chance.randrange(3):
                    case 0:
                        store.create(CONFIGS, "default", config(name, x=str(chance.random())))
                    case 1:
                        store.change(CONFIGS, "default", name, lambda held: {**held, "data": {"y": str(chance.random())}})
                    case 2:
                        store.delete(CONFIGS, "default", name)
            if not chance.randrange(5):
                asyncio.run(store.settle())
        held = bodies(store)
        store.close()
        again = open_store(tmp_path / "data", seed=seed)
        assert bodies(again) == held
        again.close()


def test_only_the_owner_can_read_the_file(tmp_path):
    store = open_store(tmp_path / "data")
    store.create(CONFIGS, "default", config("a"))
    asyncio.run(store.settle())
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == ["data", "data-wal"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o600] * 2
    store.close()


def test_versions_from_before_the_start_are_expired_and_never_reused(tmp_path):
    seen = []
    for _ in range(3):
        store = open_store(tmp_path / "data")
        seen += [store.version, store.create(CONFIGS, "default", {**config(""), "metadata": {"generateName": "x"}}).version]
        store.close()
        open_store(tmp_path / "data").close()  # a start that changes nothing takes versions, too
    store = open_store(tmp_path / "data")
    assert seen == sorted(set(seen))
    assert store.version > seen[-1]
    for asked in (store.page, store.watch):
        with pytest.raises(ApiError) as caught:
            asked(CONFIGS, ALL, version=str(seen[-1]), **({"match": "Exact"} if asked == store.page else {"wake": print}))
        assert (caught.value.code, caught.value.reason) == (410, "Expired")
    store.close()


def test_uids_of_a_seed_are_not_repeated(tmp_path):
    uids = set()
    for i in range(3):
        store = open_store(tmp_path / "data", seed=7)
        uids.add(store.create(CONFIGS, "default", config(f"c{i}")).document()["metadata"]["uid"])
        store.close()
    assert len(uids) == 3


def test_concurrent_changes_are_written_together(tmp_path):
    async def run():
        store = open_store(tmp_path / "data")
        said = []
        store.log._connection.set_trace_callback(said.append)

        async def write(i):
            store.create(CONFIGS, "default", config(f"c{i}"))
            await store.settle()

        await asyncio.gather(*(write(i) for i in range(100)))
        assert said.count("COMMIT") <= 3
        assert store.log._connection.execute("SELECT count(*) FROM objects WHERE key LIKE 'default/c%'").fetchone() == (100,)
        store.close()

    asyncio.run(run())


@pytest.mark.slow
def test_changes_without_a_waiter_are_written_soon(tmp_path):
    async def run():
        store = open_store(tmp_path / "data")
        async with serving(store, Authenticator({})):
            store.create(CONFIGS, "default", config("quiet"))
            for _ in range(100):
                await asyncio.sleep(0.02)
                if not store.log._pending and store.log._writing is None:
                    break
        rows = store.log._connection.execute("SELECT key FROM objects WHERE resource = 'configmaps'").fetchall()
        assert ("default/quiet",) in rows
        store.close()

    asyncio.run(run())


# -- files that cannot be used ------------------------------------------------------------------------------------------


def make_file(path, *statements):
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def a_later_format(path):
    open_store(path).close()
    make_file(path, "PRAGMA user_version = 2")


def a_foreign_database(path):
    make_file(path, "CREATE TABLE t (x)")


def a_kind_of_later(path):
    open_store(path).close()
    make_file(path, "INSERT INTO objects VALUES ('boats.sea', 'x', 1, 0, x'00')")


def a_changed_object(path):
    open_store(path).close()
    make_file(path, "UPDATE objects SET body = replace(body, 'default', 'defau1t') WHERE resource = 'namespaces'")


UNUSABLE = {
    "no database": (lambda path: path.write_bytes(b"something else\n" * 100), InputError, "is damaged"),
    "a database of others": (a_foreign_database, InputError, "not a file of moorage up"),
    "a later format": (a_later_format, InputError, "its format is 2; this release reads 1"),
    "a kind that is not served": (a_kind_of_later, InputError, "contains boats.sea, which this release does not serve"),
    "an object that was changed": (a_changed_object, InputError, "namespaces /default is damaged"),
    "a directory": (lambda path: path.mkdir(), ConfigError, "expected a file, this is a directory"),
    "a pipe": (os.mkfifo, ConfigError, "expected a file, this is a pipe"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), ConfigError, "this is a symbolic link"),
    "a link": (lambda path: path.symlink_to("elsewhere"), ConfigError, "this is a symbolic link; use the target of the link"),
    "a log that is a link": (
        lambda path: path.with_name("data-wal").symlink_to("elsewhere"),
        ConfigError,
        "data-wal: expected a file, this is a",
    ),
    "a folder that is everyone's": (lambda path: path.parent.chmod(0o777), ConfigError, "every user can replace this file"),
}


@pytest.mark.parametrize(("make", "error", "text"), UNUSABLE.values(), ids=UNUSABLE)
def test_rejected_files(tmp_path, make, error, text):
    make(tmp_path / "data")
    with pytest.raises(error, match=text):
        open_store(tmp_path / "data")
    assert not (tmp_path / "elsewhere").exists()


def test_a_readable_file_is_made_private_and_reported(tmp_path):
    path, said = tmp_path / "data", []
    open_store(path, warn=said.append).close()
    assert said == []
    path.chmod(0o664)
    open_store(path, warn=said.append).close()
    assert said == [f"{path}: others could change it (mode 0664); now only its owner can"]
    assert path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "other").write_text("not a cluster")
    (tmp_path / "other").chmod(0o644)
    with pytest.raises(InputError, match="is damaged"):
        open_store(tmp_path / "other", warn=said.append)
    assert (tmp_path / "other").stat().st_mode & 0o777 == 0o644  # it is not ours to change
    tmp_path.chmod(0o1777)
    open_store(path, warn=said.append).close()
    tmp_path.chmod(0o770)
    open_store(path, warn=said.append).close()
    assert said[1:] in ([], [f"{path}: members of the folder's group can replace this file"])


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ConfigError, match="absent/data: No such file"):
        open_store(tmp_path / "absent" / "data")


@pytest.mark.slow
def test_one_process_at_a_time(tmp_path):
    path = tmp_path / "data"
    store = open_store(path)
    with pytest.raises(ConfigError, match="another process has it open"):
        open_store(path)
    opening = (
        "import sys; from moorage.cluster.apiserver.http.serve import open_store; "
        "from pathlib import Path; open_store(Path(sys.argv[1]))"
    )
    run = subprocess.run([sys.executable, "-c", opening, path], capture_output=True, text=True, check=False, timeout=60)
    assert "another process has it open" in run.stderr
    store.close()
    open_store(path).close()


# -- damage -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return a file with its log as a killed process leaves them: forty objects in separate transactions."""
    home = tmp_path_factory.mktemp("written")
    store = open_store(home / "data", seed=1)
    store.close()
    store = open_store(home / "data", seed=1)
    for i in range(40):
        store.create(CONFIGS, "default", config(f"c{i:02}", x="x" * 500))
        asyncio.run(store.settle())
    for name in ("data", "data-wal"):
        shutil.copy(home / name, home / f"left-{name}")
    store.close()
    return home / "left-data", home / "left-data-wal"


def reopened(folder, data, log):
    """Return the names of the objects in a file and log, after checking that it is writable."""
    (folder / "data").write_bytes(data)
    (folder / "data-wal").write_bytes(log)
    store = open_store(folder / "data", seed=2)
    found = names(store)
    store.create(CONFIGS, "default", config("after"))
    store.close()
    again = open_store(folder / "data", seed=2)
    assert names(again) == sorted([*found, "after"])
    again.close()
    return [name for name in found if name.startswith("c")]


ALL_NAMES = [f"c{i:02}" for i in range(40)]


def test_a_leftover_log_is_read(tmp_path, written):
    data, log = (path.read_bytes() for path in written)
    assert len(log) > 40 * 4096
    assert reopened(tmp_path, data, log) == ALL_NAMES


@pytest.mark.slow
def test_a_truncated_log_keeps_the_earlier_changes(tmp_path, written):
    data, log = (path.read_bytes() for path in written)
    frame = 4096 + 24
    ends = [0, 1, 31, 32, 33, *(32 + frame * i + more for i in (1, 40) for more in (-1, 0, 1, 24, 2000))]
    ends += random.Random(1).sample(range(len(log)), 8)
    counts = []
    for end in sorted(one for one in ends if one <= len(log)):
        found = reopened(tmp_path, data, log[:end])
        assert found == ALL_NAMES[: len(found)]
        counts.append(len(found))
    assert counts == sorted(counts)
    assert counts[0] == 0


@pytest.mark.slow
def test_damage_is_reported_or_keeps_the_earlier_changes(tmp_path, written):
    data, log = (path.read_bytes() for path in written)
    chance = random.Random(3)
    told = []
    for _ in range(16):
        whole = bytearray(log if chance.random() < 0.5 else data)
        in_log = len(whole) == len(log)
        at = chance.randrange(len(whole))
        whole[at : at + 16] = chance.randbytes(len(whole[at : at + 16]))
        try:
            found = reopened(tmp_path, data if in_log else bytes(whole), bytes(whole) if in_log else log)
        except (InputError, ConfigError) as error:
            told.append(str(error))
        else:
            assert found == ALL_NAMES[: len(found)]
    assert 0 < len(told) < 16
    assert all(str(tmp_path / "data") in text for text in told)


# -- a full disk --------------------------------------------------------------------------------------------------------


class Client:
    """Writes config maps over HTTP, and returns codes."""

    def __init__(self, session, port):
        self._session, self._base = session, f"http://127.0.0.1:{port}"
        self.headers = {"Authorization": f"Bearer {TOKEN}"}

    async def send(self, method, path, document=None):
        async with self._session.request(method, self._base + path, json=document, headers=self.headers) as response:
            return response.status, await response.json(content_type=None) if path.startswith(HOME) else ""


@pytest.mark.slow
def test_a_full_disk_rejects_changes_and_loses_none(tmp_path):
    async def run():
        store = open_store(tmp_path / "data")
        execute = store.log._connection.execute
        async with (
            serving(store, Authenticator({TOKEN: User("admin", ("system:masters",))})) as port,
            aiohttp.ClientSession() as session,
        ):
            client = Client(session, port)
            assert (await client.send("POST", HOME, config("first")))[0] == 201
            assert (await client.send("GET", "/readyz"))[0] == 200
            execute(f"PRAGMA max_page_count = {execute('PRAGMA page_count').fetchone()[0] + 2}")
            codes = [(await client.send("POST", HOME, config(f"big{i}", x="x" * 9000)))[0] for i in range(4)]
            assert codes[-2:] == [507, 507]
            refused = codes.index(507)
            code, answer = await client.send("POST", HOME, config("small"))
            assert (code, answer["reason"]) == (507, "InsufficientStorage")
            assert (await client.send("GET", f"{HOME}/small"))[0] == 404  # it was not even tried
            assert (await client.send("GET", f"{HOME}/first"))[0] == 200
            assert (await client.send("GET", "/readyz"))[0] == 500
            assert (await client.send("GET", "/livez"))[0] == 200
            execute("PRAGMA max_page_count = 100000")
            assert (await client.send("POST", HOME, config("again")))[0] == 201
            assert (await client.send("GET", "/readyz"))[0] == 200
        store.close()
        again = open_store(tmp_path / "data")
        assert {"first", "again", *(f"big{i}" for i in range(refused + 1))} <= set(names(again))
        again.close()

    asyncio.run(run())


def test_any_write_error_loses_no_change(tmp_path, monkeypatch):
    async def run():
        store = open_store(tmp_path / "data")
        write = store.log._write
        monkeypatch.setattr(store.log, "_write", lambda batch: 1 / 0)
        store.create(CONFIGS, "default", config("a"))
        for asked, retry_s in ((store.settle, 0), (store.log.check, 1)):
            with pytest.raises(ApiError, match="could not be stored: data: division by zero") as caught:
                await asked()
            assert (caught.value.code, caught.value.retry_after_s) == (507, retry_s)
        monkeypatch.setattr(store.log, "_write", write)
        await store.log.check()
        assert store.log.failure == ""
        store.close()

    asyncio.run(run())
    store = open_store(tmp_path / "data")
    assert "a" in names(store)
    store.close()


def test_watches_report_only_changes_on_disk(tmp_path, monkeypatch):
    async def run():
        store = open_store(tmp_path / "data")
        write, open_disk = store.log._write, threading.Event()
        async with (
            serving(store, Authenticator({TOKEN: User("admin", ("system:masters",))})) as port,
            aiohttp.ClientSession() as session,
        ):
            client = Client(session, port)
            asked = {"watch": "1", "resourceVersion": str(store.version)}
            async with session.get(f"http://127.0.0.1:{port}{HOME}", params=asked, headers=client.headers) as stream:
                monkeypatch.setattr(store.log, "_write", lambda batch: open_disk.wait(10) and write(batch))
                posting = asyncio.ensure_future(client.send("POST", HOME, config("a")))
                reading = asyncio.ensure_future(stream.content.readline())
                await asyncio.sleep(0.3)
                assert store.find(CONFIGS, "default", "a") is not None
                assert not reading.done()
                assert not posting.done()
                open_disk.set()
                assert b'"name":"a"' in await asyncio.wait_for(reading, 5)
                assert (await posting)[0] == 201
        store.close()

    asyncio.run(run())


# -- an end without a warning -------------------------------------------------------------------------------------------

SERVER = forkable("""
import asyncio, sys
from pathlib import Path
from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.http.serve import open_store
from moorage.cluster.apiserver.http.serve import serving

async def run():
    async with serving(open_store(Path(sys.argv[1])), Authenticator({sys.argv[2]: User("admin", ("system:masters",))})) as port:
        print(port, flush=True)
        await asyncio.Event().wait()

asyncio.run(run())
""")


class Writer:
    """Owns one object, changes it repeatedly, and remembers its possible values: the last answered one, or the pending one."""

    def __init__(self, name):
        self.name = name
        self.held = None
        self.under_way = None
        self.answered = 0

    async def write_until_it_ends(self, client, chance):
        with contextlib.suppress(aiohttp.ClientError, ConnectionError):
            while True:
                await self._write(client, chance)

    async def _write(self, client, chance):
        value = None if self.held is not None and chance.random() < 0.3 else str(chance.getrandbits(64))
        self.under_way = (value,)
        if value is None:
            code, _ = await client.send("DELETE", f"{HOME}/{self.name}")
        elif self.held is None:
            code, _ = await client.send("POST", HOME, config(self.name, value=value))
        else:
            code, _ = await client.send("PUT", f"{HOME}/{self.name}", config(self.name, value=value))
        assert code in {200, 201}
        self.held, self.under_way = value, None
        self.answered += 1

    def check(self, store):
        found = store.find(CONFIGS, "default", self.name)
        value = found.document()["data"]["value"] if found is not None else None
        assert value in {self.held, *(self.under_way or ())}
        self.held, self.under_way = value, None


async def something_is_answered(writers, tasks):
    """Wait for a response however slow the machine is: a server killed before the first proves nothing."""
    before = sum(writer.answered for writer in writers)
    while sum(writer.answered for writer in writers) == before and not all(task.done() for task in tasks):
        await asyncio.sleep(0.005)


async def write_and_kill(path, writers, chance):
    server = subprocess.Popen([sys.executable, "-c", SERVER, path, TOKEN], stdout=subprocess.PIPE, text=True)
    try:
        port = int(await asyncio.to_thread(server.stdout.readline))
        async with aiohttp.ClientSession() as session:
            client = Client(session, port)
            tasks = [asyncio.create_task(writer.write_until_it_ends(client, chance)) for writer in writers]
            await something_is_answered(writers, tasks)
            await asyncio.sleep(0.2 * chance.random())
            os.kill(server.pid, signal.SIGKILL)
            await asyncio.gather(*tasks)
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


@pytest.mark.slow
def test_a_killed_process_has_stored_all_answered_changes(tmp_path):
    """MOORAGE_KILLS=200 runs more rounds."""
    path, chance = tmp_path / "data", random.Random(11)
    writers = [Writer(f"w{i}") for i in range(8)]
    versions = [0]
    for _ in range(int(os.environ.get("MOORAGE_KILLS", "2"))):
        before = sum(writer.answered for writer in writers)
        asyncio.run(write_and_kill(path, writers, chance))
        assert sum(writer.answered for writer in writers) > before
        store = open_store(path)
        for writer in writers:
            writer.check(store)
        versions.append(store.version)
        store.close()
    assert all(earlier < later for earlier, later in itertools.pairwise(versions))
