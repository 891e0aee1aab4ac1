"""The web interface on the embedded server: sessions, the snapshot and the events, as a browser uses them."""

import asyncio
import json
import random
import time
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import pytest

from moorage.api.core import Pod
from moorage.api.documents.http_messages import User
from moorage.api.documents.served_kinds import served
from moorage.api.meta import ObjectMeta
from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.access.bootstrap import bootstrap_cluster
from moorage.cluster.apiserver.http.serve import serving
from moorage.interfaces.web import change_stream as hub_module
from moorage.interfaces.web import site as site_module
from moorage.interfaces.web.embedded_site import EmbeddedSite, StoreSource
from moorage.interfaces.web.rows import pod_row
from moorage.rules.store import subresources as pod_subresources
from moorage.rules.store.store import Store
from tests.cluster.apiserver.custom_kinds import ask, define, definition, widget

NODES, PODS, NAMESPACES = served("nodes"), served("pods"), served("namespaces")
DEPLOYMENTS = served("deployments", "apps")
ADMIN = User("admin", ("system:masters",))


def a_store(nodes=2, pods=()):
    store = Store(time.time, random.Random(5), b"k")
    bootstrap_cluster(store)
    for number in range(nodes):
        store.create(NODES, "", node(f"n{number}"))
    for name in pods:
        store.create(PODS, "default", pod(name))
    return store


def node(name, **labels):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": "a", **labels}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110", "x.io/gpu": "2"}},
    }


def pod(name, cpu="500m"):
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    return {**head, "spec": {"containers": [container]}}


def bind(store, name, where):
    pod_subresources.bind(store, "default", name, {"metadata": {"name": name}, "target": {"kind": "Node", "name": where}})


