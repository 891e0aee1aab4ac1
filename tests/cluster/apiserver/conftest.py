"""Stores with a stopped clock, and servers in the test's event loop or in a separate thread."""

import asyncio
import contextlib
import importlib.util
import io
import random
import threading
import time
from pathlib import Path

import aiohttp
import pytest

from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.access.bootstrap import bootstrap_cluster
from moorage.cluster.apiserver.http.serve import serving
from moorage.rules.store.store import Store
from tests.stores import clock, nodes, pods, store

__all__ = ["clock", "nodes", "pods", "store"]

TOKEN = "a-token-for-tests"
ADMIN = User("admin", ("system:masters",))


def make_store():
    store = Store(time.time, random.Random(5), b"k")
    bootstrap_cluster(store)
    return store


def make_guard():
    return Authenticator({TOKEN: ADMIN, "weak": User("stranger")})


class Client:
    """Sends requests and decodes responses as JSON."""

    token = TOKEN

    def __init__(self, session, port):
        self.session = session
        self.base = f"http://127.0.0.1:{port}"
        self.port = port

    async def ask(self, method, path, document=None, *, token=TOKEN, form="application/json", **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        body = document if isinstance(document, (bytes, type(None))) else aiohttp.payload.JsonPayload(document)
        if isinstance(body, bytes):
            body = io.BytesIO(body)
        if body is not None:
            headers["Content-Type"] = form
        async with self.session.request(method, self.base + path, data=body, headers=headers) as response:
            text = await response.read()
            is_json = text[:1] in (b"{", b"[") and text[:2] not in (b"[+", b"[-")
            return response.status, (await response.json(content_type=None) if is_json else text.decode())


def run_against_a_server(test, store=None):
    """Run an asynchronous test against its own server."""

    async def run():
        held = store or make_store()
        async with serving(held, make_guard()) as port, aiohttp.ClientSession() as session:
            await test(Client(session, port), held)

    asyncio.run(run())


@contextlib.contextmanager
def serve_in_a_thread(store, tls=None, guard=None):
    """Serve a store from another thread, and yield the port. Only the server may use the store meanwhile."""
    started, ports, ended = threading.Event(), [], []

    async def run():
        ended.append((asyncio.get_running_loop(), over := asyncio.Event()))
        async with serving(store, guard or make_guard(), tls=tls) as port:
            ports.append(port)
            started.set()
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert started.wait(10)
        yield ports[0]
    finally:
        loop, over = ended[0]
        loop.call_soon_threadsafe(over.set)
        thread.join(10)


@pytest.fixture
def token():
    return TOKEN


@pytest.fixture
def against_a_server():
    return run_against_a_server


@pytest.fixture(scope="session")
def server_in_a_thread():
    return serve_in_a_thread


@pytest.fixture(scope="session")
def new_store():
    """Return a factory of stores with the bootstrap objects."""
    return make_store


@pytest.fixture(scope="session")
def go_client():
    """Return the module of a client that sends what client-go sends."""
    spec = importlib.util.spec_from_file_location("go_client", Path(__file__).with_name("go_client.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
