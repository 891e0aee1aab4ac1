"""The scheduler's parts on the embedded API server, over loopback: two programs that share no code but the wire."""

import asyncio
import json
import random
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiohttp import web

from moorage.api.feature_gates import FeatureGates
from moorage.basis.client.credentials import Endpoint, FixedCredentials, Identity
from moorage.basis.client.rest import Rest
from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.access.bootstrap import bootstrap_cluster
from moorage.cluster.apiserver.http.serve import serving
from moorage.core.building.builder import build_resolved
from moorage.core.config.configuration import Extender
from moorage.core.config.configured_extenders import extenders_of
from moorage.core.config.scheduler_document import load_default
from moorage.core.cycle.cycle import Cycle
from moorage.core.engine.scheduler import Scheduler
from moorage.errors import ClusterError
from moorage.interfaces.cli.live.run_explain import LiveExplainer
from moorage.live.runtime.attempt_metrics import Observers
from moorage.live.runtime.extender_client import ExtenderClient
from moorage.live.server.live_scheduler import LeaderSettings, Live, LiveSettings
from moorage.plugins import builtin_registry
from moorage.rules.store.store import Store
from moorage.simulator.simulate import Options, load_options
from tests.interfaces.cli.test_simulate_output import violations

TOKEN = "t"
SCHEMA = Path(__file__).parents[3] / "docs" / "reference" / "explanation.schema.json"
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:kube-scheduler"


class Rules:
    def registry(self, release):
        return builtin_registry(release)

    def gates(self, release):
        return FeatureGates()


def a_scheduler(extenders=()):
    loaded = load_default(Rules())
    return Scheduler(
        Cycle(seed=1, percentage_of_nodes_to_score=0, extenders=extenders_of(extenders)),
        loaded.gates,
        lambda handle: build_resolved(loaded.profiles, loaded.registry, handle).profiles,
    )


def wall():
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@asynccontextmanager
async def live_on(store, name="me", reports=None, extenders=(), *, leads=True):
    """A scheduler with kube-scheduler's rights, and a client that looks at what it does. ``leads``: it stands for the lease."""
    reports = [] if reports is None else reports
    bootstrap_cluster(store)
    users = {TOKEN: User("admin", ("system:masters",)), "mine": User("system:kube-scheduler")}
    async with serving(store, Authenticator(users)) as port:
        own, endpoint = (Endpoint(f"http://127.0.0.1:{port}", FixedCredentials(Identity(token))) for token in ("mine", TOKEN))
        async with Rest(own, qps=0) as mine, Rest(endpoint, qps=0) as outside, ExtenderClient(extenders, {}) as asked:
            settings = LiveSettings(LeaderSettings() if leads else None, extenders=asked)
            live = Live(
                a_scheduler(extenders), mine, settings, identity=name, wall=wall,
                chance=random.Random(1), observers=Observers(reports.append),
            )  # fmt: skip
            task = asyncio.create_task(live.run())
            outside.reports, outside.live, outside.running = reports, live, task
            try:
                yield outside
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


async def create(rest, path, kind, name, api_version="v1", **fields):
    body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}
    await rest.send("POST", path, json.dumps(body).encode())


async def make_node(rest, name, cpu="2"):
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
    await create(rest, "/api/v1/nodes", "Node", name, status={"allocatable": amounts, "capacity": amounts})


async def make_pod(rest, name, cpu="1", **spec):
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
    await create(rest, "/api/v1/namespaces/default/pods", "Pod", name, spec={"containers": containers, **spec})


async def get(rest, name):
    return json.loads(await rest.send("GET", f"/api/v1/namespaces/default/pods/{name}"))


async def until(ask, reports, seconds=60.0):
    try:
        async with asyncio.timeout(seconds):
            while True:
                if answer := await ask():
                    return answer
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError("\n".join(reports)) from None


