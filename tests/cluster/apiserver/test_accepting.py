"""Accepting connections: they count from the start, and unused ones do not keep other clients out."""

import asyncio
import errno
import gc
import logging
import resource
import socket
import ssl
import struct
from asyncio.sslproto import SSLProtocol
from contextlib import asynccontextmanager, suppress

import pytest

from moorage.basis.serving import connections
from moorage.basis.serving import connections as accepting
from moorage.basis.serving.certificate_authority import make_authority
from moorage.basis.serving.connections import MAX_RESERVE, MIN_RESERVE, TLS_BUFFER, connections_for
from moorage.basis.serving.tally import Tally
from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.http.limits import ServerLimits
from moorage.cluster.apiserver.http.serve import open_store, serving

GET = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
WATCH = b"GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer t\r\n\r\n"


# -- how many -----------------------------------------------------------------------------------------------------------

DESCRIPTORS = {  # how many are wanted, how many descriptors a process may have, how many connections that makes
    "as many as are wanted": (500, 65_536, 500),
    "without a limit": (12_000, resource.RLIM_INFINITY, 12_000),
    "the usual limit": (12_000, 1024, 768),
    "macOS": (12_000, 256, 192),
    "a high limit": (12_000, 4096, 4096 - MAX_RESERVE),
    "a low limit": (12_000, 128, 128 - MIN_RESERVE),
    "next to none": (12_000, 14, 8),
    "few are wanted": (3, 14, 3),
}


@pytest.mark.parametrize(("wanted", "descriptors", "most"), DESCRIPTORS.values(), ids=DESCRIPTORS)
def test_descriptors_are_reserved_for_everything_else(wanted, descriptors, most):
    assert connections_for(wanted, descriptors) == most


# -- who makes room -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def three_at_a_time(tls=None):
    """Serve with room for three connections, and yield the port."""
    limits = ServerLimits(connections=3, client_s=20)
    async with serving(
        open_store(seed=1), Authenticator({"t": User("admin", ("system:masters",))}), limits=limits, tls=tls
    ) as port:
        yield port


async def connected(port, said=b""):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    if said:
        assert b" 200 " in await asyncio.wait_for(reader.readline(), 5)
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0))
    return reader, writer


