"""Every request that `moorage run` sends is on the page that lists them; its rows are seen here or tested elsewhere."""

import asyncio
import json
import random
import re
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from moorage.api.feature_gates import FeatureGates
from moorage.basis.client.credentials import Endpoint, FixedCredentials, Identity
from moorage.basis.client.rest import Rest
from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.http.serve import open_store, serving
from moorage.cluster.apiserver.http.server import Front
from moorage.core.building.builder import build_resolved
from moorage.core.config.scheduler_document import load_default
from moorage.core.cycle.cycle import Cycle
from moorage.core.engine.scheduler import Scheduler
from moorage.live.runtime.attempt_metrics import Observers
from moorage.live.server.authorization import Delegate, PathAccess
from moorage.live.server.live_scheduler import LeaderSettings, Live, LiveSettings
from moorage.plugins import builtin_registry

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reference" / "wire.md"
PODS, CLAIMS = "/api/v1/namespaces/default/pods", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
HERE = "test_every_request_sent_is_on_the_page"


class Rules:
    def registry(self, release):
        return builtin_registry(release)

    def gates(self, release):
        return FeatureGates()


def a_scheduler():
    loaded = load_default(Rules())
    return Scheduler(
        Cycle(seed=1, percentage_of_nodes_to_score=0),
        loaded.gates,
        lambda handle: build_resolved(loaded.profiles, loaded.registry, handle).profiles,
    )


@asynccontextmanager
async def a_life(monkeypatch):
    """A scheduler under kube-scheduler's user on a cluster, an administrator beside it, and all that the former sent."""
    sent, handle = [], Front.handle

    async def handled(front, request):
        response = await handle(front, request)
        if request.headers.get("Authorization") == "Bearer mine":
            sent.append((request, response.status))
        return response

    monkeypatch.setattr(Front, "handle", handled)
    users = {"admin": User("admin", ("system:masters",)), "mine": User("system:kube-scheduler")}
    reports = []
    async with serving(open_store(seed=1), Authenticator(users)) as port:
        mine, admin = (Endpoint(f"http://127.0.0.1:{port}", FixedCredentials(Identity(token))) for token in ("mine", "admin"))
        async with Rest(mine, qps=0) as rest, Rest(admin, qps=0) as outside:
            live = Live(
                a_scheduler(), rest, LiveSettings(LeaderSettings()), identity="me",
                wall=lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), chance=random.Random(1),
                observers=Observers(reports.append),
            )  # fmt: skip
            task = asyncio.create_task(live.run())
            try:
                yield rest, Outside(outside, reports), sent
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


class Outside:
    def __init__(self, rest, reports):
        self._rest, self._reports = rest, reports

    async def make(self, path, kind, name, **fields):
        version = re.match(r"/apis?/([^/]+/v1|v1)/", path)[1]
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": name, **fields.pop("metadata", {})}, **fields}
        return json.loads(await self._rest.send("POST", path, json.dumps(body).encode()))

    async def pod(self, name, cpu="1", requests=(), **spec):
        asked = {"requests": {"cpu": cpu, **dict(requests)}, "limits": dict(requests)}
        containers = [{"name": "c", "image": "i", "resources": asked, **spec.pop("container", {})}]
        await self.make(PODS, "Pod", name, spec={"containers": containers, **spec})

    async def get(self, path):
        return json.loads(await self._rest.get(path))

    async def send(self, *arguments, **more):
        await self._rest.send(*arguments, **more)

    async def until(self, ask, seconds=20.0):
        end = time.monotonic() + seconds
        while not (answer := await ask()):
            assert time.monotonic() < end, "\n".join(self._reports)
            await asyncio.sleep(0.02)
        return answer

    async def placed(self, *names):
        async def all_have_nodes():
            return all([(await self.get(f"{PODS}/{name}"))["spec"].get("nodeName") for name in names])

        await self.until(all_have_nodes)


