"""One pooled connection: requests in a row, and their responses in the same order.

A response is parsed as it arrives: status, headers, and a body with a length, in chunks, or up to the end of the connection.
Several requests may be sent at once: the server answers them one after the other. If the connection ends, each request still
without a response fails.
"""

from __future__ import annotations

import re
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from moorage.client.channel import Channel
from moorage.errors import ClusterError, MoorageError

__all__ = ["NEVER", "Answer", "PooledConnection", "Reply", "UnsentError"]

_MAX_HEAD: Final = 1 << 16
#: The headers that are parsed; all others are ignored.
_HEADERS: Final = re.compile(
    rb"\r\n(connection|content-length|retry-after|transfer-encoding)[ \t]*:[ \t]*([^\r\n]*?)[ \t]*(?=\r\n|$)", re.IGNORECASE
)
#: Start of a response with a body.
_STATUS: Final = re.compile(rb"HTTP/1\.1 (?!204|304)([2-9]\d\d) ([^\r\n]*)").match
NEVER: Final = float("inf")


class Reply(NamedTuple):
    """A response. ``phrase`` is the status text; ``headers`` are the parsed headers, in lower case."""

    status: int
    phrase: str
    headers: dict[str, str]
    body: bytes


class UnsentError(ClusterError):
    """The server closed an idle connection without a response, most likely before it received the request."""


#: Called once with the response to a request, or with the error if there is none. It must not raise.
Answer: TypeAlias = Callable[[Reply | MoorageError], None]


class PooledConnection(Channel):
    """One pooled connection. ``deadline`` is when the pending responses are due, on the loop's clock.

    ``on_idle`` is called when the last pending request has its response or has failed.
    """

    def __init__(
        self,
        tls: ssl.SSLContext | None,
        server_name: str | None,
        session: ssl.SSLSession | None,
        on_idle: Callable[[PooledConnection], None],
    ) -> None:
        super().__init__(tls, server_name, session)
        self.idle_since = 0.0
        self.deadline = NEVER
        self._on_idle = on_idle
        self._timeout_s = 0.0
        #: True once a request has got its response or failed.
        self.used = False
        #: True once a part of a response has arrived since the connection was idle.
        self._has_data = False
        self._pending: deque[Answer] = deque()
        self._received = bytearray()
        self._most = 0
        self._head: tuple[int, str, dict[str, str]] | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._keep_alive = True

    @property
    def usable(self) -> bool:
        # Unsolicited data would be taken for the response to the next request.
        return self._keep_alive and not self._received and self.is_open

    def close(self) -> None:
        self._keep_alive = False
        super().close()

    def send(self, requests: bytes, answers: Sequence[Answer], most: int, deadline: float, timeout_s: float) -> None:
        """Send the bytes of one or more requests. ``answers`` has a callback for each, which gets its response.

        A callback gets a ClusterError instead if the connection ends first, ``deadline`` passes, or the response is longer than
        ``most`` bytes or not HTTP. Call this only while the connection is idle.

        Raises  OSError if the requests cannot be sent; no callback is called then
        """
        self.deadline, self._timeout_s, self._most = deadline, timeout_s, most
        self._has_data = False
        self._forget_response()
        self.send_message(requests)
        self._pending.extend(answers)

    def time_out(self) -> None:
        """Fail the pending requests, because their deadline has passed."""
        self._fail(ClusterError(f"no answer within {self._timeout_s:g}s"))

    def _fail(self, error: ClusterError) -> None:
        """Close the connection and fail all pending responses."""
        self.close()
        pending, self._pending = self._pending, deque()
        if pending:
            self._end_use()
        for answer in pending:
            answer(error)

    def _answer(self, reply: Reply) -> None:
        """Pass on the response to the oldest request."""
        answer = self._pending.popleft()
        if not self._pending:
            self._end_use()
        answer(reply)

    def _end_use(self) -> None:
        self.deadline, self.used = NEVER, True
        self._on_idle(self)

    def _forget_response(self) -> None:
        self._head, self._parts, self._size = None, [], 0

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
        at = 0
        while self._pending and at < len(data):
            found = _simple_reply(data, at, self._most)
            if found is None:
                return at
            reply, at = found
            if at < len(data) and len(self._pending) == 1:
                self._received += data[at:]  # unsolicited: the connection is not used again
                self.close()
                at = len(data)
            self._answer(reply)
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
                if len(self._received) > _MAX_HEAD:
                    raise ValueError("its head does not end")
                return None
            version, status, phrase, headers = _head(bytes(self._received[:end]))
            del self._received[: end + 4]
            if status >= 200:  # 1xx responses only announce the final one
                self._head = status, phrase, headers
                self._keep_alive = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        return self._body(self._head[0], self._head[2])

    def _body(self, status: int, headers: dict[str, str]) -> bytes | None:
        if status in {204, 304}:
            return b""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._chunks()
        length = headers.get("content-length")
        if length is None:
            self._keep_alive, self._size = False, len(self._received)
            return None
        wanted = self._size = _number(length, 10)
        if len(self._received) < wanted:
            return None
        body = bytes(self._received[:wanted])
        del self._received[:wanted]
        return body

    def _chunks(self) -> bytes | None:
        """Parse complete chunks, and return the body after the last one."""
        while True:
            end = self._received.find(b"\r\n")
            if end < 0:
                if len(self._received) > _MAX_HEAD:
                    raise ValueError("a chunk has no length")
                return None
            length = _number(self._received[:end].partition(b";")[0].decode("ascii").strip(), 16)
            if length == 0:
                return self._trailer(end)
            if self._size + length > self._most:
                self._size += length
                return None
            if len(self._received) < end + length + 4:
                return None
            self._parts.append(bytes(self._received[end + 2 : end + 2 + length]))
            self._size += length
            if self._received[end + 2 + length : end + length + 4] != b"\r\n":
                raise ValueError("a chunk is longer than it says")
            del self._received[: end + length + 4]

    def _trailer(self, start: int) -> bytes | None:
        end = self._received.find(b"\r\n\r\n", start)
        if end < 0:
            return None
        del self._received[: end + 4]
        return b"".join(self._parts)


def _simple_reply(data: bytes, at: int, most: int) -> tuple[Reply, int] | None:
    """Return a response in the usual form (complete, with Content-Length, keep-alive), and the index of its end.

    Return None for any other response, which ``_read`` parses.
    """
    begins, end = _STATUS(data, at), data.find(b"\r\n\r\n", at)
    if begins is None or end < 0:
        return None
    found = _HEADERS.findall(data, at, end)
    if len(found) != 1 or found[0][0].lower() != b"content-length":
        return None
    length = found[0][1]
    if not length.isdigit() or len(length) > 15 or int(length) > most or len(data) < end + 4 + int(length):
        return None
    ends = end + 4 + int(length)
    headers = {"content-length": length.decode()}
    return Reply(int(begins[1]), begins[2].decode("latin-1"), headers, data[end + 4 : ends]), ends


def _head(raw: bytes) -> tuple[str, int, str, dict[str, str]]:
    first = raw.partition(b"\r\n")[0].decode("latin-1")
    version, _, finish = first.partition(" ")
    code, _, phrase = finish.partition(" ")
    if version not in {"HTTP/1.1", "HTTP/1.0"} or len(code) != 3:
        raise ValueError(f"it begins with {first[:40]!r}")
    found = _HEADERS.findall(raw)
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
