"""Twenty-five bugs that kube-scheduler has had, re-created against a whole scheduler in virtual time.

Each test is named by its number in our list and says which reports of kubernetes/kubernetes it stands for. At the end of each
the oracle reads all that happened, and the scheduler must believe what the API says with nothing left over; that no pod was
helped only by the five minutes' flush is part of that. Those about preemption are in ``test_upstream_bugs_of_preemption.py``.
"""

import asyncio

import pytest

from moorage.core.extenders.consultation import HTTPExtender
from moorage.core.queue.queued_pod import QueuePlace
from moorage.errors import ClusterError
from moorage.framework.events import Action, ClusterEvent, Resource, Wake
from moorage.framework.verdicts import Hold
from moorage.testing.memory_cluster import MemoryCluster
from moorage.testing.virtual_time import run_virtually
from tests.live.runtime.test_asking import Scripted
from tests.live.runtime.test_loop import binds, node, pod, running
from tests.regressions.holding import Holds
from tools.simtest.oracle import Terms
from tools.simtest.stage import LOST, on_stage
from tools.simtest.world import NODES

GATEWAY = ClusterError("504 Gateway Timeout", 504, "Timeout")


def test_b01_an_assumed_pod_never_expires():
    """106361: the cache forgot a pod that was being bound for long, and gave its room away."""

    async def main(stage):
        stage.world.node("n1", cpu=1)
        await asyncio.sleep(0.1)
        stage.spoil("POST binding", hold_s=4.0, times=1)
        stage.world.pod("first")
        stage.world.pod("second")
        await asyncio.sleep(1)
        for link in stage.links("pods"):
            link.stalled = True
        await asyncio.sleep(100)
        assert (stage.node_of("first"), stage.node_of("second")) == ("n1", "")
        assert not stage.binds("second")

    on_stage(main)


def test_b02_a_bind_whose_reply_is_lost_is_read_back():
    """100140: a bind that had been done was taken for failed, and the pod's room was used twice."""

    async def main(stage):
        stage.world.node("n1", cpu=1)
        await asyncio.sleep(0.1)
        for link in stage.links("pods"):
            link.delay_s = 30.0
        stage.spoil("POST binding", error=GATEWAY, after=True, times=1)
        stage.world.pod("first")
        await asyncio.sleep(1)
        stage.world.pod("second")
        await asyncio.sleep(60)
        assert len(stage.binds("first")) == 1
        assert stage.node_of("second") == ""

    on_stage(main)


def test_b03_an_extender_whose_bind_reply_is_lost_is_not_called_endlessly():
    """96579, 96582: the extender had bound the pod, its reply timed out, and it was asked again without end."""

    async def main():
        cluster = MemoryCluster([node("n1"), pod("p1")], lag_s=30.0)

        def bind(body):
            cluster._bind(cluster.pods()[0], "n1")
            return TimeoutError("no reply")

        asker = Scripted(bind)
        asked = (HTTPExtender(0, "http://e/", bind_verb="bind"),)
        async with running(cluster, asked=asked, extenders=asker):
            await asyncio.sleep(120)
            return len(asker.asked), binds(cluster)

    asked, bound = run_virtually(main())
    assert asked <= 2
    assert bound == ["default/p1"]


def test_b04_a_recreated_pod_is_a_new_pod():
    """141255, 91126, 85726: deleted and recreated, seen as one update from one node to another."""

    async def main(stage):
        stage.world.node("n1")
        stage.world.pod("p")
        await stage.placed("p")
        stage.world.node("n2")
        for link in stage.links("pods"):
            link.delay_s, link.collapses = 2.0, True
        stage.world.recreate_pod("p")
        stage.world.bind("p", "n2")
        await asyncio.sleep(5)
        uid = stage.pod("p")["metadata"]["uid"]
        assert stage.scheduler.cluster.node_of(uid) == "n2"
        assert list(stage.scheduler.snapshot.node("n1").pods) == []

    on_stage(main)


def test_b05_no_order_of_events_ends_the_process():
    """42063, 46347, 47150, 50916: "scheduler cache is corrupted", and exit."""

    async def main(stage):
        for name in ("n1", "n2"):
            stage.world.node(name)
        for round_ in range(12):
            for plural, link in (("pods", stage.links("pods")), ("nodes", stage.links("nodes"))):
                for one in link:
                    one.delay_s, one.collapses = [0.0, 0.5, 2.0][(round_ + (plural == "pods")) % 3], round_ % 2 == 0
            stage.world.pod("p", nodeName="n1" if round_ % 3 else "")
            stage.world.delete_node("n1")
            stage.world.recreate_pod("p")
            stage.world.bind("p", "n2")
            stage.world.node("n1")
            await asyncio.sleep(0.4)
            stage.world.delete_pod("p", grace=0)
            if round_ % 4 == 0:
                for link in stage.links():
                    link.cut("expired")
        assert stage.members[0].starts == 1

    on_stage(main)


