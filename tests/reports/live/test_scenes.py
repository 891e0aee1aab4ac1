"""Situations in which `moorage run` and kube-scheduler 1.37.2 differed on a real API server: what is written, in which order.

The inputs stand beside this file. ``writes`` has each request of the scheduler that changes something, but no Events.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from moorage.api.feature_gates import FeatureGates
from moorage.basis.client.credentials import Endpoint, FixedCredentials, Identity
from moorage.basis.client.rest import Rest
from moorage.cluster.apiserver.access.authentication import Authenticator, User
from moorage.cluster.apiserver.http.serve import serving
from moorage.cluster.apiserver.http.server import Front
from moorage.core.building.builder import build_resolved
from moorage.core.config.scheduler_document import load_default
from moorage.core.cycle.cycle import Cycle
from moorage.core.engine.scheduler import Scheduler
from moorage.live.runtime.attempt_metrics import Observers
from moorage.live.server.live_scheduler import Live, LiveSettings
from moorage.plugins import builtin_registry
from moorage.rules.store.store import Store

HERE = Path(__file__).parent
OPEN = "GenericWorkload TopologyAwareWorkloadScheduling CompositePodGroup PodGroupPreemptionPolicy DRAWorkloadResourceClaims"
GATES = ",".join(f"{gate}=true" for gate in OPEN.split())
PLURALS = {"PriorityClass": "priorityclasses", "StorageClass": "storageclasses", "DeviceClass": "deviceclasses"}
EVERYWHERE = {"Node", "PriorityClass", "StorageClass", "DeviceClass", "ResourceSlice"}
pytestmark = pytest.mark.slow


class Rules:
    def registry(self, release):
        return builtin_registry(release)

    def gates(self, release):
        return FeatureGates.parse(GATES, "1.37")


class Scene:
    """A cluster with a scheduler, and what the scheduler sends."""

    def __init__(self, rest: Rest) -> None:
        self._rest, self.sent = rest, []

    async def apply(self, name: str) -> None:
        """Create the objects of a file, as kubectl does."""
        for one in filter(None, yaml.safe_load_all((HERE / f"{name}.yaml").read_text(encoding="utf-8"))):
            path = self._folder(one["apiVersion"], one["kind"])
            status = one.get("status")
            one["metadata"].setdefault("namespace", "default") if one["kind"] not in EVERYWHERE else None
            await self._rest.send("POST", path, json.dumps(one, separators=(",", ":")).encode())
            if status:
                body = json.dumps({"status": status}).encode()
                where = f"{path}/{one['metadata']['name']}/status"
                await self._rest.send("PATCH", where, body, content_type="application/merge-patch+json")

    @staticmethod
    def _folder(version: str, kind: str) -> str:
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        plural = PLURALS.get(kind, f"{kind.lower()}s")
        return f"{root}/{plural}" if kind in EVERYWHERE else f"{root}/namespaces/default/{plural}"

    async def get(self, kind: str, name: str, version: str = "v1") -> dict[str, Any]:
        return json.loads(await self._rest.get(f"{self._folder(version, kind)}/{name}"))

    async def claim(self) -> dict[str, Any]:
        return await self.get("ResourceClaim", "hoist", "resource.k8s.io/v1")

    async def condition(self, group: str) -> dict[str, Any]:
        found = await self.get("PodGroup", group, "scheduling.k8s.io/v1beta1")
        (one,) = found["status"]["conditions"]
        return one

    async def patch(self, path: str, body: bytes) -> None:
        await self._rest.send("PATCH", path, body, content_type="application/merge-patch+json")

    async def delete(self, kind: str, name: str) -> None:
        body = b'{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}'
        await self._rest.send("DELETE", f"{self._folder('v1', kind)}/{name}", body)

    async def until(self, ask: Callable[[], Awaitable[Any]], seconds: float = 15.0) -> Any:
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        while not (found := await ask()):
            assert loop.time() < ends, self.sent
            await asyncio.sleep(0.02)
        return found

    async def bound(self, *names: str) -> None:
        async def all_bound() -> bool:
            return all([(await self.get("Pod", name))["spec"].get("nodeName") for name in names])

        await self.until(all_bound)

    async def events(self, reason: str) -> list[dict[str, Any]]:
        found = json.loads(await self._rest.get("/apis/events.k8s.io/v1/namespaces/default/events"))
        return [event for event in found["items"] if event["reason"] == reason]

    @property
    def writes(self) -> list[tuple[str, str, Any]]:
        """Method, object (and subresource), and body of each write that is no Event."""
        return [
            (method, "/".join(path.split("/namespaces/default/")[-1].split("/")), body)
            for method, path, body in self.sent
            if method != "GET" and "/events" not in path
        ]

    def heads(self) -> list[str]:
        return [f"{method} {what}" for method, what, _ in self.writes]


@asynccontextmanager
async def a_scene(monkeypatch):
    handle, told = Front.handle, []

    async def handled(front, request):
        response = await handle(front, request)
        if request.headers.get("Authorization") == "Bearer mine" and request.method != "GET":
            body = request._read_bytes if request._read_bytes is not None else b""
            scene.sent.append((request.method, request.path, json.loads(body or b"null")))
        return response

    monkeypatch.setattr(Front, "handle", handled)
    gates = FeatureGates.parse(GATES, "1.37")
    store = Store(lambda: datetime.now(UTC).timestamp(), random.Random(1), b"k", gates=gates)
    users = {"admin": User("admin", ("system:masters",)), "mine": User("me", ("system:masters",))}
    loaded = load_default(Rules())
    scheduler = Scheduler(
        Cycle(seed=1, percentage_of_nodes_to_score=0),
        loaded.gates,
        lambda handle: build_resolved(loaded.profiles, loaded.registry, handle).profiles,
    )
    async with serving(store, Authenticator(users)) as port:
        mine, admin = (Endpoint(f"http://127.0.0.1:{port}", FixedCredentials(Identity(token))) for token in ("mine", "admin"))
        async with Rest(mine, qps=0) as rest, Rest(admin, qps=0) as outside:
            scene = Scene(outside)
            live = Live(
                scheduler, rest, LiveSettings(), identity="me_1",
                wall=lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), chance=random.Random(1),
                observers=Observers(told.append),
            )  # fmt: skip
            task = asyncio.create_task(live.run())
            try:
                await asyncio.wait_for(live.loop.synced.wait(), 20)
                yield scene, live
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


def played(monkeypatch, play):
    async def main():
        async with a_scene(monkeypatch) as (scene, live):
            return await play(scene, live)

    return asyncio.run(main())


# -- groups ------------------------------------------------------------------------------------------------------------


def test_01_a_failed_group_waits_for_its_backoff(monkeypatch):
    async def play(scene, live):
        await scene.apply("01-convoy-too-large.pods")
        await asyncio.sleep(0.3)
        await scene.apply("01-convoy-too-large.group")
        await asyncio.sleep(2.5)
        return scene.heads(), live.loop.scheduler.state.queue.groups_in

    heads, moved = played(monkeypatch, play)
    patches = [f"PATCH pods/barge-{at}/status" for at in range(3)]
    assert sorted(heads) == sorted([*patches, "PATCH podgroups/convoy/status"]), "none twice"
    assert moved["active", "PopFromBackoffQ"] == 0
    assert moved["active", "BackoffComplete"] >= 1


def test_02_a_gang_that_evicts_writes_each_thing_once(monkeypatch):
    async def play(scene, live):
        await scene.apply("02-convoy-evicts.first")
        await scene.bound("skiff-a", "skiff-b")
        before = len(scene.writes)
        await scene.apply("02-convoy-evicts.then")

        async def leaving():
            pods = [await scene.get("Pod", name) for name in ("skiff-a", "skiff-b")]
            return all("deletionTimestamp" in pod["metadata"] for pod in pods)

        await scene.until(leaving)
        await asyncio.sleep(0.3)
        for name in ("skiff-a", "skiff-b"):
            await scene.delete("Pod", name)
        await scene.bound("barge-0", "barge-1")
        await asyncio.sleep(0.2)
        return scene.writes[before:], len(await scene.events("Preempted"))

    writes, preempted = played(monkeypatch, play)
    heads = [f"{method} {what}" for method, what, _ in writes]
    for name in ("skiff-a", "skiff-b"):
        assert heads.count(f"PATCH pods/{name}/status") == heads.count(f"DELETE pods/{name}") == 1
    nominated = [what for _, what, body in writes if "nominatedNodeName" in (body or {}).get("status", {})]
    assert sorted(nominated) == ["pods/barge-0/status", "pods/barge-1/status"]
    assert preempted == 2
    assert len(writes) <= 12


def test_03_a_group_that_was_scheduled_stays_so(monkeypatch):
    async def play(scene, live):
        await scene.apply("03-convoy-half.pods")
        await scene.apply("03-convoy-half.group")
        await asyncio.sleep(3)
        return await scene.condition("convoy"), [body for _, what, body in scene.writes if what.startswith("podgroups")]

    condition, patches = played(monkeypatch, play)
    assert (condition["status"], condition["reason"]) == ("True", "Scheduled")
    assert len(patches) == 1


def test_04_pods_that_wait_at_permit_are_nominated_before_they_are_bound(monkeypatch):
    async def play(scene, live):
        await scene.apply("04-convoy-fits")
        await scene.bound("barge-0", "barge-1", "barge-2")
        await asyncio.sleep(0.1)
        return scene.writes

    writes = played(monkeypatch, play)
    heads = [f"{method} {what}" for method, what, _ in writes]
    nominated = [what for _, what, body in writes if "nominatedNodeName" in (body or {}).get("status", {})]
    assert sorted(nominated) == ["pods/barge-0/status", "pods/barge-1/status"], "all but the last"
    for name in ("barge-0", "barge-1"):
        assert heads.index(f"PATCH pods/{name}/status") < heads.index(f"POST pods/{name}/binding")


def test_05_and_06_the_texts_of_the_stages_after_the_filters(monkeypatch):
    async def play(scene, live):
        await scene.apply("05-patient-convoy.first")
        await scene.bound("skiff")
        await scene.apply("05-patient-convoy.then")

        async def told():
            found = await scene.get("PodGroup", "convoy", "scheduling.k8s.io/v1beta1")
            return (found.get("status") or {}).get("conditions")

        await scene.until(told)
        return (await scene.condition("convoy"))["message"]

    assert played(monkeypatch, play).endswith(
        " 0 remaining, deallocation and deletion of ResourceClaims completed, pod group preemption: not eligible due to "
        "preemptionPolicy=Never."
    )

    async def fleet(scene, live):
        await scene.apply("06-fleet-no-room")

        async def told():
            found = [await scene.get("PodGroup", name, "scheduling.k8s.io/v1beta1") for name in ("squad-1", "squad-2")]
            texts = [(one.get("status") or {}).get("conditions") for one in found]
            return texts if all(texts) else None

        return [one[0]["message"] for one in await scene.until(told)]

    preemption = "pod group preemption: No preemption victims found for incoming preemptor"
    assert sorted(text.count(preemption) for text in played(monkeypatch, fleet)) == [1, 2]


def test_16_no_pod_of_a_gang_of_twenty_has_an_error(monkeypatch):
    async def play(scene, live):
        await scene.apply("16-gang-of-twenty")
        await scene.bound(*(f"boat-{at}" for at in range(20)))
        await asyncio.sleep(0.3)
        return scene.writes, await scene.events("FailedScheduling"), await scene.condition("flotilla")

    writes, failed, condition = played(monkeypatch, play)
    assert [event["note"] for event in failed if "minCount" not in event["note"]] == []
    assert not [body for _, _, body in writes if "SchedulerError" in json.dumps(body)]
    assert sum(what.endswith("/binding") for _, what, _ in writes) == 20
    assert (condition["status"], condition["reason"]) == ("True", "Scheduled")


# -- devices -----------------------------------------------------------------------------------------------------------


def test_07_and_08_an_allocation_has_each_configuration_once(monkeypatch):
    def configs(claim):
        return [(one["source"], one.get("requests")) for one in claim["status"]["allocation"]["devices"]["config"]]

    async def play(name):
        async def one(scene, live):
            await scene.apply(name)
            await scene.bound("docker")
            return await scene.claim()

        return one

    assert configs(played(monkeypatch, asyncio.run(play("07-class-config")))) == [("FromClass", None)]
    assert configs(played(monkeypatch, asyncio.run(play("08-claim-config")))) == [
        ("FromClaim", ["x", "w"]), ("FromClaim", None), ("FromClaim", None),
    ]  # fmt: skip


def test_09_a_pod_whose_devices_are_not_ready_says_so_and_looks_every_five_seconds(monkeypatch):
    async def play(scene, live):
        await scene.apply("09-binding-conditions")

        async def allocated():
            return (await scene.claim()).get("status", {}).get("allocation")

        await scene.until(allocated)
        (event,) = await scene.until(lambda: scene.events("BindingConditionsPending"))
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(0.2)
        path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/hoist/status"
        await scene.patch(path, (HERE / "09-ready.json").read_bytes())
        await scene.bound("docker")
        return event, asyncio.get_running_loop().time() - began

    event, took = played(monkeypatch, play)
    said = event["type"], event["action"], event["note"]
    assert said == ("Normal", "Scheduling", "waiting for binding conditions for device on node quay")
    assert 3.5 < took < 6.5


def test_10_a_claim_for_extended_resources_is_made_in_kube_schedulers_order(monkeypatch):
    async def play(scene, live):
        await scene.apply("10-extended-resource")
        await scene.bound("docker")
        return scene.writes

    writes = played(monkeypatch, play)
    at = next(at for at, (method, what, _) in enumerate(writes) if (method, what) == ("POST", "resourceclaims"))
    (_, _, nomination), (_, _, made), (_, finalizer, _), (_, status, _), (method, shown, body) = writes[at - 1 : at + 4]
    assert nomination == {"status": {"nominatedNodeName": "quay"}}
    assert made["metadata"]["generateName"] == "docker-extended-resources-"
    assert not {"name", "finalizers"} & made["metadata"].keys()
    assert "status" not in made
    name = finalizer.removeprefix("resourceclaims/")
    assert name.startswith("docker-extended-resources-")
    assert [method for method, _, _ in writes[at + 1 : at + 3]] == ["PUT", "PUT"]
    assert status == f"resourceclaims/{name}/status"
    assert (method, shown, list(body)) == ("PATCH", "pods/docker/status", ["status"])
    assert body["status"]["extendedResourceClaimStatus"]["resourceClaimName"] == name


def test_17_pods_of_a_group_that_share_a_claim_fail_none_of_them(monkeypatch):
    async def play(scene, live):
        await scene.apply("17-shared-crane")
        await scene.bound("docker-0", "docker-1", "docker-2")
        await asyncio.sleep(0.3)
        claim = await scene.get("ResourceClaim", "shared", "resource.k8s.io/v1")
        return await scene.events("FailedScheduling"), claim

    failed, claim = played(monkeypatch, play)
    assert [event["note"] for event in failed if "allocated elsewhere" in event["note"]] == []
    assert len(claim["status"]["reservedFor"]) == 3


@pytest.mark.parametrize("freed", ["the first pod goes", "another node comes"])
def test_18_a_pod_that_waits_for_an_extended_resource_is_woken(monkeypatch, freed):
    async def play(scene, live):
        await scene.apply("18-one-crane.first")
        await scene.bound("first")
        await scene.apply("18-one-crane.then")
        await scene.until(lambda: scene.events("FailedScheduling"))
        if freed == "another node comes":
            await scene.apply("18-one-crane.pier")
        else:
            claim = next(what for _, what, _ in scene.writes if what.endswith("/status") and "resourceclaims" in what)
            await scene.delete("Pod", "first")  # and what the controller of claims does then
            free = b'{"status": {"allocation": null, "reservedFor": null}}'
            await scene.patch(f"/apis/resource.k8s.io/v1/namespaces/default/{claim}", free)
        await scene.bound("second")
        return await scene.get("Pod", "second")

    assert played(monkeypatch, play)["spec"]["nodeName"] == ("pier" if freed == "another node comes" else "quay")


# -- bindings ----------------------------------------------------------------------------------------------------------


def test_11_a_pod_that_is_deleted_while_its_volume_is_bound(monkeypatch):
    async def play(scene, live):
        await scene.apply("11-deleted-while-binding")

        async def waits():
            claim = await scene.get("PersistentVolumeClaim", "crates")
            return (claim["metadata"].get("annotations") or {}).get("volume.kubernetes.io/selected-node")

        await scene.until(waits)
        await scene.delete("Pod", "freighter")

        async def told():
            return [event for event in await scene.events("FailedScheduling") if "VolumeBinding" in event["note"]]

        return (await scene.until(told))[0]["note"]

    assert played(monkeypatch, play) == (
        'running PreBind plugin "VolumeBinding": binding volumes: pod does not exist any more: pod "freighter" not found'
    )


def test_12_a_victim_is_marked_and_deleted_as_kube_scheduler_does(monkeypatch):
    async def play(scene, live):
        await scene.apply("12-eviction.first")
        await scene.bound("skiff")
        before = len(scene.writes)
        await scene.apply("12-eviction.then")

        async def deleted():
            return [one for one in scene.writes[before:] if one[0] == "DELETE"]

        await scene.until(deleted)
        return scene.writes[before:]

    writes = played(monkeypatch, play)
    (mark,) = [body for method, what, body in writes if (method, what) == ("PATCH", "pods/skiff/status")]
    (delete,) = [body for method, _, body in writes if method == "DELETE"]
    assert delete == {"kind": "DeleteOptions", "apiVersion": "v1"}
    assert list(mark) == ["status"]
    assert [one["type"] for one in mark["status"]["$setElementOrder/conditions"]][-1] == "DisruptionTarget"
    assert [one["type"] for one in mark["status"]["conditions"]] == ["DisruptionTarget"]


def test_14_a_claim_with_opaque_parameters_is_allocated(monkeypatch):
    async def play(scene, live):
        await scene.apply("14-opaque-parameters")
        await scene.bound("docker")
        return await scene.claim()

    (config,) = played(monkeypatch, play)["status"]["allocation"]["devices"]["config"]
    assert config["opaque"]["parameters"] == {"apiVersion": "crane.example.com/v1", "kind": "Reach", "arm": "long"}


def test_19_events_are_of_core_v1_where_the_events_api_was_refused_at_the_start(monkeypatch):
    handle = Front.handle

    async def refusing(front, request):
        if request.path == "/apis/events.k8s.io/v1":
            return web.json_response({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}, status=403)
        return await handle(front, request)

    monkeypatch.setattr(Front, "handle", refusing)

    async def play(scene, live):
        await scene.apply("12-eviction.first")
        await scene.bound("skiff")

        async def written():
            return any("/events" in path for _, path, _ in scene.sent)

        await scene.until(written)
        return [(method, path, body) for method, path, body in scene.sent if "/events" in path]

    ((method, path, body),) = played(monkeypatch, play)
    assert (method, path) == ("POST", "/api/v1/namespaces/default/events")
    assert (body["apiVersion"], body["count"], body["source"]) == ("v1", 1, {"component": "default-scheduler"})
    assert body["firstTimestamp"] == body["lastTimestamp"]
    assert "reportingInstance" not in body
