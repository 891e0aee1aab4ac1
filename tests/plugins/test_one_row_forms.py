"""Test that plugins with a single-node form return there what they return over the whole table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.framework.profile import make_profile
from moorage.framework.verdicts import SKIP
from moorage.plugins.node_affinity import NodeAffinity
from moorage.plugins.node_name import NodeName
from moorage.plugins.node_resources_balanced_allocation import (
    NodeResourcesBalancedAllocation,
    NodeResourcesBalancedAllocationArgs,
)
from moorage.plugins.node_resources_fit import NodeResourcesFit, NodeResourcesFitArgs
from moorage.plugins.node_unschedulable import NodeUnschedulable
from moorage.plugins.resources.scoring_strategies import (
    RatioShape,
    ResourceSpec,
    ScoringStrategy,
    UtilizationPoint,
    least_allocated,
    most_allocated,
)
from moorage.plugins.taint_toleration import TaintToleration
from moorage.testing.builders import a_cluster, a_node, a_pod

NAMES = ("cpu", "memory", "ephemeral-storage", "example.com/gpu")
amounts = st.one_of(st.integers(0, 20), st.integers(0, 2**40), st.sampled_from([0, 1, 3, 2**57, 2**59]))
offers = st.dictionaries(st.sampled_from(NAMES), amounts).map(lambda found: {name: str(n) for name, n in found.items()})
asks = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 2**38)).map(lambda f: {name: str(n) for name, n in f.items()})
resources = st.lists(st.builds(ResourceSpec, name=st.sampled_from(NAMES), weight=st.integers(1, 5)), min_size=1, max_size=4)
points = st.lists(st.integers(0, 100), min_size=1, max_size=4, unique=True).map(sorted)
shapes = st.builds(
    lambda at, scores: RatioShape(
        shape=tuple(UtilizationPoint(utilization=u, score=s) for u, s in zip(at, scores, strict=False))
    ),
    points,
    st.lists(st.integers(0, 10), min_size=4, max_size=4),
)
strategies = st.builds(
    ScoringStrategy,
    type=st.sampled_from(["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]),
    resources=resources.map(tuple),
    requested_to_capacity_ratio=shapes,
)


def requesting(name, requests):
    return a_pod(name, containers=[{"name": "c", "resources": {"requests": requests}}])


@pytest.mark.slow
@settings(max_examples=75, deadline=None)
@given(
    nodes=st.lists(st.tuples(offers, st.lists(asks, max_size=3), st.integers(0, 4)), min_size=1, max_size=4),
    wants=asks,
    strategy=strategies,
    balanced=st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True),
)
def test_single_node_forms_equal_the_table_forms(nodes, wants, strategy, balanced):
    cluster = a_cluster(
        [a_node(f"n{i}", allocatable={**offer, "pods": room}) for i, (offer, _, room) in enumerate(nodes)],
        {f"n{i}": [requesting(f"p{i}-{j}", held) for j, held in enumerate(on)] for i, (_, on, _) in enumerate(nodes)},
    )
    view, pod = cluster.snapshot.nodes, requesting("pod", wants)
    fit = NodeResourcesFit(NodeResourcesFitArgs(scoring_strategy=strategy))
    state = fit.pre_filter(pod, cluster.snapshot)
    rejects = list(fit.filter(state, view))
    for row in range(len(view)):
        held = [reject for reject in rejects if reject.rows[row]]
        hold = fit.filter_node(state, view.one(row))
        assert (hold.reasons if hold else ()) == tuple(reject.reason for reject in held)
        final = any(r.unresolvable if isinstance(r.unresolvable, bool) else r.unresolvable[row] for r in held)
        assert (hold is not None and hold.unresolvable) == final
    balance = NodeResourcesBalancedAllocation(
        NodeResourcesBalancedAllocationArgs(resources=tuple(ResourceSpec(name=name) for name in balanced))
    )
    for plugin in (fit, balance):
        counted = plugin.pre_score(pod, cluster.snapshot, view)
        if counted is not SKIP:
            assert [plugin.score_node(counted, node) for node in view] == plugin.score(counted, view).tolist()


values = st.sampled_from(["", "a", "b"])
taints = st.lists(
    st.builds(
        lambda k, e: {"key": k, "value": "v", "effect": e}, values.filter(bool), st.sampled_from(["NoSchedule", "NoExecute"])
    ),
    max_size=2,
)
tolerations = st.lists(st.builds(lambda key: {"key": key, "operator": "Exists"}, values), max_size=2)
terms = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "matchExpressions": st.just([{"key": "disk", "operator": "In", "values": ["a"]}]),
            "matchFields": st.just([{"key": "metadata.name", "operator": "In", "values": ["n0"]}]),
        },
    ),
    min_size=1,
    max_size=2,
)


@settings(max_examples=75, deadline=None)
@given(
    nodes=st.lists(st.tuples(values, taints, st.booleans()), min_size=1, max_size=4),
    tolerated=tolerations,
    selector=values,
    required=st.none() | terms,
    named=st.sampled_from(["", "n0", "nowhere"]),
)
def test_single_node_verdicts_equal_the_table_forms(nodes, tolerated, selector, required, named):
    cluster = a_cluster(
        a_node(f"n{i}", {"disk": disk} if disk else {}, taints=held, unschedulable=off)
        for i, (disk, held, off) in enumerate(nodes)
    )
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": required}}}
    pod = a_pod(
        tolerations=tolerated,
        nodeName=named,
        nodeSelector={"disk": selector} if selector else {},
        **({"affinity": affinity} if required else {}),
    )
    view = cluster.snapshot.nodes
    for plugin in (NodeUnschedulable(), NodeName(), TaintToleration(), NodeAffinity()):
        rejects = list(plugin.filter(pod, view))
        for row, node in enumerate(view):
            hold = plugin.filter_node(pod, node)
            held = tuple((r.reason, r.unresolvable) for r in rejects if r.rows[row])
            assert (((hold.reasons[0], hold.unresolvable),) if hold else ()) == held


@pytest.mark.parametrize(("method", "expected"), [("filter", False), ("score", True)])
def test_a_subclass_that_overrides_only_the_table_form_has_no_single_node_form(method, expected):
    class Stricter(NodeResourcesFit):
        def filter(self, wants, nodes):
            return super().filter(wants, nodes)

    step = make_profile("s", {"Stricter": Stricter()}, {method: ["Stricter"]}, {}).at(method)[0]
    assert (step.single is not None) is expected


@given(
    st.integers(1, (1 << 46) - 1).flatmap(
        lambda capacity: st.tuples(st.just(capacity), st.integers(0, 100), st.integers(-2, 2), st.integers(0, 2 * capacity))
    )
)
def test_percentages_are_exact_where_floats_compute_them(drawn):
    capacity, percent, off, anything = drawn
    for requested in (max(0, capacity * percent // 100 + off), anything):
        sizes = np.array([capacity])
        for score, part in ((least_allocated, max(capacity - requested, 0)), (most_allocated, min(capacity, requested))):
            assert score(np.array([requested]), sizes, sizes.astype(float)) == [part * 100 // capacity]


def test_a_mean_that_overflowed_rounds_towards_zero_like_the_table():
    cluster = a_cluster([a_node("n", allocatable={"cpu": str(2**57 // 1000 + 1), "memory": "1Gi", "pods": 9})])
    view, pod = cluster.snapshot.nodes, requesting("pod", {"cpu": "1", "memory": "1Gi"})
    plugin = NodeResourcesFit(NodeResourcesFitArgs())
    counted = plugin.pre_score(pod, cluster.snapshot, view)
    assert [plugin.score_node(counted, node) for node in view] == plugin.score(counted, view).tolist()