async def volumes(outside):
    """A claim that waits for its pod gets a volume that is there; another, one that is to be made."""
    classes, claims = "/apis/storage.k8s.io/v1/storageclasses", "/api/v1/namespaces/default/persistentvolumeclaims"
    for name, maker in (("there", "kubernetes.io/no-provisioner"), ("made", "example.com/maker")):
        await outside.make(classes, "StorageClass", name, provisioner=maker, volumeBindingMode="WaitForFirstConsumer")
        asked = {"accessModes": ["ReadWriteOnce"], "storageClassName": name, "resources": {"requests": {"storage": "1Gi"}}}
        await outside.make(claims, "PersistentVolumeClaim", name, spec=asked)
    where = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "n", "operator": "In", "values": ["1"]}]}]}}
    await outside.make("/api/v1/persistentvolumes", "PersistentVolume", "v", spec={
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "there",
        "local": {"path": "/v"}, "nodeAffinity": where,
    })  # fmt: skip
    free = json.dumps({"status": {"phase": "Available"}}).encode()
    await outside.send("PATCH", "/api/v1/persistentvolumes/v/status", free, content_type="application/merge-patch+json")
    for name in ("there", "made"):
        await outside.pod(f"v-{name}", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": name}}])

    async def both_are_reported():
        volume, claim = await outside.get("/api/v1/persistentvolumes/v"), await outside.get(f"{claims}/made")
        chosen = (claim["metadata"].get("annotations") or {}).get("volume.kubernetes.io/selected-node")
        return volume["spec"].get("claimRef") and chosen

    await outside.until(both_are_reported)


async def devices(outside):
    """A pod with a claim, and a pod with a resource that devices stand for."""
    base = "/apis/resource.k8s.io/v1"
    await outside.make(f"{base}/deviceclasses", "DeviceClass", "gpu", spec={"extendedResourceName": "example.com/gpu"})
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    await outside.make(f"{base}/resourceslices", "ResourceSlice", "s", spec={
        "driver": "gpu.example.com", "pool": pool, "nodeName": "n1", "devices": [{"name": "d0"}, {"name": "d1"}],
    })  # fmt: skip
    asked = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
    await outside.make(CLAIMS, "ResourceClaim", "g", spec={"devices": {"requests": [asked]}})
    claimed = [{"name": "x", "resourceClaimName": "g"}]
    await outside.pod("d-claim", resourceClaims=claimed, container={"resources": {"claims": [{"name": "x"}]}})
    await outside.pod("d-extended", requests={"example.com/gpu": "1"}.items())
    await outside.placed("d-claim", "d-extended")


async def room(outside):
    """A pod that fits, one that does not, and one that others have to go for."""
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await outside.make(classes, "PriorityClass", "high", value=9)
    await outside.pod("low", cpu="12", terminationGracePeriodSeconds=1)
    await outside.placed("low")
    await outside.pod("stuck", cpu="99")
    events = "/apis/events.k8s.io/v1/namespaces/default/events"

    async def told():
        return [one for one in (await outside.get(events))["items"] if one["regarding"]["name"] == "stuck"]

    await outside.until(told)
    await outside.pod("high", cpu="12", priorityClassName="high")

    async def ending():
        return (await outside.get(f"{PODS}/low"))["metadata"].get("deletionTimestamp")

    await outside.until(ending)
    await outside.send("DELETE", f"{PODS}/low", json.dumps({"gracePeriodSeconds": 0}).encode())
    await outside.placed("high")


def line(request):
    """Return a request as the page writes it: its verb, and its path with words for names."""
    path = re.sub(r"/namespaces/[^/]+/", "/namespaces/NAMESPACE/", request.path)
    whole, _, _ = path.partition("?")
    parts = whole.split("/")
    start = parts.index("NAMESPACE") + 1 if "NAMESPACE" in parts else 3 if parts[1] == "api" else 4
    if len(parts) > start + 1:
        parts[start + 1] = "NAME"
    verb = "WATCH" if request.query.get("watch") else request.method
    return f"{verb} {'/'.join(parts)}"


ROW = re.compile(r"^\| `(?P<line>[A-Z]+ /[^`]*)` \|(?P<cells>.*)\|$", re.MULTILINE)


def rows(heading):
    """Return the requests under a heading of the page, each with the names of the tests that hold it."""
    _, found, rest = PAGE.read_text(encoding="utf-8").partition(f"## {heading}\n")
    assert found, heading
    section = rest.partition("\n## ")[0]
    return {row["line"]: re.findall(r"`(test_\w+)`", row["cells"]) for row in ROW.finditer(section)}


@pytest.mark.slow
def test_every_request_sent_is_on_the_page(monkeypatch):
    async def main():
        async with a_life(monkeypatch) as (mine, outside, sent):
            amounts = {"cpu": "20", "memory": "8Gi", "pods": "20"}
            node = {"metadata": {"labels": {"n": "1"}}, "status": {"allocatable": amounts, "capacity": amounts}}
            await outside.make("/api/v1/nodes", "Node", "n1", **node)
            await volumes(outside)
            await devices(outside)
            await room(outside)
            delegate = Delegate(mine)
            assert await delegate.review("admin") is not None
            await delegate.access(User("admin", ("system:masters",)), PathAccess("/metrics", "get"))
            await outside.make("/api/v1/namespaces/kube-system/configmaps", "ConfigMap", "extension-apiserver-authentication")
            await delegate.lookup()
        return sent

    sent = asyncio.run(main())
    refused = [(line(request), status) for request, status in sent if status not in {200, 201, 404}]
    assert refused == []
    assert {request.headers["Accept"] for request, _ in sent} == {"application/json"}
    seen, told = {line(request) for request, _ in sent}, rows("What `moorage run` sends")
    assert seen - told.keys() == set()
    assert {one for one, tests in told.items() if HERE in tests} - seen == set()


def test_every_test_named_on_the_page_exists():
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text(encoding="utf-8")))
    written = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        written |= {path.stem, *re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)}
    assert named - written == set()
    for heading in ("What kube-scheduler sends", "What `moorage run` sends"):
        assert all(rows(heading).values()), heading