class Browser:
    def __init__(self, http, port, site):
        self.http, self.port, self.site = http, port, site
        self.base = f"http://127.0.0.1:{port}"

    async def enter(self, user=ADMIN):
        token = self.site.sessions.make_token(user)
        assert (await self.ask("POST", "/lab/v1/session", {"token": token}))[0] == 204
        return token

    async def ask(self, method, path, body=None, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.http.request(method, self.base + path, json=body, headers=headers) as response:
            self.headers = response.headers
            text = await response.text()
            return response.status, json.loads(text) if text.startswith("{") else text

    async def get(self, path, **headers):
        return await self.ask("GET", path, **headers)

    @asynccontextmanager
    async def events(self, after="", **headers):
        async with self.http.get(f"{self.base}/lab/v1/events", params={"after": after}, headers=headers) as response:
            assert response.status == 200, await response.text()
            yield Events(response)


class Events:
    def __init__(self, response):
        self.response = response

    async def next(self, seconds=5):
        """Return the next event: its name, id and data."""
        found = {}
        async with asyncio.timeout(seconds):
            async for line in self.response.content:
                text = line.decode().rstrip("\n")
                if not text and "event" in found:
                    return found["event"], found["id"], json.loads(found["data"])
                key, colon, value = text.partition(": ")
                if colon and key:
                    found[key] = value
        raise AssertionError("the stream ended")


def browse(test, store=None, users=None, **given):
    async def run():
        held = store or a_store()
        site = EmbeddedSite(held, **given)
        guard = Authenticator(users or {"secret": ADMIN})
        jar = aiohttp.CookieJar(unsafe=True)
        async with serving(held, guard, site=site) as port, aiohttp.ClientSession(cookie_jar=jar) as http:
            await test(Browser(http, port, site), held)

    asyncio.run(run())


# -- sessions -----------------------------------------------------------------------------------------------------------


def test_a_link_opens_one_session_and_no_second_one():
    async def test(browser, store):
        assert (await browser.get("/lab/v1/snapshot"))[0] == 401
        token = await browser.enter()
        cookie = browser.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert f"moorage-{browser.port}=" in cookie
        assert (await browser.get("/lab/v1/snapshot"))[0] == 200
        for at in ("nan", "1e12", "-1", "x"):
            assert (await browser.get(f"/lab/v1/snapshot?at={at}"))[0] == 400
        assert (await browser.ask("POST", "/lab/v1/session", {"token": token}))[0] == 401
        async with browser.events() as events:
            assert (await browser.ask("DELETE", "/lab/v1/session"))[0] == 204
            with pytest.raises((AssertionError, aiohttp.ClientError)):
                await events.next()
        assert (await browser.get("/lab/v1/snapshot"))[0] == 401

    browse(test)


def test_the_page_needs_no_session_and_allows_no_foreign_script():
    async def test(browser, store):
        for path, media in {"/ui/": "text/html", "/ui/app.js": "text/javascript", "/ui/app.css": "text/css"}.items():
            assert (await browser.get(path))[0] == 200
            assert browser.headers["Content-Type"].startswith(media)
            policy = browser.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        for path in ("/ui/app.html", "/ui/source.sha256", "/ui/x"):
            assert (await browser.get(path))[0] == 404

    browse(test)


def test_a_credential_makes_links_and_a_session_does_not():
    async def test(browser, store):
        status, link = await browser.ask("POST", "/lab/v1/links", {}, Authorization="Bearer secret")
        assert status == 201
        assert (await browser.ask("POST", "/lab/v1/session", {"token": link["token"]}))[0] == 204
        assert (await browser.get("/lab/v1/snapshot"))[1]["user"] == "admin"
        assert (await browser.ask("POST", "/lab/v1/links", {}))[0] == 403

    browse(test)


FOREIGN = {
    "another host": {"Host": "evil.example"},
    "a page of another origin": {"Origin": "https://evil.example"},
    "a page of another site": {"Sec-Fetch-Site": "cross-site"},
    "a page of another port": {"Sec-Fetch-Site": "same-site"},
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
def test_requests_from_elsewhere_are_refused_with_a_session_too(headers):
    async def test(browser, store):
        await browser.enter()
        for method, path, body in (("GET", "/lab/v1/snapshot", None), ("POST", "/lab/v1/session", {"token": "x"})):
            assert (await browser.ask(method, path, body, **headers))[0] == 403
        assert (await browser.get("/ui/", **headers))[0] == 403

    browse(test)


# -- what is shown ------------------------------------------------------------------------------------------------------


def test_workloads_that_lack_pods_come_with_what_their_controller_was_refused():
    head = {"name": "web", "namespace": "default"}
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota: few"}
    spec = {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}

    def deployment():
        kind = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": dict(head)}
        return {**kind, "spec": {**spec, "template": template}}

    def report(store, status):
        held = store.find(DEPLOYMENTS, "default", "web").document()
        changed = {**held, "status": {**status, "observedGeneration": 1}}
        store.update(DEPLOYMENTS, "default", "web", changed, subresource="status")

    async def test(browser, store):
        await browser.enter()
        found = (await browser.get("/lab/v1/snapshot"))[1]
        lacks = {"key": "default/Deployment/web", "wanted": 3, "existing": 1, "ready": 0, "why": "exceeded quota: few"}
        assert found["lacking"] == [lacks]
        async with browser.events(found["id"]) as events:
            for status, expected in (
                ({"replicas": 3, "readyReplicas": 1}, [{**lacks, "existing": 3, "ready": 1, "why": ""}]),
                ({"replicas": 3, "readyReplicas": 3}, []),
            ):
                report(store, status)
                assert (await events.next())[2]["lacking"] == expected

    store = a_store()
    store.create(DEPLOYMENTS, "default", deployment())
    report(store, {"replicas": 1, "conditions": [failure]})
    browse(test, store)


def test_the_snapshot_has_one_column_for_each_fact():
    async def test(browser, store):
        bind(store, "a", "n1")
        status, found = await browser.get("/lab/v1/snapshot", Authorization="Bearer secret")
        assert status == 200
        assert (found["kind"], found["user"], found["live"], found["writable"]) == ("Snapshot", "admin", True, False)
        assert found["resources"] == ["cpu", "memory", "pods", "x.io/gpu"]
        nodes, pods = found["nodes"], found["pods"]
        assert nodes["name"] == ["n0", "n1"]
        assert nodes["zone"] == ["a", "a"]
        assert nodes["allocatable"]["cpu"] == [4000, 4000]
        assert nodes["requested"]["cpu"] == [0, 500]
        assert nodes["allocatable"]["x.io/gpu"] == [2, 2]
        assert nodes["requested"]["pods"] == [0, 1]
        assert pods["key"] == ["default/a", "default/b"]
        assert pods["node"] == [1, -1]
        assert pods["state"] == ["bound", "pending"]
        assert pods["requests"]["cpu"] == [500, 500]
        assert found["causes"] == [{"text": "", "pods": 1}]
        assert len({len(column) for column in [*nodes.values(), *pods.values()] if isinstance(column, list)}) == 1

    browse(test, a_store(pods=("a", "b")))


def test_changes_arrive_as_deltas_that_resume_after_the_last_one():
    async def test(browser, store):
        await browser.enter()
        _, found = await browser.get("/lab/v1/snapshot")
        async with browser.events(found["id"]) as events:
            store.create(PODS, "default", pod("b"))
            bind(store, "a", "n0")
            name, last, delta = await events.next()
        assert name == "delta"
        assert {one["key"]: one["node"] for one in delta["pods"]["set"]} == {"default/a": "n0", "default/b": None}
        assert [(one["name"], one["requested"]["cpu"]) for one in delta["nodes"]["set"]] == [("n0", 500)]
        assert [(one["pod"], one["result"]) for one in delta["attempts"]] == [("default/a", "scheduled")]
        store.delete(PODS, "default", "b")
        async with browser.events(**{"Last-Event-ID": last}) as events:
            name, last, delta = await events.next()
        assert (name, delta["pods"]) == ("delta", {"set": [], "gone": ["default/b"]})
        async with browser.events("00000000-1") as events:
            assert (await events.next())[0] == "reset"

    browse(test, a_store(pods=("a",)))


def test_a_user_sees_the_pods_of_the_namespaces_that_they_may_list():
    store = a_store(pods=("secret",))
    store.create(NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    store.create(PODS, "team", pod("mine"))
    allow(store, "clusterroles", "", "nodes")
    allow(store, "roles", "team", "pods")

    async def test(browser, store):
        status, found = await browser.get("/lab/v1/snapshot", Authorization="Bearer weak")
        assert (status, found["message"]) == (
            403, 'nodes is forbidden: User "weak" cannot list resource "nodes" in API group "" at the cluster scope'
        )  # fmt: skip
        await browser.enter(User("tim"))
        _, found = await browser.get("/lab/v1/snapshot")
        assert (found["user"], found["nodes"]["name"], found["pods"]["key"]) == ("tim", ["n0", "n1"], ["team/mine"])
        async with browser.events(found["id"]) as events:
            bind(store, "secret", "n0")
            store.delete(PODS, "team", "mine")
            _, _, delta = await events.next()
        assert delta["pods"] == {"set": [], "gone": ["team/mine"]}
        assert delta["attempts"] == []
        assert [one["name"] for one in delta["nodes"]["set"]] == ["n0"]
        for path in ("history", "snapshot", f"snapshot?at={time.time()}"):
            assert "secret" not in json.dumps((await browser.get(f"/lab/v1/{path}"))[1])
        assert (await browser.get("/lab/v1/verdicts/default/secret"))[0] == 403

    browse(test, store, {"weak": User("weak"), "secret": ADMIN})


def allow(store, roles, namespace, resource):
    """Let tim list a resource."""
    group = "rbac.authorization.k8s.io"
    kind = "ClusterRole" if roles == "clusterroles" else "Role"
    rules = [{"apiGroups": [""], "resources": [resource], "verbs": ["list"]}]
    store.create(served(roles, group), namespace, {"metadata": {"name": "see"}, "rules": rules})
    subjects = [{"kind": "User", "name": "tim", "apiGroup": group}]
    binding = {"metadata": {"name": "see"}, "subjects": subjects, "roleRef": {"apiGroup": group, "kind": kind, "name": "see"}}
    store.create(served(roles.replace("roles", "rolebindings"), group), namespace, binding)


# -- attacks ------------------------------------------------------------------------------------------------------------


def test_names_and_causes_stay_text():
    hostile = "</script><img src=x onerror=alert(1)>\nevent: reset\ndata: {}\n\n\u2028"
    store = a_store()
    labels = {"metadata": {"name": "odd", "labels": {"a": "b"}, "annotations": {"note": hostile}}}
    store.create(NODES, "", {**node("odd"), **labels})
    store.create(PODS, "default", pod("web"))

    def blame(found):
        found["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "R", "message": hostile}]
        return found

    async def test(browser, store):
        await browser.enter()
        _, found = await browser.get("/lab/v1/snapshot")
        assert browser.headers["Content-Type"] == "application/json"
        assert browser.headers["X-Content-Type-Options"] == "nosniff"
        async with browser.events(found["id"]) as events:
            store.change(PODS, "default", "web", blame, subresource="status")
            name, _, delta = await events.next()
        assert (name, delta["pods"]["set"][0]["cause"]) == ("delta", hostile)
        assert delta["causes"] == [{"text": hostile, "pods": 1}]

    browse(test, store)


@pytest.mark.slow
def test_a_reader_that_stops_reading_is_disconnected(monkeypatch):
    monkeypatch.setattr(site_module, "_PATIENCE_S", 0.3)
    monkeypatch.setattr(hub_module, "FRAME_S", 0.01)

    async def test(browser, store):
        reader, writer = await asyncio.open_connection("127.0.0.1", browser.port, limit=1024)
        writer.write(b"GET /lab/v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n\r\n")
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        streams = browser.site.site.streams
        assert len(streams) == 1
        async with asyncio.timeout(30):
            number = 0
            while streams:
                for at in range(300):
                    row = pod_row(Pod(metadata=ObjectMeta(name=f"p{at}", namespace="default")))
                    browser.site.hub.mirror.put_pod(msgspec.structs.replace(row, cause="x" * 900 + str(number)), 0.0)
                number += 1
                await asyncio.sleep(0.02)
        writer.close()

    browse(test)


# -- what questions read ------------------------------------------------------------------------------------------------


def test_questions_read_queues_that_the_cluster_has_and_no_other_custom_kinds():
    store = a_store()
    source = StoreSource(store, None)
    define(store, definition({"type": "object"}))
    assert not any(kind.custom for kind in source.kinds())
    flavors = definition({"type": "object"})
    names = {"plural": "resourceflavors", "kind": "ResourceFlavor"}
    version = {**flavors["spec"]["versions"][0], "name": "v1beta2"}
    flavors["metadata"]["name"] = "resourceflavors.kueue.x-k8s.io"
    flavors["spec"] |= {"group": "kueue.x-k8s.io", "scope": "Cluster", "names": names, "versions": [version]}
    define(store, flavors)
    made = {**widget("gpu"), "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor"}
    assert ask(store, "POST", "/apis/kueue.x-k8s.io/v1beta2/resourceflavors", made)[0] == 201
    assert [kind.resource for kind in source.kinds() if kind.custom] == ["resourceflavors"]
    assert any(b"ResourceFlavor" in record.body and record.name == "gpu" for record in source.records())
