"""Requests against a small server on loopback, and the throttle in virtual time."""

import asyncio
import gzip
import importlib.util
import re
import socket
import ssl
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiohttp import web

from moorage.basis.client.credentials import Endpoint, FixedCredentials, Identity, load_pair
from moorage.basis.client.rest import BINDING, OTHER, Rest, Throttle, user_agent
from moorage.errors import ClusterError, InputError
from moorage.testing.virtual_time import run_virtually

_spec = importlib.util.spec_from_file_location("certificates", Path(__file__).with_name("certificates.py"))
certificates = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(certificates)


@asynccontextmanager
async def serving(handler, tls=None, **endpoint):
    app = web.Application(client_max_size=1 << 20)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    try:
        async with Rest(Endpoint(f"{'https' if tls else 'http'}://127.0.0.1:{port}", **endpoint), qps=0) as rest:
            yield rest
    finally:
        await runner.cleanup()


def status(code, message="no", reason="", headers=None, **more):
    return web.json_response({"kind": "Status", "message": message, "reason": reason, **more}, status=code, headers=headers)


def test_a_request_carries_credentials_and_content_types():
    async def handler(request):
        return web.json_response(
            {"path": request.path_qs, "agent": request.headers["User-Agent"], "auth": request.headers["Authorization"],
             "as": request.headers["Impersonate-User"], "body": await request.text(), "type": request.content_type}
        )  # fmt: skip

    async def main():
        who = {"credentials": FixedCredentials(Identity("secret")), "headers": (("Impersonate-User", "jane"),)}
        async with serving(handler, **who) as rest:
            return await rest.send("POST", "/api/x", b'{"a":1}', params={"limit": "5", "q": "a=b,c!=d"})

    answer = asyncio.run(main()).decode()
    assert '"/api/x?limit=5&q=a=b,c!=d"' in answer or "a%3Db" in answer
    assert '"agent": "moorage"' in answer
    assert "Bearer secret" in answer
    assert '"jane"' in answer
    assert "application/json" in answer


def test_the_user_agent():
    assert re.fullmatch(r"moorage/v1\.2 \(\w+/\w+\) scheduler", user_agent("1.2"))


REFUSALS = {
    "a status": (lambda: status(409, "pod p is already assigned", "Conflict"), 409, "Conflict", "pod p is already assigned"),
    "no status": (lambda: web.Response(status=502, text="<html>bad gateway"), 502, "", "502 Bad Gateway"),
    "gone": (lambda: status(410, "too old", "Expired"), 410, "Expired", "too old"),
    "a redirect": (lambda: web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), 302, "", "302 Found"),
}


@pytest.mark.parametrize(("reply", "code", "reason", "text"), REFUSALS.values(), ids=REFUSALS)
def test_errors_contain_the_servers_message(reply, code, reason, text):
    async def handler(request):
        return reply()

    async def main():
        async with serving(handler) as rest:
            with pytest.raises(ClusterError, match=text) as refusal:
                await rest.get("/x")
            return refusal.value

    error = asyncio.run(main())
    assert (error.status, error.reason) == (code, reason)


def test_requests_are_retried_on_retry_after_and_checked_each_time():
    calls, checks = [], []

    async def handler(request):
        calls.append(await request.text())
        return status(429, headers={"Retry-After": "0"}) if len(calls) < 4 else web.json_response({})

    async def main():
        async with serving(handler) as rest:
            await rest.send("POST", "/x", b"body", check=lambda: checks.append(1))

    asyncio.run(main())
    assert calls == ["body"] * 4
    assert len(checks) == 4


def test_retries_are_limited_to_ten_and_need_retry_after():
    calls = []

    async def handler(request):
        calls.append(request.path)
        return status(503, headers={"Retry-After": "0"} if request.path == "/asked" else {})

    async def main():
        async with serving(handler) as rest:
            for path in ("/asked", "/unasked"):
                with pytest.raises(ClusterError):
                    await rest.get(path)

    asyncio.run(main())
    assert (calls.count("/asked"), calls.count("/unasked")) == (10, 1)


def test_a_check_that_raises_stops_the_request():
    calls = []

    async def handler(request):
        calls.append(1)
        return web.json_response({})

    def check():
        raise ClusterError("too late")

    async def main():
        async with serving(handler) as rest:
            with pytest.raises(ClusterError, match="too late"):
                await rest.send("POST", "/x", b"", check=check)

    asyncio.run(main())
    assert calls == []