def test_b06_a_pod_that_changes_while_its_attempt_fails_is_not_lost():
    """102790, 104521, 117497: updated, deleted and made again around the failure of its bind."""

    async def main(stage):
        stage.world.node("n1")
        for delay_s in (0.0, 0.001, 0.002, 0.003, 0.004, 0.1):
            stage.spoil("POST binding", error=LOST, times=1)
            stage.world.pod("p")
            await asyncio.sleep(delay_s)
            stage.world.change_pod("p", labels={"x": "y"})
            stage.world.delete_pod("p", grace=0)
            stage.world.pod("p")
            assert await stage.placed("p") == "n1"
            stage.world.delete_pod("p", grace=0)

    on_stage(main)


def test_b07_a_missed_delete_is_found_in_the_next_list():
    """106102, 51313: the room of a pod was never freed, because its deletion fell into a gap."""

    async def main(stage):
        stage.world.node("n1", cpu=1)
        stage.world.pod("old")
        await stage.placed("old")
        for link in stage.links("pods"):
            link.stalled = True
        stage.world.delete_pod("old", grace=0)
        stage.world.pod("new")
        await asyncio.sleep(5)
        for link in stage.links("pods"):
            link.stalled = False
            link.cut("expired")
        await stage.placed("new", within_s=3)

    on_stage(main)


def test_b08_a_node_that_becomes_ready_wakes_pods():
    """122284, 109437, 110175: a node was added while it was not ready, and its becoming ready woke no pod."""

    async def main(stage):
        stage.world.pod("p")
        await asyncio.sleep(2)
        stage.world.node("n1", taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
        await asyncio.sleep(20)
        assert stage.node_of("p") == ""
        stage.world.node("n1", taints=[])
        await stage.placed("p", within_s=11)

    on_stage(main)


NODE_CHANGED = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)


class NodeOpensGate:
    """Gates every pod until there is a node called "open"."""

    name = "NodeOpensGate"

    def attach(self, handle):
        self.handle = handle

    def pre_enqueue(self, pod):
        return None if self.handle.snapshot.node("open") is not None else Hold.because("closed")

    def wakes_on(self):
        yield Wake(NODE_CHANGED)


def test_b09_a_gate_opens_on_the_event_of_the_object_it_depends_on():
    """125527, 125223: gated pods were passed over by the events that would have opened their gate."""

    async def main(stage):
        stage.world.node("n1")
        stage.world.pod("p")
        await asyncio.sleep(20)
        assert stage.node_of("p") == ""
        stage.world.node("open", unschedulable=True)
        await stage.placed("p", within_s=11)

    on_stage(main, NodeOpensGate)


class OpensSilently:
    """Gates pods until ``OPEN``; no hint ever says so."""

    name = "OpensSilently"
    open = False

    def pre_enqueue(self, pod):
        return None if OpensSilently.open else Hold.because("closed")

    def wakes_on(self):
        yield Wake(NODE_CHANGED, lambda pod, old, new: False)


def test_b10_a_gated_pod_with_a_missed_event_is_flushed_after_five_minutes():
    """139162, 139161: gated pods did not take part in the flush, and stayed for good."""
    OpensSilently.open = False

    async def main(stage):
        stage.world.node("n1")
        stage.world.pod("p")
        await asyncio.sleep(5)
        OpensSilently.open = True
        took = await stage.until(lambda: stage.node_of("p"), within_s=335)
        stage.scheduler.queue.incoming.clear()  # here the flush is what was asked for
        return took

    assert 290 < on_stage(main, OpensSilently) < 335


def test_b14_in_flight_events_are_dropped_when_their_attempt_ends():
    """120622, 126962, 122725: events piled up behind an attempt whose end was never told."""

    async def main(stage):
        stage.world.node("n1", cpu=2)
        stage.world.pod("permit")
        stage.world.pod("stuck", cpu="8")
        await asyncio.sleep(2)
        for _ in range(500):
            stage.world.touch_node("n1")
        await asyncio.sleep(1)
        assert stage.scheduler.queue.logged_events > 0
        stage.world.delete_pod("permit", grace=0)
        await asyncio.sleep(1)
        assert stage.scheduler.queue.logged_events == 0

    on_stage(main, Holds)


