"""Responses of every form, from a server that sends exactly the bytes of the case."""

from __future__ import annotations

import asyncio
import importlib.util
import ssl
from pathlib import Path

import pytest

from moorage.basis.client.connection_pool import ConnectionPool, RequestBatch
from moorage.basis.client.pooled_connection import UnsentError
from moorage.basis.client.response_stream import ServerAddress, connect
from moorage.errors import ClusterError, MoorageError

_spec = importlib.util.spec_from_file_location("certificates", Path(__file__).with_name("certificates.py"))
certificates = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(certificates)

OK = b"HTTP/1.1 200 OK\r\n"


class Server:
    """Answers each request with the next script: a list of byte parts; None closes the connection."""

    def __init__(self, *scripts):
        self.scripts = list(scripts)
        self.connections = 0
        self.requests = []

    async def serve(self, reader, writer):
        self.connections += 1
        try:
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                for part in self.scripts.pop(0):
                    if part is None:
                        return
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def run(self, test, ours=None, theirs=None, name=""):
        async def main():
            server = await asyncio.start_server(self.serve, "127.0.0.1", 0, ssl=theirs)
            port = server.sockets[0].getsockname()[1]
            exchange = ConnectionPool(ServerAddress("127.0.0.1", port, ours, (name or "127.0.0.1") if ours else None))
            try:
                return await test(exchange)
            finally:
                exchange.close()
                server.close()
                await asyncio.sleep(0.01)

        return asyncio.run(main())


def ask(exchange, most=1000, patience_s=5.0, check=lambda: None):
    return exchange.request(b"GET /x HTTP/1.1\r\n\r\n", most, patience_s, check)