def test_a_rejected_identity_is_fetched_again_once():
    class Rotating:
        tokens, now = ["old", "new"], 0

        async def identity(self):
            return Identity(self.tokens[self.now])

        def invalidate(self):
            self.now = 1

    async def handler(request):
        good = request.headers["Authorization"] == "Bearer new" and request.path == "/x"
        return web.json_response({}) if good else status(401, "Unauthorized", "Unauthorized")

    async def main():
        async with serving(handler, credentials=Rotating()) as rest:
            await rest.get("/x")
            with pytest.raises(ClusterError) as refusal:
                await rest.get("/never")
            return refusal.value.status

    assert asyncio.run(main()) == 401


def test_posts_that_need_no_waiting_are_sent_together():
    seen = []

    async def handler(request):
        seen.append((request.path, await request.text(), request.headers["Authorization"], request.content_type))
        return status(next(answers), "no", "Why", {"Retry-After": "7"})

    async def main():
        async with serving(handler, credentials=FixedCredentials(Identity("secret"))) as rest:
            assert not rest.post_soon([("/a", b"1")], lambda which, error: None)  # the credentials are not known yet
            with pytest.raises(ClusterError):
                await rest.send("GET", "/")
            found, ended = {}, asyncio.Event()

            def done(which, error):
                found.update(dict.fromkeys(which, error and (error.status, error.reason, error.retry_after_s)))
                if len(found) == 3:
                    ended.set()

            assert rest.post_soon([(f"/{at}", b"%d" % at) for at in range(3)], done)
            await ended.wait()
            assert not rest.post_soon([("/a", b"1")], done)  # the credentials were refused
            return found

    answers = iter([404, 201, 409, 401])
    assert asyncio.run(main()) == {0: None, 1: (409, "Why", None), 2: (401, "Why", None)}
    assert seen[1:] == [(f"/{at}", str(at), "Bearer secret", "application/json") for at in range(3)]


def test_steady_posts_use_a_new_identity_without_waiting(monkeypatch):
    now, seen = [0.0], []
    monkeypatch.setattr("moorage.basis.client.rest.time", SimpleNamespace(monotonic=lambda: now[0]))

    class Counted:
        asked = 0

        async def identity(self):
            self.asked += 1
            if self.asked == 3:
                raise InputError("the plugin failed")
            return Identity(f"token-{self.asked}")

        def invalidate(self):
            pass

    async def handler(request):
        seen.append(request.headers["Authorization"])
        return web.json_response({})

    async def main():
        async with serving(handler, credentials=Counted()) as rest:
            await rest.send("GET", "/")
            for _ in range(20):
                ended = asyncio.Event()
                assert rest.post_soon([("/a", b"1")], lambda which, error, ended=ended: ended.set())
                await ended.wait()
                now[0] += 0.2

    asyncio.run(main())
    tokens = list(dict.fromkeys(seen))
    assert len(tokens) > 4
    assert "Bearer token-3" not in tokens


def test_posts_wait_for_the_rate_limit_elsewhere():
    async def handler(request):
        return web.json_response({})

    async def main():
        async with serving(handler) as rest:
            rest._throttle = Throttle(1.0, 2, asyncio.get_running_loop().time)
            await rest.send("GET", "/")
            return [rest.post_soon([("/a", b"")] * count, lambda which, error: None) for count in (2, 1, 1)]

    assert asyncio.run(main()) == [False, True, False]


def test_responses_are_limited_in_size():
    async def handler(request):
        return web.Response(body=b"x" * 5000)

    async def main():
        async with serving(handler) as rest:
            with pytest.raises(ClusterError, match="longer than 1000 bytes"):
                await rest.send("GET", "/x", max_bytes=1000)

    asyncio.run(main())


def test_a_missing_response_is_an_error_with_unknown_outcome():
    async def handler(request):
        if request.path == "/cut":
            request.transport.close()
        await asyncio.sleep(1)
        return web.json_response({})

    async def main():
        errors = []
        async with serving(handler) as other, Rest(other.endpoint, qps=0, bind_s=0.1) as rest:
            for path in ("/cut", "/slow"):
                with pytest.raises(ClusterError) as refusal:
                    await rest.send("POST", path, b"", lane=BINDING)
                errors.append(refusal.value)
        async with Rest(Endpoint("http://127.0.0.1:1"), qps=0) as rest:
            with pytest.raises(ClusterError) as refusal:
                await rest.get("/x")
            errors.append(refusal.value)
        return errors

    assert [(error.status, error.may_have_happened) for error in asyncio.run(main())] == [(0, True)] * 3


