"""Kubernetes' eleven conformance tests of scheduling, as scenarios on the embedded API server with our scheduler.

Names and steps are those of test/conformance/testdata/conformance.yaml, in virtual time. At the end of each the oracle judges
the history.
"""

import asyncio

import pytest

from tools.simtest.stage import on_stage

LIMITS, CLASSES = "/api/v1/namespaces/default/limitranges", "/apis/scheduling.k8s.io/v1/priorityclasses"
SETS = "/apis/apps/v1/namespaces/default/replicasets"
MERGE = "application/merge-patch+json"


def limit_range(name, **labels):
    limit = {
        "type": "Container",
        "min": {"cpu": "50m", "memory": "100Mi"},
        "max": {"cpu": "500m", "memory": "500Mi"},
        "default": {"cpu": "500m", "memory": "500Mi"},
        "defaultRequest": {"cpu": "100m", "memory": "200Mi"},
    }
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": [limit]}}


def resources(**requests_and_limits):
    return {"resources": requests_and_limits}


def test_limit_range_should_create_a_limit_range_with_defaults_and_ensure_pod_has_those_defaults_applied():
    async def main(stage):
        world, api = stage.world, stage.api
        world.node("n1")
        assert api.do("POST", LIMITS, limit_range("limits")) is not None
        plain = world.pod("plain", container=resources())
        held = plain["spec"]["containers"][0]["resources"]
        assert held["requests"] == {"cpu": "100m", "memory": "200Mi"}
        assert held["limits"] == {"cpu": "500m", "memory": "500Mi"}
        partly = world.pod("partly", container=resources(requests={"cpu": "300m"}, limits={"cpu": "300m"}))
        held = partly["spec"]["containers"][0]["resources"]
        assert held["requests"] == {"cpu": "300m", "memory": "200Mi"}
        assert world.pod("small", container=resources(requests={"cpu": "10m"})) is None
        assert world.pod("large", container=resources(requests={"cpu": "600m"}, limits={"cpu": "600m"})) is None
        await stage.placed("plain", "partly")
        assert api.do(
            "PATCH", f"{LIMITS}/limits", {"spec": {"limits": [{"type": "Container", "min": {"cpu": "9m"}}]}}, media_type=MERGE
        )
        assert world.pod("small", container=resources(requests={"cpu": "10m"}, limits={"cpu": "20m"})) is not None
        await stage.placed("small")

    on_stage(main)


def test_limit_range_should_list_patch_and_delete_a_limit_range_by_collection():
    async def main(stage):
        api = stage.api
        for name in ("one", "two"):
            assert api.do("POST", LIMITS, limit_range(name, suite="yes")) is not None
        assert len(api.items(LIMITS)) == 2
        patched = api.do("PATCH", f"{LIMITS}/one", {"metadata": {"labels": {"one": "patched"}}}, media_type=MERGE)
        assert patched["metadata"]["labels"] == {"suite": "yes", "one": "patched"}
        assert len(api.items("/api/v1/limitranges")) == 2
        api.serve("world", "DELETE", LIMITS, query={"labelSelector": "one=patched"})
        assert [one["metadata"]["name"] for one in api.items(LIMITS)] == ["two"]
        api.do("DELETE", LIMITS)
        assert api.items(LIMITS) == []

    on_stage(main)


def test_validates_resource_limits_of_pods_that_are_allowed_to_run():
    async def main(stage):
        for number in range(3):
            stage.world.node(f"n{number}", cpu=4)
        fillers = [f"filler-{number}" for number in range(3)]
        for name in fillers:
            stage.world.pod(name, cpu="2800m")
        await stage.placed(*fillers)
        assert len({stage.node_of(name) for name in fillers}) == 3
        stage.world.pod("additional", cpu="2")
        await asyncio.sleep(10)
        assert stage.node_of("additional") == ""
        (condition,) = stage.pod("additional")["status"]["conditions"]
        assert condition["reason"] == "Unschedulable"
        assert condition["message"].startswith("0/3 nodes are available: 3 Insufficient cpu.")
        stage.world.delete_pod("additional")

    on_stage(main)


def test_validates_that_node_selector_is_respected_if_not_matching():
    async def main(stage):
        stage.world.node("n1")
        stage.world.pod("restricted", nodeSelector={"label": "nonempty"})
        await asyncio.sleep(10)
        assert stage.node_of("restricted") == ""
        message = stage.pod("restricted")["status"]["conditions"][0]["message"]
        assert "1 node(s) didn't match Pod's node affinity/selector" in message

    on_stage(main)


def test_validates_that_node_selector_is_respected_if_matching():
    async def main(stage):
        for number in range(3):
            stage.world.node(f"n{number}")
        node = stage.api.do("GET", "/api/v1/nodes/n1")
        node["metadata"]["labels"]["kubernetes.io/e2e-x"] = "42"
        stage.world.write_node(node)
        stage.world.pod("with-labels", nodeSelector={"kubernetes.io/e2e-x": "42"})
        assert await stage.placed("with-labels") == "n1"

    on_stage(main)


