"""Hostile requests over a socket, byte by byte: each gets its response and changes nothing."""

import asyncio
import json
import logging
import os
import random
import socket
import ssl
from collections import Counter
from contextlib import asynccontextmanager, suppress

import pytest

from moorage.api.documents.served_kinds import KINDS, REVIEWS
from moorage.basis.serving.certificate_authority import make_authority
from moorage.basis.serving.connections import MAX_FIELD, MAX_HEAD, MAX_LINE
from moorage.cluster.apiserver.access.authentication import Authenticator, User, make_authenticator
from moorage.cluster.apiserver.http.limits import ServerLimits
from moorage.cluster.apiserver.http.serve import open_store, serving
from moorage.cluster.apiserver.http.server import MAX_PARAMETERS

TOKEN = "a-token-for-tests"
HOST, MINE = "Host: localhost", f"Authorization: Bearer {TOKEN}"
BODY = b'{"metadata":{"name":"x"}}'
NAMESPACES = "POST /api/v1/namespaces HTTP/1.1"
ADMIN = User("admin", ("system:masters",))


def raw(line, *headers, body=b"", own=(HOST, MINE)):
    """Return the bytes of a request. ``own`` are the headers of a valid client."""
    return "\r\n".join([line, *own, *headers, "", ""]).encode("utf-8", "surrogateescape") + body


def sized(size, *headers, own=(HOST, MINE), body=BODY):
    return raw(NAMESPACES, f"Content-Length: {size}", *headers, own=own, body=body)


def chunked(body, coding="chunked"):
    return raw(NAMESPACES, f"Transfer-Encoding: {coding}", body=body)


@asynccontextmanager
async def a_server(limits=None, store=None, tls=None, guard=None):
    store = store or open_store(seed=1)
    guard = guard or Authenticator({TOKEN: ADMIN, "weak": User("weak")})
    async with serving(store, guard, tls=tls, limits=limits) as port:
        yield store, port


def split(data):
    """Return the codes of the complete responses in the received data, and their total size."""
    codes, at = [], 0
    while (end := data.find(b"\r\n\r\n", at)) >= 0:
        head = data[at:end].lower()
        size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        if len(data) < end + 4 + size:
            break
        codes.append(int(head[9:12]))
        at = end + 4 + size
    return codes


