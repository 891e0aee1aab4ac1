"""Seats for requests and watches: bursts wait, one client cannot take all, and others get 429."""

import asyncio
import json
import random
import socket

import aiohttp
import pytest

from moorage.api.documents.served_kinds import find_kind
from moorage.api.documents.statuses import ApiError
from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.http.limits import Seats, ServerLimits
from moorage.cluster.apiserver.http.lists import PIECE
from moorage.cluster.apiserver.http.serve import open_store, serving

SMALL = ServerLimits(reading=3, mutating=2, per_client=2, waiting=2, watches=3, watches_per_client=2, seat_s=0.05)


async def acquire(seats, client, mutating, leave, log):
    async with seats.taken(client, mutating=mutating):
        log.append(client)
        await leave.wait()


def test_seats_are_limited_in_total_and_per_client():
    async def run():
        seats, leave, log = Seats(SMALL), asyncio.Event(), []
        tasks = [asyncio.create_task(acquire(seats, client, False, leave, log)) for client in "aab"]
        await asyncio.sleep(0)
        assert (log, seats.reading, seats.mutating) == (["a", "a", "b"], 3, 0)
        for client, mutating in (("a", True), ("c", False)):
            with pytest.raises(ApiError) as caught:
                await acquire(seats, client, mutating, leave, log)
            assert (caught.value.code, caught.value.retry_after_s) == (429, 1)
            assert caught.value.message == "too many requests, please try again later"
        leave.set()
        await asyncio.gather(*tasks)
        await acquire(seats, "a", True, leave, log)
        assert (seats.reading, seats.mutating) == (0, 0)

    asyncio.run(run())


def test_a_burst_waits_for_seats():
    async def run():
        seats, leave, log = Seats(SMALL), asyncio.Event(), []
        tasks = [asyncio.create_task(acquire(seats, "a", False, leave, log)) for _ in range(4)]
        await asyncio.sleep(0)
        assert len(log) == 2
        with pytest.raises(ApiError):  # two wait already, and no more may
            await acquire(seats, "a", False, leave, log)
        leave.set()
        await asyncio.gather(*tasks)
        assert (log, seats.reading) == (["a"] * 4, 0)

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(5))
def test_no_seat_is_lost_or_taken_twice(seed):
    """Requests arrive, wait, are cancelled and end in any order; the counts stay within their limits and return to zero."""
    chance, refused = random.Random(seed), set()

    async def request(seats, client, mutating):
        try:
            async with seats.taken(client, mutating=mutating):
                assert seats.reading <= 3
                assert seats.mutating <= 2
                await asyncio.sleep(chance.choice([0, 0, 0.001, 0.01]))
        except ApiError as error:
            refused.add(error.code)

    async def run():
        seats = Seats(ServerLimits(reading=3, mutating=2, per_client=2, waiting=10, seat_s=0.005))
        tasks = []
        for _ in range(150):
            tasks.append(asyncio.create_task(request(seats, chance.choice("abc"), chance.random() < 0.4)))
            if chance.random() < 0.3:
                chance.choice(tasks).cancel()
            if chance.random() < 0.5:
                await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [one.exception() for one in tasks if not one.cancelled() and one.exception()] == []
        assert refused <= {429}
        assert (seats.reading, seats.mutating, len(seats._waiting), len(seats._clients)) == (0, 0, 0, 0)

    asyncio.run(run())


def test_watches_are_counted():
    seats = Seats(SMALL)
    with seats.watching("a"), seats.watching("a"):
        with pytest.raises(ApiError) as caught, seats.watching("a"):
            pass
        assert (caught.value.code, caught.value.retry_after_s) == (429, 1)
        with seats.watching("b"):
            with pytest.raises(ApiError), seats.watching("c"):
                pass
            assert seats.watches == 3
    assert seats.watches == 0


def test_the_unread_bytes_of_a_user_are_limited_but_one_response_is_allowed():
    seats = Seats(ServerLimits(unread_per_client=10))
    with seats.sending("a", 50, refusable=True):
        for size in (1, 50):
            with pytest.raises(ApiError) as caught, seats.sending("a", size, refusable=True):
                pass
            assert (caught.value.code, caught.value.retry_after_s) == (429, 1)
        with (
            seats.sending("a", 50, refusable=False),
            seats.sending("b", 4, refusable=True),
            seats.sending("b", 6, refusable=True),
        ):
            pass
    with seats.sending("a", 5, refusable=True), seats.sending("a", 5, refusable=True):
        pass


# -- over the wire ------------------------------------------------------------------------------------------------------

HOME = "/api/v1/namespaces/default/configmaps"


async def ask(session, port, path, token="t", method="GET", body=None):
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    async with session.request(method, f"http://127.0.0.1:{port}{path}", data=body, headers=headers) as response:
        return response.status, response.headers.get("Retry-After"), await response.text()


async def until(check):
    """Wait until the response of a request passes the check."""
    async with asyncio.timeout(20):
        while not await check():
            await asyncio.sleep(0.02)


@pytest.mark.slow
def test_a_slow_client_does_not_delay_others():
    async def run():
        guard = Authenticator({"t": User("a", ("system:masters",)), "u": User("b", ("system:masters",))})
        limits = ServerLimits(per_client=2, seat_s=0.02)
        async with serving(open_store(seed=1), guard, limits=limits) as port, aiohttp.ClientSession() as session:
            end = asyncio.Event()

            async def slow_body():
                yield b"{"
                await end.wait()
                yield b"}"

            async def is_refused():
                return (await ask(session, port, HOME))[:2] == (429, "1")

            slow = [asyncio.create_task(ask(session, port, HOME, "t", "POST", slow_body())) for _ in range(2)]
            await until(is_refused)
            assert (await ask(session, port, HOME, "u"))[0] == 200
            assert (await ask(session, port, "/healthz"))[0] == 200
            end.set()
            await asyncio.gather(*slow)
            assert (await ask(session, port, HOME))[0] == 200

    asyncio.run(run())


