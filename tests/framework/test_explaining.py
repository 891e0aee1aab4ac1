"""The optional methods by which plugins explain refusals."""

from __future__ import annotations

import numpy as np

from moorage.framework.explaining import Detail, ExplainingPlugin, TermsPlugin
from moorage.testing.builders import a_cluster, a_node


class Picky:
    name = "Picky"

    def filter_node(self, state, node):
        return None

    def why(self, state, pod, node):
        return Detail(f"{node.first.name} is not to its taste", ("taste",))

    def terms(self, state, pod, nodes):
        yield "taste", np.ones(len(nodes), dtype=bool)


def test_a_plugin_explains_if_it_has_the_methods():
    assert isinstance(Picky(), ExplainingPlugin)
    assert isinstance(Picky(), TermsPlugin)


def test_a_view_of_one_row_gives_its_node():
    snapshot = a_cluster([a_node("n0"), a_node("n1")]).snapshot
    assert Picky().why(None, None, snapshot.nodes.at(1)) == Detail("n1 is not to its taste", ("taste",), {})