def test_b15_an_error_after_a_rejection_goes_to_backoff():
    """120334: rejected once, then an API error; the pod waited for the plugin that had rejected it before."""

    async def main(stage):
        stage.world.node("n1", cpu=1)
        stage.world.pod("other")
        await stage.placed("other")
        stage.world.pod("p")
        await asyncio.sleep(15)
        stage.spoil("POST binding", error=ClusterError("500", 500), times=3)
        stage.world.delete_pod("other", grace=0)
        await stage.placed("p", within_s=12)

    on_stage(main)


def test_b20_a_pod_deleted_in_pre_bind_frees_its_resources_at_once():
    """134157: its room stayed taken until the ten minutes of PreBind were over."""

    async def main(stage):
        stage.world.node("n1", cpu=1)
        stage.world.pod("prebind")
        await asyncio.sleep(1)
        stage.world.pod("next")
        await asyncio.sleep(15)
        assert stage.node_of("next") == ""
        stage.world.delete_pod("prebind", grace=0)
        await stage.placed("next", within_s=11)
        assert not stage.scheduler.cluster.assumed

    on_stage(main, Holds, settle_s=60.0)


def test_b21_a_cordoned_node_gets_no_pod():
    """86626, 73845: a snapshot taken in the middle of changes kept a node as it had been."""

    async def main(stage):
        for number in range(4):
            stage.world.node(f"n{number}", cpu=6, pods=50)
        closed = "n2"
        for number in range(60):
            if number == 20:
                stage.world.node(closed, cpu=6, pods=50, unschedulable=True)
                since = stage.now
            stage.world.pod(f"p{number}", cpu="100m")
            stage.world.touch_node(f"n{number % 4}")
            if number % 5 == 0:
                stage.world.delete_pod(f"p{number - 5}", grace=0)
            await asyncio.sleep(0.05)
        late = [one for one in stage.recording.entries if getattr(one, "node", "") == closed and one.at_s > since + 0.1]
        assert late == []

    on_stage(main)


ODD_PODS = {
    "on a node that does not exist": {"nodeName": "nowhere"},
    "wants a claim that does not exist": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]},
    "of an unknown runtime": {"nodeSelector": {"a": "b"}},
    "with a term that chooses nothing": {
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "no-such-key", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]}},
    },
    "with a device claim that does not exist": {"resourceClaims": [{"name": "c", "resourceClaimName": "none"}]},
}  # fmt: skip


@pytest.mark.parametrize("spec", ODD_PODS.values(), ids=ODD_PODS)
def test_b22_unusual_input_does_not_end_the_process(spec):
    """79640, 82796, 89006, 92050, 138885: an affinity, a missing node or an unexpected extender reply."""

    async def main(stage):
        stage.world.node("n1")
        assert stage.world.pod("odd", **spec) is not None
        await asyncio.sleep(2)
        stage.world.pod("plain")
        await stage.placed("plain", within_s=2)
        assert stage.members[0].starts == 1

    on_stage(main, terms=Terms(settled=False))


def test_b23_every_node_is_visited_after_node_changes():
    """91601: nodes fell out of the order in which nodes were gone through."""

    async def main(stage):
        for step in range(60):
            name = f"n{step * 7 % 12}"
            if step % 3 == 0:
                stage.world.delete_node(name)
            stage.world.node(name, zone="abc"[step % 3])
            held = stage.api.do("GET", f"{NODES}/{name}")
            held["metadata"]["labels"]["topology.kubernetes.io/zone"] = "cab"[step % 3]
            stage.world.write_node(held)
            await asyncio.sleep(0.02)
        names = [node["metadata"]["name"] for node in stage.world.nodes()]
        for name in names:
            stage.world.pod(f"on-{name}", nodeSelector={"kubernetes.io/hostname": name})
        await stage.placed(*(f"on-{name}" for name in names))
        assert all(stage.node_of(f"on-{name}") == name for name in names)

    on_stage(main)


