"""Which pods a change wakes, recorded with kube-scheduler: one scenario for each rule of waking that ended with a release.

``about`` names the rule: a plugin, the events that plugins name and what their hints look at, that hints are off or closed,
that those of 1.29 look at no change, that any update of a waiting pod retries it, that a pod waits after an error, or that
events which no plugin names retry it and pods in flight.
"""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest

from moorage.api.releases import RELEASES
from tests.conformance.test_earlier_releases import newer_rule, nothing_resolved
from tests.conformance.test_recorded import BUNDLED
from tools.differential.random_changes import changing_cluster
from tools.differential.woken_pods import answered
from tools.recordings.comparing import documents

RECORDED = documents(BUNDLED / "bred" / "changes.jsonl.gz")
HINTS = "SchedulerQueueingHints"


def with_the_newer_rule(document):
    """Return the scenario's release with the rule that replaced the one that the scenario is about."""
    release, about = RELEASES[document["release"]], document["about"]
    if about == "event kinds":
        newer = {"1.30.10": "1.31", "1.31.8": ""}
        return replace(release, event_kinds=newer[release.name])
    if about == "hints on":
        return replace(release, gates={**release.gates, HINTS: release.gates[HINTS]._replace(default=True)})
    if about == "hints look at changes":
        return replace(release, event_kinds="")
    if about == "own updates":
        return replace(release, any_own_update_wakes=False)
    if about == "errors wait":
        return replace(release, parks_errors=False)
    if about == "moving kinds":
        return replace(release, moving_kinds=frozenset())
    variants = {**release.variants, about: newer_rule(release, about)}
    return replace(release, variants={name: ended for name, ended in variants.items() if ended})


@pytest.mark.parametrize("document", RECORDED, ids=lambda one: f"{one['release']}-{one['name']}")
def test_a_change_wakes_the_recorded_pods(document):
    assert answered(document) == document["expected"]["changes"]


@pytest.mark.parametrize("document", RECORDED, ids=lambda one: f"{one['release']}-{one['name']}")
def test_it_wakes_others_under_the_newer_rule(document):
    if document["about"] == "hints closed":
        assert answered({**document, "featureGates": {}}) != document["expected"]["changes"]
        return
    with mock.patch.dict(RELEASES, {document["release"]: with_the_newer_rule(document)}), nothing_resolved():
        assert answered(document) != document["expected"]["changes"]


@pytest.mark.slow
def test_random_changes_wake_pods():
    document = changing_cluster(4, "1.34.7")
    assert any(change["woken"] for change in answered(document))
    assert all({*change["woken"]} <= {*change["parked"]} for change in answered(document))
