"""Rules that 1.37 changed: recordings of kube-scheduler 1.37, which differ under the rules of 1.36."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest

from moorage.api.releases import RELEASES
from tests.conformance.test_earlier_releases import nothing_resolved
from tests.conformance.test_recorded import BUNDLED
from tools.differential.decisions import differences
from tools.recordings.comparing import documents

RELEASE = RELEASES["1.37"]
RECORDED = {one["name"]: one for one in documents(BUNDLED / "bred" / "v1.37.0-alpha.2.jsonl.gz")}
STORAGE = "StorageCapacityScoring"


def without(plugin):
    return replace(RELEASE, variants={name: began for name, began in RELEASE.variants.items() if name != plugin})


#: The recorded cluster → the release with the rule of 1.36.
OF_1_36 = {
    "rules-images": without("ImageLocality"),
    "rules-selector": without("DynamicResources"),
    "rules-storage": replace(RELEASE, gates={**RELEASE.gates, STORAGE: RELEASES["1.36"].gates[STORAGE]}),
}


#: Rules that came after the pre-release; tests/core/engine/test_groups_as_one.py and test_found.py have cases of each.
UNRECORDED = {"DefaultPreemption", "GangScheduling", "InterPodAffinity"}


def test_each_rule_of_1_37_has_a_recording():
    changed = {plugin for plugin in RELEASE.variants if any(plugin not in one.variants for one in OF_1_36.values())}
    assert changed == set(RELEASE.variants) - UNRECORDED
    assert RECORDED.keys() == OF_1_36.keys()


@pytest.mark.parametrize("name", RECORDED)
def test_the_recording_differs_under_the_rule_of_1_36(name):
    document = RECORDED[name]
    assert not differences(document["expected"], document)
    with mock.patch.dict(RELEASES, {RELEASE.name: OF_1_36[name]}), nothing_resolved():
        assert differences(document["expected"], document)
