"""Test that a pod with spec.nodeName fits only that node."""

from __future__ import annotations

import pytest

from moorage.framework.events import Action, Resource
from moorage.framework.verdicts import Code, Status
from moorage.plugins.node_name import NodeName
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_queries import refusals, wakes

NO = Status(Code.UNRESOLVABLE, "NodeName", ("node(s) didn't match the requested node name",))
# the pod's nodeName → the nodes rejected
CASES = {"none": ("", ""), "one of them": ("b", "ac"), "one that is not there": ("z", "abc")}


@pytest.mark.parametrize(("named", "refused"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("part", ["abc", "bc", "a", ""])
def test_rejects(named, refused, part):
    nodes = a_cluster(map(a_node, "abc")).snapshot.nodes
    view = nodes.only(nodes.named(part))
    assert refusals(NodeName(), a_pod(nodeName=named), view) == {name: NO for name in refused if name in part}


def test_wakes_on_every_added_node():
    assert wakes(NodeName(), a_pod(nodeName="n1"), Resource.NODE, Action.ADD, None, a_node("n1"))
    assert not wakes(NodeName(), a_pod(nodeName="n1"), Resource.NODE, Action.UPDATE_NODE_LABEL, a_node("n1"), a_node("n1"))