async def is_answered(port, within_s):
    """Return True if a new connection gets a response in time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(GET)
    try:
        async with asyncio.timeout(within_s):
            return b" 200 " in await reader.readline()
    except TimeoutError:
        return False
    finally:
        writer.close()


def is_closed(connection):
    return connection[0].at_eof() or connection[0].exception() is not None


def run(test):
    asyncio.run(asyncio.wait_for(test(), 30))


@pytest.fixture
def settled(monkeypatch):
    """Let connections count as unused after a short time."""
    monkeypatch.setattr(accepting, "MIN_UNUSED_S", 0.1)


@pytest.mark.slow
def test_a_new_client_waits_while_all_connections_are_busy_and_closes_none():
    async def test():
        async with three_at_a_time() as port:
            busy = [await connected(port, WATCH) for _ in range(3)]
            waiting = asyncio.create_task(is_answered(port, 20))
            await asyncio.sleep(1.3)
            assert not waiting.done()
            assert not any(map(is_closed, busy))
            busy.pop()[1].close()
            assert await waiting
            for _, writer in busy:
                writer.close()

    run(test)


@pytest.mark.slow
def test_the_oldest_connection_without_a_request_is_closed_first_then_the_longest_idle(settled):
    async def test():
        async with three_at_a_time() as port:
            idle = await connected(port, GET)
            silent = [await connected(port) for _ in range(2)]
            await asyncio.sleep(0.2)
            assert await is_answered(port, 5)
            assert [is_closed(one) for one in (idle, *silent)] == [False, True, False]
            watch = await connected(port, WATCH)
            assert await is_answered(port, 5)
            assert [is_closed(one) for one in (idle, silent[1], watch)] == [False, True, False]
            other = await connected(port, WATCH)
            await asyncio.sleep(0.2)
            assert await is_answered(port, 5)
            assert [is_closed(one) for one in (idle, watch, other)] == [True, False, False]
            for _, writer in (idle, *silent, watch, other):
                writer.close()

    run(test)


@pytest.mark.slow
def test_connections_without_a_request_take_no_room_from_others(settled, monkeypatch):
    monkeypatch.setattr(accepting, "MAX_WITHOUT_REQUEST", 1)

    async def test():
        async with three_at_a_time() as port:
            idle = await connected(port, GET)
            silent = [await connected(port) for _ in range(4)]
            await asyncio.sleep(0.2)
            assert await is_answered(port, 5)
            assert not is_closed(idle)
            assert sum(map(is_closed, silent)) >= 3
            for _, writer in (idle, *silent):
                writer.close()

    run(test)


@pytest.mark.slow
def test_a_tls_connection_has_a_small_buffer(tmp_path):
    async def test():
        authority = make_authority(tmp_path)
        trusting = ssl.create_default_context(cadata=authority.certificate.decode())
        async with three_at_a_time(authority.tls()) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname="localhost")
            found = [one for one in gc.get_objects() if isinstance(one, SSLProtocol) and one._server_side]
            assert [len(one._ssl_buffer) for one in found] == [TLS_BUFFER]
            writer.close()

    run(test)


@pytest.mark.slow
def test_silent_connections_before_the_handshake_are_closed_too(settled, tmp_path):
    async def test():
        authority = make_authority(tmp_path)
        trusting = ssl.create_default_context(cadata=authority.certificate.decode())
        async with three_at_a_time(authority.tls()) as port:
            silent = [await connected(port) for _ in range(9)]
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname="localhost")
            writer.write(GET)
            assert b" 200 " in await reader.readline()
            assert sum(map(is_closed, silent)) >= 7
            writer.close()
            for _, each in silent:
                each.close()

    run(test)


@pytest.mark.slow
def test_a_stopping_server_waits_for_no_handshake_and_leaves_nothing_open(tmp_path):
    async def test():
        authority = make_authority(tmp_path)
        loop = asyncio.get_running_loop()
        async with three_at_a_time(authority.tls()) as port:
            silent = [await connected(port) for _ in range(5)]
            await asyncio.sleep(0.05)
            begin = loop.time()
        assert loop.time() - begin < 0.9
        await asyncio.sleep(0.05)
        assert all(map(is_closed, silent))
        for _, writer in silent:
            writer.close()
        with pytest.raises(OSError, match="Connect call failed"):
            await connected(port)
        assert not [task for task in asyncio.all_tasks() if "wait_for" not in repr(task) and task is not asyncio.current_task()]

    run(test)


@pytest.mark.slow
def test_idle_connections_are_closed(monkeypatch):
    monkeypatch.setattr(connections, "IDLE_S", 0.2)

    async def test():
        async with three_at_a_time() as port:
            reader, writer = await connected(port, GET)
            async with asyncio.timeout(10):
                assert await reader.read() == b""
            writer.close()

    run(test)


# -- errors -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_too_few_descriptors_are_logged_once_and_survived(monkeypatch, caplog):
    calls = []

    class Poor(socket.socket):
        def accept(self):
            calls.append(self)
            if len(calls) < 40:
                raise OSError(errno.EMFILE, "Too many open files")
            return super().accept()

    def poor(address, *, family, backlog):
        opened = Poor(family)
        opened.bind(address)
        opened.listen(backlog)
        return opened

    monkeypatch.setattr(socket, "create_server", poor)
    monkeypatch.setattr(accepting, "_ERROR_S", 0.01)

    async def test():
        async with three_at_a_time() as port:
            assert await is_answered(port, 10)

    with caplog.at_level(logging.WARNING):
        run(test)
    assert [record.message for record in caplog.records] == ["connections: accepting failed once (Too many open files)"]
    assert all(record.exc_info is None for record in caplog.records)


@pytest.mark.slow
def test_failed_handshakes_are_one_log_line(tmp_path, caplog):
    async def test():
        authority = make_authority(tmp_path)
        async with three_at_a_time(authority.tls()) as port:
            for _ in range(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(GET)
                with suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()

    with caplog.at_level(logging.DEBUG):
        run(test)
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert lines == ["connections: TLS handshake failed once (127.0.0.1: http request)"]


@pytest.mark.parametrize("resets", [False, True], ids=["closes", "resets"])
def test_a_client_that_leaves_before_its_handshake_ends_is_not_logged(tmp_path, caplog, resets):
    async def test():
        authority = make_authority(tmp_path)
        async with three_at_a_time(authority.tls()) as port:
            for said in (b"", b"\x16\x03\x01"):  # nothing, and the start of a handshake
                probe = socket.create_connection(("127.0.0.1", port))
                probe.sendall(said)
                await asyncio.sleep(0.05)
                if resets:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                probe.close()
                await asyncio.sleep(0.05)

    with caplog.at_level(logging.WARNING):
        run(test)
    assert [record.getMessage() for record in caplog.records] == []


def test_a_tally_logs_at_once_and_then_once_per_interval():
    async def test():
        lines = []
        tally = Tally("door", lines.append, every_s=0.05)
        tally.add("knock", "a")
        for name in "bcd":
            tally.add("knock", name)
        tally.add("bell")
        assert lines == ["door: knock once (a)"]
        await asyncio.sleep(0.08)
        assert lines[1:] == ["door: knock 3 times (last: d); bell once"]
        await asyncio.sleep(0.08)
        tally.add("bell")
        tally.add("bell")
        tally.close()
        await asyncio.sleep(0.08)
        assert lines[2:] == ["door: bell once"]

    run(test)
