"""The server over HTTP: verbs, representations, watches and rejected requests."""

import asyncio
import json
import random
import re
from pathlib import Path

import pytest

from moorage.api.documents.served_kinds import KINDS, MEASURED, REVIEWS, enabled_kinds
from moorage.cluster.apiserver.access.authentication import Authenticator
from moorage.cluster.apiserver.http.serve import serving
from moorage.errors import ConfigError
from moorage.rules.store.store import Store

TOKEN = "a-token-for-tests"
PODS = "/api/v1/namespaces/default/pods"
#: The gates of kinds that 1.37 opens by default.
OPEN = frozenset(["DRADeviceTaintRules", "StorageVersionMigrator"])


def pod(name="web", **more):
    metadata = {"name": name, "labels": {"app": name}}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, **more}


def test_an_object_is_created_changed_and_deleted(against_a_server):
    async def test(client, _):
        code, made = await client.ask("POST", PODS, pod())
        assert (code, made["metadata"]["namespace"]) == (201, "default")
        code, listed = await client.ask("GET", "/api/v1/pods?labelSelector=app%3Dweb")
        assert (code, listed["kind"]) == (200, "PodList")
        head = {"kind": "Pod", "apiVersion": "v1"}
        assert [{**head, **one} for one in listed["items"]] == [made]
        assert not listed["items"][0].keys() & head.keys()
        code, bound = await client.ask("POST", f"{PODS}/web/binding", {"metadata": {"name": "web"}, "target": {"name": "n1"}})
        assert (code, bound["status"], bound["code"]) == (201, "Success", 201)
        patch = {"metadata": {"annotations": {"a": "b"}}}
        code, patched = await client.ask("PATCH", f"{PODS}/web", patch, form="application/merge-patch+json")
        assert (code, patched["metadata"]["annotations"], patched["spec"]["nodeName"]) == (200, {"a": "b"}, "n1")
        code, status = await client.ask("PUT", f"{PODS}/web/status", {**patched, "status": {"phase": "Running"}})
        assert (code, status["status"]) == (200, {"phase": "Running", "qosClass": "BestEffort"})
        code, evicted = await client.ask("POST", f"{PODS}/web/eviction", {"metadata": {"name": "web"}})
        assert (code, evicted["status"]) == (201, "Success")
        code, ending = await client.ask("GET", f"{PODS}/web")
        assert ending["metadata"]["deletionGracePeriodSeconds"] == 30
        code, _ = await client.ask("DELETE", f"{PODS}/web?gracePeriodSeconds=0")
        assert code == 200
        code, gone = await client.ask("GET", f"{PODS}/web")
        assert (code, gone["message"]) == (404, 'pods "web" not found')

    against_a_server(test)


@pytest.mark.slow
def test_one_of_fifty_concurrent_bindings_succeeds(against_a_server):
    async def test(client, store):
        await client.ask("POST", PODS, pod())
        sent = [{"metadata": {"name": "web"}, "target": {"kind": "Node", "name": f"n{i}"}} for i in range(50)]
        answers = await asyncio.gather(*(client.ask("POST", f"{PODS}/web/binding", one) for one in sent))
        assert sorted(code for code, _ in answers) == [201] + [409] * 49

    against_a_server(test)


def test_yaml_is_read_and_a_scale_is_written(against_a_server):
    body = b"""
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  selector: {matchLabels: {a: b}}
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}
"""

    async def test(client, _):
        path = "/apis/apps/v1/namespaces/default/deployments"
        code, made = await client.ask("POST", path, body, form="application/yaml")
        assert (code, made["spec"]["replicas"], made["spec"]["strategy"]["type"]) == (201, 1, "RollingUpdate")
        code, scale = await client.ask("GET", f"{path}/d/scale")
        assert (scale["kind"], scale["status"]["selector"]) == ("Scale", "a=b")
        scale["spec"]["replicas"] = 5
        assert (await client.ask("PUT", f"{path}/d/scale", scale))[1]["spec"] == {"replicas": 5}
        assert (await client.ask("PUT", f"{path}/d/scale", scale))[0] == 409
        code, refused = await client.ask(
            "PATCH", f"{path}/d/scale", {"spec": {"replicas": -1}}, form="application/merge-patch+json"
        )
        assert (code, refused["reason"]) == (422, "Invalid")
        assert (await client.ask("GET", f"{path}/d"))[1]["metadata"]["generation"] == 2

    against_a_server(test)


