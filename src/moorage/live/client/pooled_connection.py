"""One pooled connection: requests in a row, and their responses in the same order.

A response is parsed as it arrives: status, headers, and a body with a length, in chunks, or up to the end of the connection.
Several requests may be sent at once: the server answers them one after the other. If the connection ends, each request still
without a response fails.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias, cast

from moorage.errors import ClusterError, MoorageError

# -- channel -----------------------------------------------------------------------------------------------------------
# One TCP connection, with optional TLS.
#
# asyncio's TLS costs several times the encryption itself for each message, as it supports streams of any length and flow
# control. Short requests and responses need neither. Here received bytes go into OpenSSL's memory buffer and come out
# decrypted, and a message is encrypted and written in one piece. OpenSSL verifies the server as configured in the TLS
# context.

#: Maximum size of a TLS record.
_BUFFER_SIZE: Final = 16 << 10


class Channel(asyncio.BufferedProtocol):
    """A connection. ``ready`` completes when messages can be sent, or holds the error.

    ``session`` is a TLS session of an earlier connection to the same server, which shortens the handshake. Subclasses
    implement ``received`` and ``closed``.
    """

    def __init__(self, tls: ssl.SSLContext | None, server_name: str | None, session: ssl.SSLSession | None = None) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(_BUFFER_SIZE))
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        if tls is not None:
            self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name, session=session)
        self._tls_error: Exception | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def session(self) -> ssl.SSLSession | None:
        """The TLS session for further connections to the same server; complete after the first received message."""
        return None if self._tls is None else self._tls.session

    def close(self) -> None:
        """Abort the connection."""
        if self._transport is not None:
            self._transport.abort()

    def send_message(self, message: bytes) -> None:
        """Send a message. If the connection is lost, ``closed`` is called.

        Raises  OSError if TLS fails
        """
        if self._transport is None:
            return
        if self._tls is not None:
            sent = self._tls.write(message)
            while sent < len(message):  # a record at a time
                sent += self._tls.write(memoryview(message)[sent:])
            message = self._outgoing.read()
        self._transport.write(message)

    def received(self, data: bytes) -> None:
        """Handle received data."""
        raise NotImplementedError

    def closed(self, error: Exception | None) -> None:
        """Handle the end of the connection; ``error`` is None if either side closed it."""
        raise NotImplementedError

    # -- called by asyncio ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # other event loops may have their own transport classes
        if self._tls is None:
            self._resolve_ready(None)
        else:
            self._process_tls(self._tls)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._tls is None:
            self.received(bytes(self._buffer[:nbytes]))
            return
        self._incoming.write(self._buffer[:nbytes])
        self._process_tls(self._tls)

    def connection_lost(self, exc: Exception | None) -> None:
        error = exc or self._tls_error
        self._resolve_ready(error or ConnectionResetError("the connection ended before it was secured"))
        self.closed(error)

    # -- TLS -----------------------------------------------------------------------------------------------------------

    def _process_tls(self, tls: ssl.SSLObject) -> None:
        """Process received TLS data, and send what TLS responds. What several records hold is received as one."""
        records: list[bytes] = []
        try:
            if not self.ready.done():
                tls.do_handshake()
                self._resolve_ready(None)
            while self._incoming.pending:
                records.append(tls.read(_BUFFER_SIZE))
                if not records[-1]:  # close_notify
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._tls_error = error
        data = records[0] if len(records) == 1 else b"".join(records)
        if data:
            self.received(data)
        if records and not records[-1]:
            self.close()
            return
        if self._transport is not None and self._outgoing.pending:
            self._transport.write(self._outgoing.read())
        if self._tls_error is not None:
            self._resolve_ready(self._tls_error)
            self.close()

    def _resolve_ready(self, error: Exception | None) -> None:
        if not self.ready.done():
            if error is None:
                self.ready.set_result(None)
            else:
                self.ready.set_exception(error)
                self.ready.exception()  # marks the exception as retrieved if no task waits any more


# -- pooled connection -------------------------------------------------------------------------------------------------

MAX_HEAD: Final = 1 << 16
_LINE_END: Final = b"\r\n"
#: The headers that are parsed; all others are ignored.
_HEADERS: Final = re.compile(
    rb"\r\n(connection|content-encoding|content-length|retry-after|transfer-encoding)"
    rb"[ \t]*:[ \t]*([^\r\n]*?)[ \t]*(?=\r\n|$)",
    re.IGNORECASE,
)
#: The start of a response; the status codes of responses without a body; and the length of a body, in lower case.
_VERSION: Final = b"HTTP/1.1 "
_BODILESS: Final = frozenset([b"204", b"304"])
_LENGTH: Final = b"\r\ncontent-length:"
_MOST_DIGITS: Final = 15
#: The statuses of the usual success.
_SUCCESS: Final = frozenset([200, 201])
NEVER: Final = float("inf")
#: The error of a response that ends before its body does.
CUT_OFF: Final = "the response was cut off"


class Reply(NamedTuple):
    """A response. ``phrase`` is the status text; ``headers`` are the parsed headers, in lower case."""

    status: int
    phrase: str
    headers: dict[str, str]
    body: bytes


class ResponseHandler(Protocol):
    """Gets the responses to requests, each of which has an index. The methods must not raise.

    ``is_brief``: only the fact of a usual success matters, not its body.
    """

    @property
    def is_brief(self) -> bool: ...
    def succeeded(self, which: Sequence[int], status: int) -> None:
        """Requests of brief answers have succeeded with a status of 200 or 201."""

    def ended(self, at: int, answer: Reply | MoorageError) -> None:
        """A request has any other response, or there is none."""


#: A request whose response is pending.
Pending: TypeAlias = tuple[ResponseHandler, int]


class UnsentError(ClusterError):
    """The server closed an idle connection without a response, most likely before it received the request."""


class PooledConnection(Channel):
    """One pooled connection. ``deadline`` is when the pending responses are due, on the loop's clock.

    ``on_idle`` is called when the last pending request has its response or has failed.
    """

    def __init__(
        self, tls: ssl.SSLContext | None, server_name: str | None, session: ssl.SSLSession | None,
        on_idle: Callable[[PooledConnection], None],
    ) -> None:  # fmt: skip
        super().__init__(tls, server_name, session)
        self.idle_since = 0.0
        self.deadline = NEVER
        self._on_idle = on_idle
        self._timeout_s = 0.0
        #: True once a request has got its response or failed.
        self.used = False
        #: True once a part of a response has arrived since the connection was idle.
        self._has_data = False
        self._pending: deque[Pending] = deque()
        self._received = bytearray()
        self._most = 0
        self._head: tuple[int, str, dict[str, str]] | None = None
        self._parts: list[bytes] = []
        self._chunks = ChunkedBody()
        self._size = 0
        self._keep_alive = True

    @property
    def usable(self) -> bool:
        # Unsolicited data would be taken for the response to the next request.
        return self._keep_alive and not self._received and self.is_open

    def close(self) -> None:
        self._keep_alive = False
        super().close()

    def send(self, requests: bytes, pending: Iterable[Pending], most: int, deadline: float, timeout_s: float) -> None:
        """Send the bytes of one or more requests; ``pending`` has an item for each.

        A request ends with a ClusterError if the connection ends first, ``deadline`` passes, or the response is longer than
        ``most`` bytes or not HTTP. Call this only while the connection is idle.

        Raises  OSError if the requests cannot be sent; no answers are called then
        """
        self.deadline, self._timeout_s, self._most = deadline, timeout_s, most
        self._has_data = False
        self._forget_response()
        self.send_message(requests)
        self._pending.extend(pending)

    def time_out(self) -> None:
        """Fail the pending requests, because their deadline has passed."""
        self._fail(ClusterError(f"no answer within {self._timeout_s:g}s"))

    def _fail(self, error: ClusterError) -> None:
        """Close the connection and fail all pending responses."""
        self.close()
        pending, self._pending = self._pending, deque()
        if pending:
            self._end_use()
        for answers, at in pending:
            answers.ended(at, error)

    def _answer(self, reply: Reply) -> None:
        """Pass on the response to the oldest request."""
        answers, at = self._pending.popleft()
        if not self._pending:
            self._end_use()
        answers.ended(at, reply)

    def _end_use(self) -> None:
        self.deadline, self.used = NEVER, True
        self._on_idle(self)

    def _forget_response(self) -> None:
        self._head, self._parts, self._size, self._chunks = None, [], 0, ChunkedBody()

    # -- called by Channel ---------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        if not self._pending:
            self._received += data
            self.close()
            return
        self._has_data = True
        at = 0
        if not self._received and self._head is None:
            at = self._take_simple(data)
            if at == len(data):
                return
        self._received += data[at:]
        try:
            self._take_others()
        except (ValueError, IndexError) as error:
            self._fail(ClusterError(f"the answer is not HTTP: {error}"))

    def _take_simple(self, data: bytes) -> int:
        """Pass on the complete responses in the usual form at the start of the data; return the index of the rest."""
        at, size, pending = 0, len(data), self._pending
        ended: list[tuple[ResponseHandler, list[int], Reply | int]] = []
        while pending and at < size:
            found = _usual(data, at, self._most)
            if found is None:
                break
            status, body_at, end = found
            answers, index = pending.popleft()
            if not (answers.is_brief and status in _SUCCESS):
                ended.append((answers, [index], _simple_reply(data, at, body_at, end)))
            elif ended and ended[-1][0] is answers and ended[-1][2] == status:
                ended[-1][1].append(index)
            else:
                ended.append((answers, [index], status))
            at = end
        if ended and not pending:
            if at < size:
                self._received += data[at:]  # unsolicited: the connection is not used again
                self.close()
                at = size
            self._end_use()
        _pass_on(ended)
        return at

    def _take_others(self) -> None:
        """Parse the data received so far, and pass on each response that is complete.

        Raises  ValueError, IndexError if it is not HTTP
        """
        while self._pending and (self._received or self._head is not None):
            body = self._read()
            if self._size > self._most:
                self._fail(ClusterError(f"the answer is longer than {self._most} bytes"))
            elif body is None:
                return
            elif not self._keep_alive and len(self._pending) > 1:
                self._complete(body)
                self._fail(UnsentError("Server disconnected"))
            else:
                self._complete(body)

    def closed(self, error: Exception | None) -> None:
        self._keep_alive = False
        if not self._pending:
            return
        if error is None and self._head is not None and not _is_framed(self._head[2]):
            self._complete(bytes(self._received))
        if self.used and not self._has_data:
            self._fail(UnsentError("Server disconnected"))
        elif self._head is not None:
            self._fail(ClusterError(CUT_OFF))
        else:
            self._fail(ClusterError(str(error or "") or "Server disconnected"))

    def _complete(self, body: bytes) -> None:
        if self._head is not None:
            reply = Reply(*self._head, body)
            self._forget_response()
            self._answer(reply)

    # -- parsing -------------------------------------------------------------------------------------------------------

    def _read(self) -> bytes | None:
        """Parse the data received so far, and return the body once it is complete.

        Raises  ValueError, IndexError if it is not HTTP
        """
        while self._head is None:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                if len(self._received) > MAX_HEAD:
                    raise ValueError("its head does not end")
                return None
            version, status, phrase, headers = parse_head(bytes(self._received[:end]))
            del self._received[: end + 4]
            if status >= 200:  # 1xx responses only announce the final one
                self._head = status, phrase, headers
                self._keep_alive = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        return self._body(self._head[0], self._head[2])

    def _body(self, status: int, headers: dict[str, str]) -> bytes | None:
        if status in {204, 304}:
            return b""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            self._parts.append(self._chunks.taken(bytes(self._received)))
            self._size, self._received = self._chunks.size, bytearray(self._chunks.after)
            return b"".join(self._parts) if self._chunks.ended else None
        length = headers.get("content-length")
        if length is None:
            self._keep_alive, self._size = False, len(self._received)
            return None
        wanted = self._size = parse_number(length, 10)
        if len(self._received) < wanted:
            return None
        body = bytes(self._received[:wanted])
        del self._received[:wanted]
        return body


def _pass_on(ended: Sequence[tuple[ResponseHandler, list[int], Reply | int]]) -> None:
    """Pass on responses in order: a status for several successes of the same answers, or a reply."""
    for answers, which, found in ended:
        if isinstance(found, Reply):
            answers.ended(which[0], found)
        else:
            answers.succeeded(which, found)


def _usual(data: bytes, at: int, most: int) -> tuple[int, int, int] | None:
    """Return the status of a response in the usual form, and the indexes of its body and its end.

    The usual form is complete, with one Content-Length, and keeps the connection. None for any other, which ``_read`` parses.
    """
    end = data.find(b"\r\n\r\n", at)
    if end < 0 or not data.startswith(_VERSION, at):
        return None
    head = data[at : end + 2].lower()
    status, start = head[9:12], head.find(_LENGTH)
    if start < 0 or head.find(_LENGTH, start + 1) >= 0 or not status.isdigit() or status < b"200" or status in _BODILESS:
        return None
    if head[12:13] != b" " or b"\r\nconnection" in head or b"\r\ntransfer-" in head or b"\r\nretry-" in head:
        return None
    if b"\r\ncontent-encoding" in head:
        return None
    start += len(_LENGTH)
    length = head[start : head.find(b"\r\n", start)].strip(b" \t")
    if not length.isdigit() or len(length) > _MOST_DIGITS:
        return None
    size = int(length)
    body_at = end + 4
    return None if size > most or len(data) < body_at + size else (int(status), body_at, body_at + size)


def _simple_reply(data: bytes, at: int, body_at: int, end: int) -> Reply:
    """Return a response in the usual form, with the indexes that ``_usual`` found."""
    line_end = data.find(b"\r\n", at)
    phrase = data[at + 13 : line_end].decode("latin-1")
    return Reply(int(data[at + 9 : at + 12]), phrase, {"content-length": str(end - body_at)}, data[body_at:end])


class ChunkedBody:
    """Takes the frames of chunks away. ``size``: of all chunks that have begun.

    ``ended`` after the last chunk and its trailer; ``after``: what was received since
    """

    def __init__(self) -> None:
        self.ended = False
        self.size = 0
        self.after = b""
        self._received = bytearray()
        self._is_last = False
        #: The bytes of the current chunk that are to come, with the line end after it; 0 between chunks.
        self._left = 0

    def taken(self, data: bytes) -> bytes:
        """Return what the chunks hold as far as it has arrived.

        Raises  ValueError for what is not in chunks
        """
        received, at, parts = self._received, 0, []
        received += data
        while not self.ended and at < len(received):
            if self._left > len(_LINE_END):
                parts.append(bytes(received[at : at + self._left - len(_LINE_END)]))
                at, self._left = at + len(parts[-1]), self._left - len(parts[-1])
                continue
            end = received.find(_LINE_END, at)
            if self._left and end != at and len(received) - at >= self._left:
                raise ValueError("a chunk is longer than it says")
            if end < 0:
                break
            if self._left:
                self._left = 0
            elif self._is_last:
                self.ended = end == at  # the empty line after the trailer
            else:
                length = parse_number(received[at:end].partition(b";")[0].decode("ascii").strip(), 16)
                self._is_last, self._left = length == 0, length and length + len(_LINE_END)
                self.size += length
            at = end + len(_LINE_END)
        del received[:at]
        if self.ended:
            self.after, self._received = bytes(received), bytearray()
        elif len(received) > MAX_HEAD:
            raise ValueError("a chunk has no length")
        return b"".join(parts)


def parse_head(raw: bytes) -> tuple[str, int, str, dict[str, str]]:
    """Return the version, status, phrase and parsed headers of a response, from its head without the empty line.

    Raises  ValueError if it is not HTTP
    """
    first = raw.partition(b"\r\n")[0].decode("latin-1")
    version, _, finish = first.partition(" ")
    code, _, phrase = finish.partition(" ")
    if version not in {"HTTP/1.1", "HTTP/1.0"} or len(code) != 3:
        raise ValueError(f"it begins with {first[:40]!r}")
    found = _HEADERS.findall(raw)
    headers = {name.decode().lower(): value.decode("latin-1") for name, value in found}
    if len(headers) < len(found):
        raise ValueError("a header that stands once stands twice")
    return version, parse_number(code, 10), phrase, headers


def parse_number(text: str, base: int) -> int:
    """Return a length or a status.

    Raises  ValueError
    """
    if not text.isalnum() or not text.isascii() or len(text) > _MOST_DIGITS:
        raise ValueError(f"{text[:40]!r} is no length")
    return int(text, base)


def _is_framed(headers: dict[str, str]) -> bool:
    return "content-length" in headers or "transfer-encoding" in headers
