"""Large requests run in a separate thread without blocking the event loop, and write the same as on the loop."""

import asyncio
import gc
import os
import random
import threading
import time

import msgspec
import pytest

from moorage.api.documents.http_messages import HTTPRequest
from moorage.api.documents.request_targets import find_target
from moorage.api.documents.served_kinds import ALL_KINDS, served
from moorage.api.documents.statuses import ApiError
from moorage.api.schema.value_limits import MAX_VALUES
from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.access.rbac import Authorizer
from moorage.cluster.apiserver.http.limits import ServerLimits, carry_out, is_heavy
from moorage.cluster.apiserver.http.requests import serve
from moorage.cluster.apiserver.http.responses import encode_response
from moorage.cluster.apiserver.http.serve import open_store, serving
from moorage.cluster.apiserver.http.worker import DeferredWork, Worker
from moorage.rules.store.store import MAX_OBJECT, Store

ADMIN = User("admin", ("system:masters",))
TOKEN = "a-token"
GUARD = Authenticator({TOKEN: ADMIN})
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
STRATEGIC, OPERATIONS = "application/strategic-merge-patch+json", "application/json-patch+json"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
MAPS = "/api/v1/namespaces/default/configmaps"


def pod(name="x", metadata=None, **spec):
    metadata = {"name": name, "namespace": "default", **(metadata or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


def config_map(name, data, **metadata):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "data": data,
    }


def containers(count, name="c"):
    return [{"name": f"{name}{i}", "image": "i"} for i in range(count)]


def make_store():
    store = open_store(seed=5)
    store.create(served("pods"), "default", pod())
    for i in range(1500):
        store.create(served("secrets"), "default", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"s{i}"}})
    store.create(served("configmaps"), "default", config_map("many", {f"k{i}": "v" for i in range(60_000)}))
    return store


# -- how long the loop is held -------------------------------------------------------------------------------------------

