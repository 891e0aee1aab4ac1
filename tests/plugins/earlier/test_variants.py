"""Variants of plugins for earlier releases: each keeps the contract of a plugin, and belongs to a release."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from moorage.api.feature_gates import FeatureGates
from moorage.api.releases import CURRENT, EARLIER, LATER, find_release
from moorage.plugins.resources.scoring_strategies import UtilizationPoint
from moorage.plugins.shared.releases import VARIANTS
from moorage.testing.fake_handle import FakeHandle
from moorage.testing.plugin_checks import check_plugin, sample_cluster
from moorage.testing.reuse_checks import check_reuse
from moorage.testing.rule_checks import check_what_ifs
from tests.strategies import clusters, pods

SHAPE = (UtilizationPoint(), UtilizationPoint(utilization=100, score=10))
#: Plugins that need arguments.
ARGS = {"RequestedToCapacityRatio": {"shape": SHAPE}}


@pytest.mark.slow
@pytest.mark.parametrize(("plugin", "ended"), VARIANTS, ids=lambda part: part)
def test_a_variant_keeps_the_contract(plugin, ended):
    cls = VARIANTS[plugin, ended]
    assert cls.name == plugin
    cluster, gates = sample_cluster(), FeatureGates(release=find_release(ended).name)
    made = cls(cls.Args(**ARGS[plugin])) if plugin in ARGS else cls()
    check_plugin(made, cluster=cluster, handle=FakeHandle(cluster.snapshot, gates=gates))


class Bench:
    now = 0.0

    def __init__(self, snapshot, ended):
        self.snapshot, self.gates = snapshot, FeatureGates(release=find_release(ended).name)


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(cluster=clusters(max_nodes=4, max_pods=4), pod=pods(), other=pods("other"))
def test_what_ifs_and_promises_hold(cluster, pod, other):
    """Those of 1.23 to 1.29 among them, which may decide about equal pods at once."""
    for (plugin, ended), cls in VARIANTS.items():
        if plugin in {"NodeResourcesFit", "PodTopologySpread"} and "." in ended:
            made = cls()
            if hasattr(made, "attach"):
                made.attach(Bench(cluster.snapshot, ended))
            assert list(check_what_ifs(made, pod, [other], cluster.snapshot)) == [], ended
            assert list(check_reuse(made, pod, [other], cluster.snapshot)) == [], ended


def test_every_variant_is_in_force_where_its_rule_ended():
    named = {(plugin, ended) for release in (*EARLIER, CURRENT, *LATER) for plugin, ended in release.variants.items()}
    assert named == set(VARIANTS)
