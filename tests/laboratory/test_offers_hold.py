"""Every command that an answer prints is run in ``moorage up``: it succeeds, and the pod is then where the answer said.

``make offers CLUSTERS=2000`` takes more random clusters at their word than the suite does.
"""

import os

import pytest

import moorage
from tests.laboratory.up_in_process import LocalUp, broken_offers, carried_out

CLUSTERS = int(os.environ.get("CLUSTERS", "8"))
FIRST = int(os.environ.get("FIRST", "0"))


NODE = {
    "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
    "status": {"capacity": {"cpu": "1", "pods": "9"}, "allocatable": {"cpu": "1", "pods": "9"}},
}  # fmt: skip
LARGE = {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "2"}}}], "restartPolicy": "Never"}
FIXED = {
    "a bare pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "alone"}, "spec": LARGE},
    "a Job": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": {"template": {"spec": LARGE}}},
}


@pytest.mark.parametrize("document", FIXED.values(), ids=FIXED)
def test_what_cannot_change_is_replaced_by_a_copy(document):
    up = LocalUp([NODE, document])
    up.settle(10)
    (key,) = up.pods()
    found = moorage.Cluster.from_objects(up.documents()).least_change(key)
    shrink = next(one for one in found if one.kind == "shrink")
    assert all(command.endswith("| kubectl replace --force -f -") for command in shrink.commands)
    assert carried_out(up, key, shrink) == ""


#: Clusters in which an answer once did not come true.
FOUND = {
    "a replacement of a higher priority takes its place back": 100500,
    "a DaemonSet comes to a node with a new label": 101128,
    "a pod that waits already takes the room before the new pod": 101019,
    "a sibling that waits with the old rule takes the place of one that leaves": 101065,
    "all pods of a Job are created again, and take the larger node": 100426,
    "a Job whose pods fill nodes before its last one": 201534,
    "the pod itself waits with the old rule, and takes the place of a sibling": 201432,
    "a pod that its controller has not created yet is not deleted": 201723,
    "a rollout has no quota for a pod beside the old one": 300033,
}
#: Clusters in which every answer was refused, or did not come true; none is left.
WITHHELD = {
    "a StatefulSet that lacks pods replaces none": 300099,
    "a policy refuses the object as it is": 300024,
    "a policy keeps the pod that would be replaced": 300100,
    "a policy that is newer than the pod gives its copy a selector": 301137,
}


RECREATED = {
    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
    "spec": {
        "replicas": 2, "strategy": {"type": "Recreate"}, "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "3"}}}]},
        },
    },
}  # fmt: skip


def node(name, cpu):
    amounts = {"cpu": cpu, "pods": "9"}
    return {**NODE, "metadata": {"name": name}, "status": {"capacity": amounts, "allocatable": amounts}}


def test_the_pods_of_a_recreated_deployment_all_leave_first():
    """Both pods are created again, and both go to the larger node: the smaller one alone is no answer."""
    up = LocalUp([node("large", "4"), node("small", "2"), RECREATED])
    up.settle(10)
    key = next(name for name, pod in up.pods().items() if not pod["spec"].get("nodeName"))
    found = moorage.Cluster.from_objects(up.documents()).least_change(key)
    shrink = next(one for one in found if one.kind == "shrink")
    assert shrink.nodes == ("large", "small")
    assert carried_out(up, key, shrink) == ""


@pytest.mark.parametrize("kind", ["DaemonSet", "StatefulSet"])
def test_a_pod_of_a_workload_that_is_updated_by_hand_is_deleted(kind):
    body = {name: value for name, value in RECREATED["spec"].items() if name != "strategy"}
    if kind == "DaemonSet":
        body.pop("replicas")
    else:
        body |= {"replicas": 1, "serviceName": "web", "podManagementPolicy": "Parallel"}
    document = {**RECREATED, "kind": kind, "spec": {**body, "updateStrategy": {"type": "OnDelete"}}}
    up = LocalUp([node("small", "2"), document])
    up.settle(10)
    (key,) = up.pods()
    found = moorage.Cluster.from_objects(up.documents()).least_change(key)
    shrink = next(one for one in found if one.kind == "shrink")
    assert any(f"kubectl delete pod {key.partition('/')[2]}" in command for command in shrink.commands)
    assert carried_out(up, key, shrink) == ""


@pytest.mark.slow
@pytest.mark.parametrize("seed", FOUND.values(), ids=FOUND)
def test_an_answer_that_others_undid_is_not_given(seed):
    tried, broken = broken_offers(seed)
    assert tried
    assert broken == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", WITHHELD.values(), ids=WITHHELD)
def test_an_answer_that_is_refused_is_not_given(seed):
    assert broken_offers(seed) == (0, [])


@pytest.mark.slow
def test_commands_do_what_the_answer_says():
    found = [broken_offers(seed) for seed in range(FIRST, FIRST + CLUSTERS)]
    assert sum(tried for tried, _ in found) >= CLUSTERS
    assert [why for _, broken in found for why in broken] == []