@pytest.mark.slow
def test_unread_responses_are_limited_and_sent_as_they_are_read(monkeypatch):
    """A list of 20 MB is encoded as it is read. Unread single objects are limited, but the response to a change is never
    rejected.
    """
    written = []
    write = aiohttp.web.StreamResponse.write

    async def noted(response, data):
        written.append(len(data))
        await write(response, data)

    monkeypatch.setattr(aiohttp.web.StreamResponse, "write", noted)

    def config(i):
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{i}"}, "data": {"x": "a" * 1_000_000}}

    async def leave_unread(port, path):
        narrow = socket.socket()
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        narrow.connect(("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=narrow, limit=1024)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer t\r\n\r\n".encode())
        return reader, writer

    async def run():
        store = open_store(seed=1)
        for i in range(20):
            store.create(find_kind("configmaps"), "default", config(i))
        guard = Authenticator({"t": User("a", ("system:masters",)), "u": User("b", ("system:masters",))})
        limits = ServerLimits(unread_per_client=1_500_000)
        async with serving(store, guard, limits=limits) as port, aiohttp.ClientSession() as session:
            slow = [await leave_unread(port, HOME), await leave_unread(port, f"{HOME}/c0")]
            await asyncio.sleep(0.3)

            async def is_refused():
                return (await ask(session, port, f"{HOME}/c1"))[:2] == (429, "1")

            async def is_allowed():
                return (await ask(session, port, f"{HOME}/c1"))[0] == 200

            await until(is_refused)
            assert sum(written) < 12_000_000
            assert max(written) <= PIECE
            assert (await ask(session, port, f"{HOME}/c1", "u"))[0] == 200
            assert (await ask(session, port, HOME, method="POST", body=json.dumps(config(99))))[0] == 201
            code, _, body = await ask(session, port, HOME)
            assert (code, body.count(config(0)["data"]["x"])) == (200, 21)
            for _, writer in slow:
                writer.transport.abort()
            await until(is_allowed)

    asyncio.run(run())


@pytest.mark.slow
def test_watches_beyond_the_limit_get_429_and_end_with_their_client():
    async def run():
        guard = Authenticator({"t": User("a", ("system:masters",))})
        limits = ServerLimits(watches_per_client=2)
        async with serving(open_store(seed=1), guard, limits=limits) as port, aiohttp.ClientSession() as session:
            path, headers = f"http://127.0.0.1:{port}{HOME}?watch=1&timeoutSeconds=3", {"Authorization": "Bearer t"}
            held = [await session.get(path, headers=headers) for _ in range(2)]
            assert (await ask(session, port, f"{HOME}?watch=1"))[:2] == (429, "1")
            assert 'apiserver_longrunning_requests{verb="WATCH"} 2' in (await ask(session, port, "/metrics"))[2]
            await asyncio.gather(*(one.read() for one in held))
            assert 'apiserver_longrunning_requests{verb="WATCH"} 0' in (await ask(session, port, "/metrics"))[2]

    asyncio.run(run())


@pytest.mark.slow
def test_a_watch_ends_when_its_client_disconnects_without_events():
    async def run():
        async with serving(open_store(seed=1), Authenticator({"t": User("a", ("system:masters",))})) as port:
            request = f"GET {HOME}?watch=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer t\r\n\r\n"
            lost = []
            for _ in range(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request.encode())
                await reader.readuntil(b"\r\n\r\n")
                lost.append(writer)
            async with aiohttp.ClientSession() as session:
                assert 'apiserver_longrunning_requests{verb="WATCH"} 5' in (await ask(session, port, "/metrics"))[2]
                for writer in lost:
                    writer.transport.abort()

                async def none_left():
                    return 'apiserver_longrunning_requests{verb="WATCH"} 0' in (await ask(session, port, "/metrics"))[2]

                await until(none_left)

    asyncio.run(run())


@pytest.mark.slow
def test_metrics_count_requests():
    async def run():
        guard = Authenticator({"t": User("a", ("system:masters",)), "weak": User("b")})
        async with serving(open_store(seed=1), guard) as port, aiohttp.ClientSession() as session:
            await ask(session, port, HOME)
            await ask(session, port, f"{HOME}/absent")
            await ask(session, port, HOME, "weak")
            await ask(session, port, HOME, "wrong")
            code, _, text = await ask(session, port, "/metrics")
            assert code == 200
            for line in (
                'apiserver_request_total{verb="LIST",group="",resource="configmaps",code="200"} 1',
                'apiserver_request_total{verb="GET",group="",resource="configmaps",code="404"} 1',
                'apiserver_request_total{verb="LIST",group="",resource="configmaps",code="403"} 1',
                'moorage_apiserver_other_requests_total{code="401"} 1',
                'apiserver_storage_objects{resource="namespaces"} 4',
            ):
                assert line in text.splitlines()
            assert (await ask(session, port, "/metrics", "weak"))[0] == 403
            assert (await ask(session, port, "/metrics", ""))[0] == 401

    asyncio.run(run())


@pytest.mark.slow
def test_verbose_health_lists_the_checks():
    async def run():
        async with serving(open_store(seed=1), Authenticator({})) as port, aiohttp.ClientSession() as session:
            for name in ("healthz", "livez", "readyz"):
                assert (await ask(session, port, f"/{name}", ""))[::2] == (200, "ok")
                assert (await ask(session, port, f"/{name}?verbose", ""))[2] == f"[+]ping ok\n{name} check passed\n"
                assert (await ask(session, port, f"/{name}", "", "POST"))[0] == 200

    asyncio.run(run())