def test_a_path_is_sent_on_one_line_for_any_name():
    async def handler(request):
        return web.json_response({"path": request.rel_url.raw_path})

    async def main():
        async with serving(handler) as rest:
            return [await rest.send("PUT", path, b"") for path in ("/a b", "/a\tX: y", "/a%2Fb", "/ü", "/system:node")]

    paths = [body.decode().split('"')[3] for body in asyncio.run(main())]
    assert paths == ["/a%20b", "/a%09X:%20y", "/a%2Fb", "/%C3%BC", "/system:node"]


def test_headers_cannot_span_lines():
    with pytest.raises(InputError, match="Impersonate-User"):
        Rest(Endpoint("http://127.0.0.1:1", headers=(("Impersonate-User", "a\r\nX: y"),)))

    async def main():
        async with Rest(Endpoint("http://127.0.0.1:1", credentials=FixedCredentials(Identity("a\nb"))), qps=0) as rest:
            with pytest.raises(ClusterError, match="more than one line"):
                await rest.send("POST", "/x", b"")

    asyncio.run(main())


def test_a_watch_yields_lines_however_they_are_split():
    async def handler(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for part in (b'{"a":', b'1}\n{"b":2}\n\n{"c"', b":3}\n"):
            await response.write(part)
            await asyncio.sleep(0.01)
        if request.path == "/silent":
            await asyncio.sleep(5)
        return response

    async def main():
        seen = {}
        async with serving(handler) as rest:
            for path in ("/ends", "/silent"):
                async with rest.watch(path, {"watch": "true"}, 0.1) as lines:
                    seen[path] = [line async for some in lines for line in some]
        return seen

    lines = [b'{"a":1}', b'{"b":2}', b'{"c":3}']
    assert asyncio.run(main()) == {"/ends": lines, "/silent": lines}


def test_a_watch_with_a_dead_server_is_detected_by_tcp_keepalive():
    made = []

    class Noted(socket.socket):
        def __init__(self, *arguments, **more):
            super().__init__(*arguments, **more)
            made.append(self)

    async def handler(request):
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(1)
        return response

    async def main():
        async with serving(handler) as rest:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(socket, "socket", Noted)
                async with rest.watch("/quiet", {}, 0.05) as lines:
                    assert [line async for line in lines] == []
                    return {tuple(one.getsockopt(*option) for option in options) for one in made if one.fileno() >= 0}

    tcp = [getattr(socket, name) for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")]
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE), *((socket.IPPROTO_TCP, option) for option in tcp)]
    assert (1, 30, 5, 3) in asyncio.run(main())  # seconds until it asks, between tries, and how many: 45 in all


@pytest.mark.parametrize("lists", [True, False], ids=["a list", "a write"])
def test_an_unreachable_server_is_distinguished_from_a_silent_one(lists):
    async def main():
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # bound, but not listening
            port = taken.getsockname()[1]
            async with Rest(Endpoint(f"http://127.0.0.1:{port}"), qps=0) as rest:
                with pytest.raises(ClusterError) as raised:
                    await (rest.get("/api/x") if lists else rest.send("POST", "/api/x", b"{}"))
        return raised.value

    error = asyncio.run(main())
    assert (error.status, error.reason) == (0, "Unreachable")
    assert str(error).endswith("/api/x: cannot connect: Connection refused")


ZIPPED = gzip.compress(b'{"items":[]}')
PACKED = {  # body, what get returns or the error
    "a list": (ZIPPED, b'{"items":[]}'),
    "a part of it": (ZIPPED[:-9], "the response was cut off"),
    "something else": (b"{}", "the answer cannot be unpacked"),
}


@pytest.mark.parametrize(("body", "found"), PACKED.values(), ids=PACKED)
def test_lists_may_be_compressed(body, found):
    async def handler(request):
        assert request.headers["Accept-Encoding"] == "gzip"
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    async def main():
        async with serving(handler) as rest:
            return await rest.get("/api/x")

    if isinstance(found, bytes):
        assert asyncio.run(main()) == found
    else:
        with pytest.raises(ClusterError, match=f"^GET /api/x: {found}"):
            asyncio.run(main())


