"""For every built-in rule: verdicts and scores of a node are equal in views of one, some and all nodes, and promises hold.

The scheduler therefore may keep verdicts, judge changed rows only, and try what-ifs.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.api.feature_gates import FeatureGates
from moorage.framework.profile import points_of
from moorage.plugins import BUILTIN
from moorage.state.view import NodeView
from moorage.testing.plugin_queries import refusals
from moorage.testing.reuse_checks import check_reuse
from moorage.testing.rule_checks import check_filter_forms, check_score_forms, check_what_ifs
from tests.strategies import clusters, pods

RULES = [cls for cls in BUILTIN if {"filter", "score"} & set(points_of(cls))]


class Bench:
    gates = FeatureGates()
    now = 0.0

    def __init__(self, snapshot):
        self.snapshot = snapshot


def built(cls, cluster):
    args = getattr(cls, "Args", None)
    plugin = cls() if args is None else cls(args())
    if hasattr(plugin, "attach"):
        plugin.attach(Bench(cluster.snapshot))
    return plugin


few = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@pytest.mark.slow
@few
@given(cluster=clusters(), pod=pods(), data=st.data())
def test_views_of_all_nodes_and_of_some_agree(cluster, pod, data):
    snapshot = cluster.snapshot
    some = data.draw(st.lists(st.integers(0, len(snapshot.table) - 1), min_size=1, unique=True))
    view = NodeView(snapshot, np.array(some, dtype=np.intp))
    names = set(view.names())
    for cls in RULES:
        plugin = built(cls, cluster)
        assert list(check_filter_forms(plugin, pod, snapshot)) == [], cls.name
        assert list(check_score_forms(plugin, pod, snapshot)) == [], cls.name
        if "filter" in points_of(plugin):
            whole = {name: status for name, status in refusals(plugin, pod, snapshot).items() if name in names}
            assert refusals(plugin, pod, view) == whole, cls.name


@pytest.mark.slow
@few
@given(cluster=clusters(max_nodes=4, max_pods=4), pod=pods(), other=pods("other"))
def test_what_ifs_and_promises_hold(cluster, pod, other):
    for cls in RULES:
        plugin = built(cls, cluster)
        assert list(check_what_ifs(plugin, pod, [other], cluster.snapshot)) == [], cls.name
        assert list(check_reuse(plugin, pod, [other], cluster.snapshot)) == [], cls.name
