"""QOSSort, PodState and SySched."""

from __future__ import annotations

from moorage.api.custom_objects import read_custom
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.fake_handle import FakeHandle
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import final_scores
from moorage_scheduler_plugins.pod_state import PodState
from moorage_scheduler_plugins.qos_sort import QOSSort
from moorage_scheduler_plugins.sysched import PROFILES, SySched


class Queued:
    def __init__(self, pod, timestamp):
        self.pod, self.timestamp = pod, timestamp


def of_class(name, timestamp, priority=0, **resources):
    return Queued(a_pod(name, containers=[{"name": "c", "resources": resources}], priority=priority), timestamp)


def test_classes_of_service_order_pods_of_one_priority():
    both = {"cpu": "1", "memory": "1Gi"}
    queue = [
        of_class("best effort", 1), of_class("burstable", 2, requests={"cpu": "1"}),
        of_class("guaranteed", 3, requests=both, limits=both), of_class("urgent", 4, priority=5),
        of_class("burstable too", 1.5, requests={"cpu": "1"}),
    ]  # fmt: skip
    found = [one.pod.name for one in sorted(queue, key=QOSSort().sort_key)]
    assert found == ["urgent", "guaranteed", "burstable too", "burstable", "best effort"]
    check_plugin(QOSSort())


def test_terminating_pods_attract_and_nominated_ones_repel():
    leaving = [a_pod(f"t{at}", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}) for at in range(2)]
    cluster = a_cluster([a_node("n1"), a_node("n2"), a_node("n3")], {"n1": leaving, "n2": [a_pod("stays")]})
    handle = FakeHandle(cluster.snapshot)
    handle.queue += [a_pod("nominated", status={"nominatedNodeName": "n3"}), a_pod("other")]
    plugin = PodState()
    plugin.attach(handle)
    assert final_scores(plugin, a_pod("p"), cluster.snapshot) == {"n1": 100, "n2": 33, "n3": 0}
    check_plugin(plugin, cluster=cluster, handle=handle)


def a_profile(name, *calls, action="SCMP_ACT_ALLOW", namespace="default"):
    document = {
        "apiVersion": "security-profiles-operator.x-k8s.io/v1beta1", "kind": "SeccompProfile",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"syscalls": [{"action": action, "names": list(calls)}, {"action": "SCMP_ACT_ERRNO", "names": ["reboot"]}]},
    }  # fmt: skip
    return read_custom(document, PROFILES, "the test")


def calling(name, profile=None):
    path = f"localhost/operator/default/{profile}.json"
    given = {"annotations": {"container.seccomp.security.alpha.kubernetes.io/c": path}} if profile else {}
    return a_pod(name, containers=[{"name": "c"}], metadata=given)


def a_world(*profiles, **placed):
    cluster = a_cluster(
        [a_node("n1"), a_node("n2"), a_node("n3")], {node: [calling(f"{node}-pod", one)] for node, one in placed.items()}
    )
    cluster.custom_kinds = frozenset({PROFILES})
    for one in profiles:
        cluster.set_object(one)
    return cluster


def attached(cluster):
    plugin = SySched()
    plugin.attach(FakeHandle(cluster.snapshot))
    return plugin


def test_pods_go_where_they_see_few_calls_that_they_do_not_make():
    profiles = a_profile("web", "read", "write"), a_profile("odd", "read", "ptrace", "bpf", "mount", action="SCMP_ACT_LOG")
    cluster = a_world(*profiles, n1="web", n2="odd")
    plugin = attached(cluster)
    # n1: the same calls; n2: 3 calls of the pod there are new to this one, and 1 of this one to that there; n3 is empty.
    assert [plugin.score_node(calling("p", "web"), node) for node in cluster.snapshot.nodes] == [0, 4, 0]
    assert final_scores(plugin, calling("p", "web"), cluster.snapshot) == {"n1": 100, "n2": 0, "n3": 100}
    cluster.set_object(a_profile("web", "read", "write", "ptrace", "bpf", "mount"))
    assert final_scores(plugin, calling("p", "web"), cluster.snapshot) == {"n1": 100, "n2": 0, "n3": 100}
    assert [plugin.score_node(calling("p", "web"), node) for node in cluster.snapshot.nodes] == [0, 1, 0]


def test_pods_that_name_no_profile_have_the_usual_one():
    cluster = a_world(a_profile("all-syscalls", "read", "write", "bpf"), a_profile("web", "read"), n1="web", n2=None)
    assert final_scores(attached(cluster), calling("p"), cluster.snapshot) == {"n1": 0, "n2": 100, "n3": 100}
    without = a_world(n1="web")
    assert set(final_scores(attached(without), calling("p"), without.snapshot).values()) == {100}
    check_plugin(SySched(), pods=[calling("p"), calling("q", "web")], cluster=cluster)
