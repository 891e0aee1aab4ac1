"""The whole way: ``moorage run`` as a process, on a small API server that this test keeps, over real sockets."""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import web
from msgspec.structs import replace

from moorage.api.core import Pod, PodCondition
from moorage.api.custom_objects import read_custom
from moorage.api.decode import decode
from moorage.api.devices import ResourceClaim
from moorage.api.fields.patches import merge_patch
from moorage.api.storage import PersistentVolumeClaim
from moorage.basis.client.credentials import Endpoint
from moorage.basis.client.raw_json import change_between
from moorage.basis.client.rest import Rest
from moorage.errors import ClusterError
from moorage.live.runtime.leader_election import LeaseRecord
from moorage.live.runtime.ports import EventNote, EventRecord, StatusChange
from moorage.live.server.api_cluster import ApiCluster
from moorage.live.server.election_locks import ApiLock

SOURCES = Path(__file__).resolve().parents[3] / "src"


class Api:
    """Objects by path, with versions, watches, bindings, and every request written down."""

    def __init__(self):
        self.rev = 10
        self.objects = {}
        self.watchers = []
        self.requests = []
        self.faults = {}

    def put(self, collection, obj, kind="ADDED"):
        self.rev += 1
        name = obj["metadata"]["name"]
        obj = {**obj, "metadata": {"uid": f"uid-{name}", **obj["metadata"], "resourceVersion": str(self.rev)}}
        self.objects[f"{self._folder(collection, obj)}/{name}"] = obj
        for plural, queue in self.watchers:
            if plural == collection.rpartition("/")[2]:
                queue.put_nowait({"type": kind, "object": obj})
        return obj

    @staticmethod
    def _folder(collection, obj):
        root, _, plural = collection.rpartition("/")
        namespace = obj["metadata"].get("namespace")
        return f"{root}/namespaces/{namespace}/{plural}" if namespace else collection

    async def handle(self, request):
        body = await request.json() if request.can_read_body else None
        self.requests.append((request.method, request.path, request.content_type, body))
        fault = self.faults.pop((request.method, request.path.rpartition("/")[2]), None)
        if fault == "hold":
            await asyncio.sleep(60)
        if request.query.get("watch") == "true":
            return await self._watch(request)
        answer = getattr(self, f"_{request.method.lower()}")(request.path, body)
        if fault == "cut":
            request.transport.abort()
        return answer

    async def _watch(self, request):
        if request.query.get("sendInitialEvents"):
            return self._refuse(422, "Invalid")
        response = web.StreamResponse()
        await response.prepare(request)
        plural, queue = request.path.rpartition("/")[2], asyncio.Queue()
        self.watchers.append((plural, queue))
        with suppress(ConnectionError):
            while True:
                await response.write(json.dumps(await queue.get()).encode() + b"\n")
        return response

    def _get(self, path, _):
        if path in self.objects:
            return web.json_response(self.objects[path])
        folder, _, plural = path.rpartition("/")
        if "/namespaces/" in folder:
            return self._refuse(404, "NotFound")
        depths = {path.count("/") + 1, path.count("/") + 3}
        of_kind = [at for at in self.objects if at.startswith(folder) and at.split("/")[-2] == plural]
        items = [self.objects[at] for at in of_kind if at.count("/") in depths]
        return web.json_response({"metadata": {"resourceVersion": str(self.rev)}, "items": items})

    def _post(self, path, body):
        if path.endswith("/binding"):
            at = path.removesuffix("/binding")
            pod = self.objects[at]
            if pod["spec"].get("nodeName"):
                return self._refuse(409, "Conflict")
            self.put("/api/v1/pods", {**pod, "spec": {**pod["spec"], "nodeName": body["target"]["name"]}}, "MODIFIED")
            return web.json_response({}, status=201)
        self.rev += 1
        body["metadata"]["resourceVersion"] = str(self.rev)
        self.objects[f"{path}/{body['metadata']['name']}"] = body
        return web.json_response(body, status=201)

    def _put(self, path, body):
        at = path.removesuffix("/status")
        if body["metadata"]["resourceVersion"] != self.objects[at]["metadata"]["resourceVersion"]:
            return self._refuse(409, "Conflict")
        self.rev += 1
        body["metadata"]["resourceVersion"] = str(self.rev)
        self.objects[at] = body
        return web.json_response(body)

    def _patch(self, path, body):
        at = path.removesuffix("/status")
        pod = self.objects[at]
        self.put("/api/v1/pods", {**pod, "status": {**pod.get("status", {}), **body["status"]}}, "MODIFIED")
        return web.json_response({})

    def _delete(self, path, body):
        wanted = body.get("preconditions", {}).get("uid")
        if path not in self.objects or wanted not in {None, self.objects[path]["metadata"]["uid"]}:
            return self._refuse(404, "NotFound")
        del self.objects[path]
        return web.json_response({})

    def _refuse(self, code, reason):
        return web.json_response({"message": f"refused: {reason}", "reason": reason, "code": code}, status=code)


