"""The cache compared with what the watches hold, and written down; pods' resources as metrics."""

import pytest
from msgspec.structs import replace
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from moorage.api.feature_gates import FeatureGates
from moorage.core.building.builder import build_profiles
from moorage.core.config.configuration_loader import load
from moorage.core.cycle.cycle import Cycle
from moorage.core.engine.facts import Seen
from moorage.core.engine.scheduler import Scheduler
from moorage.live.server.cache_debugger import compare, dump
from moorage.live.server.pod_metrics import pod_registry
from moorage.plugins import builtin_registry
from moorage.testing.builders import a_node, a_pod

CONFIG = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


class Lines:
    def __init__(self):
        self.said = []

    def shows(self, level):
        return True

    def info(self, level, message, **facts):
        self.said.append((message, facts))


def pod(name, node="", phase="Pending", scheduler="default-scheduler", **more):
    made = a_pod(name, nodeName=node, schedulerName=scheduler, **more).pod
    return replace(made, status=replace(made.status, phase=phase))


def node(name):
    return a_node(name, allocatable={"cpu": "2", "memory": "8Gi", "pods": "20"})


NODES = [node("n1"), node("n2")]
PODS = [pod("placed", "n1", "Running"), pod("waiting")]
STRAY = pod("stray", "n9", "Running")


def a_scheduler(objects):
    gates, registry = FeatureGates(), builtin_registry()
    scheduler = Scheduler(
        Cycle(), gates, lambda handle: build_profiles(load(CONFIG, "config", registry, gates), registry, gates, handle).profiles
    )
    for obj in objects:
        scheduler.observe(Seen(obj), 0.0)
    return scheduler


CASES = {  # nodes and pods that the watches hold, the report
    "all agree": (NODES, PODS, []),
    "a finished pod is not cached": (NODES, [*PODS, pod("done", "n1", "Succeeded")], []),
    "a pod on an unknown node is not missed": (NODES, [*PODS, STRAY], []),
    "nor is one of another scheduler": (NODES, [*PODS, pod("theirs", scheduler="other")], []),
    "a node is missed": ([*NODES, node("n3")], PODS, [{"missedNodes": ["n3"], "redundantNodes": []}]),
    "a node is gone": (NODES[:1], PODS, [{"missedNodes": [], "redundantNodes": ["n2"]}]),
    "a pod is missed": (NODES, [*PODS, pod("new")], [{"missedPods": ["new"], "redundantPods": []}]),
    "a pod is gone": (NODES, PODS[1:], [{"missedPods": [], "redundantPods": ["placed"]}]),
}


@pytest.mark.parametrize(("nodes", "pods", "told"), CASES.values(), ids=CASES)
def test_the_cache_is_compared_with_the_informers(nodes, pods, told):
    log = Lines()
    names = {one.uid: one.name for one in [*PODS, *pods]}
    held = [*NODES, *PODS, *(one for one in pods if one is STRAY)]
    assert compare(a_scheduler(held), nodes, pods, log) is (told == [])
    found = [facts for message, facts in log.said if message == "Cache mismatch"]
    assert [{key: [names.get(uid, uid) for uid in uids] for key, uids in facts.items()} for facts in found] == told
    assert [message for message, _ in log.said if "comparer" in message] == [
        "Cache comparer started",
        "Cache comparer finished",
    ]


def test_the_cache_is_dumped():
    log = Lines()
    scheduler = a_scheduler([*NODES, *PODS])
    dump(scheduler, log)
    (_, nodes), (_, queue) = log.said
    assert "Node name: n1\nRequested Resources: cpu: 0, memory: 0\n" in nodes["nodes"]
    assert "Scheduled Pods(number: 1):\nname: placed, namespace: default" in nodes["nodes"]
    assert "Node name: n2" in nodes["nodes"]
    assert queue["summary"] == "activeQ:1; backoffQ:0; unschedulablePods:0"
    assert queue["pods"].startswith("name: waiting, namespace: default, uid: ")


# -- pods' resources ----------------------------------------------------------------------------------------------------


def container(name="c", requests=None, limits=None, **more):
    return {"name": name, "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def measured(made):
    text = generate_latest(pod_registry([made]).with_others()).decode()
    return {
        (sample.name.removeprefix("kube_pod_resource_"), sample.labels["resource"], sample.labels["unit"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


RESOURCES = {  # the pod's spec, what is measured
    "requests and limits": (
        {"containers": [container(requests={"cpu": "250m", "memory": "1Gi"}, limits={"cpu": "1"})]},
        {("request", "cpu", "cores"): 0.25, ("request", "memory", "bytes"): 2**30, ("limit", "cpu", "cores"): 1},
    ),
    "containers add up, and the largest first step counts": (
        {
            "containers": [container("a", {"cpu": "1"}, {"cpu": "2"}), container("b", {"cpu": "1"}, {"cpu": "2"})],
            "initContainers": [container("i", {"cpu": "3"}, {"cpu": "3"})],
        },
        {("request", "cpu", "cores"): 3, ("limit", "cpu", "cores"): 4},
    ),
    "overhead adds to limits that there are": (
        {"containers": [container(requests={"cpu": "1"}, limits={"cpu": "1"})], "overhead": {"cpu": "100m", "memory": "1Mi"}},
        {("request", "cpu", "cores"): 1.1, ("request", "memory", "bytes"): 2**20, ("limit", "cpu", "cores"): 1.1},
    ),
    "the pod's own word counts": (
        {"containers": [container(requests={"cpu": "1"})], "resources": {"requests": {"cpu": "4"}, "limits": {"cpu": "5"}}},
        {("request", "cpu", "cores"): 4, ("limit", "cpu", "cores"): 5},
    ),
    "other resources have no unit": (
        {"containers": [container(requests={"example.com/gpu": "2", "hugepages-2Mi": "4Mi"})]},
        {("request", "example.com/gpu", ""): 2, ("request", "hugepages-2Mi", "bytes"): 4 * 2**20},
    ),
    "nothing": ({"containers": [container()]}, {}),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "found"), RESOURCES.values(), ids=RESOURCES)
def test_pod_resource_metrics(spec, found):
    assert measured(a_pod("p", **spec).pod) == pytest.approx(found)


def test_a_finished_pod_uses_no_resources_and_labels_name_the_node():
    spec = [container(requests={"cpu": "1"})]
    assert measured(pod("p", "n1", "Succeeded", containers=spec)) == {}
    text = generate_latest(pod_registry([pod("p", "n1", "Running", containers=spec, priority=7)]).with_others()).decode()
    assert (
        'kube_pod_resource_request{namespace="default",node="n1",pod="p",priority="7",resource="cpu",'
        'scheduler="default-scheduler",unit="cores"} 1.0' in text
    )
