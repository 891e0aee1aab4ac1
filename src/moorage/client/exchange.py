"""Short requests and their answers over HTTP/1.1 connections that are kept: what binds, events and patches go over.

A general HTTP library costs several times what a binding itself does. Here a request is one write, and an answer is read as it
comes in: status, headers, and a body of known length, in chunks, or up to the end. One request at a time is on a connection;
more than there are connections wait their turn. Redirects, cookies, compression and proxies are not spoken.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from moorage.client.channel import Channel
from moorage.errors import ClusterError

__all__ = ["Exchange", "Reply", "UnsentError"]

#: Connections at most; kube-apiserver's HTTP/2 would allow 250 streams over one.
_MOST: Final = 64
#: A connection that rested for so long is not used again: the other side may be about to close it.
_REST_S: Final = 15.0
_MOST_HEAD: Final = 1 << 16
_CONNECT_S: Final = 10.0
#: The headers that matter here; the others are not even looked at.
_READ: Final = re.compile(
    rb"\r\n(connection|content-length|retry-after|transfer-encoding)[ \t]*:[ \t]*([^\r\n]*?)[ \t]*(?=\r\n|$)", re.IGNORECASE
)
#: How an answer begins that has a body.
_STATUS: Final = re.compile(rb"HTTP/1\.1 (?!204|304)([2-9]\d\d) ([^\r\n]*)").match
_NEVER: Final = float("inf")


class Reply(NamedTuple):
    """An answer. ``phrase`` is what the server calls the status; ``headers`` are the few that matter, in lower case."""

    status: int
    phrase: str
    headers: dict[str, str]
    body: bytes


class UnsentError(ClusterError):
    """The server hung up on a kept connection without a word: most likely before it saw the request."""


class _Line(Channel):
    """One connection. ``due`` is when the answer that is waited for must be there, on the loop's clock."""

    def __init__(self, tls: ssl.SSLContext | None, server_name: str | None, session: ssl.SSLSession | None) -> None:
        super().__init__(tls, server_name, session)
        self.rested_since = 0.0
        self.due = _NEVER
        self._patience_s = 0.0
        self._used = False
        self._answer: asyncio.Future[Reply] | None = None
        self._heard = bytearray()
        self._most = 0
        self._head: tuple[int, str, dict[str, str]] | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._keeps = True

    @property
    def usable(self) -> bool:
        # What nobody asked for would be taken for the answer to what is asked next.
        return self._keeps and not self._heard and self.is_open

    def close(self) -> None:
        self._keeps = False
        super().close()

    def ask(self, request: bytes, most: int, due: float, patience_s: float) -> asyncio.Future[Reply]:
        """Send a request and return where its answer will be; the one who waits for it says so with ``rest``.

        It will hold a ClusterError where none came, or one that is longer than ``most`` bytes or no HTTP.

        Raises  OSError where it cannot be sent
        """
        answer: asyncio.Future[Reply] = self.ready.get_loop().create_future()
        self._answer, self.due, self._patience_s, self._most = answer, due, patience_s, most
        self._head, self._parts, self._size = None, [], 0
        self.say(request)
        return answer

    def rest(self) -> None:
        """Nobody waits for an answer any more."""
        self._answer, self.due, self._used = None, _NEVER, True

    def give_up(self) -> None:
        """The answer was waited for long enough."""
        self.fail(ClusterError(f"no answer within {self._patience_s:g}s"))

    def fail(self, error: ClusterError) -> None:
        """Give up waiting for the answer."""
        self.due = _NEVER
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    # -- what the channel calls ----------------------------------------------------------------------------------------------

    def heard(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self._heard += data
            self.close()
            return
        if not self._heard and self._head is None:
            reply = _common(data, self._most)
            if reply is not None:
                self._answer.set_result(reply)
                return
        self._heard += data
        try:
            body = self._read()
        except (ValueError, IndexError) as error:
            self.fail(ClusterError(f"the answer is not HTTP: {error}"))
            return
        if self._size > self._most:
            self.fail(ClusterError(f"the answer is longer than {self._most} bytes"))
        elif body is not None:
            self._give(body)

    def ended(self, error: Exception | None) -> None:
        self._keeps = False
        if self._answer is None or self._answer.done():
            return
        if error is None and self._head is not None and not _is_framed(self._head[2]):
            self._give(bytes(self._heard))
        elif self._used and self._head is None and not self._heard:
            self.fail(UnsentError("Server disconnected"))
        else:
            self.fail(ClusterError(str(error or "") or "Server disconnected"))

    def _give(self, body: bytes) -> None:
        if self._answer is not None and self._head is not None:
            self._answer.set_result(Reply(*self._head, body))

    # -- reading -----------------------------------------------------------------------------------------------------------

    def _read(self) -> bytes | None:
        """Read what was heard so far. Returns the body once it is whole.

        Raises  ValueError, IndexError for what is no HTTP
        """
        while self._head is None:
            end = self._heard.find(b"\r\n\r\n")
            if end < 0:
                if len(self._heard) > _MOST_HEAD:
                    raise ValueError("its head does not end")
                return None
            version, status, phrase, headers = _head(bytes(self._heard[:end]))
            del self._heard[: end + 4]
            if status >= 200:  # what comes before is only word that the answer is being worked on
                self._head = status, phrase, headers
                self._keeps = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        return self._body(self._head[0], self._head[2])

    def _body(self, status: int, headers: dict[str, str]) -> bytes | None:
        if status in {204, 304}:
            return b""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._chunks()
        length = headers.get("content-length")
        if length is None:
            self._keeps, self._size = False, len(self._heard)
            return None
        wanted = self._size = _number(length, 10)
        if len(self._heard) < wanted:
            return None
        body = bytes(self._heard[:wanted])
        del self._heard[:wanted]
        return body

    def _chunks(self) -> bytes | None:
        """Take in the chunks that are there; the body once the last one is."""
        while True:
            end = self._heard.find(b"\r\n")
            if end < 0:
                if len(self._heard) > _MOST_HEAD:
                    raise ValueError("a chunk has no length")
                return None
            length = _number(self._heard[:end].partition(b";")[0].decode("ascii").strip(), 16)
            if length == 0:
                return self._trailer(end)
            if self._size + length > self._most:
                self._size += length
                return None
            if len(self._heard) < end + length + 4:
                return None
            self._parts.append(bytes(self._heard[end + 2 : end + 2 + length]))
            self._size += length
            if self._heard[end + 2 + length : end + length + 4] != b"\r\n":
                raise ValueError("a chunk is longer than it says")
            del self._heard[: end + length + 4]

    def _trailer(self, start: int) -> bytes | None:
        end = self._heard.find(b"\r\n\r\n", start)
        if end < 0:
            return None
        del self._heard[: end + 4]
        return b"".join(self._parts)


def _common(data: bytes, most: int) -> Reply | None:
    """Return an answer of the form that nearly all have: whole, of known length, on a connection that is kept.

    None for any other, which is read with care.
    """
    begins, end = _STATUS(data), data.find(b"\r\n\r\n")
    if begins is None or end < 0:
        return None
    found = _READ.findall(data, 0, end)
    if len(found) != 1 or found[0][0].lower() != b"content-length":
        return None
    length = found[0][1]
    if not length.isdigit() or len(length) > 15 or int(length) > most or len(data) != end + 4 + int(length):
        return None
    return Reply(int(begins[1]), begins[2].decode("latin-1"), {"content-length": length.decode()}, data[end + 4 :])


def _head(raw: bytes) -> tuple[str, int, str, dict[str, str]]:
    first = raw.partition(b"\r\n")[0].decode("latin-1")
    version, _, rest = first.partition(" ")
    code, _, phrase = rest.partition(" ")
    if version not in {"HTTP/1.1", "HTTP/1.0"} or len(code) != 3:
        raise ValueError(f"it begins with {first[:40]!r}")
    found = _READ.findall(raw)
    headers = {name.decode().lower(): value.decode("latin-1") for name, value in found}
    if len(headers) < len(found):
        raise ValueError("a header that stands once stands twice")
    return version, _number(code, 10), phrase, headers


def _number(text: str, base: int) -> int:
    if not text.isalnum() or not text.isascii() or len(text) > 15:
        raise ValueError(f"{text[:40]!r} is no length")
    return int(text, base)


def _is_framed(headers: dict[str, str]) -> bool:
    return "content-length" in headers or "transfer-encoding" in headers


class Exchange:
    """Connections to one server. ``server_name`` is whom its certificate must name."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, server_name: str = "") -> None:
        self._host, self._port, self._tls = host, port, tls
        self._server_name = (server_name or host) if tls is not None else None
        self._resting: list[_Line] = []
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._lines: dict[_Line, None] = {}
        self._session: ssl.SSLSession | None = None
        self._count = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._closed = False

    async def ask(self, request: bytes, most: int, patience_s: float, check: Callable[[], None]) -> Reply:
        """Send a request and return its answer. ``check`` is called right before, and may raise.

        Raises  ClusterError where none came, it took too long, was longer than ``most`` bytes, or is no HTTP; OSError; what
                ``check`` raised
        """
        loop = asyncio.get_running_loop()
        line = self._rested(loop.time()) or await self._line(loop)
        try:
            check()
            due = loop.time() + patience_s
            try:
                answer = line.ask(request, most, due, patience_s)
                self._watch(due, loop)
                return await answer
            except BaseException:
                line.close()
                raise
            finally:
                line.rest()
        finally:
            self._put_back(line)

    def close(self) -> None:
        """Close all connections, those in use once they are free."""
        self._closed = True
        for line in self._resting:
            self._drop(line)
        self._resting.clear()

    # -- time ----------------------------------------------------------------------------------------------------------------

    def _watch(self, due: float, loop: asyncio.AbstractEventLoop) -> None:
        """See to it that somebody looks when an answer is due: one timer for all, as hardly an answer is ever late."""
        if self._alarm is None or due < self._alarm.when():
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = loop.call_at(due, self._look, due, loop)

    def _look(self, now: float, loop: asyncio.AbstractEventLoop) -> None:
        self._alarm = None
        next_due = _NEVER
        for line in list(self._lines):
            if line.due <= now:
                line.give_up()
            next_due = min(next_due, line.due)
        if next_due < _NEVER:
            self._watch(next_due, loop)

    # -- connections ---------------------------------------------------------------------------------------------------------

    async def _line(self, loop: asyncio.AbstractEventLoop) -> _Line:
        queue = self._waiting.append
        while True:
            line = self._rested(loop.time())
            if line is not None:
                return line
            if self._count < _MOST:
                return await self._connected(loop)
            turn: asyncio.Future[None] = loop.create_future()
            queue(turn)
            queue = self._waiting.appendleft  # if somebody else was faster once, it is still this one's turn
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._wake()
                raise

    def _rested(self, now: float) -> _Line | None:
        """Return the connection that rested least; those that rested too long are closed."""
        while self._resting:
            line = self._resting.pop()
            if line.usable and now - line.rested_since < _REST_S:
                return line
            self._drop(line)
        return None

    async def _connected(self, loop: asyncio.AbstractEventLoop) -> _Line:
        self._count += 1
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, line = await loop.create_connection(
                    lambda: _Line(self._tls, self._server_name, self._session),
                    self._host,
                    self._port,
                    happy_eyeballs_delay=0.25,
                )
                await self._secured(line)
        except BaseException:
            self._count -= 1
            self._wake()
            raise
        self._lines[line] = None
        return line

    @staticmethod
    async def _secured(line: _Line) -> None:
        try:
            await line.ready
        except BaseException:
            line.close()
            raise

    def _put_back(self, line: _Line) -> None:
        if line.usable and not self._closed:
            if not line.rested_since:
                self._session = line.session
            line.rested_since = asyncio.get_running_loop().time()
            self._resting.append(line)
        else:
            self._drop(line)
        self._wake()

    def _drop(self, line: _Line) -> None:
        line.close()
        self._lines.pop(line, None)
        self._count -= 1

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
