"""Answers of every form, against a server that says byte by byte what the case says."""

from __future__ import annotations

import asyncio

import pytest

from moorage.client.exchange import Exchange, UnsentError
from moorage.errors import ClusterError

OK = b"HTTP/1.1 200 OK\r\n"


class Server:
    """Answers each request with the next script: parts of bytes; None hangs up."""

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

    def run(self, test):
        async def main():
            server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
            exchange = Exchange("127.0.0.1", server.sockets[0].getsockname()[1], None)
            try:
                return await test(exchange)
            finally:
                exchange.close()
                server.close()
                await asyncio.sleep(0.01)

        return asyncio.run(main())


def ask(exchange, most=1000, patience_s=5.0, check=lambda: None):
    return exchange.ask(b"GET /x HTTP/1.1\r\n\r\n", most, patience_s, check)


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


@pytest.mark.parametrize(("script", "body"), ANSWERS.values(), ids=ANSWERS)
def test_answers_are_read_whole(script, body):
    assert Server(script).run(ask).body == body


WRONG = {
    "no http": ([b"SSH-2.0-x\r\n\r\n"], "not HTTP"),
    "no status": ([b"HTTP/1.1 abc\r\n\r\n"], "not HTTP"),
    "two lengths": ([OK + b"Content-Length: 1\r\ncontent-length: 2\r\n\r\nab"], "not HTTP"),
    "a length below nothing": ([OK + b"Content-Length: -1\r\n\r\n"], "not HTTP"),
    "a chunk of no length": ([OK + b"Transfer-Encoding: chunked\r\n\r\n+1\r\na\r\n"], "not HTTP"),
    "a chunk longer than it says": ([OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n"], "not HTTP"),
    "an endless head": ([OK + b"X: " + b"a" * 70_000], "does not end"),
    "longer than wanted": ([OK + b"Content-Length: 1001\r\n\r\n"], "longer than 1000"),
    "chunks longer than wanted": ([OK + b"Transfer-Encoding: chunked\r\n\r\nffff\r\n"], "longer than 1000"),
    "without end longer than wanted": ([OK + b"\r\n" + b"a" * 1001], "longer than 1000"),
    "cut off": ([OK + b"Content-Length: 3\r\n\r\nab", None], "disconnected"),
    "nothing": ([None], "disconnected"),
}


@pytest.mark.parametrize(("script", "words"), WRONG.values(), ids=WRONG)
def test_other_answers_are_errors_that_leave_open_what_happened(script, words):
    async def test(exchange):
        with pytest.raises(ClusterError, match=words) as error:
            await ask(exchange)
        assert error.value.may_have_happened
        assert not isinstance(error.value, UnsentError)

    Server(script).run(test)


def test_connections_are_kept_until_the_server_says_otherwise():
    good = [OK + b"Content-Length: 0\r\n\r\n"]
    server = Server(good, good, [OK + b"Connection: close\r\nContent-Length: 0\r\n\r\n"], good)

    async def test(exchange):
        for _ in range(4):
            await ask(exchange)

    server.run(test)
    assert server.connections == 2


def test_a_kept_connection_that_ends_says_that_the_request_was_hardly_seen():
    server = Server([OK + b"Content-Length: 0\r\n\r\n"], [None])

    async def test(exchange):
        await ask(exchange)
        with pytest.raises(UnsentError):
            await ask(exchange)

    server.run(test)


def test_what_comes_after_an_answer_is_no_answer_to_the_next():
    stray = OK + b"Content-Length: 1\r\n\r\nx"
    server = Server([OK + b"Content-Length: 1\r\n\r\na" + stray], [OK + b"Content-Length: 1\r\n\r\nb"])

    async def test(exchange):
        return (await ask(exchange)).body, (await ask(exchange)).body

    assert server.run(test) == (b"a", b"b")


def test_no_more_connections_than_there_may_be_and_all_are_served_in_turn(monkeypatch):
    monkeypatch.setattr("moorage.client.exchange._MOST", 2)
    server = Server(*[[OK + b"Content-Length: 1\r\n\r\na"]] * 20)

    async def test(exchange):
        checks = []
        replies = await asyncio.gather(*(ask(exchange, check=lambda: checks.append(1)) for _ in range(20)))
        return len(checks), {reply.body for reply in replies}

    assert server.run(test) == (20, {b"a"})
    assert server.connections == 2


def test_who_waits_and_gives_up_takes_nobodys_turn(monkeypatch):
    monkeypatch.setattr("moorage.client.exchange._MOST", 1)
    server = Server(*[[OK + b"Content-Length: 0\r\n\r\n"]] * 3)

    async def test(exchange):
        tasks = [asyncio.create_task(ask(exchange)) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        return [type(one).__name__ for one in done]

    assert server.run(test) == ["Reply", "CancelledError", "Reply"]


def test_an_answer_that_takes_too_long_ends_the_connection():
    server = Server([OK], [OK + b"Content-Length: 0\r\n\r\n"])

    async def test(exchange):
        with pytest.raises(ClusterError, match="no answer within"):
            await ask(exchange, patience_s=0.02)
        await ask(exchange)

    server.run(test)
    assert server.connections == 2