@asynccontextmanager
async def proxying(seen):
    """Serve as an HTTP proxy for plain HTTP; ``seen`` gets the request lines."""

    async def answer(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        seen.append(head.partition(b"\r\n")[0].decode())
        target = head.split(b" ")[1].decode().partition("://")[2]
        host, _, path = target.partition("/")
        behind, onward = await asyncio.open_connection(*host.split(":"))
        onward.write(
            head.replace(head.split(b" ")[1], b"/" + path.encode(), 1).replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
        )
        while part := await behind.read(1 << 16):
            writer.write(part)
        writer.close()
        onward.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    await asyncio.sleep(0.02)


def test_requests_lists_and_watches_go_through_a_proxy():
    seen = []

    async def handler(request):
        if request.path == "/gone":
            return status(410, "too old", "Expired")
        return web.Response(text=f'{{"at":"{request.path}"}}\n')

    async def main():
        async with (
            serving(handler) as direct,
            proxying(seen) as proxy,
            Rest(Endpoint(direct.endpoint.server, proxy=proxy), qps=0) as rest,
        ):
            found = [await rest.get("/list"), await rest.send("DELETE", "/one")]
            async with rest.watch("/watch", {"watch": "1"}, 1) as lines:
                found += [line async for some in lines for line in some]
            with pytest.raises(ClusterError, match="GET /gone: too old") as refusal:
                await rest.get("/gone")
            assert refusal.value.is_expired
            return found

    assert asyncio.run(main()) == [b'{"at":"/list"}\n', b'{"at":"/one"}\n', b'{"at":"/watch"}']
    assert [line.split()[0] for line in seen] == ["GET", "DELETE", "GET", "GET"]
    assert all("http://127.0.0.1" in line for line in seen)


@asynccontextmanager
async def tunnelling(seen, status="200 Connection established"):
    """Serve as an HTTP proxy that opens tunnels; ``seen`` gets the heads of the requests for them."""

    async def pass_on(reader, writer):
        while part := await reader.read(1 << 16):
            writer.write(part)
        writer.close()

    async def answer(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        seen.append(head.splitlines())
        writer.write(f"HTTP/1.1 {status}\r\n\r\n".encode())
        if not status.startswith("200"):
            writer.close()
            return
        behind = await asyncio.open_connection(*head.split()[1].split(":"))
        await asyncio.gather(pass_on(reader, behind[1]), pass_on(behind[0], writer), return_exceptions=True)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://ann:a%20b@127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.sleep(0.02)


def through_a_tunnel(seen, status="200 Connection established"):
    """Return what a server behind TLS and a proxy answers to a request, a watch and a post."""

    async def handler(request):
        return web.Response(text=f'{{"at":"{request.path}"}}\n')

    async def main():
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_pair(tls, certificates.CERTIFICATE.encode(), certificates.KEY.encode())
        async with serving(handler, tls) as direct, tunnelling(seen, status) as proxy:
            where = Endpoint(direct.endpoint.server, ca=certificates.CERTIFICATE.encode(), proxy=proxy)
            async with Rest(where, qps=0) as rest:
                found = [await rest.get("/list")]
                async with rest.watch("/watch", {"watch": "1"}, 1) as lines:
                    found += [line async for some in lines for line in some]
                ended = asyncio.get_running_loop().create_future()
                assert rest.post_soon([("/one", b"{}")], lambda which, error: ended.set_result(error))
                return [*found, await ended]

    return asyncio.run(main())


def test_a_proxy_opens_tunnels_to_a_server_with_tls():
    seen = []
    assert through_a_tunnel(seen) == [b'{"at":"/list"}\n', b'{"at":"/watch"}', None]
    assert all(head[0].startswith("CONNECT 127.0.0.1:") for head in seen)
    assert all("Proxy-Authorization: Basic YW5uOmEgYg==" in head for head in seen)


def test_a_proxy_that_refuses_is_named():
    with pytest.raises(ClusterError, match=r"^GET /list: the proxy opens no tunnel: 407 Who are you"):
        through_a_tunnel([], "407 Who are you")


def test_a_proxy_that_cannot_be_reached_is_named_so():
    async def main():
        async with Rest(Endpoint("http://10.0.0.1", proxy="http://127.0.0.1:1"), qps=0) as rest:
            with pytest.raises(ClusterError) as raised:
                await rest.get("/api/x")
            return raised.value

    error = asyncio.run(main())
    assert (str(error), error.reason) == ("GET /api/x: cannot connect: Connection refused", "Unreachable")


def test_a_truncated_response_has_a_plain_error():
    async def handler(request):
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"{")
        request.transport.abort()
        return response

    async def main():
        async with serving(handler) as rest:
            with pytest.raises(ClusterError) as raised:
                await rest.get("/api/x")
            return raised.value

    error = asyncio.run(main())
    assert (str(error), error.reason) == ("GET /api/x: the response was cut off", "")


def test_a_rejected_or_aborted_watch_is_an_error():
    async def handler(request):
        if request.path == "/refused":
            return status(410, "too old resource version", "Expired")
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"a"')
        request.transport.abort()
        return response

    async def main():
        async with serving(handler) as rest:
            with pytest.raises(ClusterError) as refusal:
                async with rest.watch("/refused", {}, 1):
                    pass
            assert refusal.value.is_expired
            with pytest.raises(ClusterError):
                async with rest.watch("/cut", {}, 1) as lines:
                    assert [line async for line in lines] == []

    asyncio.run(main())


@pytest.mark.slow
def test_tls_and_client_certificates(tmp_path):
    pair = tmp_path / "pair.pem"
    pair.write_text(certificates.CERTIFICATE + certificates.KEY)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair)
    tls.load_verify_locations(cadata=certificates.CERTIFICATE)
    tls.verify_mode = ssl.CERT_OPTIONAL

    async def handler(request):
        return web.json_response({"known": bool(request.transport.get_extra_info("peercert"))})

    async def main():
        ca = certificates.CERTIFICATE.encode()
        me = FixedCredentials(Identity(certificate=ca, key=certificates.KEY.encode()))
        async with serving(handler, tls, ca=ca, credentials=me) as rest:
            known = await rest.get("/x")
        async with serving(handler, tls, ca=ca, server_name="localhost") as rest:
            named = await rest.get("/x")
        async with serving(handler, tls, insecure=True) as rest:
            unchecked = await rest.get("/x")
        async with serving(handler, tls) as rest:
            with pytest.raises(ClusterError, match=r"(?i)certificate"):
                await rest.get("/x")
        async with serving(handler, tls, ca=ca, server_name="elsewhere") as rest:
            with pytest.raises(ClusterError, match=r"(?i)certificate|hostname"):
                await rest.get("/x")
        return known, named, unchecked

    assert asyncio.run(main()) == (b'{"known": true}', b'{"known": false}', b'{"known": false}')