def test_validates_that_there_exists_conflict_between_pods_with_same_host_port_and_protocol_but_one_using_0_0_0_0():
    async def main(stage):
        for number in range(2):
            stage.world.node(f"n{number}")

        def port(address):
            listed = {"containerPort": 8080, "hostPort": 54322, "protocol": "TCP"}
            return {"ports": [{**listed, "hostIP": address} if address else listed]}

        only = {"nodeSelector": {"kubernetes.io/hostname": "n0"}}
        stage.world.pod("pod4", container=port(""), **only)
        await stage.placed("pod4")
        stage.world.pod("pod5", container=port("127.0.0.1"), **only)
        await asyncio.sleep(10)
        assert stage.node_of("pod5") == ""
        assert "didn't have free ports for the requested pod ports" in stage.pod("pod5")["status"]["conditions"][0]["message"]

    on_stage(main)


def test_preemption_execution_path_runs_replica_sets_to_verify_preemption_running_path():
    """ReplicaSets of growing priority on one node; what controllers would do is done here as pods go."""

    async def main(stage):
        world, api = stage.world, stage.api
        world.node("n1", cpu=2, pods=20)
        wanted = {"p1": (5, "100m", 1), "p2": (4, "200m", 2), "p3": (4, "300m", 3), "p4": (1, "2", 4)}
        for name, (replicas, _, value) in wanted.items():
            body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
            assert api.do("POST", CLASSES, body)
            template = {"metadata": {"labels": {"name": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
            spec = {"replicas": replicas, "selector": {"matchLabels": {"name": name}}, "template": template}
            assert api.do(
                "POST", SETS, {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": f"rs-{name}"}, "spec": spec}
            )

        serial = iter(range(1000))

        async def control():
            while True:
                for name, (replicas, cpu, _) in wanted.items():
                    alive = [pod for pod in world.pods() if pod["spec"].get("priorityClassName") == name]
                    for _ in range(replicas - len(alive)):
                        world.pod(f"{name}-{next(serial)}", cpu=cpu, memory="1Mi", priorityClassName=name)
                await asyncio.sleep(0.2)

        controlling = asyncio.ensure_future(control())
        await asyncio.sleep(60)
        controlling.cancel()
        placed = sorted(pod["metadata"]["name"].partition("-")[0] for pod in world.pods() if pod["spec"].get("nodeName"))
        assert placed == ["p4"]

    on_stage(main)


def test_priority_class_endpoints_verify_priority_class_endpoints_can_be_operated_with_different_http_methods():
    async def main(stage):
        api = stage.api
        for name, value in (("p1", 1), ("p2", 2)):
            body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
            assert api.do("POST", CLASSES, body)["value"] == value
        held = api.do("GET", f"{CLASSES}/p1")
        assert api.do("PUT", f"{CLASSES}/p1", {**held, "value": 5}) is None
        assert api.do("PATCH", f"{CLASSES}/p1", {"value": 5}, media_type=MERGE) is None
        assert api.do("PUT", f"{CLASSES}/p1", {**held, "description": "changed"})["description"] == "changed"
        listed = {one["metadata"]["name"] for one in api.items(CLASSES)}
        assert {"p1", "p2"} <= listed
        assert api.do("DELETE", f"{CLASSES}/p1") is not None
        assert api.do("GET", f"{CLASSES}/p1") is None

    on_stage(main)


async def two_full_nodes(stage):
    for number in range(2):
        stage.world.node(f"n{number}", cpu=3)
    for number, (priority, cpu) in enumerate([("low", "2"), ("middle", "1"), ("middle", "1")]):
        only = {"kubernetes.io/hostname": f"n{min(number, 1)}"}
        stage.world.pod(f"pod{number}", cpu=cpu, priorityClassName=priority, nodeSelector=only)
    await stage.placed("pod0", "pod1", "pod2")


@pytest.mark.parametrize("priority", ["high", "system-cluster-critical"], ids=["basic", "by a critical pod"])
def test_validates_preemption_works(priority):
    """ "validates basic preemption works" and "validates lower priority pod preemption by critical pod"."""

    async def main(stage):
        await two_full_nodes(stage)
        spec = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "preemptor", "namespace": "kube-system"}}
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}
        body = {**spec, "spec": {"priorityClassName": priority, "containers": [container]}}
        assert stage.api.do("POST", "/api/v1/namespaces/kube-system/pods", body) is not None
        await stage.placed("preemptor")
        assert stage.node_of("preemptor") == "n0"
        assert stage.pod("pod0") is None
        assert stage.pod("pod1") is not None
        assert stage.pod("pod2") is not None

    on_stage(main)


def test_validates_pod_disruption_condition_is_added_to_the_preempted_pod():
    async def main(stage):
        stage.world.node("n1", cpu=1)
        made = stage.world.pod("victim", priorityClassName="low")
        await stage.placed("victim")
        finalizers = {"metadata": {"finalizers": ["example.com/test-finalizer"]}}
        assert stage.api.do("PATCH", made_path(made), finalizers, media_type=MERGE)
        stage.world.pod("preemptor", priorityClassName="high")
        await stage.until(lambda: stage.pod("victim")["metadata"].get("deletionTimestamp"))
        conditions = {one["type"]: one for one in stage.pod("victim")["status"]["conditions"]}
        assert conditions["DisruptionTarget"]["status"] == "True"
        assert conditions["DisruptionTarget"]["reason"] == "PreemptionByScheduler"
        stage.api.do("PATCH", made_path(made), {"metadata": {"finalizers": None}}, media_type=MERGE)
        await stage.placed("preemptor")

    on_stage(main)


def made_path(pod):
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
