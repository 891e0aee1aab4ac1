"""Which nodes form a group, and how the group is called."""

import pytest

from moorage.api.core import Node, NodeSpec, NodeStatus, Taint
from moorage.api.meta import ObjectMeta
from moorage.laboratory.node_groups import group_nodes, groups_by_node


def node(name, cpu="4", memory="16Gi", labels=None, taints=()):
    amounts = {"cpu": cpu, "memory": memory, "pods": "110"}
    return Node(
        metadata=ObjectMeta(name=name, labels=labels or {}),
        spec=NodeSpec(taints=tuple(Taint(key=key, effect="NoSchedule") for key in taints)),
        status=NodeStatus(capacity=amounts, allocatable=amounts),
    )


BLUE = {"cloud.google.com/gke-nodepool": "blue"}
LARGE = {"node.kubernetes.io/instance-type": "m5.large"}

CASES = {
    "of one size, named after what names have in common": (
        [node("general-a1"), node("general-a2"), node("general-b1")],
        {"general": ["general-a1", "general-a2", "general-b1"]},
    ),
    "memory differs by a few MiB": ([node("w-1", memory="15900Mi"), node("w-2", memory="15990Mi")], {"w": ["w-1", "w-2"]}),
    "another size": ([node("w-1"), node("w-2", cpu="8")], {"w": ["w-1"], "w (2)": ["w-2"]}),
    "a taint of its own": ([node("w-1"), node("x-1", taints=["gpu"])], {"w": ["w-1"], "x": ["x-1"]}),
    "a cordoned node stays in its group": (
        [node("w-1"), node("w-2", taints=["node.kubernetes.io/unschedulable"])], {"w": ["w-1", "w-2"]},
    ),
    "a pool by label, whatever the size": (
        [node("a", labels=BLUE), node("b", "8", labels=BLUE)],
        {"blue": ["a", "b"]},
    ),
    "nothing in common: the type": (
        [node("a", labels=LARGE), node("b", labels=LARGE)],
        {"m5.large": ["a", "b"]},
    ),
    "nothing in common, no type: the first node": ([node("a"), node("b")], {"a": ["a", "b"]}),
    "names cut inside a word": ([node("worker-10"), node("worker-11")], {"worker": ["worker-10", "worker-11"]}),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "groups"), CASES.values(), ids=CASES)
def test_groups(nodes, groups):
    found = group_nodes(nodes)
    assert {one.name: [each.name for each in one.nodes] for one in found} == groups
    assert groups_by_node(nodes) == {each: name for name, names in groups.items() for each in names}
