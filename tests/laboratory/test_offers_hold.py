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
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", FOUND.values(), ids=FOUND)
def test_an_answer_that_others_undid_is_not_given(seed):
    tried, broken = broken_offers(seed)
    assert tried
    assert broken == []


@pytest.mark.slow
def test_commands_do_what_the_answer_says():
    found = [broken_offers(seed) for seed in range(FIRST, FIRST + CLUSTERS)]
    assert sum(tried for tried, _ in found) >= CLUSTERS
    assert [why for _, broken in found for why in broken] == []
