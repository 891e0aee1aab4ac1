"""One TCP connection, with TLS where the server wants it: bytes in, bytes out.

asyncio brings TLS of its own, which does for each message several times the work that encrypting it is: it is made for streams
of any length and for callers that must be slowed down. Short requests and answers need neither. What is received goes into
OpenSSL's buffer and comes out as clear text; what is said is encrypted and handed to the connection in one piece. Who the
server is, OpenSSL checks as ever, by the settings it is given.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final, cast

__all__ = ["Channel"]

#: A TLS record holds no more than this.
_ROOM: Final = 16 << 10


class Channel(asyncio.BufferedProtocol):
    """Speaks over one connection. ``ready`` is done once one may, or holds why one cannot.

    ``session`` is that of an earlier connection to the same server, which need not prove again who it is. Subclasses say what
    becomes of what is ``heard``, and of the connection's end.
    """

    def __init__(self, tls: ssl.SSLContext | None, server_name: str | None, session: ssl.SSLSession | None = None) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._room = memoryview(bytearray(_ROOM))
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        if tls is not None:
            self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name, session=session)
        self._fault: Exception | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def session(self) -> ssl.SSLSession | None:
        """What a further connection to the same server can begin with; complete once something was heard."""
        return None if self._tls is None else self._tls.session

    def close(self) -> None:
        """Hang up at once."""
        if self._transport is not None:
            self._transport.abort()

    def say(self, message: bytes) -> None:
        """Send a message. If the connection is lost, ``ended`` tells.

        Raises  OSError where TLS fails
        """
        if self._transport is None:
            return
        if self._tls is not None:
            said = self._tls.write(message)
            while said < len(message):  # a record at a time
                said += self._tls.write(memoryview(message)[said:])
            message = self._outgoing.read()
        self._transport.write(message)

    def heard(self, data: bytes) -> None:
        """Something was received."""
        raise NotImplementedError

    def ended(self, error: Exception | None) -> None:
        """The connection is over; ``error`` None if the other side, or this one, just ended it."""
        raise NotImplementedError

    # -- what asyncio calls ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # of other loops, transports may be of a class of their own
        if self._tls is None:
            self._settle(None)
        else:
            self._advance(self._tls)

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        if self._tls is None:
            self.heard(bytes(self._room[:nbytes]))
            return
        self._incoming.write(self._room[:nbytes])
        self._advance(self._tls)

    def connection_lost(self, exc: Exception | None) -> None:
        error = exc or self._fault
        self._settle(error or ConnectionResetError("the connection ended before it was secured"))
        self.ended(error)

    # -- TLS -----------------------------------------------------------------------------------------------------------------

    def _advance(self, tls: ssl.SSLObject) -> None:
        """Take in what was received, and send what TLS itself has to say to it."""
        try:
            if not self.ready.done():
                tls.do_handshake()
                self._settle(None)
            while self._incoming.pending:
                data = tls.read(_ROOM)
                if not data:  # the other side says good-bye
                    self.close()
                    return
                self.heard(data)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._fault = error
        if self._transport is not None and self._outgoing.pending:
            self._transport.write(self._outgoing.read())
        if self._fault is not None:
            self._settle(self._fault)
            self.close()

    def _settle(self, error: Exception | None) -> None:
        if not self.ready.done():
            if error is None:
                self.ready.set_result(None)
            else:
                self.ready.set_exception(error)
                self.ready.exception()  # whoever gave up waiting does not want to know
