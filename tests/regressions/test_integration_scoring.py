"""Where a pod goes that could go elsewhere, by each score, and further scenarios of Kubernetes' own end-to-end tests.

One score each is in ``test_integration.py``; here are strategies of resources, images, how services and sets are spread without
being asked to, and finer points. The end-to-end scenarios are those of ``test/e2e/scheduling`` that are no conformance tests.
"""

import asyncio

import pytest

from tests.regressions import cluster_objects as on
from tools.simtest.oracle import Terms
from tools.simtest.stage import on_stage

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
TWO = (("n1", "a"), ("n2", "b"))


def zoned(w, *named, **more):
    for name, zone in named:
        on.node(w, name, {HOST: name, ZONE: zone}, **more)


def fit(strategy):
    args = f"pluginConfig: [{{name: NodeResourcesFit, args: {{scoringStrategy: {strategy}}}}}]"
    only = "score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit}]}"
    return f"profiles:\n- plugins: {{{only}}}\n  {args}\n"


CPU = "resources: [{name: cpu, weight: 1}]"
SHAPE = "requestedToCapacityRatio: {shape: [{utilization: 0, score: %d}, {utilization: 100, score: %d}]}"
STRATEGIES = {
    "least allocated": (f"{{type: LeastAllocated, {CPU}}}", "n2"),
    "most allocated": (f"{{type: MostAllocated, {CPU}}}", "n1"),
    "a rising ratio": (f"{{type: RequestedToCapacityRatio, {CPU}, {SHAPE % (0, 10)}}}", "n1"),
    "a falling ratio": (f"{{type: RequestedToCapacityRatio, {CPU}, {SHAPE % (10, 0)}}}", "n2"),
    "the most of an extended resource": ("{type: MostAllocated, resources: [{name: example.com/gpu, weight: 1}]}", "n2"),
}


@pytest.mark.parametrize(("strategy", "node"), STRATEGIES.values(), ids=STRATEGIES)
def test_strategies_of_resources(strategy, node):
    async def main(stage):
        zoned(stage.world, *TWO, **{"example.com/gpu": 8})
        on.pod(stage.world, "x", nodeName="n1", cpu="2")
        on.pod(stage.world, "y", nodeName="n2", requests={"example.com/gpu": "4"})
        await asyncio.sleep(0.5)
        on.pod(stage.world, "p", cpu="1", requests={"example.com/gpu": "1"})
        assert await stage.placed("p") == node

    on_stage(main, profiles=fit(strategy))


def test_image_locality_attracts_pods():
    async def main(stage):
        zoned(stage.world, *TWO)
        images = [{"names": ["registry.example/large:v1"], "sizeBytes": 3000 * 1024 * 1024}]
        on.patch(stage.world, f"{on.NODES}/n2/status", status={"images": images})
        on.pod(stage.world, "x", nodeName="n2", cpu="100m")
        await asyncio.sleep(0.5)
        on.pod(stage.world, "p", container={"image": "registry.example/large:v1"})
        assert await stage.placed("p") == "n2"

    on_stage(main)


SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
           "spec": {"selector": {"app": "s"}, "ports": [{"port": 80}]}}  # fmt: skip
SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "s"}, "spec": {
    "replicas": 0, "selector": {"matchLabels": {"app": "s"}},
    "template": {"metadata": {"labels": {"app": "s"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}  # fmt: skip
CONTROLLER = {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "s"}, "spec": {
    "replicas": 0, "selector": {"app": "s"},
    "template": {"metadata": {"labels": {"app": "s"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}  # fmt: skip
OWNERS = {
    "a service": ("/api/v1/namespaces/default/services", SERVICE),
    "a replica set": ("/apis/apps/v1/namespaces/default/replicasets", SET),
    "a replication controller": ("/api/v1/namespaces/default/replicationcontrollers", CONTROLLER),
}


@pytest.mark.parametrize(("path", "owner"), OWNERS.values(), ids=OWNERS)
def test_pods_of_a_service_or_a_set_are_spread_over_zones_by_default(path, owner):
    """DefaultPodTopologySpread, and the end-to-end test that spreads over zones: none differs by more than one."""

    async def main(stage):
        zoned(stage.world, ("n1", "a"), ("n2", "b"), ("n3", "c"), cpu=8)
        made = stage.api.do("POST", path, owner)
        assert made is not None
        await asyncio.sleep(0.5)
        controls = [{"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": "s", "uid": made["metadata"]["uid"],
                     "controller": True}]  # fmt: skip
        for number in range(7):
            name = f"p{number}"
            metadata = {"name": name, "labels": {"app": "s"}}
            if owner["kind"] != "Service":
                metadata["ownerReferences"] = controls
            requests = {"requests": {"cpu": "100m"}}
            on.create(stage.world, on.PODS, "Pod", metadata=metadata,
                      spec={"containers": [{"name": "c", "image": "i", "resources": requests}]})  # fmt: skip
            await stage.placed(name)
        counts = [sum(stage.node_of(f"p{number}") == node for number in range(7)) for node in ("n1", "n2", "n3")]
        assert max(counts) - min(counts) <= 1

    on_stage(main, terms=Terms(settled=False), settle_s=2.0)


PREFER = "preferredDuringSchedulingIgnoredDuringExecution"


def soft(kind, key, topology):
    term = {"topologyKey": topology, "labelSelector": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}
    return {"affinity": {kind: {PREFER: [{"weight": 100, "podAffinityTerm": term}]}}}


def tainted(*keys):
    return lambda w, name: on.node(w, name, {HOST: name}, [{"key": key, "effect": "PreferNoSchedule"} for key in keys])


CHOICES = {  # the world, labels and spec of the pod, where it goes
    "one taint or two": (
        lambda w: (tainted("a", "b")(w, "n1"), tainted("a")(w, "n2")), {}, {}, "n2",
    ),
    "a taint that is tolerated or one that is not": (
        lambda w: (tainted("a", "b", "c")(w, "n1"), tainted("d")(w, "n2")), {},
        {"tolerations": [{"key": key, "operator": "Exists", "effect": "PreferNoSchedule"} for key in "abc"]}, "n1",
    ),
    "away from a zone": (
        lambda w: (zoned(w, *TWO), on.pod(w, "x", {"s": ""}, nodeName="n1")), {}, soft("podAntiAffinity", "s", ZONE), "n2",
    ),
    "near a zone": (
        lambda w: (zoned(w, *TWO), on.pod(w, "x", {"s": ""}, nodeName="n2", cpu="100m")), {}, soft("podAffinity", "s", ZONE),
        "n2",
    ),
    "the zone with fewer": (
        lambda w: (zoned(w, ("n1", "a"), ("n2", "a"), ("n3", "b")),
                   *(on.pod(w, f"x{n}", {"s": ""}, nodeName=f"n{n}") for n in (1, 2, 3))),
        {"s": ""}, on.spread("s", ZONE, whenUnsatisfiable="ScheduleAnyway"), "n3",
    ),
    "a pod with preferred anti-affinity": (
        lambda w: (zoned(w, *TWO), on.pod(w, "x", nodeName="n1", **soft("podAntiAffinity", "s", HOST))), {"s": ""}, {}, "n2",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("world", "labels", "spec", "node"), CHOICES.values(), ids=CHOICES)
def test_which_node_is_taken(world, labels, spec, node):
    async def main(stage):
        world(stage.world)
        await asyncio.sleep(0.5)
        on.pod(stage.world, "p", labels, **spec)
        assert await stage.placed("p") == node

    on_stage(main, settle_s=2.0)


# -- end-to-end tests that are no conformance tests ---------------------------------------------------------------------------


def test_overhead_counts():
    """Pod overhead: what a runtime class adds is asked for as well."""

    async def main(stage):
        stage.world.node("n1", cpu=2)
        runtime = {"metadata": {"name": "heavy"}, "handler": "h", "overhead": {"podFixed": {"cpu": "1500m"}}}
        on.create(stage.world, "/apis/node.k8s.io/v1/runtimeclasses", "RuntimeClass", "node.k8s.io/v1", **runtime)
        on.pod(stage.world, "heavy", cpu="250m", runtimeClassName="heavy")
        await stage.placed("heavy")
        on.pod(stage.world, "beside", cpu="500m")
        await asyncio.sleep(3)
        assert stage.node_of("beside") == ""
        on.pod(stage.world, "small", cpu="250m")
        await stage.placed("small")

    on_stage(main)


def test_a_claim_with_a_volume_that_no_node_can_access():
    async def main(stage):
        zoned(stage.world, *TWO)
        on.volume(stage.world, "v1", within=(ZONE, "nowhere"))
        on.claim(stage.world, "c1", "v1")
        on.patch(stage.world, f"{on.VOLUMES}/v1", spec={"claimRef": {"namespace": "default", "name": "c1"}})
        on.pod(stage.world, "p", **on.using("c1"))
        await asyncio.sleep(3)
        (condition,) = stage.pod("p")["status"]["conditions"]
        assert "didn't match PersistentVolume's node affinity" in condition["message"]

    on_stage(main, terms=Terms(settled=False), settle_s=1.0)


def test_preemption_respects_topology_spread():
    """PTS preemption: there is a victim in each zone, but one zone has two already."""

    async def main(stage):
        zoned(stage.world, *TWO, cpu=4)
        for name in ("high-1", "high-2"):
            on.pod(stage.world, name, {"s": ""}, nodeName="n1", cpu="1", priorityClassName="high")
        for name, node in (("low-1", "n1"), ("low-2", "n2"), ("low-3", "n2")):
            labels = {"s": ""} if name == "low-2" else {}
            on.pod(stage.world, name, labels, nodeName=node, cpu="2", priorityClassName="low")
        on.pod(stage.world, "p", {"s": ""}, cpu="2", priorityClassName="high", **on.spread("s", ZONE))
        assert await stage.placed("p", within_s=20) == "n2"
        assert stage.node_of("low-1") == "n1"

    on_stage(main)


def test_a_not_ready_node_gets_only_tolerating_pods():
    """TaintNodeByCondition: what such a taint means to pods; who sets it is in ``tests/cluster/controllers/test_nodes.py``."""

    async def main(stage):
        keys = ("not-ready", "memory-pressure", "disk-pressure", "network-unavailable", "pid-pressure", "unschedulable")
        for key in keys:
            taints = [on.no_schedule(f"node.kubernetes.io/{key}")]
            on.node(stage.world, f"n-{key}", {HOST: f"n-{key}"}, taints)
            on.pod(stage.world, f"bears-{key}", **on.tolerating(f"node.kubernetes.io/{key}"), nodeSelector={HOST: f"n-{key}"})
        on.pod(stage.world, "plain")
        await stage.placed(*(f"bears-{key}" for key in keys))
        await asyncio.sleep(2)
        assert stage.node_of("plain") == ""
        on.taint(stage.world, "n-not-ready")
        assert await stage.placed("plain", within_s=10) == "n-not-ready"

    on_stage(main)