def test_b24_a_device_is_given_to_one_claim_only():
    """136269: two claims that were allocated in quick succession got the same device."""
    group = "/apis/resource.k8s.io/v1"

    async def main(stage):
        stage.world.node("n1", cpu=8)
        stage.api.do(
            "POST",
            f"{group}/deviceclasses",
            {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}},
        )
        pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "d", "nodeName": "n1", "pool": pool, "devices": [{"name": f"gpu-{number}"} for number in range(3)]}
        made = stage.api.do(
            "POST",
            f"{group}/resourceslices",
            {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec},
        )
        assert made is not None
        await asyncio.sleep(1)
        for link in stage.links("resourceclaims"):
            link.delay_s = 1.0
        request = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
        for number in range(5):
            claim = {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": f"c{number}"},
                "spec": {"devices": {"requests": [request]}},
            }
            assert stage.api.do("POST", f"{group}/namespaces/default/resourceclaims", claim) is not None
            stage.world.pod(f"p{number}", cpu="100m", resourceClaims=[{"name": "c", "resourceClaimName": f"c{number}"}])
        await asyncio.sleep(60)
        claims = stage.api.items(f"{group}/resourceclaims")
        given = [
            result["device"]
            for claim in claims
            for result in (claim.get("status") or {}).get("allocation", {}).get("devices", {}).get("results", ())
        ]
        assert sorted(given) == ["gpu-0", "gpu-1", "gpu-2"]
        placed = [number for number in range(5) if stage.node_of(f"p{number}")]
        assert len(placed) == 3

    on_stage(main, terms=Terms(settled=False))


def near(app, kind):
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


WAKES = {  # what the pod asks for, how the world is at first, what happens then
    "a node gets the label": (
        {"nodeSelector": {"topology.kubernetes.io/zone": "b"}}, lambda w: w.node("n1"), lambda w: relabel(w, "n1"),
    ),
    "a node is added": ({}, lambda w: None, lambda w: w.node("n1")),
    "a taint goes": (
        {}, lambda w: w.node("n1", taints=[{"key": "k", "effect": "NoSchedule"}]), lambda w: w.node("n1", taints=[]),
    ),
    "a node is opened": ({}, lambda w: w.node("n1", unschedulable=True), lambda w: w.node("n1", unschedulable=False)),
    "a node grows": ({"cpu": "4"}, lambda w: w.node("n1", cpu=2), lambda w: w.node("n1", cpu=8)),
    "a pod ends": ({"cpu": "2"}, lambda w: (w.node("n1", cpu=2), w.pod("x", nodeName="n1")), lambda w: w.finish("x")),
    "a port is freed": (
        {"container": {"ports": [{"containerPort": 1, "hostPort": 80}]}},
        lambda w: (w.node("n1"), w.pod("x", nodeName="n1", container={"ports": [{"containerPort": 1, "hostPort": 80}]})),
        lambda w: w.delete_pod("x"),
    ),
    "who it avoids goes": (
        near("db", "podAntiAffinity"), lambda w: (w.node("n1"), w.pod("x", app="db", nodeName="n1")),
        lambda w: w.delete_pod("x"),
    ),
    "who it avoids is another now": (
        near("db", "podAntiAffinity"), lambda w: (w.node("n1"), w.pod("x", app="db", nodeName="n1")),
        lambda w: w.change_pod("x", labels={"app": "web"}),
    ),
    "who it wants comes": (near("db", "podAffinity"), lambda w: w.node("n1"), lambda w: w.pod("x", app="db", nodeName="n1")),
    "its gate opens": ({"schedulingGates": [{"name": "g"}]}, lambda w: w.node("n1"), lambda w: w.ungate("p")),
    "it is changed itself": (
        near("db", "podAffinity"), lambda w: w.node("n1"), lambda w: w.change_pod("p", labels={"app": "db"}),
    ),
}  # fmt: skip


def relabel(world, name):
    held = world.api.do("GET", f"{NODES}/{name}")
    held["metadata"]["labels"]["topology.kubernetes.io/zone"] = "b"
    world.write_node(held)


@pytest.mark.parametrize(("spec", "before", "then"), WAKES.values(), ids=WAKES)
def test_b25_an_event_that_helps_a_pod_wakes_it(spec, before, then):
    """135325, 135392, 135394, 137607: hints that were wrong, and pods that waited for the flush."""

    async def main(stage):
        before(stage.world)
        await asyncio.sleep(1)
        stage.world.pod("p", **spec)
        await asyncio.sleep(12)
        assert stage.node_of("p") == ""
        then(stage.world)
        assert await stage.placed("p", within_s=11) == "n1"
        queued = stage.scheduler.queue.get(stage.pod("p")["metadata"]["uid"])
        assert queued is None or queued.place is QueuePlace.IN_FLIGHT

    on_stage(main)
