"""Constraints as the rule reads them: defaults filled in, the pod's own label values merged."""

from __future__ import annotations

import pytest

from moorage.api.selectors import EVERYTHING, NOTHING, SelectorError
from moorage.state.spread_constraints import SpreadConstraint
from moorage.testing.builders import a_pod

ZONE = {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}
WEB = {"matchLabels": {"app": "web"}}


def compiled(labels=None, **fields):
    (constraint,) = a_pod(labels=labels, topologySpreadConstraints=[{**ZONE, **fields}]).spread_constraints
    return constraint


def test_defaults():
    assert compiled(labelSelector={}) == SpreadConstraint("zone", 2, True, EVERYTHING, 1, True, False)
    assert compiled().selector == NOTHING
    assert not compiled(whenUnsatisfiable="ScheduleAnyway").required
    assert compiled(minDomains=3).min_domains == 3


@pytest.mark.parametrize(("policy", "honored"), [("Honor", True), ("Ignore", False)])
def test_policies(policy, honored):
    assert compiled(nodeAffinityPolicy=policy).honors_affinity is honored
    assert compiled(nodeTaintsPolicy=policy).honors_taints is honored


def test_match_label_keys_require_the_pods_own_values():
    selector = compiled({"app": "web", "rev": "7"}, labelSelector=WEB, matchLabelKeys=["rev", "absent"]).selector
    assert str(selector) == "app=web,rev=7"


def test_merged_match_label_keys_change_nothing():
    merged = {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "rev", "operator": "In", "values": ["7"]}]}
    labels = {"app": "web", "rev": "7"}
    assert compiled(labels, labelSelector=merged, matchLabelKeys=["rev"]) == compiled(
        labels, labelSelector=WEB, matchLabelKeys=["rev"]
    )


def test_match_label_keys_add_nothing_to_an_absent_selector():
    assert compiled({"rev": "7"}, matchLabelKeys=["rev"]).selector == NOTHING


def test_a_malformed_selector_is_rejected():
    with pytest.raises(SelectorError, match="Like"):
        compiled(labelSelector={"matchExpressions": [{"key": "app", "operator": "Like"}]})
