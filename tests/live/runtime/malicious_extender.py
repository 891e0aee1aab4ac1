"""An extender that means harm, over plain sockets: what it does to a connection, or replies, depends on the name of the pod."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import struct
from contextlib import asynccontextmanager, suppress

MIB = 1 << 20
#: How long one that never answers goes on.
PATIENCE_S = 20


def head(*fields, status="200 OK", size=None):
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", *fields]
    lines += [f"Content-Length: {size}"] if size is not None else []
    return "\r\n".join([*lines, "", ""]).encode()


CHUNKED = head("Transfer-Encoding: chunked")


async def pump(writer, piece, pause_s=0.0):
    """Send a piece over and over, until the other side hangs up."""
    while True:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(pause_s)


def fields(count):
    return "".join(f"X-{at}: y\r\n" for at in range(count)).encode()


def sending(*pieces, then=b"", pause_s=0.0, close=False):
    """Send these pieces, then another again and again."""

    async def act(writer):
        for piece in pieces:
            writer.write(piece)
        await writer.drain()
        if then:
            await pump(writer, then, pause_s)
        if close:
            raise ConnectionError

    return act


def answering(body):
    """Send a reply as it should be sent."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return sending(head(size=len(data)), data)


async def reset(writer):
    writer.write(head(size=100) + b'{"NodeNames": ["n')
    await writer.drain()
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def silent(writer):
    await asyncio.sleep(PATIENCE_S)


FINE = b'{"NodeNames": ["n1", "n2"]}'
ZIPPED = gzip.compress(bytes(8 * MIB))
EVIL = "\x1b[2J\u202eevil\r\nE0101 00:00:00.000000 1 forged.go:1] \x00\x07\x9b"

