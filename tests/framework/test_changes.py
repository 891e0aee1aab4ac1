"""The value for a change, and the optional method by which plugins offer changes."""

from __future__ import annotations

import pytest

from moorage.framework.changes import Change, RemedyingPlugin
from moorage.testing.builders import a_cluster, a_node


class Picky:
    name = "Picky"

    def filter_node(self, state, node):
        return None

    def remedies(self, state, pod, node):
        yield Change("node", "label", f"node/{node.first.name}", "labels.tasty", None, "yes")


def test_a_plugin_offers_changes_if_it_has_the_method():
    assert isinstance(Picky(), RemedyingPlugin)
    snapshot = a_cluster([a_node("n0"), a_node("n1")]).snapshot
    assert [change.target for change in Picky().remedies(None, None, snapshot.nodes.at(1))] == ["node/n1"]


def test_a_change_is_a_frozen_value():
    change = Change("node", "uncordon", "node/n0", "spec.unschedulable", True, False)
    assert {change, Change("node", "uncordon", "node/n0", "spec.unschedulable", True, False)} == {change}
    with pytest.raises(AttributeError):
        change.verb = "cordon"