#: How many values each request has, about: half of the limit, as all of it takes twice as long.
M = MAX_VALUES if os.environ.get("MOORAGE_LONG_TESTS") else MAX_VALUES // 2
MANAGERS = [
    {"manager": f"m{i}", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "time": "2026-01-01T00:00:00Z",
     "fieldsV1": {"f:metadata": {"f:labels": {f"f:x{i}": {}}}}} for i in range(M // 24)
]  # fmt: skip
LABELS = {f"k{i}": "v" for i in range(M // 6)}
EVENT = {"apiVersion": "v1", "kind": "Event", "involvedObject": {"namespace": "default"}, "reason": "R"}
RULES = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": [f"n{i}"]} for i in range(M // 16)]
ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": RULES,
    "metadata": {"name": "r", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
}  # fmt: skip
HUGE = {"name": "i", "image": "i", "args": ["x" * MAX_OBJECT]}
TWICE = b",".join([b'"a":1'] * (M // 2 - 20))
INSERTS = [{"op": "add", "path": "/spec/containers/0", "value": one} for one in containers(9990)]


def encoded(document):
    return document if isinstance(document, bytes) else msgspec.json.encode(document)


#: Requests: method, path, body, its type, the type of the answer; and the answer's code.
LARGEST = {
    "a strategic merge patch": ("PATCH", f"{PODS}/x", {"spec": {"containers": containers(M // 5 - 9)}}, STRATEGIC, JSON, 422),
    "bad containers": ("POST", PODS, pod("y", containers=[{"name": f"_{i}"} for i in range(M // 3 - 20)]), JSON, JSON, 422),
    "tolerations": ("POST", PODS, pod("y", tolerations=[{}] * (M // 2 - 20)), JSON, JSON, 422),
    "bad labels": ("POST", PODS, pod("y", {"labels": {f"_{i}": "_" for i in range(M // 2 - 20)}}), JSON, JSON, 422),
    "inserts by JSON patch": ("PATCH", f"{PODS}/x", INSERTS, OPERATIONS, JSON, 422),
    "managers": ("PUT", f"{MAPS}/many", config_map("many", {}, managedFields=MANAGERS, labels={"a": "b"}), JSON, JSON, 200),
    "documents in YAML": ("POST", PODS, b"---\n" * (3 << 18), YAML, JSON, 422),
    "items in YAML": ("POST", PODS, b"kind: Pod\nmetadata: {name: _}\nx:\n" + b"- {}\n" * (M // 2 - 20), YAML, JSON, 422),
    "fields that stand twice": ("POST", PODS, b'{"kind":"Pod",' + TWICE + b"}", JSON, JSON, 422),
    "too many values": ("POST", PODS, pod("y", tolerations=[{}] * (10**6)), JSON, JSON, 413),
    "an object that is too large": ("POST", PODS, pod("y", initContainers=[HUGE]), JSON, JSON, 500),
    "an answer in YAML": ("GET", f"{MAPS}/many", b"", JSON, YAML, 200),
    "an answer in protobuf": ("GET", f"{MAPS}/many", b"", JSON, PROTOBUF, 200),
    "a table": ("GET", f"{MAPS}/many", b"", JSON, TABLE, 200),
    "a list in YAML": ("GET", MAPS, b"", JSON, YAML, 200),
    "a list as a table": ("GET", MAPS, b"", JSON, TABLE, 200),
    "a watch in protobuf": ("GET", f"{MAPS}?watch=1&timeoutSeconds=1&resourceVersion=0", b"", JSON, PROTOBUF, 200),
    "an event": ("POST", EVENTS, {**EVENT, "metadata": {"name": "e", "labels": LABELS}}, JSON, JSON, 201),
    "a role of which others are made": ("POST", ROLES, ROLE, JSON, JSON, 201),
    "a deletion of many": ("DELETE", "/api/v1/namespaces/default/secrets", b"", JSON, JSON, 200),
    "a deletion": ("DELETE", f"{MAPS}/many", b"", JSON, YAML, 200),
}  # fmt: skip


class Ticker:
    """Measures the longest time the loop was blocked, in seconds of this process's CPU time, which other processes do not
    affect.
    """

    def __init__(self):
        self.longest_s = 0.0

    async def run(self):
        last = time.process_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.process_time()
            self.longest_s = max(self.longest_s, now - last)
            last = time.process_time()


async def exchange(port, method, path, body=b"", form=JSON, accept=JSON):
    """Send a request, and return the code of its response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Type: {form}\r\nAccept: {accept}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    answer = await reader.read(16)
    while await reader.read(1 << 16):
        pass
    writer.close()
    return int(answer[9:12])


async def held_s(request):
    """Return a response's code, and how long the request blocks the loop while the server handles others."""
    method, path, document, form, accept = request
    body = encoded(document)
    async with serving(store := make_store(), GUARD) as port:
        ticker = Ticker()
        ticking = asyncio.create_task(ticker.run())
        asked = asyncio.create_task(exchange(port, method, path, body, form, accept))
        answered = 0
        while not asked.done():
            assert await exchange(port, "GET", "/readyz") == 200
            answered += 1
            await asyncio.sleep(0.02)
        while store.defer is not None and threading.active_count() > 1:
            await asyncio.sleep(0.02)  # what the request leads to
        ticking.cancel()
        assert answered > 0
        return await asked, ticker.longest_s


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGEST)
def test_no_request_blocks_the_loop(name):
    *request, code = LARGEST[name]
    gc.freeze()  # what the tests hold is no part of a server
    try:
        for _ in range(4):
            answered, longest_s = asyncio.run(held_s(request))
            if (answered, longest_s < 0.1) == (code, True):
                break  # a busy machine may delay the loop once, or the request until its deadline
        assert (answered, longest_s < 0.1) == (code, True), longest_s
    finally:
        gc.unfreeze()


@pytest.mark.slow
def test_what_a_large_change_leads_to_follows_soon():
    async def run():
        async with serving(store := open_store(seed=5), GUARD) as port:
            labels = {f"k{i}": "v" for i in range(2000)}
            event = {**EVENT, "metadata": {"name": "e", "labels": labels}}
            assert await exchange(port, "POST", EVENTS, encoded(event)) == 201
            assert await exchange(port, "POST", ROLES, encoded({**ROLE, "rules": RULES[:4000]})) == 201
            async with asyncio.timeout(20):
                while store.find(served("events", "events.k8s.io"), "default", "e") is None or len(view(store)) < 4000:
                    await asyncio.sleep(0.01)
            assert all(rule in view(store) for rule in RULES[:4000:1000])
            store.change(served("events"), "default", "e", lambda document: document.update(reason="S"))
            async with asyncio.timeout(20):
                while store.get(served("events", "events.k8s.io"), "default", "e").document()["reason"] != "S":
                    await asyncio.sleep(0.01)
            store.delete(served("events"), "default", "e")
            assert store.find(served("events", "events.k8s.io"), "default", "e") is None

    def view(store):
        return store.get(served("clusterroles", "rbac.authorization.k8s.io"), "", "view").document()["rules"]

    asyncio.run(run())


# -- what they write -----------------------------------------------------------------------------------------------------


def request(method, path, document=b"", form=JSON, accept=JSON, **query):
    return HTTPRequest(method, path, query, accept, form, encoded(document), ADMIN, "tests/1")


def beside(store, asked, before_change=lambda: None):
    """Handle a request like the worker's thread; ``others`` act before each change."""

    def ask(function):
        before_change()
        return function()

    return carry_out(store, GUARD, asked, find_target(asked.path, ALL_KINDS), ask)


def at_once(store, asked):
    return encode_response(asked, serve(store, GUARD, Authorizer(store), asked, find_target(asked.path, ALL_KINDS)))


def outcome(carry_out, store, asked):
    """Return the result of a request: its response or error, and the stored objects."""
    try:
        answer = carry_out(store, asked)
        told = answer.code, b"".join(answer.parts)
    except ApiError as error:
        told = error.code, error.message
    return (
        told,
        store.version,
        {kind: list(store.all(kind)) for kind in (served("pods"), served("configmaps"), served("namespaces"))},
    )


LIMITED = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "3"}}}
REQUESTS = {
    "create": request("POST", MAPS, config_map("y", {"a": "b"})),
    "create with a name that is made": request("POST", MAPS, config_map("", {"a": "b"}, generateName="y-")),
    "create what is there": request("POST", PODS, pod()),
    "an invalid create": request("POST", PODS, pod("_")),
    "create for show": request("POST", MAPS, config_map("y", {}), dryRun="All"),
    "replace": request("PUT", f"{MAPS}/many", config_map("many", {"a": "b"})),
    "replace nothing": request("PUT", f"{MAPS}/none", config_map("none", {"a": "b"})),
    "replace another version": request("PUT", f"{MAPS}/many", config_map("many", {}, resourceVersion="1")),
    "patch": request("PATCH", f"{PODS}/x", {"metadata": {"labels": {"a": "b"}}}, STRATEGIC),
    "patch for show": request("PATCH", f"{PODS}/x", {"metadata": {"labels": {"a": "b"}}}, STRATEGIC, dryRun="All"),
    "patch nothing": request("PATCH", f"{PODS}/x", {}, STRATEGIC),
    "apply": request("PATCH", f"{MAPS}/new", config_map("new", {"a": "b"}), "application/apply-patch+yaml", fieldManager="me"),
    "bind": request("POST", f"{PODS}/x/binding", {"metadata": {"name": "x"}, "target": {"kind": "Node", "name": "n"}}),
    "evict": request("POST", f"{PODS}/x/eviction", {"metadata": {"name": "x"}}),
    "delete": request("DELETE", f"{MAPS}/many"),
    "delete a pod": request("DELETE", f"{PODS}/x"),
    "delete a namespace": request("DELETE", "/api/v1/namespaces/default"),
    "read as YAML": request("GET", f"{PODS}/x", accept=YAML),
    "review": request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": TOKEN}}),
}


def small_store():
    store = Store(lambda: 1_790_000_000.0, random.Random(5), b"k")
    store.create(served("pods"), "default", pod())
    store.create(served("configmaps"), "default", config_map("many", {"k": "v"}))
    store.create(served("resourcequotas"), "default", msgspec.json.decode(msgspec.json.encode(LIMITED)))
    return store


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_has_the_same_result_in_a_thread_as_on_the_loop(name):
    assert outcome(beside, small_store(), REQUESTS[name]) == outcome(at_once, small_store(), REQUESTS[name])


def labelled(store, labels):
    store.change(served("pods"), "default", "x", lambda document: document["metadata"].update(labels=labels))


def test_concurrent_changes_are_not_lost():
    store, changes = small_store(), [{"theirs": "1"}]
    asked = request("PATCH", f"{PODS}/x", {"metadata": {"labels": {"mine": "1"}}}, STRATEGIC)
    assert beside(store, asked, lambda: labelled(store, changes.pop()) if changes else None).code == 200
    assert store.get(served("pods"), "default", "x").labels == {"theirs": "1", "mine": "1"}


def test_constant_changes_are_a_conflict():
    store, numbers = small_store(), iter(range(100))
    asked = request("PATCH", f"{PODS}/x", {"metadata": {"labels": {"mine": "1"}}}, STRATEGIC)
    with pytest.raises(ApiError, match='pods "x": the object has been modified; please apply') as caught:
        beside(store, asked, lambda: labelled(store, {"theirs": str(next(numbers))}))
    assert (caught.value.code, next(numbers)) == (409, 5)
    assert store.get(served("pods"), "default", "x").labels == {"theirs": "4"}


def test_a_name_taken_meanwhile_is_a_conflict():
    store, others = small_store(), [config_map("y", {"theirs": "1"})]
    asked = request("POST", MAPS, config_map("y", {"mine": "1"}))
    with pytest.raises(ApiError, match="already exists"):
        beside(store, asked, lambda: store.create(served("configmaps"), "default", others.pop()) if others else None)
    assert store.get(served("configmaps"), "default", "y").document()["data"] == {"theirs": "1"}


def test_a_quota_used_up_meanwhile_is_enforced():
    store = small_store()
    store.change(
        served("resourcequotas"), "default", "q",
        lambda quota: quota.update(status={"hard": {"configmaps": "3"}, "used": {"configmaps": "2"}}), subresource="status",
    )  # fmt: skip
    others = [config_map("theirs", {})]
    asked = request("POST", MAPS, config_map("mine", {}))
    with pytest.raises(ApiError, match="exceeded quota: q"):
        beside(store, asked, lambda: store.create(served("configmaps"), "default", others.pop()) if others else None)


def test_the_size_of_an_object_is_limited():
    store = small_store()
    document = pod("y", initContainers=[{"name": "i", "image": "i", "args": ["x" * MAX_OBJECT]}])
    with pytest.raises(ApiError) as caught:
        at_once(store, request("POST", PODS, document))
    assert (caught.value.code, caught.value.reason, caught.value.message) == (500, "", "etcdserver: request is too large")
    document["spec"]["initContainers"][0]["args"] = ["x" * (MAX_OBJECT - 10_000)]
    assert at_once(store, request("POST", PODS, document)).code == 201


@pytest.mark.parametrize("form", [JSON, YAML])
def test_the_number_of_values_in_a_body_is_limited(form):
    def asked(text):
        return request(
            "POST", MAPS, b'{"kind": "ConfigMap", "metadata": {"name": "y"}, "data": {"a": "%b"}, "x": [%b]}' % text, form
        )

    with pytest.raises(ApiError, match=f"limit is {MAX_VALUES} values") as caught:
        at_once(small_store(), asked((b"", b",".join([b"1"] * (MAX_VALUES + 1)))))
    assert caught.value.code == 413
    # In a text they are no values.
    assert at_once(small_store(), asked((b'[{:, \\"' * (MAX_VALUES // 10), b"1"))).code == 201


# -- the thread ----------------------------------------------------------------------------------------------------------


def test_small_requests_stay_on_the_loop():
    assert not is_heavy(encoded(pod(containers=containers(200))))
    assert is_heavy(encoded(pod(containers=containers(2000))))
    assert not is_heavy(b'{"a":"' + b"x" * 200_000 + b'"}')
    assert is_heavy(b'{"a":"' + b"x" * 300_000 + b'"}')
    assert is_heavy(b"a: b\n" * 2000, counted=False)


def test_large_requests_queue_and_users_take_turns():
    async def run():
        worker = Worker(ServerLimits(large_waiting=4, large_per_client=3))
        done, gate, threads = [], threading.Event(), set()

        def work(name, ask):
            threads.add(threading.get_ident())
            assert gate.wait(10)
            ask(lambda: done.append(name))
            return name

        async def asked(client, name):
            return await worker.run(client, lambda ask: work(name, ask))

        tasks = [
            asyncio.create_task(asked(client, name)) for client, name in (("a", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 5))
        ]
        await asyncio.sleep(0.01)
        for client in "ac":  # one of them has too many, then all together
            with pytest.raises(ApiError, match="too many large requests") as caught:
                await asked(client, 6)
            assert (caught.value.code, caught.value.retry_after_s) == (429, 1)
        assert threading.active_count() == 2
        gate.set()
        assert await asyncio.gather(*tasks) == [1, 2, 3, 4, 5]
        assert done == [1, 2, 5, 3, 4]
        assert threading.get_ident() not in threads

    asyncio.run(run())


def test_a_large_request_that_times_out_changes_nothing():
    async def run():
        worker, gate, changes = Worker(ServerLimits(large_s=0.3)), threading.Event(), []

        def work(ask):
            assert gate.wait(10)
            ask(lambda: changes.append("too late"))

        with pytest.raises(ApiError, match="Timeout: request did not complete within requested timeout") as caught:
            await worker.run("a", work)
        assert caught.value.code == 504
        gate.set()
        assert await worker.run("a", lambda ask: ask(lambda: "next")) == "next"
        assert changes == []

    asyncio.run(run())


def test_deferred_work_that_fails_does_not_stop_the_rest(caplog):
    async def run():
        deferred, done = DeferredWork(Worker(ServerLimits())), []
        deferred.add("a", lambda ask: 1 / 0)
        deferred.add("b", lambda ask: done.append("replaced"))
        deferred.add("b", lambda ask: done.append("b"))
        async with asyncio.timeout(10):
            while not done:
                await asyncio.sleep(0)
        await deferred.close()
        assert done == ["b"]

    asyncio.run(run())
    assert [record.getMessage() for record in caplog.records] == ["deferred work on a"]
