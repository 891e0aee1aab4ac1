"""Each pod that another release moves has the change that moves it."""

import pytest

import moorage
from moorage.laboratory.budget import TimeBudget
from moorage.laboratory.compare.release_causes import SEVERAL, with_causes
from moorage.laboratory.compare.run_inputs import input_of_runs
from moorage.report.comparison import PodMove
from moorage.simulator.simulate import Options
from moorage.testing.builders import a_node

GROUPS = "GenericWorkload=true"


def pod(name, cpu, **spec):
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def a_group_of_two_priorities():
    """1.36 places both pods by preemption; 1.37 refuses the group, because its pods differ in priority."""
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "priority": 10}
    group = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}
    named = {"schedulingGroup": {"podGroupName": "g"}}
    return [group, pod("g-1", "1", priority=10, **named), pod("g-2", "1", priority=5, **named)]


def a_request_of_zero():
    """Up to 1.25 a request of zero does not fit a node whose extended resource is overcommitted."""
    full = pod("full", "1", nodeName="n1")
    full["spec"]["containers"][0]["resources"] = {"requests": {"example.com/x": "2"}, "limits": {"example.com/x": "2"}}
    zero = pod("zero", "100m", nodeSelector={"kubernetes.io/hostname": "n1"})
    zero["spec"]["containers"][0]["resources"]["requests"]["example.com/x"] = "0"
    zero["spec"]["containers"][0]["resources"]["limits"] = {"example.com/x": "0"}
    return [full, zero]


CASES = {  # the objects, release A and B, the gates, pod → its cause
    "groups as one": (
        a_group_of_two_priorities, "1.36", "1.37", GROUPS,
        dict.fromkeys(["default/g-1", "default/g-2"], "pod groups are tried, refused and preempt as one"),
    ),
    "a rule of a plugin": (
        a_request_of_zero, "1.25", "1.36", "", {"default/zero": "NodeResourcesFit scores CPU overhead in millicores"},
    ),
    "nothing": (lambda: [pod("web", "1")], "1.36", "1.37", "", {}),
}  # fmt: skip


@pytest.mark.parametrize(("a", "b"), [("1.36", "1.30"), ("1.30", "1.36"), ("1.37", "1.28")])
def test_every_rule_can_be_run_between_releases_with_other_plugins(a, b):
    cluster = moorage.Cluster.from_objects([a_node("n1", allocatable={"cpu": "8", "pods": "9"}), pod("web", "1")])
    sides = (Options(emulate=a), Options(emulate=b))
    (found,) = with_causes([PodMove("default/web", "n2", "n1")], input_of_runs(cluster), sides, 0, TimeBudget())
    assert found.cause == SEVERAL


@pytest.mark.parametrize(("objects", "a", "b", "gates", "causes"), CASES.values(), ids=CASES)
def test_a_moved_pod_has_the_change_that_moves_it(objects, a, b, gates, causes):
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "10", "example.com/x": "1"}
    nodes = [a_node(name, {"kubernetes.io/hostname": name}, allocatable=amounts) for name in ("n1", "n2")]
    cluster = moorage.Cluster.from_objects(nodes, objects())
    sides = [Options(emulate=release, feature_gates=gates) for release in (a, b)]
    found = {move.pod: move.cause for move in moorage.compare(cluster, *sides, seeds=[0]).moves}
    assert found.keys() == causes.keys()
    for name, cause in causes.items():
        assert found[name] != SEVERAL
        assert cause.split()[0] in found[name]