# -- the throttle -------------------------------------------------------------------------------------------------------


def test_the_throttle_keeps_the_rate_and_serves_binds_first():
    async def main():
        clock = asyncio.get_running_loop().time
        throttle, served = Throttle(10, 5, clock), []

        async def ask(lane, number):
            await throttle.take(lane)
            served.append((lane, number, clock()))

        tasks = [asyncio.create_task(ask(OTHER, number)) for number in range(25)]
        await asyncio.sleep(0.01)
        tasks += [asyncio.create_task(ask(BINDING, number)) for number in range(3)]
        tasks[20].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return served

    served = run_virtually(main())
    assert [(lane, number) for lane, number, _ in served[5:8]] == [(BINDING, 0), (BINDING, 1), (BINDING, 2)]
    assert served[4][2] == 0
    assert len(served) == 27
    assert served[-1][2] == pytest.approx(2.2, abs=0.05)


def test_time_spent_waiting_for_the_throttle_is_reported():
    async def handler(request):
        return web.json_response({})

    async def main():
        waits = []
        async with serving(handler) as unlimited:
            server = unlimited.endpoint.server
            waited = lambda method, seconds: waits.append((method, *seconds))  # noqa: E731
            async with Rest(Endpoint(server), qps=5, burst=1, on_throttled=waited) as rest:
                for method in ("GET", "POST"):
                    await rest.send(method, "/x")
        return waits

    (first, at_once), (second, later) = asyncio.run(main())
    assert (first, second) == ("GET", "POST")
    assert at_once < 0.05 < later < 2


def test_a_rate_of_zero_is_no_limit():
    async def main():
        throttle = Throttle(0, 0, asyncio.get_running_loop().time)
        for _ in range(1000):
            await throttle.take()
        return asyncio.get_running_loop().time()

    assert run_virtually(main()) == 0