#: What becomes of the connection. None of it is a reply.
ON_THE_WIRE = {
    "chunks-without-end": sending(CHUNKED, then=b"10000\r\n" + bytes(65536) + b"\r\n"),
    "a-gibibyte": sending(head(size=1 << 30), then=bytes(MIB)),
    "tiny-chunks": sending(CHUNKED, then=b"1\r\n \r\n" * 500, pause_s=0.005),
    "body-drips": sending(head(size=100), then=b" ", pause_s=0.05),
    "head-drips": sending(b"HTTP/1.1 200 OK\r\n", then=b"A: b\r\n", pause_s=0.05),
    "silent": silent,
    "closes": sending(close=True),
    "closes-half-way": sending(head(size=100), b'{"NodeNames": ["n', close=True),
    "resets-half-way": reset,
    "thousands-of-headers": sending(head(*["X: y"] * 20_000, size=len(FINE)) + FINE),
    "headers-without-end": sending(b"HTTP/1.1 200 OK\r\n", then=fields(1000)),
    "a-long-header": sending(head("X: " + "y" * 4 * MIB, size=len(FINE)) + FINE),
    "a-long-status": sending(head(status="200 " + "O" * 4 * MIB, size=len(FINE)) + FINE),
    "continues-without-end": sending(then=head(status="100 Continue") * 20, pause_s=0.005),
    "switches-protocols": sending(head("Upgrade: websocket", "Connection: upgrade", status="101 Switching Protocols")),
    "redirects": sending(head("Location: http://127.0.0.1:1/elsewhere", status="307 Temporary Redirect", size=0)),
    "a-length-and-chunks": sending(head("Transfer-Encoding: chunked", size=len(FINE)) + FINE),
    "a-negative-length": sending(head("Content-Length: -5") + FINE),
    "two-lengths": sending(head("Content-Length: 5", size=len(FINE)) + FINE),
    "no-chunk": sending(CHUNKED + b"zz\r\n"),
    "a-huge-chunk": sending(CHUNKED + b"FFFFFFFFFFFFFFFFFF\r\n", then=bytes(65536)),
    "chunk-extension-without-end": sending(CHUNKED + b"5;", then=b"a" * 65536),
    "trailers-without-end": sending(CHUNKED + b"0\r\n", then=fields(1000)),
    "no-http": sending(b"\x00\xff\x01 " + EVIL.encode() + b"\r\n\r\n"),
    "http-2": sending(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "only-a-body": sending(FINE, close=True),
    "error-page": sending(head(status=f"500 {'x' * 500}", size=4 * MIB) + b"e" * 4 * MIB),
}

#: What is said, in a reply that is sent as it should be.
SAID = {
    "html": b"<html>It works!</html>",
    "empty": b"",
    "null-names": {"NodeNames": ["n1", None]},
    "a-list": [],
    "a-number": 10**400,
    "names-are-numbers": {"NodeNames": [1, 2]},
    "names-are-nested": {"NodeNames": [[["n1"]]]},
    "unknown-nodes": {"NodeNames": [f"nowhere-{at}" for at in range(1000)]},
    "a-long-unknown-node": {"NodeNames": ["n" * 8 * MIB]},
    "an-evil-node": {"NodeNames": [EVIL]},
    "an-evil-error": {"Error": EVIL},
    "a-long-error": {"Error": "e" * 8 * MIB},
    "quotes": {"Error": '"\\' * MIB},
    "half-characters": b'{"Error": "\\ud800"}',
    "invalid-utf-8": b'{"NodeNames": ["\xff\xfe\x80"]}',
    "utf-16": '{"NodeNames": ["n1"]}'.encode("utf-16"),
    "zipped": ZIPPED,
    "nested": b"[" * 4 * MIB,
    "nested-and-left-aside": b'{"x": ' + b"[" * MIB + b"]" * MIB + b"}",
    "millions-of-values": b'{"x": [' + b"{}," * 4 * MIB + b"{}]}",
    "many-digits": b'{"x": ' + b"9" * MIB + b"}",
}

#: What is said of nodes that do not suit: refusals, which are no errors.
REFUSED = {
    "no-nodes": {},
    "evil-reasons": {"NodeNames": [], "FailedNodes": {"n1": EVIL, "n2": EVIL}},
    "long-reasons": {"NodeNames": [], "FailedNodes": {"n1": "x" * 4 * MIB, "n2": "y" * 4 * MIB}},
    "reasons-of-strangers": {"NodeNames": [], "FailedNodes": {f"nowhere-{at}": str(at) for at in range(50_000)}},
    "half-reasons": b'{"NodeNames": [], "FailedNodes": {"n1": "\\ud800", "\\udfff": "x"}}',
}

#: What is odd, and does no harm.
HARMLESS = {
    "twice": {"NodeNames": ["n1", "n1", "n2", "n2", "n1"]},
    "more-after-the-reply": FINE + b"}} and more",
    "unknown-fields": {"NodeNames": ["n1"], "Kubelet": EVIL, "FailedNodes": {"nowhere": EVIL}},
    "two-replies": None,
}

ANSWERS = {
    **ON_THE_WIRE,
    **{name: answering(body) for name, body in {**SAID, **REFUSED, **HARMLESS}.items()},
    "two-replies": sending(head(size=len(FINE)) + FINE + head(size=20) + b'{"Error": "poison"} '),
}


@asynccontextmanager
async def serving(answers, names):
    """Serve on a port of this machine. ``answers``: pod → what to do; others are let pass. ``names``: the pods asked about."""

    connections = {}

    async def serve(reader, writer):
        connections[writer] = asyncio.current_task()
        with suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            while True:
                begin = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                size = next(line for line in begin.split("\r\n") if line.startswith("content-length:")).split(":")[1]
                question = json.loads(await reader.readexactly(int(size)))
                name = question["Pod"]["metadata"]["name"]
                names.append(name)
                act = answers.get(name, answering({"NodeNames": question["NodeNames"]}))
                await asyncio.wait_for(act(writer), PATIENCE_S)
                await writer.drain()
        del connections[writer]
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 22)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer, task in connections.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*connections.values(), return_exceptions=True)
        await asyncio.sleep(0)
