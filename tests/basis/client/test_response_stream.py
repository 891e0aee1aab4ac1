"""The response to a watch: its chunks however they arrive, and servers that break it."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.basis.client.pooled_connection import ResponseParser
from moorage.basis.client.response_stream import ServerAddress, open_stream
from moorage.errors import ClusterError

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def framed(parts: list[bytes]) -> bytes:
    return b"".join(b"%x;a=b\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@given(parts=st.lists(st.binary(min_size=1, max_size=40), max_size=8), cuts=st.lists(st.integers(0, 400), max_size=8))
def test_what_has_arrived_is_taken_however_it_arrives(parts, cuts):
    data, ended = CHUNKED + framed(parts), []
    parser = ResponseParser(lambda reply, keep_alive: ended.append((reply.status, reply.body, keep_alive)))
    at = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    taken = b""
    for start, end in pairwise(at):
        parser.feed(data[start:end])
        taken += parser.take()
    [(status, rest, keep_alive)] = ended
    assert (status, taken + rest, keep_alive, parser.begun) == (200, b"".join(parts), True, False)


async def served(*parts: bytes, idle_s: float = 0.2):
    """Return the status and the body of a response in these parts, as ``open_stream`` yields them."""

    async def answer(reader, writer):
        try:
            await reader.readuntil(b"\r\n\r\n")
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.005)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    to = ServerAddress("127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        async with open_stream(to, b"GET / HTTP/1.1\r\n\r\n", idle_s) as (head, body):
            return head.status, b"".join([part async for part in body])
    finally:
        server.close()
        await asyncio.sleep(0.02)


WHOLE = {
    "in chunks": ([CHUNKED, b"3\r\nabc\r\n", b"0\r\n\r\n"], (200, b"abc")),
    "head and body at once": ([CHUNKED + b"3\r\nabc\r\n0\r\n\r\n"], (200, b"abc")),
    "in chunks, with a trailer": ([CHUNKED, b"3\r\nabc\r\n0\r\nX: y\r\n", b"\r\n"], (200, b"abc")),
    "with a length": ([b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", b"ab", b"c"], (200, b"abc")),
    "of no length": ([b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"], (403, b"")),
    "up to the end": ([b"HTTP/1.0 200 OK\r\n\r\n", b"ab", b"c"], (200, b"abc")),
    "after another head": ([b"HTTP/1.1 103 Early Hints\r\n\r\n" + CHUNKED, b"0\r\n\r\n"], (200, b"")),
}


@pytest.mark.parametrize(("parts", "found"), WHOLE.values(), ids=WHOLE)
def test_bodies_of_every_form(parts, found):
    assert asyncio.run(served(*parts)) == found


BROKEN = {
    "no answer": ([], "Server disconnected"),
    "a part of a head": ([CHUNKED[:9]], "Server disconnected"),
    "no HTTP": ([b"SSH-2.0\r\n\r\n"], "the answer is not HTTP: it begins with 'SSH-2.0'"),
    "an endless head": ([b"HTTP/1.1 200 OK\r\nA: " + b"a" * 200_000], "the answer is not HTTP"),
    "a part of a body": ([CHUNKED, b"9\r\nabc"], "the response was cut off"),
    "no last chunk": ([CHUNKED, b"3\r\nabc\r\n"], "the response was cut off"),
    "too little": ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"], "the response was cut off"),
    "a bad length": ([CHUNKED, b"-3\r\nabc\r\n"], "the answer is not HTTP: Invalid character in chunk size"),
    "a chunk longer than it says": ([CHUNKED, b"1\r\nabc\r\n0\r\n\r\n"], "the answer is not HTTP"),
    "a trailer without an end": ([CHUNKED, b"1\r\na\r\n0\r\nX: y\r\n"], "the response was cut off"),
    "no length": ([CHUNKED, b"a" * 200_000], "the answer is not HTTP: Invalid character in chunk size|Chunk size overflow"),
}


@pytest.mark.parametrize(("parts", "why"), BROKEN.values(), ids=BROKEN)
def test_broken_responses(parts, why):
    with pytest.raises((ClusterError, ConnectionError), match=why):
        asyncio.run(served(*parts))


def test_silence_ends_a_stream():
    async def main():
        await served(CHUNKED, b"3\r\nabc\r\n", *[b""] * 200, idle_s=0.05)

    with pytest.raises(TimeoutError):
        asyncio.run(main())