@pytest.mark.slow
def test_pods_are_placed_explained_and_preempted():
    async def main():
        async with live_on(Store(time.time, random.Random(5), b"k")) as rest:
            await make_node(rest, "n1")
            classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
            await create(rest, classes, "PriorityClass", "high", "scheduling.k8s.io/v1", value=9)
            await make_pod(rest, "low", cpu="2", terminationGracePeriodSeconds=1)
            await make_pod(rest, "stuck", cpu="8")

            async def placed():
                return (await get(rest, "low"))["spec"].get("nodeName")

            async def explained():
                return (await get(rest, "stuck"))["status"].get("conditions")

            async def marked():
                low = await get(rest, "low")
                return low if low["metadata"].get("deletionTimestamp") else None

            async def nominated_to():
                return (await get(rest, "high"))["status"].get("nominatedNodeName")

            async def told():
                events = json.loads(await rest.get("/apis/events.k8s.io/v1/namespaces/default/events"))["items"]
                return events if len({event["reason"] for event in events}) == 3 else None

            async def replaced():
                return (await get(rest, "high"))["spec"].get("nodeName")

            assert await until(placed, rest.reports) == "n1"
            conditions = await until(explained, rest.reports)
            await make_pod(rest, "high", cpu="2", priorityClassName="high")
            victim = await until(marked, rest.reports)
            nominated = await until(nominated_to, rest.reports)
            options = json.dumps({"gracePeriodSeconds": 0}).encode()
            await rest.send("DELETE", "/api/v1/namespaces/default/pods/low", options)
            assert await until(replaced, rest.reports) == "n1"
            with pytest.raises(ClusterError):
                await get(rest, "low")
            events = await until(told, rest.reports)
            lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
            metrics = (await rest.get("/metrics")).decode()
            return conditions, victim, nominated, events, json.loads(await rest.get(lease)), metrics

    conditions, victim, nominated, events, lease, metrics = asyncio.run(main())
    assert 'verb="CREATE",group="",resource="pods/binding",code="201"' in metrics
    assert [line for line in metrics.splitlines() if 'code="403"' in line] == []
    (unscheduled,) = [one for one in conditions if one["type"] == "PodScheduled"]
    assert unscheduled["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
    (mark,) = [one for one in victim["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    assert mark["reason"] == "PreemptionByScheduler"
    assert (unscheduled["observedGeneration"], mark["observedGeneration"]) == (1, 1)
    assert nominated == "n1"
    assert {event["reason"] for event in events} == {"Scheduled", "FailedScheduling", "Preempted"}
    assert lease["spec"]["holderIdentity"] == "me"


@pytest.mark.slow
def test_a_running_scheduler_explains_its_pods():
    async def main():
        async with live_on(Store(time.time, random.Random(5), b"k")) as rest:
            explainer = LiveExplainer(rest.live, rest.live.loop.scheduler.profiles, load_options(Options()))
            early = await explainer.answer({"pod": "stuck", "changes": "1"})
            await make_node(rest, "n1")
            await make_pod(rest, "low")
            await make_pod(rest, "stuck", cpu="8")
            await make_pod(rest, "theirs", schedulerName="another")

            async def tried():
                return (await get(rest, "low"))["spec"].get("nodeName") and (await get(rest, "stuck"))["status"].get(
                    "conditions"
                )

            await until(tried, rest.reports)

            async def answered():
                page = await explainer.answer({"pod": "default/stuck", "changes": "0"})
                return page if "Insufficient cpu" in page.body else None

            whole = await until(answered, rest.reports)
            searched = [
                await explainer.answer({"pod": "stuck", "changes": "1"}),
                await explainer.answer({"pod": "low", "changes": "1"}),
            ]
            pages = [
                await explainer.answer({"pod": name, "output": "text", "changes": "0"})
                for name in ("stuck", "low", "theirs", "none")
            ]
            crowd = await asyncio.gather(*(explainer.answer({"pod": "stuck", "changes": "0"}) for _ in range(12)))
            await make_node(rest, "n2", cpu="6")

            async def followed():
                document = json.loads((await explainer.answer({"pod": "stuck"})).body)
                return document if document["answer"]["nodes"] == ["n1", "n2"] else None

            return early, whole, searched, pages, crowd, await until(followed, rest.reports)

    early, whole, searched, (stuck, low, theirs, missing), crowd, later = asyncio.run(main())
    assert early.status in {404, 503}
    document = json.loads(whole.body)
    assert (whole.media, document["kind"], document["answer"]["outcome"]) == ("application/json", "Explanation", "pending")
    schema = json.loads(SCHEMA.read_text())
    assert list(violations(document, schema, root=schema)) == []
    assert document["answer"]["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert document["answer"]["changes"] == []
    unsearched = "changes that would place the pod were not searched for; leave changes=0 out of the address"
    assert document["input"]["notes"] == [unsearched]
    assert document["input"]["takenAt"]
    changed, placed = (json.loads(page.body) for page in searched)
    assert list(violations(changed, schema, root=schema)) == []
    first = changed["answer"]["changes"][0]
    assert (first["owner"], [(one["verb"], one["target"]) for one in first["atoms"]]) == (
        "pod", [("request", "pod/default/stuck")]
    )  # fmt: skip
    assert changed["proof"]["runs"] > 0
    assert changed["input"]["notes"] == []
    assert placed["answer"]["changes"] == []
    assert stuck.body.startswith("default/stuck is pending: no node is large enough: it requests 8 cpu")
    assert stuck.body.endswith(f"Note: {unsearched}\n")
    assert low.body.startswith("default/low is on n1")
    assert "Note: " not in low.body
    assert theirs.body.startswith("default/theirs is not scheduled here")
    assert missing.status == 404
    assert {page.status for page in crowd} == {200, 429}
    (requested,) = later["answer"]["changes"][0]["atoms"]
    assert (requested["path"], requested["new"], later["answer"]["changes"][0]["nodes"]) == ("requests.cpu", 6000, [1])


@pytest.mark.parametrize(("query", "text"), [
    ({}, "give a pod"), ({"pod": "a", "output": "yaml"}, "output is"), ({"pod": "a", "changes": "yes"}, "changes is 0 or 1"),
])  # fmt: skip
def test_queries_that_a_running_scheduler_rejects(query, text):
    page = asyncio.run(LiveExplainer(None, {}, None).answer(query))
    assert (page.status, text in page.body) == (400, True)


def test_only_the_first_answer_waits_for_a_thread_that_loads_the_laboratory(monkeypatch):
    async def main():
        explainer = LiveExplainer(SimpleNamespace(not_synced=["pods"]), {}, None)
        return [(await explainer.answer({"pod": "a"})).status for _ in range(3)]

    hops = []

    async def to_thread(run, *args):
        hops.append(run)
        return run(*args)

    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    assert asyncio.run(main()) == [503] * 3
    assert len(hops) == 1


@pytest.mark.slow
def test_pods_are_placed_where_lists_cannot_be_streamed():
    async def main():
        store = Store(time.time, random.Random(5), b"k")
        store.lists_by_watch = False
        async with live_on(store) as rest:
            await make_node(rest, "n1")
            await make_pod(rest, "a")
            return await until(lambda: _node(rest, "a"), rest.reports), rest.reports

    assert asyncio.run(main()) == ("n1", [])


@pytest.mark.slow
def test_a_forbidden_bind_is_reported_and_scheduling_continues():
    async def main():
        store = Store(time.time, random.Random(5), b"k")
        async with live_on(store) as rest:
            await make_node(rest, "n1")
            role = json.loads(await rest.get(ROLE))
            without = [rule for rule in role["rules"] if "pods/binding" not in rule["resources"]]
            await rest.send("PUT", ROLE, json.dumps({**role, "rules": without}).encode())
            await make_pod(rest, "a")

            async def refused():
                listing = json.loads(await rest.get("/apis/events.k8s.io/v1/namespaces/default/events"))
                return [event["note"] for event in listing["items"] if event["reason"] == "FailedScheduling"]

            said = await until(refused, rest.reports)
            await rest.send("PUT", ROLE, json.dumps({**json.loads(await rest.get(ROLE)), "rules": role["rules"]}).encode())
            return said, await until(lambda: _node(rest, "a"), rest.reports)

    said, node = asyncio.run(main())
    assert 'User "system:kube-scheduler" cannot create resource "pods/binding" in API group ""' in said[0]
    assert node == "n1"


@pytest.mark.slow
def test_the_next_scheduler_takes_over_at_once_after_a_release():
    async def main():
        store = Store(time.time, random.Random(5), b"k")
        async with live_on(store, "first") as rest:
            await make_node(rest, "n1")
            await make_pod(rest, "a")
            await until(lambda: _node(rest, "a"), rest.reports)
        start = time.monotonic()
        async with live_on(store, "second") as rest:
            await make_pod(rest, "b")
            await until(lambda: _node(rest, "b"), rest.reports)
            return time.monotonic() - start

    assert asyncio.run(main()) < 10


async def _node(rest, name):
    return (await get(rest, name))["spec"].get("nodeName")


# -- extenders ------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def an_extender(bind):
    """An extender that lets pass what ends in an even number, prefers n4, and binds with ``bind(pod, node)``."""

    async def handler(request):
        said = await request.json()
        if request.path == "/filter":
            assert said["Pod"]["spec"]["hostname"] == "shown-in-full"
            names = [item["metadata"]["name"] for item in said["Nodes"]["items"]]
            kept = [item for item in said["Nodes"]["items"] if int(item["metadata"]["name"][1:]) % 2 == 0]
            failed = {name: "odd" for name in names if int(name[1:]) % 2}
            return web.json_response({"nodes": {"items": kept}, "failedNodes": failed})
        if request.path == "/prioritize":
            return web.json_response([{"host": item["metadata"]["name"], "score": 9} for item in said["Nodes"]["items"][-1:]])
        await bind(said["PodName"], said["Node"])
        return web.json_response({})

    app = web.Application()
    app.router.add_post("/{tail:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/"
    finally:
        await runner.cleanup()


@pytest.mark.slow
def test_an_extender_filters_prioritizes_and_binds_over_the_wire():
    async def main():
        client = []

        async def bind(pod, node):
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}
            await client[0].send("POST", f"/api/v1/namespaces/default/pods/{pod}/binding", json.dumps(body).encode())

        async with an_extender(bind) as url:
            verbs = {"filter_verb": "filter", "prioritize_verb": "prioritize", "bind_verb": "bind"}
            extender = Extender(url_prefix=url, weight=10, **verbs)
            async with live_on(Store(time.time, random.Random(5), b"k"), extenders=(extender,)) as outside:
                client.append(outside)
                for number in range(1, 5):
                    await make_node(outside, f"n{number}")
                await make_pod(outside, "p1", hostname="shown-in-full")

                async def placed():
                    return (await get(outside, "p1"))["spec"].get("nodeName")

                return await until(placed, outside.reports)

    assert asyncio.run(main()) == "n4"
