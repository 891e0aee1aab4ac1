"""One pooled connection: requests in a row, and their responses in the same order.

httptools (the parser of Node.js) parses a response as it arrives. Several requests may be sent at once: the server answers them
one after the other. If the connection ends, each request still without a response fails.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from moorage.errors import ClusterError, MoorageError

MAX_HEAD: Final = 1 << 16
#: The headers that are read; all others are ignored.
_HEADERS: Final = frozenset([b"content-encoding", b"content-length", b"retry-after", b"transfer-encoding"])


class Reply(NamedTuple):
    """A response. ``phrase`` is the status text; ``headers`` are the headers that are read, in lower case."""

    status: int
    phrase: str
    headers: dict[str, str]
    body: bytes


class ResponseParser:
    """Parses responses in a row. ``completed`` gets each, and whether the connection may be used for another.

    ``head`` is the response that is arriving, without its body, ``parts`` what has arrived of the body, ``size`` how long the
    body is as far as is known. ``begun``: a response is arriving.
    """

    def __init__(self, completed: Callable[[Reply, bool], None]) -> None:
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self._completed = completed
        self._forget()

    def _forget(self) -> None:
        self.head: Reply | None = None
        self.parts: list[bytes] = []
        self.size = 0
        self.begun = False
        self._phrase = b""
        self._headers: dict[str, str] = {}
        self._head_size = 0

    def feed(self, data: bytes) -> None:
        """Parse more data.

        Raises  ValueError if it is not HTTP
        """
        is_first = not self.begun
        self._head_size += len(data)
        try:
            if self._parser is not None:
                self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            first = data.partition(b"\r\n")[0]
            starts = is_first and not first.startswith(b"HTTP/1.")
            raise ValueError(f"it begins with {first[:40].decode('latin-1')!r}" if starts else str(error)) from None
        if self.head is not None:
            self._head_size = 0
        elif self._head_size > MAX_HEAD:
            raise ValueError("its head does not end")

    def close(self) -> None:
        """Cut the cycles of references to the parser. Nothing is parsed from now on."""
        self._parser = None
        self._completed = _ignore

    def take(self) -> bytes:
        """Return what has arrived of the body, and forget it."""
        taken, self.parts = b"".join(self.parts), []
        return taken

    def end(self) -> bool:
        """Complete the response at the end of the connection, and return True, if only that ends it."""
        if self.head is None or "content-length" in self.head.headers or "transfer-encoding" in self.head.headers:
            return False
        self._complete(self.head, keep_alive=False)
        return True

    def _complete(self, head: Reply, *, keep_alive: bool) -> None:
        reply = Reply(head.status, head.phrase, head.headers, self.take())
        self._forget()
        self._completed(reply, keep_alive)

    # -- called by httptools -------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self.begun = True

    def on_status(self, part: bytes) -> None:
        self._phrase += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if (lower := name.lower()) in _HEADERS:
            self._headers[lower.decode()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = 0 if self._parser is None else self._parser.get_status_code()
        if status >= 200:  # 1xx responses only announce the final one
            self.head = Reply(status, self._phrase.decode("latin-1"), self._headers, b"")
            self.size = int(self._headers.get("content-length", 0))

    def on_body(self, part: bytes) -> None:
        self.parts.append(part)
        if "content-length" not in self._headers:
            self.size += len(part)

    def on_message_complete(self) -> None:
        if self.head is None:
            self._forget()
        else:
            self._complete(self.head, keep_alive=self._parser is not None and self._parser.should_keep_alive())


def _ignore(reply: Reply, keep_alive: bool) -> None:
    """Ignore a response."""


#: The statuses of the usual success.
_SUCCESS: Final = frozenset([200, 201])
NEVER: Final = float("inf")
#: The error of a response that ends before its body does.
CUT_OFF: Final = "the response was cut off"


class ResponseHandler(Protocol):
    """Gets the responses to requests, each of which has an index. The methods must not raise.

    ``is_brief``: only the fact of a usual success matters, not its body.
    """

    @property
    def is_brief(self) -> bool: ...
    def succeeded(self, which: Sequence[int], status: int) -> None:
        """Note that requests with short answers succeeded: their status was 200 or 201."""

    def ended(self, at: int, answer: Reply | MoorageError) -> None:
        """A request has any other response, or there is none."""


#: A request whose response is pending.
Pending: TypeAlias = tuple[ResponseHandler, int]


class UnsentError(ClusterError):
    """The server closed an idle connection without a response, most likely before it received the request."""


class PooledConnection(asyncio.Protocol):
    """One pooled connection. ``deadline`` is when the pending responses are due, on the loop's clock.

    ``on_idle`` is called when the last pending request has its response or has failed.
    """

    def __init__(self, on_idle: Callable[[PooledConnection], None]) -> None:
        self.idle_since = 0.0
        self.deadline = NEVER
        self._on_idle = on_idle
        self._transport: asyncio.Transport | None = None
        self._timeout_s = 0.0
        #: True once a request has got its response or failed.
        self._used = False
        #: True once a part of a response has arrived since the connection was idle.
        self._has_data = False
        self._pending: deque[Pending] = deque()
        self._responses = ResponseParser(self._complete)
        #: The requests that have ended, with their responses, or the status for successes of the same answers.
        self._ended: list[tuple[ResponseHandler, list[int], Reply | int]] = []
        self._most = 0
        self._is_too_long = False
        self._keep_alive = True

    @property
    def usable(self) -> bool:
        return self._keep_alive and self._transport is not None and not self._transport.is_closing()

    def answers(self, handler: ResponseHandler) -> bool:
        """Return whether a response to a request of ``handler`` is pending."""
        return any(one is handler for one, _ in self._pending)

    def close(self) -> None:
        """Abort the connection."""
        self._keep_alive = False
        if self._transport is not None:
            self._transport.abort()

    def send(self, requests: bytes, pending: Iterable[Pending], most: int, deadline: float, timeout_s: float) -> None:
        """Send the bytes of one or more requests; ``pending`` has an item for each.

        A request ends with a ClusterError if the connection ends first, ``deadline`` passes, or the response is longer than
        ``most`` bytes or not HTTP. Call this only while the connection is idle.
        """
        self.deadline, self._timeout_s, self._most = deadline, timeout_s, most
        self._has_data = False
        self._pending.extend(pending)
        if self._transport is not None:
            self._transport.write(requests)

    def time_out(self) -> None:
        """Fail the pending requests, because their deadline has passed."""
        self._pass_on(ClusterError(f"no answer within {self._timeout_s:g}s"))

    def _complete(self, reply: Reply, keep_alive: bool) -> None:
        """Note the response to the oldest request."""
        if not self._pending or len(reply.body) > self._most:
            self._keep_alive, self._is_too_long = False, bool(self._pending)
            return
        self._keep_alive = self._keep_alive and keep_alive
        answers, at = self._pending.popleft()
        ended = self._ended
        if not (answers.is_brief and reply.status in _SUCCESS):
            ended.append((answers, [at], reply))
        elif ended and ended[-1][0] is answers and ended[-1][2] == reply.status:
            ended[-1][1].append(at)
        else:
            ended.append((answers, [at], reply.status))

    def _pass_on(self, fault: ClusterError | None = None) -> None:
        """Pass on the responses that have arrived, in order. With a fault, close the connection and fail the other requests."""
        ended, self._ended = self._ended, []
        failed: deque[Pending] = deque()
        if fault is not None:
            self.close()
            failed, self._pending = self._pending, failed
        if (ended or failed) and not self._pending:
            self.deadline, self._used = NEVER, True
            self._on_idle(self)
        for answers, which, found in ended:
            if isinstance(found, Reply):
                answers.ended(which[0], found)
            else:
                answers.succeeded(which, found)
        if fault is not None:
            for answers, at in failed:
                answers.ended(at, fault)

    # -- called by asyncio ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # other event loops may have their own transport classes

    def data_received(self, data: bytes) -> None:
        if not self._pending:  # unsolicited data would be taken for the response to the next request
            self.close()
            return
        self._has_data = True
        fault: ClusterError | None = None
        try:
            self._responses.feed(data)
        except ValueError as error:
            fault = ClusterError(f"the answer is not HTTP: {error}")
        if self._is_too_long or self._responses.size > self._most:
            fault = ClusterError(f"the answer is longer than {self._most} bytes")
        elif not self._keep_alive and self._pending:
            fault = UnsentError("Server disconnected")
        elif not self._pending and self._responses.begun:  # unsolicited
            self._keep_alive = False
        self._pass_on(fault)

    def connection_lost(self, exc: Exception | None) -> None:
        self._keep_alive = False
        try:
            self._end(exc)
        finally:  # else the connection would live, with its buffers, until a collection of cycles
            self._transport = None
            self._responses.close()

    def _end(self, exc: Exception | None) -> None:
        """Fail the requests whose responses have not arrived, or that the end of the connection completes."""
        if exc is None and self._pending and self._responses.end():
            self._pass_on()
        if self._used and not self._has_data:
            self._pass_on(UnsentError("Server disconnected"))
        elif self._responses.head is not None:
            self._pass_on(ClusterError(CUT_OFF))
        else:
            self._pass_on(ClusterError(str(exc or "") or "Server disconnected"))