ANSWERS = {
    "of known length": ([OK + b"Content-Length: 3\r\n\r\nabc"], b"abc"),
    "cut anywhere": ([b"HTTP/1.1 2", b"00 OK\r\nContent-Le", b"ngth: 3\r\n\r", b"\na", b"bc"], b"abc"),
    "in chunks": ([OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n"], b"abc"),
    "in chunks, cut": (
        [OK + b"Transfer-Encoding: chunked\r\n\r\n", b"2", b"\r\na", b"b\r", b"\n0\r\n", b"\r\n"],
        b"ab",
    ),
    "with a trailer": ([OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: y\r\n", b"\r\n"], b"a"),
    "up to the end": ([OK + b"\r\nab", b"c", None], b"abc"),
    "announced first": ([b"HTTP/1.1 100 Continue\r\n\r\n", OK + b"Content-Length: 1\r\n\r\na"], b"a"),
    "empty": ([b"HTTP/1.1 204 No Content\r\n\r\n"], b""),
}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """The server's TLS side. Client certificates are tested elsewhere."""
    pair = tmp_path_factory.mktemp("tls") / "pair.pem"
    pair.write_text(certificates.CERTIFICATE + certificates.KEY)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair)
    return tls


def ours(ca=certificates.CERTIFICATE, version=ssl.TLSVersion.TLSv1_3):
    tls = ssl.create_default_context(cadata=ca)
    tls.maximum_version = version
    return tls


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize(("script", "body"), ANSWERS.values(), ids=ANSWERS)
def test_complete_responses_are_parsed(script, body, secured, theirs):
    tls = (ours(), theirs) if secured else ()
    assert Server(script).run(ask, *tls).body == body


WRONG = {
    "no http": ([b"SSH-2.0-x\r\n\r\n"], "not HTTP"),
    "no status": ([b"HTTP/1.1 abc\r\n\r\n"], "not HTTP"),
    "two lengths": ([OK + b"Content-Length: 1\r\ncontent-length: 2\r\n\r\nab"], "not HTTP"),
    "a blank after a name": ([OK + b"Content-Length : 1\r\n\r\na"], "not HTTP"),
    "a length below nothing": ([OK + b"Content-Length: -1\r\n\r\n"], "not HTTP"),
    "a chunk of no length": ([OK + b"Transfer-Encoding: chunked\r\n\r\n+1\r\na\r\n"], "not HTTP"),
    "a chunk longer than it says": ([OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n"], "not HTTP"),
    "an endless head": ([OK + b"X: " + b"a" * 70_000], "does not end"),
    "longer than wanted": ([OK + b"Content-Length: 1001\r\n\r\n"], "longer than 1000"),
    "chunks longer than wanted": ([OK + b"Transfer-Encoding: chunked\r\n\r\nffff\r\n" + b"a" * 1001], "longer than 1000"),
    "without end longer than wanted": ([OK + b"\r\n" + b"a" * 1001], "longer than 1000"),
    "cut off": ([OK + b"Content-Length: 3\r\n\r\nab", None], "cut off"),
    "nothing": ([None], "disconnected"),
}


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize(("script", "words"), WRONG.values(), ids=WRONG)
def test_invalid_responses_are_errors_with_unknown_outcome(script, words, secured, theirs):
    async def test(exchange):
        with pytest.raises(ClusterError, match=words) as error:
            await ask(exchange)
        assert error.value.may_have_happened
        assert not isinstance(error.value, UnsentError)

    Server(script).run(test, *((ours(), theirs) if secured else ()))


def test_connections_are_reused_until_the_server_closes_them():
    good = [OK + b"Content-Length: 0\r\n\r\n"]
    server = Server(good, good, [OK + b"Connection: close\r\nContent-Length: 0\r\n\r\n"], good)

    async def test(exchange):
        for _ in range(4):
            await ask(exchange)

    server.run(test)
    assert server.connections == 2


def test_a_reused_connection_that_closes_raises_unsent_error():
    server = Server([OK + b"Content-Length: 0\r\n\r\n"], [None])

    async def test(exchange):
        await ask(exchange)
        with pytest.raises(UnsentError):
            await ask(exchange)

    server.run(test)


def test_data_after_a_response_is_not_the_next_response():
    stray = OK + b"Content-Length: 1\r\n\r\nx"
    server = Server([OK + b"Content-Length: 1\r\n\r\na" + stray], [OK + b"Content-Length: 1\r\n\r\nb"])

    async def test(exchange):
        return (await ask(exchange)).body, (await ask(exchange)).body

    assert server.run(test) == (b"a", b"b")


def test_connections_are_limited_and_requests_served_in_order(monkeypatch):
    monkeypatch.setattr("moorage.basis.client.connection_pool._MAX_CONNECTIONS", 2)
    server = Server(*[[OK + b"Content-Length: 1\r\n\r\na"]] * 20)

    async def test(exchange):
        checks = []
        replies = await asyncio.gather(*(ask(exchange, check=lambda: checks.append(1)) for _ in range(20)))
        return len(checks), {reply.body for reply in replies}

    assert server.run(test) == (20, {b"a"})
    assert server.connections == 2


def test_a_cancelled_waiter_takes_no_turn(monkeypatch):
    monkeypatch.setattr("moorage.basis.client.connection_pool._MAX_CONNECTIONS", 1)
    server = Server(*[[OK + b"Content-Length: 0\r\n\r\n"]] * 3)

    async def test(exchange):
        tasks = [asyncio.create_task(ask(exchange)) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        return [type(one).__name__ for one in done]

    assert server.run(test) == ["Reply", "CancelledError", "Reply"]


def test_a_late_response_closes_the_connection():
    server = Server([OK], [OK + b"Content-Length: 0\r\n\r\n"])

    async def test(exchange):
        with pytest.raises(ClusterError, match="no answer within"):
            await ask(exchange, patience_s=0.02)
        await ask(exchange)

    server.run(test)
    assert server.connections == 2


def test_each_response_has_its_own_deadline_with_one_timer():
    server = Server(*[[OK]] * 3)

    async def test(exchange):
        late = []

        async def one(patience_s):
            with pytest.raises(ClusterError, match=f"no answer within {patience_s}s"):
                await ask(exchange, patience_s=patience_s)
            late.append(patience_s)

        async with asyncio.timeout(2.0):
            await asyncio.gather(one(0.06), one(0.02), one(0.04))
        return late

    assert server.run(test) == [0.02, 0.04, 0.06]


# -- requests that are sent together, or wait for a connection -------------------------------------------------------------

REQUEST = b"GET /x HTTP/1.1\r\n\r\n"
LENGTH = OK + b"Content-Length: 1\r\n\r\n"


class Futures:
    is_brief = False

    def __init__(self, futures):
        self.futures = futures

    def ended(self, at, answer):
        self.futures[at].set_result(answer)


async def soon(exchange, count, *, units=1, check=lambda: None):
    """Send units of so many requests each. Return each request's body, or its error, in the order they were sent."""
    loop = asyncio.get_running_loop()
    answers = [[loop.create_future() for _ in range(count)] for _ in range(units)]
    for unit in answers:
        exchange.send_soon(RequestBatch([REQUEST] * count, Futures(unit), 1000, 5.0, check))
    found = await asyncio.wait_for(asyncio.gather(*(future for unit in answers for future in unit)), 5.0)
    return [one if isinstance(one, Exception) else one.body for one in found]


@pytest.mark.parametrize("cut", [1, 3, 17, 38, 39, 40, 60, 200])
def test_responses_of_requests_sent_together_are_answered_in_order(cut):
    whole = LENGTH + b"a" + LENGTH + b"b" + OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nc\r\n0\r\n\r\n" + LENGTH + b"d"
    server = Server([whole[:cut], whole[cut:]], [], [], [])
    assert server.run(lambda exchange: soon(exchange, 4)) == [b"a", b"b", b"c", b"d"]
    assert (server.connections, len(server.requests)) == (1, 4)


def test_requests_behind_a_response_that_closes_the_connection_were_not_processed():
    server = Server([OK + b"Connection: close\r\nContent-Length: 1\r\n\r\na", None], [])
    first, second = server.run(lambda exchange: soon(exchange, 2))
    assert first == b"a"
    assert isinstance(second, UnsentError)


BREAKS = {
    "ends": [LENGTH + b"a", None],
    "ends within a response": [LENGTH + b"a" + OK, None],
    "is no HTTP": [LENGTH + b"a" + b"SSH-2.0\r\n\r\n"],
}


@pytest.mark.parametrize("script", BREAKS.values(), ids=BREAKS)
def test_requests_without_a_response_have_an_unknown_outcome(script):
    first, *others = Server(script, [], []).run(lambda exchange: soon(exchange, 3))
    assert first == b"a"
    assert [(type(one), one.may_have_happened) for one in others] == [(ClusterError, True)] * 2


def test_what_waits_for_a_connection_is_sent_once_one_is_idle(monkeypatch):
    monkeypatch.setattr("moorage.basis.client.connection_pool._MAX_CONNECTIONS", 2)
    server = Server(*([LENGTH + b"a"] for _ in range(40)))
    assert server.run(lambda exchange: soon(exchange, 1, units=40)) == [b"a"] * 40
    assert server.connections == 2


def test_a_connection_that_breaks_is_replaced_for_what_waits(monkeypatch):
    monkeypatch.setattr("moorage.basis.client.connection_pool._MAX_CONNECTIONS", 1)
    monkeypatch.setattr("moorage.basis.client.connection_pool._TOGETHER", 1)
    server = Server([LENGTH + b"a"], [None], [LENGTH + b"b"])
    first, second, third = server.run(lambda exchange: soon(exchange, 1, units=3))
    assert (first, third) == (b"a", b"b")
    assert isinstance(second, ClusterError)


def test_a_check_that_raises_later_goes_to_the_answer(monkeypatch):
    monkeypatch.setattr("moorage.basis.client.connection_pool._MAX_CONNECTIONS", 1)

    def refuse():
        raise MoorageError("no")

    async def test(exchange):
        waiting = await soon(exchange, 1, check=refuse)
        sent = await soon(exchange, 1)
        refused = await soon(exchange, 1, check=refuse)
        return [*map(str, waiting), *sent, *map(str, refused), *await soon(exchange, 1)]

    server = Server([LENGTH + b"a"], [LENGTH + b"b"])
    assert server.run(test) == ["no", b"a", "no", b"b"]
    assert server.connections == 1


def test_what_waits_fails_if_no_connection_can_be_opened():
    async def main():
        exchange = ConnectionPool(ServerAddress("127.0.0.1", 1))
        return await soon(exchange, 2, units=3)

    assert [type(one) for one in asyncio.run(main())] == [ClusterError] * 6


def test_what_waits_does_not_wait_for_ever_if_the_connections_of_other_requests_fail(monkeypatch):
    async def main():
        exchange = ConnectionPool(ServerAddress("127.0.0.1", 1))
        fail = asyncio.Event()

        async def late(*to):
            await fail.wait()
            return await connect(*to)

        monkeypatch.setattr("moorage.basis.client.connection_pool.connect", late)
        request = asyncio.ensure_future(ask(exchange))
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # its connection is counted
        monkeypatch.setattr("moorage.basis.client.connection_pool.connect", connect)
        waiting = asyncio.ensure_future(soon(exchange, 1))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        fail.set()
        with pytest.raises(ClusterError, match="cannot connect: Connection refused"):
            await request
        return await waiting

    assert [type(one) for one in asyncio.run(main())] == [ClusterError]


def test_a_response_that_is_late_fails_all_that_were_sent_together(monkeypatch):
    async def test(exchange):
        futures = [asyncio.get_running_loop().create_future() for _ in range(2)]
        exchange.send_soon(RequestBatch([REQUEST] * 2, Futures(futures), 1000, 0.05))
        return [str(one) for one in await asyncio.gather(*futures)]

    assert Server([b""], [b""]).run(test) == ["no answer within 0.05s"] * 2


class Brief:
    """Answers that need no body: the calls, and a future for the last of ``count`` answers."""

    is_brief = True

    def __init__(self, count):
        self.calls, self.left = [], count
        self.all = asyncio.get_running_loop().create_future()

    def succeeded(self, which, status):
        self.note((list(which), status), len(which))

    def ended(self, at, answer):
        self.note((at, getattr(answer, "status", 0)), 1)

    def note(self, call, count):
        self.calls.append(call)
        self.left -= count
        if not self.left:
            self.all.set_result(None)


CREATED = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"
CONFLICT = b"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize("script", [[b"".join([CREATED, CREATED, CONFLICT, CREATED])], [CREATED + CREATED, CONFLICT + CREATED]])
def test_successes_that_arrive_together_are_passed_on_together(script):
    async def test(exchange):
        answers = Brief(4)
        exchange.send_soon(RequestBatch([REQUEST] * 4, answers, 1000, 5.0))
        await asyncio.wait_for(answers.all, 5.0)
        return answers.calls

    assert Server(script, [], [], []).run(test) == [([0, 1], 201), (2, 409), ([3], 201)]


def test_requests_apart_use_several_connections_and_a_failure_ends_only_those_behind_it(monkeypatch):
    monkeypatch.setattr("moorage.basis.client.connection_pool._MAX_CONNECTIONS", 3)

    async def test(exchange):
        answers = Brief(24)
        exchange.send_soon(RequestBatch([REQUEST] * 24, answers, 1000, 5.0, apart=True))
        await asyncio.wait_for(answers.all, 5.0)
        failed = [at for at, status in answers.calls if status == 0]
        succeeded = [at for which, status in answers.calls if status == 201 for at in which]
        return failed, succeeded

    server = Server(*([CREATED] for _ in range(5)), [None], *([CREATED] for _ in range(18)))
    failed, succeeded = server.run(test)
    assert sorted([*failed, *succeeded]) == [*range(24)]
    assert 1 <= len(failed) <= 8
    assert server.connections >= 2


NOT_USUAL = [
    b"HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: 1\r\n\r\na",
    b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\ncontent-length:1\r\n\r\na",
]


@pytest.mark.parametrize("response", NOT_USUAL)
def test_a_success_in_another_form_has_its_response(response):
    async def test(exchange):
        answers = Brief(1)
        exchange.send_soon(RequestBatch([REQUEST], answers, 1000, 5.0))
        await asyncio.wait_for(answers.all, 5.0)
        return answers.calls

    assert Server([response]).run(test) == [([0], 201)]


# -- TLS ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_requests_and_responses_may_exceed_one_tls_record(version, theirs):
    long = bytes(range(256)) * 400
    answer = OK + b"Content-Length: %d\r\n\r\n" % len(long) + long
    server = Server([answer], [answer])

    async def test(exchange):
        request = b"GET /x HTTP/1.1\r\nX: " + b"a" * 60_000 + b"\r\n\r\n"
        return [(await exchange.request(request, len(long), 5.0, lambda: None)).body for _ in range(2)]

    assert server.run(test, ours(version=version), theirs) == [long, long]
    assert [len(one) for one in server.requests] == [60_024, 60_024]
    assert server.connections == 1


def other_authority():
    return ssl.create_default_context()


REFUSED = {  # our side, the name wanted, what is said
    "an unknown authority": (other_authority, "", "certificate verify failed"),
    "another's name": (ours, "elsewhere", "Hostname mismatch"),
}


@pytest.mark.parametrize(("context", "name", "words"), REFUSED.values(), ids=REFUSED)
def test_nothing_is_sent_to_an_unverified_server(context, name, words, theirs, monkeypatch):
    monkeypatch.setattr("moorage.basis.client.connection_pool._MAX_CONNECTIONS", 1)
    server = Server([OK], [OK])

    async def test(exchange):
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # the server's own complaint
        for _ in range(2):  # a failed connection is no longer counted
            with pytest.raises(ClusterError, match=words):
                await ask(exchange)

    server.run(test, context(), theirs, name)
    assert server.requests == []


def test_a_server_without_tls_is_distinguished_from_one_that_closes():
    async def plain(exchange):
        with pytest.raises(ClusterError, match="SSL"):
            await ask(exchange)

    async def gone(exchange):
        with pytest.raises(ClusterError, match="before it was secured"):
            await ask(exchange)

    for test, answer in ((plain, b"HTTP/1.1 400 Bad Request\r\n\r\n"), (gone, b"")):

        async def serve(reader, writer, answer=answer):
            await reader.read(1)
            writer.write(answer)
            writer.close()

        server = Server()
        server.serve = serve
        server.run(test, ours())
