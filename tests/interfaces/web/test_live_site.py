"""The read-only half of the web interface in ``moorage run``: behind the scheduler's own authentication and authorization."""

import asyncio
import json
from dataclasses import replace

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from moorage.api.documents.http_messages import User
from moorage.interfaces.cli.live.run_explain import LiveExplainer
from moorage.interfaces.web.live_site import LiveSite
from moorage.live.server.authentication import RequestAuthenticator
from moorage.live.server.authorization import AccessDecision, OpenPaths, PathAccess, RequestAuthorizer
from moorage.live.server.endpoints import make_app
from moorage.simulator.simulate import Options, load_options
from tests.interfaces.web.test_site import NAMESPACES, PODS, Browser, a_store, bind, pod
from tests.live.server.test_endpoints import World
from tests.live.server.test_on_embedded_server import live_on

USERS = {"all": User("ann"), "team": User("tim"), "none": User("nick")}


class Reviews:
    """Reviews tokens and rights: ann may do everything, tim may list nodes and the pods of one namespace."""

    def __init__(self):
        self.valid = True

    async def review(self, token):
        return USERS.get(token) if self.valid else None

    async def access(self, caller, access):
        if isinstance(access, PathAccess):
            return AccessDecision(False)
        team = access.resource == "nodes" or (access.resource, access.namespace) == ("pods", "team")
        return AccessDecision(caller.name == "ann" or (caller.name == "tim" and team))


async def to_the_end(events):
    while True:
        await events.next()


def run(test):
    store = a_store(nodes=2, pods=("a", "b"))
    store.create(NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    store.create(PODS, "team", pod("mine", cpu="9"))
    bind(store, "a", "n1")

    async def main():
        async with live_on(store) as outside:
            await outside.live.loop.synced.wait()
            async with asyncio.timeout(20):
                while outside.live.loop.scheduler.cluster.table.pod_count.view.sum() < 2:
                    await asyncio.sleep(0.01)
            profiles = outside.live.loop.scheduler.profiles
            site, reviews = (
                LiveSite(outside.live, profiles, LiveExplainer(outside.live, profiles, load_options(Options())).answer),
                Reviews(),
            )
            who = RequestAuthenticator(reviews.review, lambda: 0.0, ttl_s=-1)
            world = World()
            app = make_app(
                replace(world.served, site=site), who, RequestAuthorizer(reviews, lambda: 0.0, OpenPaths(())), world.log
            )
            server = TestServer(app)
            await server.start_server()
            async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
                browser = Browser(http, server.port, None)
                browser.reviews, browser.store = reviews, store
                await test(browser)
            site.end()
            await server.close()

    asyncio.run(main())


@pytest.mark.slow
def test_the_map_is_behind_the_schedulers_own_rights():
    async def test(browser):
        assert (await browser.get("/ui/"))[0] == 200
        assert (await browser.get("/lab/v1/snapshot"))[0] == 401
        assert (await browser.get("/lab/v1/snapshot", Authorization="Bearer wrong"))[0] == 401
        status, found = await browser.get("/lab/v1/snapshot", Authorization="Bearer none")
        assert (status, found["message"]) == (
            403, 'nodes is forbidden: User "nick" cannot list resource "nodes" at the cluster scope'
        )  # fmt: skip
        _, found = await browser.get("/lab/v1/snapshot", Authorization="Bearer team")
        assert (found["user"], found["pods"]["key"]) == ("tim", ["team/mine"])
        assert "default/" not in json.dumps(found)
        for path in ("verdicts/default/b", "pods/default/b/explanation"):
            assert (await browser.get(f"/lab/v1/{path}", Authorization="Bearer team"))[0] == 403
        _, found = await browser.get("/lab/v1/snapshot", Authorization="Bearer all")
        assert sorted(found["pods"]["key"]) == ["default/a", "default/b", "team/mine"]
        state = dict(zip(found["pods"]["key"], found["pods"]["cause"], strict=True))
        assert state["team/mine"].startswith("0/2 nodes are available: 2 Insufficient cpu")
        status, _ = await browser.ask("POST", "/lab/v1/questions", {"question": {"report": {}}}, Authorization="Bearer all")
        assert status == 404

    run(test)


@pytest.mark.slow
def test_a_browser_enters_with_a_token_that_is_reviewed_again():
    async def test(browser):
        assert (await browser.ask("POST", "/lab/v1/session", {"token": "wrong"}))[0] == 401
        foreign = {"Origin": "https://evil.example"}
        assert (await browser.ask("POST", "/lab/v1/session", {"token": "all"}, **foreign))[0] == 403
        assert (await browser.ask("POST", "/lab/v1/session", {"token": "all"}))[0] == 204
        _, first = await browser.get("/lab/v1/snapshot")
        async with browser.events(first["id"]) as events:
            browser.store.create(PODS, "default", pod("c"))
            keys = set()
            while "default/c" not in keys:
                name, _, delta = await events.next()
                assert name == "delta"
                keys |= {one["key"] for one in delta["pods"]["set"]}
        status, found = await browser.get("/lab/v1/pods/team/mine/explanation")
        assert (status, found["kind"], found["answer"]["outcome"]) == (200, "Explanation", "pending")
        assert (await browser.get("/lab/v1/scores/default/b"))[1]["nodes"]
        assert (await browser.get("/lab/v1/setup"))[1]["profiles"][0]["schedulerName"] == "default-scheduler"
        assert (await browser.get("/lab/v1/history"))[1]["samples"]["pending"][-1] == 1
        async with browser.events() as events:
            browser.reviews.valid = False
            browser.store.create(PODS, "default", pod("d"))
            with pytest.raises((AssertionError, aiohttp.ClientError)):
                await to_the_end(events)
        assert (await browser.get("/lab/v1/snapshot"))[0] == 401

    run(test)
