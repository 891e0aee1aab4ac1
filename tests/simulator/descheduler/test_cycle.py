"""What one cycle of a policy evicts. ``python -m tools.differential descheduler`` found these with the descheduler's code."""

import msgspec
import pytest

from moorage.api.core import Node, Pod
from moorage.errors import InputError
from moorage.simulator.descheduler.cycle import run_cycle
from moorage.simulator.descheduler.policy import policy_of
from moorage.simulator.descheduler.scene import Scene

NODES = msgspec.convert(
    [
        {"metadata": {"name": "hulk"}},
        {
            "metadata": {"name": "keel", "labels": {"disk": "ssd"}},
            "status": {"allocatable": {"cpu": "4", "pods": "9"}},
        },
    ],
    list[Node],
)
SSD = [{"key": "disk", "operator": "In", "values": ["ssd"]}]
BOTH = ["preferredDuringSchedulingIgnoredDuringExecution", "requiredDuringSchedulingIgnoredDuringExecution"]


def pod(name, **given):
    document = {
        "metadata": {
            "namespace": "dock", "name": name, "uid": name, "annotations": given.get("annotations", {}),
            "ownerReferences": [{"kind": "ReplicaSet", "name": "rope", "uid": "rope"}],
        },
        "spec": {
            "nodeName": "hulk", "containers": [{"name": "c"}],
            "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": SSD}]},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": SSD}}],
            }},
        },
        "status": {"phase": given.get("phase", "Running")},
    }  # fmt: skip
    return msgspec.convert(document, Pod)


def evicted(plugin, args, pods, **scene):
    profile = {
        "name": "p", "pluginConfig": [{"name": plugin, "args": args}], "plugins": {"deschedule": {"enabled": [plugin]}},
    }  # fmt: skip
    policy = policy_of({"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": [profile]}, "policy")
    return [one.pod.name for one in run_cycle(policy, lambda: Scene(NODES, pods, **scene), lambda _: "")[0].evicted]


def test_a_pod_that_misses_both_kinds_of_affinity_is_evicted_once():
    assert evicted("RemovePodsViolatingNodeAffinity", {"nodeAffinityType": BOTH}, [pod("a")]) == ["a"]


def test_a_pod_that_asks_for_its_eviction_is_evicted_for_each_kind():
    asking = pod("a", annotations={"descheduler.alpha.kubernetes.io/evict": "true"})
    assert evicted("RemovePodsViolatingNodeAffinity", {"nodeAffinityType": BOTH}, [asking]) == ["a", "a"]


@pytest.mark.parametrize("args", [{}, {"minPodLifetimeSeconds": None}])
@pytest.mark.parametrize(("age_s", "goes"), [(3599, []), (3600, ["a"]), (7200, ["a"])])
def test_failed_pods_stay_for_an_hour_if_the_policy_does_not_say_how_long(args, age_s, goes):
    born = {"a": 10_000.0 - age_s}
    assert evicted("RemoveFailedPods", args, [pod("a", phase="Failed")], now_s=10_000.0, born_s=born) == goes


def test_failed_pods_go_at_once_if_the_policy_says_so():
    born = {"a": 9_990.0}
    assert evicted("RemoveFailedPods", {"minPodLifetimeSeconds": 0}, [pod("a", phase="Failed")], now_s=1e4, born_s=born) == [
        "a"
    ]


@pytest.mark.parametrize(
    ("plugin", "args"),
    [
        ("DefaultEvictor", {"minReplicas": -1}), ("PodLifeTime", {"maxPodLifeTimeSeconds": -1}),
        ("PodLifeTime", {"conditions": [{"type": "Ready", "minTimeSinceLastTransitionSeconds": -1}]}),
        ("RemoveFailedPods", {"minPodLifetimeSeconds": -1}),
        ("LowNodeUtilization", {"thresholds": {"cpu": 1}, "targetThresholds": {"cpu": 2}, "evictionLimits": {"node": -1}}),
        ("DefaultEvictor", {"priorityThreshold": {"value": 2_000_000_001}}),
    ],
)  # fmt: skip
def test_numbers_that_the_descheduler_cannot_read_are_refused(plugin, args):
    with pytest.raises(InputError, match=r"Expected `int` >= 0|can't be greater than 2000000000"):
        evicted(plugin, args, [])


@pytest.mark.parametrize("limit", ["PerNode", "PerNamespace", "Total"])
def test_a_limit_below_zero_is_refused(limit):
    field = f"maxNoOfPodsToEvict{limit}"
    policy = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", field: -1}
    with pytest.raises(InputError, match="Expected `int` >= 0"):
        policy_of(policy, "policy")


def test_a_priority_class_must_exist_even_if_no_plugin_asks_for_it():
    profile = {"name": "p", "pluginConfig": [{"name": "DefaultEvictor", "args": {"priorityThreshold": {"name": "none"}}}]}
    policy = policy_of({"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": [profile]}, "policy")
    with pytest.raises(InputError, match='no PriorityClass "none"'):
        run_cycle(policy, lambda: Scene(NODES, []), lambda _: "")
