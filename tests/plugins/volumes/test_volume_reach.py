"""Test which rows reach a volume, computed for many volumes at once."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.core import NodeSelector
from moorage.api.requirements import Requirement
from moorage.api.selectors import NOTHING, Selector, selector_from_map
from moorage.plugins.volumes.volume_matching import CandidateList
from moorage.plugins.volumes.volume_reach import Reach, first_matching, rows_reaching
from moorage.testing.builders import a_cluster, a_node

HOST, ZONE = "kubernetes.io/hostname", "zone"


def a_selector(*terms):
    asked = [
        {"matchExpressions": [dict(zip(("key", "operator", "values"), one, strict=False)) for one in term]} for term in terms
    ]
    return msgspec.convert({"nodeSelectorTerms": asked}, NodeSelector)


def some_nodes(count):
    zones = ["a", "b", "", None]
    labels = ({HOST: f"n{at}", **({} if zones[at % 4] is None else {ZONE: zones[at % 4]})} for at in range(count))
    return a_cluster([a_node(of[HOST], of) for of in labels]).snapshot.nodes


hosts = st.lists(st.integers(0, 40).map("n{}".format), max_size=3, min_size=1)
selectors = st.one_of(
    st.none(),
    hosts.map(lambda names: a_selector([(HOST, "In", names)])),
    st.sampled_from(["a", "b", "c", ""]).map(lambda zone: a_selector([(ZONE, "In", [zone])])),
    hosts.map(lambda names: a_selector([(HOST, "NotIn", names)])),
    hosts.map(lambda names: a_selector([(HOST, "In", names)], [(ZONE, "In", ["a"])])),
    st.just(a_selector()),
    st.just(a_selector([(ZONE, "Like", ["a"])])),
)


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(selectors, max_size=30), st.sampled_from([1, 7, 40]), st.integers(1, 3), st.data())
def test_the_first_volumes_that_each_row_reaches(affinities, count, depth, data):
    """Volumes deleted before and candidate lists requested before make no difference."""
    nodes = some_nodes(count)
    candidates = CandidateList()
    numbered = [(((index // 3, f"pv-{index:02}"), index), Reach.of(affinity)) for index, affinity in enumerate(affinities)]
    for volume, reach in data.draw(st.permutations(numbered)):
        candidates.add(volume, reach)
        if data.draw(st.booleans()):
            candidates.first_per_row(nodes, data.draw(st.integers(1, 3)))
    gone = {index for index in range(len(affinities)) if data.draw(st.booleans())}
    for volume, reach in numbered:
        if volume[1] in gone:
            candidates.remove(volume, reach)
    if data.draw(st.booleans()):
        nodes = nodes.only(np.array([data.draw(st.booleans()) for _ in range(count)]))
    left = [(index, rows_reaching(affinity, nodes)) for index, affinity in enumerate(affinities) if index not in gone]
    expected = [[index for index, mask in left if mask[at]][:depth] for at in range(len(nodes))]
    found = candidates.first_per_row(nodes, depth)
    assert found.shape == (depth, len(nodes))
    assert found.T.tolist() == [(of_row + [-1] * depth)[:depth] for of_row in expected]
    assert len(candidates) == len(left)


labels = st.dictionaries(st.sampled_from([HOST, ZONE]), st.sampled_from(["n0", "n1", "n5", "a", "b", "x"]), max_size=2)
takers = st.one_of(labels.map(selector_from_map), st.just(NOTHING), st.just(Selector((Requirement(ZONE, "NotIn", ("a",)),))))


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(takers, max_size=8), st.sampled_from([1, 7]))
def test_the_first_that_takes_a_row(selectors, count):
    nodes = some_nodes(count)
    expected = [
        next((at for at, selector in enumerate(selectors) if selector.matches(node.labels)), -1) for node in nodes.table.nodes
    ]
    assert first_matching(selectors, nodes).tolist() == expected
