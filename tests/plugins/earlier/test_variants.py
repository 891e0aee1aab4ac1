"""Variants of plugins for earlier releases: each keeps the contract of a plugin, and belongs to a release."""

from __future__ import annotations

import pytest

from moorage.api.releases import EARLIER, LATER
from moorage.plugins.resources.scoring_strategies import UtilizationPoint
from moorage.plugins.shared.releases import VARIANTS
from moorage.testing.plugin_checks import check_plugin

SHAPE = (UtilizationPoint(), UtilizationPoint(utilization=100, score=10))
#: Plugins that need arguments.
ARGS = {"RequestedToCapacityRatio": {"shape": SHAPE}}


@pytest.mark.slow
@pytest.mark.parametrize(("plugin", "ended"), VARIANTS, ids=lambda part: part)
def test_a_variant_keeps_the_contract(plugin, ended):
    cls = VARIANTS[plugin, ended]
    assert cls.name == plugin
    check_plugin(cls(cls.Args(**ARGS[plugin])) if plugin in ARGS else cls())


def test_every_variant_is_in_force_where_its_rule_ended():
    named = {(plugin, ended) for release in (*EARLIER, *LATER) for plugin, ended in release.variants.items()}
    assert named == set(VARIANTS)