@asynccontextmanager
async def serving(api):
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    finally:
        await runner.cleanup()


def node(name, cpu="4"):
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}}}


def pod(name, cpu="1", **more):
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    spec = {"schedulerName": "default-scheduler", "containers": containers, **more}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec, "status": {"phase": "Pending"}}


async def until(condition, seconds=60.0):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def scheduler(server, *flags):
    env = {**os.environ, "PYTHONPATH": str(SOURCES)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "moorage", "run", "--master", server, "--secure-port=0", *flags,
        env=env, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    said = []

    async def read():
        while line := await process.stderr.readline():
            said.append(line.decode())

    reading = asyncio.create_task(read())
    process.said = said
    try:
        yield process
    except TimeoutError:
        raise AssertionError("".join(said)) from None
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading


@pytest.mark.slow
def test_a_process_schedules_and_releases_its_lease():
    async def main():
        api = Api()
        for name in ("n1", "n2"):
            api.put("/api/v1/nodes", node(name))
        api.put("/api/v1/pods", pod("early"))
        lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"

        def node_of(name):
            return api.objects[f"/api/v1/namespaces/default/pods/{name}"]["spec"].get("nodeName")

        async with serving(api) as server, scheduler(server, "--leader_elect=true", "--kube-api-qps=-1") as process:
            await until(lambda: node_of("early"))
            holder = api.objects[lease]["spec"]["holderIdentity"]
            api.faults["POST", "binding"] = "cut"
            api.put("/api/v1/pods", pod("late"))
            api.put("/api/v1/pods", pod("large", cpu="100"))
            await until(lambda: node_of("late"))
            large = "/api/v1/namespaces/default/pods/large"
            await until(lambda: api.objects[large]["status"].get("conditions"))
            events = lambda: [body["reason"] for _, path, _, body in api.requests if path.endswith("/events")]  # noqa: E731
            await until(lambda: sorted(events()) == ["FailedScheduling", "LeaderElection", "Scheduled", "Scheduled"])
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(10):
                status = await process.wait()
        return api, status, holder, api.objects[lease]["spec"], api.objects[large]["status"], process.said

    api, status, holder, lease, large, said = asyncio.run(main())
    assert status == 0, said
    assert holder
    assert (lease["holderIdentity"], lease["leaseDurationSeconds"]) == ("", 1)
    (condition,) = large["conditions"]
    assert condition["message"].startswith("0/2 nodes are available: 2 Insufficient cpu.")
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "Unschedulable")
    binds = [body["metadata"]["name"] for method, path, _, body in api.requests if path.endswith("/binding")]
    assert sorted(binds) == ["early", "late"]
    (patch,) = [kind for method, path, kind, _ in api.requests if method == "PATCH"]
    assert patch == "application/strategic-merge-patch+json"


@pytest.mark.slow
def test_without_leader_election_it_starts_at_once_and_exits_nonzero():
    async def main():
        api = Api()
        api.put("/api/v1/nodes", node("n1"))
        api.put("/api/v1/pods", pod("p1"))
        async with serving(api) as server, scheduler(server, "--leader-elect=false") as process:
            await until(lambda: api.objects["/api/v1/namespaces/default/pods/p1"]["spec"].get("nodeName"))
            process.send_signal(signal.SIGINT)
            return await process.wait(), any("/leases" in path for _, path, _, _ in api.requests)

    assert asyncio.run(main()) == (1, False)


@pytest.mark.slow
def test_a_second_signal_exits_at_once():
    async def main():
        api = Api()
        api.put("/api/v1/nodes", node("n1"))
        api.put("/api/v1/pods", pod("p1"))
        api.faults["POST", "binding"] = "hold"
        async with serving(api) as server, scheduler(server) as process:
            await until(lambda: any(path.endswith("/binding") for _, path, _, _ in api.requests))
            process.send_signal(signal.SIGTERM)
            await until(lambda: any("requests in progress finish first" in line for line in process.said))
            start = time.monotonic()
            process.send_signal(signal.SIGTERM)
            return await process.wait(), time.monotonic() - start

    status, took = asyncio.run(main())
    assert status == 1
    assert took < 5  # it would wait for the answer to its request for longer