def test_tables_are_sent_on_request(against_a_server):
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

    async def test(client, _):
        await client.ask("POST", PODS, pod())
        code, shown = await client.ask("GET", PODS, Accept=accept)
        names = [column["name"] for column in shown["columnDefinitions"] if not column["priority"]]
        assert names == ["Name", "Ready", "Status", "Restarts", "Age"]
        assert shown["rows"][0]["cells"][:4] == ["web", "0/1", "Pending", "0"]
        assert shown["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
        for kind in enabled_kinds(OPEN):
            place = f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"
            code, shown = await client.ask("GET", f"/{place}/{kind.resource}", Accept=accept)
            assert (code, shown["kind"]) == (200, "Table"), kind

    against_a_server(test)


async def _lines(client, path, count):
    """Return the first events of a watch."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with client.session.get(client.base + path, headers=headers) as response:
        assert response.status == 200
        return [json.loads(await response.content.readline()) for _ in range(count)]


@pytest.mark.slow
def test_a_watch_reports_changes(against_a_server):
    async def test(client, store):
        start = store.version
        seeing = asyncio.create_task(_lines(client, f"{PODS}?watch=true&resourceVersion={start}", 4))
        await client.ask("POST", PODS, pod())
        await client.ask("PATCH", f"{PODS}/web", {"metadata": {"labels": {"x": "y"}}}, form="application/merge-patch+json")
        await client.ask("DELETE", f"{PODS}/web")
        async with asyncio.timeout(10):
            seen = await seeing
        assert [one["type"] for one in seen] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
        assert [int(one["object"]["metadata"]["resourceVersion"]) for one in seen] == [start + i for i in (1, 2, 3, 4)]

    against_a_server(test)


def test_a_watch_list_ends_its_initial_events_with_a_bookmark(against_a_server):
    async def test(client, store):
        await client.ask("POST", PODS, pod())
        path = f"{PODS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        async with asyncio.timeout(10):
            added, mark = await _lines(client, path, 2)
        assert (added["type"], mark["type"]) == ("ADDED", "BOOKMARK")
        assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert mark["object"]["metadata"]["resourceVersion"] == str(store.version)

    against_a_server(test)


def test_an_unsupported_watch_list_is_rejected_in_the_stream(against_a_server):
    """As by a kube-apiserver over an etcd without progress notification."""

    async def test(client, store):
        store.lists_by_watch = False
        path = f"{PODS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        async with asyncio.timeout(10):
            (seen,) = await _lines(client, path, 1)
        text = "a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled"
        assert seen == {
            "type": "ERROR",
            "object": {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": text,
                       "reason": "InternalError", "code": 500},
        }  # fmt: skip

    against_a_server(test)


def test_a_watch_from_an_expired_version_reports_it_in_the_stream(against_a_server, clock):
    store = Store(clock, random.Random(1), b"k", capacity=2)

    async def test(client, _):
        for i in range(5):
            await client.ask("POST", PODS, pod(f"p{i}"))
        async with asyncio.timeout(10):
            (seen,) = await _lines(client, f"{PODS}?watch=true&resourceVersion=1", 1)
        assert (seen["type"], seen["object"]["code"], seen["object"]["reason"]) == ("ERROR", 410, "Expired")

    against_a_server(test, store)


@pytest.mark.slow
def test_a_watch_ends_at_its_timeout(against_a_server):
    async def test(client, _):
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with client.session.get(f"{client.base}{PODS}?watch=true&timeoutSeconds=1", headers=headers) as response:
            async with asyncio.timeout(10):
                assert await response.read() == b""

    against_a_server(test)


def test_discovery_lists_every_kind_in_both_formats(against_a_server):
    async def test(client, _):
        code, groups = await client.ask("GET", "/apis")
        listed = set()
        for place in ["/api/v1", *(f"/apis/{one['preferredVersion']['groupVersion']}" for one in groups["groups"])]:
            code, resources = await client.ask("GET", place)
            assert code == 200
            listed |= {one["kind"] for one in resources["resources"] if "/" not in one["name"]}
        assert listed == {one.kind for one in (*enabled_kinds(OPEN), *MEASURED, *REVIEWS)}
        shown = set()
        for root in ("/api", "/apis"):
            code, answer = await client.ask(
                "GET", root, Accept="application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            )
            assert answer["kind"] == "APIGroupDiscoveryList"
            shown |= {one["responseKind"]["kind"] for item in answer["items"] for one in item["versions"][0]["resources"]}
        assert shown == listed
        code, index = await client.ask("GET", "/openapi/v3")
        for place in index["paths"].values():
            assert (await client.ask("GET", place["serverRelativeURL"]))[0] == 200

    against_a_server(test)


def test_a_namespace_is_finalized_through_its_subresource(against_a_server):
    async def test(client, store):
        store.empties_namespaces = False
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        assert (await client.ask("POST", "/api/v1/namespaces", space))[1]["spec"] == {"finalizers": ["kubernetes"]}
        assert (await client.ask("PUT", "/api/v1/namespaces/team", {**space, "spec": {}}))[1]["spec"]["finalizers"] == [
            "kubernetes"
        ]
        for _ in range(2):
            status, held = await client.ask("DELETE", "/api/v1/namespaces/team")
            assert (status, held["kind"], held["status"]["phase"]) == (200, "Namespace", "Terminating")
        for method in ("GET", "PATCH", "DELETE"):
            assert (await client.ask(method, "/api/v1/namespaces/team/finalize", {}))[0] == 405
        assert (await client.ask("PUT", "/api/v1/namespaces/team/finalize", {**space, "spec": {"finalizers": ["x"]}}))[0] == 422
        status, held = await client.ask("PUT", "/api/v1/namespaces/team/finalize", {**space, "spec": {}})
        assert (status, held["spec"]) == (200, {})
        assert (await client.ask("GET", "/api/v1/namespaces/team"))[0] == 404

    against_a_server(test)


# -- the door -----------------------------------------------------------------------------------------------------------


#: Each line doubles the one before it.
ALIASES = b"a0: &a0 [1,1]\n" + b"".join(b"a%d: &a%d [*a%d,*a%d]\n" % (i, i, i - 1, i - 1) for i in range(1, 25))
BODIES = {
    "no JSON": (b"{", "application/json", 400),
    "a form": (b"a=b", "application/x-www-form-urlencoded", 415),
    "plain text": (b"{}", "text/plain", 415),
    "protobuf of nothing": (b"k8s\x00", "application/vnd.kubernetes.protobuf", 400),
    "CBOR": (b"\xd9\xd9\xf7\xa0", "application/cbor", 415),
    "too much": (b" " * (3 * 2**20 + 1), "application/json", 413),
    "too deep": (b'{"metadata":{"name":"x"},"y":' + b"[" * 100 + b"]" * 100 + b"}", "application/json", 400),
    "not an object": (b"[]", "application/json", 400),
    "nothing": (b"", "application/json", 400),
    "two objects": (b"{}{}", "application/json", 400),
    "another kind": (b'{"kind":"Node","apiVersion":"v1"}', "application/json", 400),
    "another namespace": (b'{"metadata":{"name":"x","namespace":"kube-system"}}', "application/json", 400),
    "an alias bomb": (ALIASES, "application/yaml", 400),
}  # fmt: skip


@pytest.mark.parametrize(("body", "form", "code"), BODIES.values(), ids=BODIES)
def test_rejected_bodies(against_a_server, body, form, code):
    async def test(client, store):
        version = store.version
        found, answer = await client.ask("POST", PODS, body, form=form)
        assert (found, answer["kind"], answer["status"]) == (code, "Status", "Failure")
        assert store.version == version

    against_a_server(test)


PATHS = {
    "GET /nothing": 404,
    "GET /api/v2/pods": 404,
    "GET /api/v1/podz": 404,
    "GET /apis/apps/v1/pods": 404,
    "GET /api/v1/namespaces/default/nodes": 404,
    "GET /api/v1/namespaces/default/pods/a/b/c": 404,
    "GET /api/v1/namespaces/default/pods/..%2f..%2fetc": 404,
    "GET /api/v1/pods?limit=-1": 200,
    "GET /api/v1/pods?timeoutSeconds=long": 400,
    "GET /api/v1/pods?limit=99999999999999999999": 400,
    "GET /api/v1/namespaces/default/configmaps/x?resourceVersion=abc": 500,
    "GET /api/v1/namespaces/default/configmaps/x?resourceVersion=99999999": 504,
    "DELETE /api/v1/namespaces/default/pods?resourceVersionMatch=Exact": 422,
    "DELETE /api/v1/namespaces": 405,
    "GET /api/v1/pods?limit=many": 400,
    "GET /api/v1/pods?resourceVersion=abc": 400,
    "GET /api/v1/pods?resourceVersion=99999999": 504,
    "GET /api/v1/pods?watch=1&timeoutSeconds=1&resourceVersion=99999999": 200,
    "GET /api/v1/pods?watch=1&resourceVersion=99999999&sendInitialEvents=true&resourceVersionMatch=NotOlderThan": 504,
    "GET /api/v1/pods?watch=1&sendInitialEvents=true": 422,
    "GET /api/v1/pods?watch=1&resourceVersionMatch=Exact&resourceVersion=1": 422,
    "GET /api/v1/pods?watch=1&resourceVersion=abc": 500,
    "GET /api/v1/pods?watch=1&resourceVersion=-1": 500,
    "GET /api/v1/pods?watch=1&continue=x": 422,
    "GET /api/v1/pods?sendInitialEvents=true": 422,
    "GET /api/v1/pods?resourceVersionMatch=Exact": 422,
    "GET /api/v1/pods?resourceVersionMatch=Exact&resourceVersion=0": 422,
    "GET /api/v1/pods?resourceVersionMatch=Never&resourceVersion=1": 422,
    "GET /api/v1/pods?resourceVersion=-1": 400,
    "GET /api/v1/pods?resourceVersion=99999999999999999999": 400,
    "GET /api/v1/pods?limit=1000000000": 200,
    "GET /api/v1/pods?continue=forged": 400,
    "GET /api/v1/pods?fieldSelector=x%3D1": 400,
    "GET /api/v1/pods?labelSelector=%21%21": 400,
    "POST /api/v1/pods": 405,
    "POST /api/v1/nodes/n": 405,
    "DELETE /api/v1/pods": 405,
    "TRACE /api/v1/pods": 405,
    "POST /api": 405,
    "GET /api/v1/namespaces/default/pods/x/binding": 405,
    "GET /apis/authentication.k8s.io/v1/tokenreviews": 405,
}


@pytest.mark.slow
def test_rejected_paths_and_parameters(against_a_server):
    async def test(client, _):
        found = {}
        for asked in PATHS:
            method, path = asked.split(" ")
            found[asked] = (await client.ask(method, path))[0]
        assert found == PATHS
        assert (await client.ask("GET", "/api/v1/pods", Accept="text/html"))[0] == 406
        assert (await client.ask("POST", f"{PODS}?dryRun=Some", pod()))[0] == 422
        assert (await client.ask("GET", "/api/v1/pods?" + "&".join(f"a{i}=1" for i in range(1500))))[0] == 414
        assert (await client.ask("GET", "/api/v1/pods", X_Big="x" * 70_000))[0] == 431

    against_a_server(test)


def test_dry_run_and_strict_validation(against_a_server):
    async def test(client, store):
        version = store.version
        assert (await client.ask("POST", f"{PODS}?dryRun=All", pod()))[0] == 201
        assert store.version == version
        twice = b'{"metadata":{"name":"x","name":"y"},"spec":{"containers":[{"name":"c","image":"i"}]}}'
        code, answer = await client.ask("POST", f"{PODS}?fieldValidation=Strict", twice)
        assert code == 400
        assert 'duplicate field "metadata.name"' in answer["message"]

    against_a_server(test)


def test_health_and_version_need_no_credentials(against_a_server):
    async def test(client, _):
        for path in ("/healthz", "/livez", "/readyz"):
            assert await client.ask("GET", path, token="") == (200, "ok")
        assert (await client.ask("GET", "/version", token=""))[1]["gitVersion"].startswith("v1.37")
        assert (await client.ask("GET", "/api", token=""))[0] == 401

    against_a_server(test)


def test_plain_http_is_served_on_loopback_only(store):
    async def run():
        async with serving(store, Authenticator({}), "0.0.0.0"):
            pass

    with pytest.raises(ConfigError, match="can be reached from other machines"):
        asyncio.run(run())


def test_a_watch_may_start_empty_at_the_current_version(against_a_server):
    async def test(client, _):
        await client.ask("POST", PODS, pod("old"))
        path = f"{PODS}?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=0"
        seeing = asyncio.create_task(_lines(client, path, 1))
        await asyncio.sleep(0.05)
        await client.ask("POST", PODS, pod("new"))
        async with asyncio.timeout(10):
            (seen,) = await seeing
        assert seen["object"]["metadata"]["name"] == "new"

    against_a_server(test)


@pytest.mark.slow
def test_an_ending_watch_sends_its_last_version(against_a_server):
    async def test(client, store):
        path = f"{PODS}?watch=1&timeoutSeconds=1&allowWatchBookmarks=true&resourceVersion={store.version}"
        async with asyncio.timeout(10):
            (mark,) = await _lines(client, path, 1)
        assert (mark["type"], mark["object"]["metadata"]["resourceVersion"]) == ("BOOKMARK", str(store.version))
        assert "annotations" not in mark["object"]["metadata"]

    against_a_server(test)


def test_a_limited_list_of_a_version_shows_that_version(against_a_server):
    async def test(client, store):
        await client.ask("POST", PODS, pod("a"))
        version = store.version
        await client.ask("POST", PODS, pod("b"))
        wanted = {f"limit=5&resourceVersion={version}": ["a"], f"resourceVersion={version}": ["a", "b"],
                  "limit=5&resourceVersion=0": ["a", "b"]}  # fmt: skip
        for query, names in wanted.items():
            listed = (await client.ask("GET", f"{PODS}?{query}"))[1]
            assert (query, [one["metadata"]["name"] for one in listed["items"]]) == (query, names)

    against_a_server(test)


def test_the_page_names_every_kind_and_subresource():
    page = (Path(__file__).parents[3] / "docs" / "reference" / "api-server.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z0-9./]*v[0-9a-z]+)` \| (.*) \|$", page, re.MULTILINE))
    for kind in KINDS:
        under = f" ({', '.join(kind.subresources)})" if kind.subresources else ""
        assert f"`{kind.kind}`{under}" in rows[kind.api_version]
    for review in REVIEWS:
        assert f"`{review.kind}`" in rows[f"{review.group}/{review.version}".removeprefix("/")]
