"""Clusters on which kube-scheduler's own code and Moorage once disagreed, as ``python -m tools.differential`` writes them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from moorage.api.releases import RELEASES
from tests.conformance.test_earlier_releases import nothing_resolved
from tools.differential import decisions, documents, groups, wakes
from tools.differential.woken_pods import answered
from tools.recordings.answers import answer

FOUND = {path.stem: json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "found").glob("*.json"))}
#: The cluster → what the release is without the rule that decides it.
WITHOUT = {
    "resizes-in-opposite-directions": {"sums_resizes": False},
    "nominated-and-gated": {"nominates_gated_pods": False},
    "victims-that-have-not-started": {"variants": {"DynamicResources": "1.37"}},
    "namespaces-without-a-label": {"variants": {"DynamicResources": "1.37"}},
    "lists-of-values-while-their-gate-is-closed": {"selectors_see_lists": False},
    "infeasible-resizes-that-report-nothing": {"sums_resizes": False},
    "distinct-values-of-each-device": {"variants": {}},
    "distinct-values-of-each-device-in-1.34.7": {"variants": {}},
    "constraints-on-lists-of-values": {"variants": {}},
    "amounts-of-a-pod-as-a-whole": {"sums_resizes": False},
    "alternatives-for-all-devices-in-1.35.4": {"variants": {}},
    "selections-of-first-alternatives-in-1.34.7": {"variants": {}},
    "selections-of-first-alternatives-in-1.35.4": {"variants": {}},
    "all-devices-of-which-one-is-in-use": {"variants": {}},
    "counters-of-a-pool-elsewhere": {"variants": {}},
    "gang-scheduling-at-reserve-in-1.35.4": {"variants": {}},
}


def differences(expected, document):
    if "played" in expected:
        return groups.differences(expected["played"], groups.played(document, expected["played"]))
    if "text" in document:
        return [one for one in documents.differences(expected, answer(document)) if one[0] != documents.TEXTS]
    if "changes" in document:
        return [one for one in wakes.answers(document, expected, answered(document)) if one[3] and not one[4]]
    return decisions.differences(expected, document)


@pytest.mark.parametrize("document", FOUND.values(), ids=FOUND)
def test_every_decision_is_the_real_one(document):
    assert differences(document["expected"], document) == []


@pytest.mark.parametrize("name", WITHOUT)
def test_the_rule_before_decides_otherwise(name):
    document = FOUND[name]
    before = replace(RELEASES[document["release"]], **WITHOUT[name])
    with mock.patch.dict(RELEASES, {document["release"]: before}), nothing_resolved():
        assert differences(document["expected"], document)