@pytest.mark.slow
def test_a_process_that_cannot_start_says_why_in_one_line():
    """``tests/interfaces/cli/test_run.py`` has the other reasons."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCES)}
    command = [sys.executable, "-m", "moorage", "run", "--secure-port=0"]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert "not in a cluster" in line


AT = "2026-01-01T00:00:00.000000Z"


# -- the adapters -------------------------------------------------------------------------------------------------------


def with_cluster(act):
    async def main():
        api = Api()
        async with serving(api) as server, Rest(Endpoint(server), qps=0) as rest:
            await act(api, rest, ApiCluster(rest, "sched", "me"))

    asyncio.run(main())


def test_only_changed_fields_of_an_object_are_written():
    async def act(api, rest, cluster):
        claims = "/apis/resource.k8s.io/v1/resourceclaims"
        raw = api.put(
            claims, {"metadata": {"name": "c", "namespace": "default"}, "spec": {"unknown": 1}, "status": {"mine": 2}}
        )
        old = decode(json.dumps(raw).encode(), ResourceClaim, "claim")
        changed = json.loads(json.dumps(raw))
        changed["metadata"]["finalizers"] = ["f"]
        changed["status"]["reservedFor"] = [{"resource": "pods", "name": "p", "uid": "u"}]
        new = decode(json.dumps(changed).encode(), ResourceClaim, "claim")
        await cluster.write(old, new, "status")
        held = api.objects["/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c"]
        assert held["spec"] == {"unknown": 1}
        assert held["status"]["mine"] == 2
        assert held["status"]["reservedFor"][0]["name"] == "p"
        assert held["metadata"]["finalizers"] == ["f"]
        assert [path.rpartition("/")[2] for method, path, _, _ in api.requests if method == "PUT"] == ["c", "status"]
        with pytest.raises(ClusterError, match="modified meanwhile") as refusal:
            await cluster.write(old, new, "status")
        assert refusal.value.status == 409

    with_cluster(act)


def test_a_missing_object_is_created():
    async def act(api, rest, cluster):
        raw = b'{"metadata":{"name":"c","namespace":"default"},"spec":{"storageClassName":"x"}}'
        await cluster.write(None, decode(raw, PersistentVolumeClaim, "claim"), "")
        ((method, path, _, body),) = api.requests
        assert (method, path) == ("POST", "/api/v1/namespaces/default/persistentvolumeclaims")
        assert (body["kind"], body["spec"]["storageClassName"]) == ("PersistentVolumeClaim", "x")

    with_cluster(act)


FOOS = "foos.v1.example.com"
FOLDER = "/apis/example.com/v1"


@pytest.mark.parametrize("namespace", ["default", ""], ids=["in a namespace", "of the whole cluster"])
def test_objects_of_kinds_that_plugins_name_are_written_as_documents(namespace):
    async def act(api, rest, cluster):
        home = {"namespace": namespace} if namespace else {}
        place = f"{FOLDER}/namespaces/default/foos" if namespace else f"{FOLDER}/foos"
        head = {"apiVersion": "example.com/v1", "kind": "Foo"}
        made = read_custom({**head, "metadata": {"name": "a", "uid": "u", **home}, "spec": {"n": 1}}, FOOS, "test")
        await cluster.write(None, made, "")
        method, path, _, body = api.requests[-1]
        assert (method, path, body["kind"], body["spec"], "uid" in body["metadata"]) == ("POST", place, "Foo", {"n": 1}, False)

        managed = {"uid": "u", "managedFields": [{"manager": "m"}]}
        raw = api.put(f"{FOLDER}/foos", {**head, "metadata": {"name": "a", **managed, **home}, "spec": {"n": 1}, "more": 2})
        old = read_custom(raw, FOOS, "test")
        await cluster.write(old, old.having(spec={"n": 2}, status={"seen": True}), "status")
        held = api.objects[f"{place}/a"]
        assert (held["spec"], held["status"], held["more"]) == ({"n": 2}, {"seen": True}, 2)
        assert held["metadata"]["managedFields"], "what is not shown is not taken away"
        with pytest.raises(ClusterError, match="modified meanwhile"):
            await cluster.write(old, old.having(spec={"n": 3}), "")

        await cluster.amend(old, lambda now: now.having(spec={"n": now.get("spec", "n") + 1}), "")
        assert api.objects[f"{place}/a"]["spec"] == {"n": 3}
        await cluster.delete(old)
        assert f"{place}/a" not in api.objects

    with_cluster(act)


def test_statuses_are_patched_as_kube_scheduler_does():
    """Only what changes is sent, and nothing if nothing does; neither patches nor deletions of victims name a UID."""
    told = {"type": "Ready", "status": "False", "reason": "x", "lastTransitionTime": AT}
    held = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1", "lastTransitionTime": AT}

    async def act(api, rest, cluster):
        document = api.put("/api/v1/pods", {**pod("p"), "status": {"nominatedNodeName": "n", "conditions": [told, held]}})
        mine = decode(json.dumps(document).encode(), Pod, "pod")
        path = "/api/v1/namespaces/default/pods/p"

        async def sent(change):
            before = len(api.requests)
            await cluster.patch_status(mine, change)
            return [(method, where, body) for method, where, _, body in api.requests[before:]]

        assert await sent(StatusChange(nominated="")) == [("PATCH", f"{path}/status", {"status": {"nominatedNodeName": None}})]
        assert await sent(StatusChange(nominated="n")) == []
        same = PodCondition(
            type="PodScheduled", status="False", reason="Unschedulable", message="0/1", last_transition_time="later"
        )
        assert await sent(StatusChange(same)) == []
        order = [{"type": "Ready"}, {"type": "PodScheduled"}]
        changed = {"$setElementOrder/conditions": order, "conditions": [{"message": "0/2", "type": "PodScheduled"}]}
        ((_, _, body),) = await sent(StatusChange(replace(same, message="0/2"), "m"))
        assert body == {"status": {**changed, "nominatedNodeName": "m"}}
        mark = PodCondition(type="DisruptionTarget", status="True", reason="R", message="m", last_transition_time=AT)
        ((_, _, body),) = await sent(StatusChange(mark))
        new = {"lastProbeTime": None, "lastTransitionTime": AT, "message": "m", "reason": "R", "status": "True"}
        assert body == {
            "status": {
                "$setElementOrder/conditions": [*order, {"type": "DisruptionTarget"}],
                "conditions": [{**new, "type": "DisruptionTarget"}],
            }
        }
        assert await cluster.read_pod("default", "none") is None
        await cluster.delete_pod(mine)
        assert api.requests[-1][3] == {"kind": "DeleteOptions", "apiVersion": "v1"}
        await cluster.record(EventRecord(EventNote(mine, "Normal", "Scheduled", "Binding", "text"), "p.1", AT))
        event = api.requests[-1][3]
        assert (event["regarding"]["uid"], event["note"], event["reportingController"]) == ("uid-p", "text", "sched")

    with_cluster(act)


def test_a_lease_keeps_foreign_fields():
    async def act(api, rest, cluster):
        lease = ApiLock(rest, "leases", "kube-system", "x")
        assert await lease.read() is None
        made = await lease.create(LeaseRecord("me", 15, "t0", "t0"))
        at = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x"
        api.objects[at]["metadata"]["labels"] = {"a": "b"}
        api.objects[at]["spec"]["strategy"] = "s"
        read = await lease.read()
        assert read == made
        written = await lease.update(read)
        assert api.objects[at]["metadata"]["labels"] == {"a": "b"}
        assert api.objects[at]["spec"]["strategy"] == "s"
        with pytest.raises(ClusterError) as refusal:
            await lease.update(made)
        assert refusal.value.status == 409
        api.objects[at]["spec"] = {"holderIdentity": None, "leaseDurationSeconds": "x"}
        assert (await lease.read()).holder == ""
        assert written.version != read.version

    with_cluster(act)


VALUES = [{}, {"a": 1}, {"a": {"b": 1}}, {"a": {"b": 2, "c": [1]}}, {"a": [1, 2]}, {"b": {"a": {"c": ""}}}]


@pytest.mark.parametrize(("old", "new"), list(itertools.product(VALUES, VALUES)))
def test_a_change_applied_to_the_old_gives_the_new(old, new):
    assert merge_patch(old, change_between(old, new)) == new
    assert (change_between(old, new) == {}) is (old == new)