async def talk(port, request, answers=1, tls=None):
    """Send bytes; return the response codes and all received data, until the server is done or closes."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, limit=1 << 22, ssl=tls, server_hostname=tls and "localhost"
    )
    data = b""
    try:
        writer.write(request)
        async with asyncio.timeout(5):
            while len(split(data)) < answers and (more := await reader.read(1 << 16)):
                data += more
        async with asyncio.timeout(0.002):
            data += await reader.read(1 << 16)  # there should be no more
    except (ConnectionError, TimeoutError):
        pass
    finally:
        writer.close()
    return split(data), data


async def ask_in_turn(port, requests):
    """Return the response code of each request, over as few connections as the server allows."""
    codes, connection = [], None
    for request in requests:
        while True:
            reader, writer = connection or await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
            writer.write(request)
            try:
                async with asyncio.timeout(5):
                    head = await reader.readuntil(b"\r\n\r\n")
                    await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0))
            except (asyncio.IncompleteReadError, ConnectionError):
                assert connection is not None, "a new connection was closed without an answer"
                writer.close()
                connection = None
                continue
            break
        codes.append(int(head[9:12]))
        if codes[-1] == 413:  # the rest of the body is still awaited
            writer.close()
            connection = None
        else:
            connection = reader, writer
    if connection is not None:
        connection[1].close()
    return codes


#: Codes that are answered, and nothing is changed.
ATTACKS = {
    # -- where a body ends
    "a length and chunks": (raw(NAMESPACES, "Content-Length: 5", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"), [400]),
    "two lengths": (sized(5, "Content-Length: 6"), [400]),
    "the same length twice": (sized(25, "Content-Length: 25"), [400]),
    "a negative length": (sized(-1), [400]),
    "a length with a sign": (sized("+25"), [400]),
    "a length that is no number": (sized("0x19"), [400]),
    "ten gigabytes": (sized(10**10), [413]),
    "chunks of another name": (chunked(b"5\r\naaaaa\r\n0\r\n\r\n", "xchunked"), [400]),
    "chunks that are not last": (chunked(b"5\r\naaaaa\r\n0\r\n\r\n", "chunked, gzip"), [400]),
    "a chunk without a size": (chunked(b"zz\r\naaaaa\r\n0\r\n\r\n"), [400]),
    "a chunk of negative size": (chunked(b"-5\r\naaaaa\r\n0\r\n\r\n"), [400]),
    "a chunk larger than numbers": (chunked(b"FFFFFFFFFFFFFFFFFF\r\na\r\n0\r\n\r\n"), [400]),
    "a chunk longer than it says": (chunked(b"2\r\naaaaa\r\n0\r\n\r\n"), [400]),
    "too much in chunks": (chunked((b"100000\r\n" + b" " * (1 << 20) + b"\r\n") * 4 + b"0\r\n\r\n"), [413]),
    "a compressed body": (sized(25, "Content-Encoding: gzip"), [415]),
    "a request within a body": (sized(len(BODY), body=b" " * len(BODY) + raw("GET /version HTTP/1.1")), [400, 200]),
    # -- headers
    "a folded header": (raw("GET /api HTTP/1.1", "X-A: b\r\n c"), [400]),
    "lines without a return": (raw("GET /api HTTP/1.1").replace(b"\r\n", b"\n"), [400]),
    "a space before the colon": (raw("GET /api HTTP/1.1", "X-A : b"), [400]),
    "a zero in a header": (raw("GET /api HTTP/1.1", "X-A: b\0c"), [400]),
    "a return in a header": (raw("GET /api HTTP/1.1", "X-A: b\rX-B: c"), [400]),
    "a header of a megabyte": (raw("GET /api HTTP/1.1", "X-A: " + "x" * (1 << 20)), [431]),
    "a header one byte too long": (raw("GET /api HTTP/1.1", "X-A: " + "x" * (MAX_FIELD + 1)), [431]),
    "ten thousand headers": (raw("GET /api HTTP/1.1", *(f"X-{i}: 1" for i in range(10_000))), [431]),
    # -- the host
    "no host": (raw("GET /api HTTP/1.1", own=[MINE]), [400]),
    "two hosts": (raw("GET /api HTTP/1.1", "Host: evil.com"), [400]),
    "an empty host": (raw("GET /api HTTP/1.1", "Host:", own=[MINE]), [403]),
    "another host": (raw("GET /api HTTP/1.1", "Host: evil.com", own=[MINE]), [403]),
    "a host that only starts right": (raw("GET /api HTTP/1.1", "Host: 127.0.0.1.evil.com", own=[MINE]), [403]),
    "a host with a user": (raw("GET /api HTTP/1.1", "Host: localhost@evil.com", own=[MINE]), [403]),
    "a host with two ports": (raw("GET /api HTTP/1.1", "Host: evil.com:localhost:80", own=[MINE]), [403]),
    "another host in the line": (raw("GET http://evil.com/api HTTP/1.1"), [403]),
    "our host in the line": (raw("GET http://localhost/api HTTP/1.1"), [403]),
    # -- methods
    "an HTTP to come": (raw("GET /api HTTP/2.0"), [505]),
    "TRACE": (raw("TRACE /api/v1/pods HTTP/1.1"), [405]),
    "CONNECT": (raw("CONNECT localhost:80 HTTP/1.1"), [405]),
    "OPTIONS of all": (raw("OPTIONS * HTTP/1.1"), [405]),
    "another method in a header": (raw("GET /api/v1/namespaces/default HTTP/1.1", "X-HTTP-Method-Override: DELETE"), [200]),
    "a method of another case": (raw("get /api HTTP/1.1"), [400]),
    "an invalid method": (raw("G@T /api HTTP/1.1"), [400]),
    # -- pages elsewhere
    "a question before a page's request": (
        raw("OPTIONS /api/v1/pods HTTP/1.1", "Origin: https://evil.com", "Access-Control-Request-Method: POST"), [403],
    ),
    "the same of our own page": (
        raw("OPTIONS /api/v1/pods HTTP/1.1", "Origin: http://localhost", "Access-Control-Request-Method: POST"), [405],
    ),
    "no origin": (raw("GET /api HTTP/1.1", "Origin: null"), [403]),
    "a page of another site": (raw("GET /api HTTP/1.1", "Sec-Fetch-Site: cross-site"), [403]),
    "a page of the same site": (raw("GET /api HTTP/1.1", "Sec-Fetch-Site: same-site"), [403]),
    "a form": (sized(25, "Content-Type: application/x-www-form-urlencoded"), [415]),
    "a form with files": (sized(25, "Content-Type: multipart/form-data; boundary=x"), [415]),
    "plain text": (sized(25, "Content-Type: text/plain"), [415]),
    "a socket from another page": (
        raw("GET /api/v1/pods?watch=1 HTTP/1.1", "Upgrade: websocket", "Connection: Upgrade", "Origin: https://evil.com"),
        [403],
    ),
    # -- other protocols
    "a socket": (raw("GET /version HTTP/1.1", "Upgrade: websocket", "Connection: Upgrade"), [200]),
    "HTTP/2 with an upgrade": (raw("GET /version HTTP/1.1", "Upgrade: h2c", "Connection: Upgrade"), [200]),
    "HTTP/2 at once": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [400]),
    "an invalid version": (raw("GET /api HTTP/9.9"), [400]),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 100 + b"\r\n\r\n", [400]),
    "an expectation": (sized(25, "Expect: 200-maybe"), [417]),
    # -- paths
    "up": (raw("GET /api/../../../etc/passwd HTTP/1.1"), [404]),
    "up, encoded": (raw("GET /api/v1/%2e%2e%2f%2e%2e%2fetc/passwd HTTP/1.1"), [404]),
    "up, the other way": (raw("GET /..%5c..%5cetc/passwd HTTP/1.1"), [404]),
    "up within a resource": (raw("GET /api/v1/namespaces/default/pods/..%2f..%2fx HTTP/1.1"), [404]),
    "two slashes": (raw("GET //api/v1/pods HTTP/1.1"), [404]),
    "a zero": (raw("GET /api/v1/pods%00 HTTP/1.1"), [404]),
    "a zero as it is": (raw("GET /api/v1/\0pods HTTP/1.1"), [400]),
    "a line's end": (raw("GET /api/v1/pods%0d%0aX-Evil:1 HTTP/1.1"), [404]),
    "a space": (raw("GET /api/v1/ pods HTTP/1.1"), [400]),
    "letters beyond ASCII": (raw("GET /api/v1/pöds HTTP/1.1"), [400]),
    "a megabyte of parameters": (raw(f"GET /api/v1/pods?a={'x' * (1 << 20)} HTTP/1.1"), [414]),
    "a line one byte too long": (raw(f"GET /api/v1/pods?a={'x' * MAX_LINE} HTTP/1.1"), [414]),
    "too many parameters": (raw(f"GET /api/v1/pods?{'a&' * (MAX_PARAMETERS + 1)} HTTP/1.1"), [414]),
    # -- tokens
    "no token": (raw("GET /api HTTP/1.1", own=[HOST]), [401]),
    "another token": (raw("GET /api HTTP/1.1", "Authorization: Bearer x", own=[HOST]), [401]),
    "a password": (raw("GET /api HTTP/1.1", "Authorization: Basic YTpi", own=[HOST]), [401]),
    "the token in the parameters": (
        raw(f"GET /api?token={TOKEN}&access_token={TOKEN}&authorization=Bearer+{TOKEN} HTTP/1.1", own=[HOST]), [401],
    ),
    "the token in a cookie": (raw("GET /api HTTP/1.1", f"Cookie: token={TOKEN}", own=[HOST]), [401]),
    "a long token": (raw("GET /api HTTP/1.1", "Authorization: Bearer " + "t" * 60_000, own=[HOST]), [401]),
    "a token of a megabyte": (raw("GET /api HTTP/1.1", "Authorization: Bearer " + "t" * (1 << 20), own=[HOST]), [431]),
    "a token that is no text": (raw("GET /api HTTP/1.1", "Authorization: Bearer \udcff\udcfe", own=[HOST]), [401]),
    "another user's groups": (
        raw("GET /api/v1/nodes HTTP/1.1", "Authorization: Bearer weak", "Impersonate-User: weak",
            "Impersonate-Group: system:masters", own=[HOST]), [403],
    ),
    # -- order
    "three at once": (raw("GET /version HTTP/1.1") * 3, [200, 200, 200]),
    "one bad among good": (raw("GET /version HTTP/1.1") + b"nonsense\r\n\r\n" + raw("GET /version HTTP/1.1"), [400]),
}  # fmt: skip


@pytest.mark.slow
def test_every_attack_gets_its_response_and_changes_nothing(caplog):
    async def run():
        async with a_server() as (store, port):
            version = store.version
            found = {}
            for name, (request, wanted) in ATTACKS.items():
                codes, answer = await talk(port, request, len(wanted))
                found[name] = codes
                assert b"Traceback" not in answer, name
                assert TOKEN.encode() not in answer, name
                assert b"\r\nX-Evil" not in answer, name
                assert b"Access-Control-Allow" not in answer, name
            assert found == {name: codes for name, (_, codes) in ATTACKS.items()}
            assert store.version == version

    with caplog.at_level(logging.DEBUG):
        asyncio.run(run())
    assert TOKEN not in caplog.text


@pytest.mark.slow
def test_a_page_can_neither_run_nor_frame_a_response():
    async def run():
        async with a_server() as (_, port):
            for line in ("GET /version", "GET /api/v1/pods", "GET /nothing", "GET /healthz", "GET /metrics", "get /"):
                _, answer = await talk(port, raw(f"{line} HTTP/1.1", "Connection: close"))
                head = answer.partition(b"\r\n\r\n")[0].decode().lower()
                for header in (
                    "x-content-type-options: nosniff", "x-frame-options: deny", "cache-control: no-cache, private",
                    "content-security-policy: default-src 'none'; frame-ancestors 'none'",
                ):  # fmt: skip
                    assert header in head, line
                assert "text/html" not in head, line

    asyncio.run(run())


@pytest.mark.slow
def test_100_continue_is_sent_to_authorized_clients_only():
    async def run():
        async with a_server() as (_, port):
            for own, first in (([HOST, MINE], b"HTTP/1.1 100 Continue\r\n"), ([HOST], b"HTTP/1.1 401 Unauthorized\r\n")):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(sized(len(BODY), "Expect: 100-continue", own=own, body=b""))
                assert await reader.readline() == first
                if first.split()[1] == b"100":
                    assert await reader.readline() == b"\r\n"
                    writer.write(BODY)
                    assert await reader.readline() == b"HTTP/1.1 201 Created\r\n"
                writer.close()

    asyncio.run(run())


# -- slow clients -------------------------------------------------------------------------------------------------------

HASTY = ServerLimits(client_s=0.15, answer_s=0.15)


#: A connection that ends sooner was closed by the server; `dribble` itself gives up after five seconds.
CLOSED_S = 4


async def dribble(port, first, more, step_s=0.02, tls=None):
    """Send a byte now and then until the server closes; return the duration and the response."""
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=tls and "localhost")
    start = loop.time()
    writer.write(first)
    answer = b""
    try:
        while loop.time() - start < 5:
            writer.write(more)
            try:
                async with asyncio.timeout(step_s):
                    if not (got := await reader.read(1 << 16)):
                        break
                    answer += got
            except TimeoutError:
                continue
    except ConnectionError:
        pass
    finally:
        writer.close()
    return loop.time() - start, answer


SLOW = {
    "says nothing": (b"", b""),
    "a head byte by byte": (b"", b"a"),
    "headers that do not end": (raw("GET /api HTTP/1.1")[:-2], b"X-A: b\r\n"),
    "a head after an answer": (raw("GET /version HTTP/1.1") + b"GET /api", b"x"),
    "a body byte by byte": (sized(1000, body=b""), b" "),
    "chunks that do not end": (chunked(b""), b"1\r\n \r\n"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("first", "more"), SLOW.values(), ids=SLOW)
def test_slow_clients_are_disconnected_and_others_served(first, more):
    async def run():
        async with a_server(HASTY) as (_, port):
            slow = asyncio.create_task(dribble(port, first, more))
            await asyncio.sleep(0.05)
            codes, _ = await talk(port, raw("GET /version HTTP/1.1", "Connection: close"))
            assert codes == [200]
            took_s, answer = await slow
            assert took_s < CLOSED_S
            assert b"Traceback" not in answer

    asyncio.run(run())


@pytest.mark.slow
def test_the_size_of_a_head_is_limited_for_any_number_of_headers():
    async def run():
        async with a_server() as (_, port):
            line = b"X-A: " + b"a" * (MAX_FIELD // 2) + b"\r\n"
            took_s, answer = await dribble(port, raw("GET /api HTTP/1.1")[:-2], line, 0.001)
            assert answer == b""
            assert took_s < CLOSED_S
            assert len(line) * 4 < MAX_HEAD * 2

    asyncio.run(run())


@pytest.mark.slow
def test_a_body_that_arrives_after_its_rejection_is_not_a_head():
    async def run():
        async with a_server() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            size = 3 * 2**20 + 1
            writer.write(sized(size, body=b""))
            assert b" 413 " in await asyncio.wait_for(reader.readline(), 5)
            for _ in range(3):
                writer.write(b" " * 2**20)
                await writer.drain()
                await asyncio.sleep(0.01)
            writer.write(b" " + raw("GET /version HTTP/1.1", "Connection: close"))
            assert b"gitVersion" in await asyncio.wait_for(reader.read(-1), 5)
            writer.close()

    asyncio.run(run())


@pytest.mark.slow
def test_a_client_that_does_not_read_is_disconnected():
    async def run():
        store = open_store(seed=1)
        document = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "a" * 900_000}}
        kind = next(one for one in KINDS if one.kind == "ConfigMap")
        for i in range(20):
            store.create(kind, "default", {**document, "metadata": {"name": f"big{i}"}})
        async with a_server(HASTY, store) as (_, port):
            for path in ("configmaps", "configmaps?watch=1"):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
                writer.write(raw(f"GET /api/v1/namespaces/default/{path} HTTP/1.1"))
                await asyncio.sleep(0.5)
                got = 0
                try:
                    async with asyncio.timeout(5):
                        while some := await reader.read(1 << 20):
                            got += len(some)
                except ConnectionError:
                    pass
                writer.close()
                assert 0 < got < 18_000_000

    asyncio.run(run())


@pytest.mark.slow
def test_a_client_that_reads_no_short_responses_is_disconnected():
    async def run():
        async with a_server(HASTY) as (_, port):
            asking = socket.create_connection(("127.0.0.1", port))
            asking.setblocking(False)
            with pytest.raises(ConnectionError):
                await asyncio.wait_for(ask_endlessly(asking), 10)
            asking.close()

    async def ask_endlessly(asking):
        while True:  # until what the server and the kernel keep for us is full
            await asyncio.get_running_loop().sock_sendall(asking, raw("GET /api/v1 HTTP/1.1") * 100)

    asyncio.run(run())


# -- TLS ----------------------------------------------------------------------------------------------------------------


def client_context(authority, folder, user=None):
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    if user is not None:
        issued = authority.issue(user)
        (folder / "c").write_bytes(issued.certificate + issued.key)
        context.load_cert_chain(folder / "c")
    return context


@pytest.mark.slow
def test_certificates_identify_users_and_foreign_ones_do_not(tmp_path):
    async def run():
        authority, other = make_authority(tmp_path / "a"), make_authority(tmp_path / "b")
        store = open_store(seed=1)
        whoami = raw(
            "POST /apis/authentication.k8s.io/v1/selfsubjectreviews HTTP/1.1", "Content-Length: 2", "Connection: close",
            own=[HOST], body=b"{}",
        )  # fmt: skip
        async with a_server(store=store, guard=make_authenticator(store, authority), tls=authority.tls()) as (_, port):
            jane = client_context(authority, tmp_path, User("jane", ("devs", "ops")))
            codes, answer = await talk(port, whoami, tls=jane)
            assert codes == [201]
            info = json.loads(answer.partition(b"\r\n\r\n")[2])["status"]["userInfo"]
            assert (info["username"], sorted(info["groups"])) == ("jane", ["devs", "ops", "system:authenticated"])
            assert (await talk(port, whoami, tls=client_context(authority, tmp_path)))[0] == [401]
            stranger = client_context(authority, tmp_path)
            issued = other.issue(ADMIN)
            (tmp_path / "s").write_bytes(issued.certificate + issued.key)
            stranger.load_cert_chain(tmp_path / "s")
            with suppress(ssl.SSLError):
                assert (await talk(port, whoami, tls=stranger))[0] == []
            server_as_client = client_context(authority, tmp_path)
            server_as_client.load_cert_chain(authority.folder / "server.crt", authority.folder / "server.key")
            with suppress(ssl.SSLError):
                assert (await talk(port, whoami, tls=server_as_client))[0] == []
            assert (await talk(port, whoami))[0] == []

    asyncio.run(run())


@pytest.mark.slow
def test_a_missing_handshake_times_out(tmp_path):
    async def run():
        authority = make_authority(tmp_path)
        async with a_server(HASTY, tls=authority.tls()) as (_, port):
            took_s, answer = await dribble(port, b"\x16\x03\x01", b"")
            assert (took_s < CLOSED_S, answer) == (True, b"")

    asyncio.run(run())


@pytest.mark.slow
def test_a_handshake_in_progress_at_shutdown_is_aborted(tmp_path):
    """Nothing else would close the connection."""

    async def run():
        authority = make_authority(tmp_path)
        async with a_server(tls=authority.tls()) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.sleep(0.1)
        async with asyncio.timeout(5):  # it would be waited for until the end of the loop
            with suppress(ConnectionError, ssl.SSLError):
                await writer.start_tls(client_context(authority, tmp_path), server_hostname="localhost")
                writer.write(raw("GET /livez HTTP/1.1", own=[HOST]))
                assert await reader.read() == b""
        writer.close()

    asyncio.run(run())


# -- every route that changes something ---------------------------------------------------------------------------------


def mutating_routes():
    for kind in KINDS:
        place = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        home = f"{place}/namespaces/default/{kind.resource}" if kind.namespaced else f"{place}/{kind.resource}"
        yield from (("POST", home), ("DELETE", home))
        for path in (f"{home}/x", *(f"{home}/x/{one}" for one in kind.subresources)):
            yield from ((method, path) for method in ("POST", "PUT", "PATCH", "DELETE"))
    for review in REVIEWS:
        home = "/namespaces/default" if review.namespaced else ""
        yield "POST", f"/apis/{review.group}/{review.version}{home}/{review.resource}"


def of_json(body, *headers, own=(HOST, MINE)):
    return lambda method, path: raw(
        f"{method} {path} HTTP/1.1",
        f"Content-Length: {len(body)}",
        "Content-Type: application/json",
        *headers,
        own=own,
        body=body,
    )


#: What each of these makes of every route: the codes that may come back.
REFUSALS = {
    "no user": (of_json(b"{}", own=[HOST]), {401}),
    "a wrong token": (of_json(b"{}", "Authorization: Bearer x", own=[HOST]), {401}),
    "a user without rights": (of_json(b"{}", "Authorization: Bearer weak", own=[HOST]), {403}),
    "another host": (of_json(b"{}", "Host: evil.com", own=[MINE]), {403}),
    "another origin": (of_json(b"{}", "Origin: https://evil.com"), {403}),
    "another site": (of_json(b"{}", "Sec-Fetch-Site: cross-site"), {403}),
    "too much": (
        lambda method, path: raw(f"{method} {path} HTTP/1.1", f"Content-Length: {(3 << 20) + 1}"), {413},
    ),
    "nonsense": (of_json(b"{"), {400, 404, 405, 415, 503}),  # 503: a proxy reads no body, and nothing listens behind it
    "nothing to be read": (
        lambda method, path: raw(f"{method} {path} HTTP/1.1", "Content-Type: text/plain", "Content-Length: 1", body=b"x"),
        {404, 405, 415, 503},
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("attack", "codes"), REFUSALS.values(), ids=REFUSALS)
def test_every_mutating_route_rejects_unauthorized_clients(attack, codes):
    routes = [*mutating_routes()]
    assert len(routes) > 300

    async def run():
        async with a_server() as (store, port):
            version = store.version
            # Every user may create reviews about themselves.
            asked = [one for one in routes if not (one[1].endswith("reviews") and b"weak" in attack(*one))]
            found = await ask_in_turn(port, [attack(*one) for one in asked])
            assert {one: code for one, code in zip(asked, found, strict=True) if code not in codes} == {}
            assert store.version == version

    asyncio.run(run())


# -- anything at all ----------------------------------------------------------------------------------------------------

#: Bytes that mean something in HTTP, to be put where they do not belong.
SPICES = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b":",
    b"\r\n\r\n",
    b"\xff",
    b"%00",
    b"/",
    b"?",
    b";",
    b"Transfer-Encoding: chunked\r\n",
]


def garbled(chance, request):
    """Return a request with parts changed, left out, repeated or inserted."""
    data = bytearray(request)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data))
        match chance.randrange(5):
            case 0:
                data[at] = chance.randrange(256)
            case 1:
                del data[at : at + chance.randrange(1, 12)]
            case 2:
                data[at:at] = data[at : at + chance.randrange(1, 40)]
            case 3:
                data[at:at] = chance.choice(SPICES)
            case 4:
                del data[at:]
        data = data or bytearray(b"G")
    return bytes(data)


@pytest.mark.slow
def test_garbled_requests_neither_break_nor_change_anything():
    """MOORAGE_GARBLED=100000 sends more of them."""
    chance = random.Random(23)
    # Mutating requests have no token, so none of these may change anything.
    whole = [
        raw("GET /api/v1/namespaces/default/pods?limit=5&labelSelector=a%3Db HTTP/1.1"),
        raw("GET /api/v1/pods?watch=1&timeoutSeconds=1 HTTP/1.1", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io"),
        raw(NAMESPACES, "Content-Length: 25", "Content-Type: application/json", own=[HOST], body=BODY),
        raw(NAMESPACES, "Transfer-Encoding: chunked", own=[HOST], body=b"19\r\n" + BODY + b"\r\n0\r\n\r\n"),
        raw("DELETE /api/v1/namespaces/default/pods/x HTTP/1.1", "Origin: https://evil.com", own=[HOST]),
    ]

    async def run():
        async with a_server(HASTY) as (store, port):
            version = store.version
            found = Counter()
            for _ in range(int(os.environ.get("MOORAGE_GARBLED", "400")) // 50):
                asked = [garbled(chance, chance.choice(whole)) for _ in range(50)]
                for request, (codes, answer) in zip(
                    asked, await asyncio.gather(*(talk(port, one) for one in asked)), strict=True
                ):
                    found.update(codes)
                    assert not [code for code in codes if code >= 500 and code not in {504, 505}], request
                    assert b"Traceback" not in answer, request
            assert store.version == version
            assert (await talk(port, raw("GET /version HTTP/1.1")))[0] == [200]
            assert found[400] > 20
            assert found[401] > 20

    asyncio.run(run())
