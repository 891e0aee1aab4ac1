"""Request framing: for any sizes and splits, each body is read completely and once."""

import asyncio
import itertools
import zlib
from typing import NamedTuple

import pytest
from aiohttp import web
from hypothesis import example, given, settings
from hypothesis import strategies as st

from moorage.basis.serving.connections import MAX_FIELD, MAX_HEAD, MAX_LINE, TLS_BUFFER, AcceptLimits, Connection
from moorage.cluster.apiserver.schema.request_bodies import MAX_BODY

READ = 256 << 10  # what asyncio reads at once
#: Sizes of bodies around every limit that bytes pass on their way.
EDGES = [0, MAX_LINE, MAX_FIELD, MAX_HEAD, MAX_HEAD + MAX_FIELD, READ, 2 * READ, 2 * READ + MAX_HEAD, MAX_BODY]
SIZES = sorted({max(0, size + more) for size in EDGES for more in (-1, 0, 1)} - {MAX_BODY + 1})


# -- the plain reference ------------------------------------------------------------------------------------------------


def parsed(stream):
    """Return the path and body of each request in a byte stream, by RFC 9112."""
    found, at = [], 0
    while at < len(stream):
        end = stream.index(b"\r\n\r\n", at)
        line, *fields = stream[at:end].split(b"\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (one.partition(b":") for one in fields)}
        at = end + 4
        parts = []
        if headers.get(b"transfer-encoding") == b"chunked":
            while size := int(stream[at : (end := stream.index(b"\r\n", at))], 16):
                parts.append(stream[end + 2 : end + 2 + size])
                at = end + 2 + size + 2
            at = end + 4
        else:
            size = int(headers.get(b"content-length", b"0"))
            parts, at = [stream[at : at + size]], at + size
        found.append((line.split()[1].decode(), digest(b"".join(parts))))
    return found


def digest(body):
    return len(body), zlib.crc32(body)


# -- a connection without a network -------------------------------------------------------------------------------------


class Wire(asyncio.Transport):
    """A transport that records writes, and delivers nothing while its reader has paused."""

    def __init__(self):
        super().__init__()
        self.ends, self.written, self.open = asyncio.Event(), bytearray(), True
        self.flows = asyncio.Event()
        self.flows.set()

    def write(self, data):
        self.written += data

    def is_closing(self):
        return not self.open

    def pause_reading(self):
        self.flows.clear()

    def resume_reading(self):
        self.flows.set()

    def close(self):
        self.open = False
        self.flows.set()

    abort = close

    def get_extra_info(self, name, default=None):
        del name
        return default


class Host:
    limits = AcceptLimits(most=1, patience_s=5.0, answer_s=5.0, farewell_s=5.0)

    def on_request(self, connection): ...
    def on_idle(self, connection): ...
    def on_closed(self, connection): ...


async def send(pieces, requests, *, reads=True):
    """Deliver pieces of a stream, each after so many turns of the loop; return what was served, and how often it was answered.

    With ``reads`` False the handler does not read bodies, as for a rejected request.
    """
    served = []

    async def handle(request):
        request.protocol.began()
        try:
            body = await request.read() if reads else b""
            served.append((request.path, digest(body)))
            return web.Response(status=200 if reads else 403)
        finally:
            request.protocol.ended()

    loop = asyncio.get_running_loop()
    manager = web.Server(handle, request_factory=lambda *parts: web.BaseRequest(*parts, loop, client_max_size=MAX_BODY))
    connection, wire = Connection(Host(), manager, loop), Wire()
    connection.connection_made(wire)
    for turns, piece in pieces:
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await wire.flows.wait()
        if not wire.open:
            break
        connection.data_received(piece)
    async with asyncio.timeout(5):
        while wire.open and wire.written.count(b"HTTP/1.1 ") < requests:
            await asyncio.sleep(0)
    was_open = wire.open
    connection.connection_lost(None)
    await manager.shutdown(0)
    return served, wire.written.count(b"HTTP/1.1 200 " if reads else b"HTTP/1.1 403 "), was_open


# -- requests -----------------------------------------------------------------------------------------------------------


def request(number, size, chunk, padding):
    """Return a write; its body is sent in chunks of that size, or unchunked for 0. Bodies look like request heads."""
    body = (b"PUT /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number * (size // 8 + 1))[:size]
    head = f"PUT /{number} HTTP/1.1\r\nHost: localhost\r\nX-Padding: {'p' * padding}\r\n".encode()
    if not chunk:
        return head + b"Content-Length: %d\r\n\r\n" % size + body
    parts = [body[at : at + chunk] for at in range(0, size, chunk)]
    return (
        head
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in parts)
        + b"0\r\n\r\n"
    )


class Plan(NamedTuple):
    """A test plan: the requests, where the stream is split, and how many loop turns pass before each piece."""

    requests: list
    cuts: list
    turns: list

    @property
    def stream(self):
        return b"".join(request(i, *one) for i, one in enumerate(self.requests))

    def pieces(self):
        """Return the stream in pieces of at most one read."""
        stream = self.stream
        at = sorted({0, *(cut % (len(stream) + 1) for cut in self.cuts), *range(0, len(stream), READ), len(stream)})
        turns = itertools.cycle(self.turns)
        return [(next(turns), stream[start:end]) for start, end in itertools.pairwise(at)]


PLANS = st.builds(
    Plan,
    st.lists(
        st.tuples(
            st.sampled_from(SIZES) | st.integers(0, MAX_HEAD * 2),
            st.sampled_from([0, 0, 1 << 10, MAX_FIELD + 1, MAX_HEAD, READ]),
            st.sampled_from([0, 0, 1 << 10, MAX_FIELD - 1]),
        ),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.integers(0, 4 * MAX_BODY), max_size=6),
    st.lists(st.integers(0, 6), min_size=1, max_size=8),
)
#: Two writes of 600 KB, as fast as the loop takes them.
TWO_LARGE = Plan([(600_000, 0, 0)] * 2, [], [0])


@pytest.mark.slow
@given(plan=PLANS)
@example(plan=TWO_LARGE)
@example(plan=TWO_LARGE._replace(turns=[3]))
@settings(max_examples=25)
def test_every_write_is_handled_once_and_completely(plan):
    wanted = parsed(plan.stream)
    assert asyncio.run(send(plan.pieces(), len(wanted))) == (wanted, len(wanted), True)


@pytest.mark.slow
@given(plan=PLANS)
@example(plan=TWO_LARGE)
@settings(max_examples=12)
def test_an_unread_body_does_not_close_the_connection(plan):
    wanted = [path for path, _ in parsed(plan.stream)]
    served, refused, was_open = asyncio.run(send(plan.pieces(), len(wanted), reads=False))
    assert ([path for path, _ in served], refused, was_open) == (wanted, len(wanted), True)


AHEAD = {  # size of each body, how much is read at once, how much is taken in while the first request is not answered
    "no bodies": (0, READ, READ),
    "small bodies": (60_000, TLS_BUFFER, 4 * TLS_BUFFER),
    "small bodies without TLS": (60_000, READ, READ),
    "bodies below aiohttp's own limit": (500_000, TLS_BUFFER, 3 * TLS_BUFFER),
    "bodies beyond it": (MAX_BODY, TLS_BUFFER, 3 * TLS_BUFFER),
    "large bodies without TLS": (MAX_BODY, READ, READ),
}


@pytest.mark.parametrize(("size", "at_once", "most"), AHEAD.values(), ids=AHEAD)
def test_little_is_read_ahead_while_a_request_is_unanswered(size, at_once, most):
    async def run():
        answered = asyncio.Event()

        async def handle(asked):
            asked.protocol.began()
            await answered.wait()
            return web.Response()

        manager = web.Server(handle)
        connection, wire = Connection(Host(), manager, asyncio.get_running_loop()), Wire()
        connection.connection_made(wire)
        stream = request(0, size, 0, 0) * (16 * READ // (size + 100))
        taken = 0
        while wire.flows.is_set() and taken < len(stream):
            connection.data_received(stream[taken : taken + at_once])
            taken += at_once
            for _ in range(5):
                await asyncio.sleep(0)
        answered.set()
        connection.connection_lost(None)
        await manager.shutdown(0)
        return taken

    assert asyncio.run(run()) <= most


class HastyHost(Host):
    limits = AcceptLimits(most=1, patience_s=0.05, answer_s=5.0, farewell_s=5.0)


def test_time_spent_on_a_body_does_not_count_for_a_head():
    """A rejected body that still arrives starts no timer: the connection may be idle afterwards, and be reused."""

    async def run():
        loop = asyncio.get_running_loop()

        async def refuse(asked):
            asked.protocol.began()
            asked.protocol.ended()
            return web.Response(status=403)

        manager = web.Server(refuse)
        connection, wire = Connection(HastyHost(), manager, loop), Wire()
        connection.connection_made(wire)
        whole = request(0, 1000, 0, 0)
        connection.data_received(whole[:-500])
        while not wire.written:
            await asyncio.sleep(0)
        for at in (-500, -250):
            connection.data_received(whole[at : at + 250 or None])
        await asyncio.sleep(3 * HastyHost.limits.patience_s)
        assert wire.open
        connection.data_received(request(1, 0, 0, 0))
        while wire.written.count(b"HTTP/1.1 403 ") < 2:
            await asyncio.sleep(0)
        connection.data_received(b"PUT /2 HTTP")  # and a head that is not finished ends it
        await asyncio.sleep(3 * HastyHost.limits.patience_s)
        assert not wire.open
        connection.connection_lost(None)
        await manager.shutdown(0)

    asyncio.run(asyncio.wait_for(run(), 10))
