"""Test that DynamicResources skips pods without claims, and that pods with claims wait until these exist."""

from __future__ import annotations

from moorage.core.cycle.cycle import Cycle
from moorage.framework.profile import make_profile
from moorage.framework.verdicts import SKIP, Code
from moorage.plugins.dynamic_resources import DynamicResources
from moorage.plugins.node_name import NodeName
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_queries import final_scores


def test_skips_pods_without_claims_and_scores_every_node_alike():
    snapshot = a_cluster([a_node("a"), a_node("b")]).snapshot
    plugin = DynamicResources()
    assert plugin.pre_filter(a_pod(), snapshot) is SKIP
    assert final_scores(plugin, a_pod(), snapshot) == {"a": 0, "b": 0}
    assert plugin.reuse.signature(a_pod()) == {}
    assert plugin.pre_enqueue(a_pod()) is None


def test_deallocates_nothing_for_a_pod_without_claims():
    points = {"preFilter": ["DynamicResources"], "filter": ["NodeName"], "postFilter": ["DynamicResources"]}
    profile = make_profile("default-scheduler", {"DynamicResources": DynamicResources(), "NodeName": NodeName()}, points, {})
    decision = Cycle().decide(profile, a_pod(nodeName="elsewhere"), a_cluster([a_node("a")]).snapshot)
    assert decision.post_filter is not None
    assert decision.post_filter.code is Code.UNSCHEDULABLE
    assert decision.message.endswith("no new claims to deallocate")
