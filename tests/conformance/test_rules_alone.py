"""Rules of earlier releases that no other recording exercises: a cluster or a configuration made for each, with the answer of
the real code, which differs under the newer rule.

``about`` names the plugin.
"""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest

from moorage.api.releases import RELEASES
from tests.conformance.test_earlier_releases import ELSEWHERE, UNSEEN, newer_rule, nothing_resolved
from tests.conformance.test_recorded import BUNDLED
from tools.differential.decisions import differences as decided_otherwise
from tools.recordings.answers import answer
from tools.recordings.comparing import documents

RECORDED = documents(BUNDLED / "bred" / "rules.jsonl.gz")


def with_the_newer_rule(document):
    release, about = RELEASES[document["release"]], document["about"]
    variants = {**release.variants, about: newer_rule(release, about)}
    return replace(release, variants={name: ended for name, ended in variants.items() if ended})


def differs(document):
    if "text" in document:
        return answer(document)["refused"] != document["expected"]["refused"]
    return decided_otherwise(document["expected"], document)


def test_each_rule_has_a_recording():
    found = {(one["about"], RELEASES[one["release"]].variants[one["about"]]) for one in RECORDED}
    assert found >= ELSEWHERE["test_rules_alone has a recording"]
    assert {(one["release"], one["about"]) for one in RECORDED} >= UNSEEN


@pytest.mark.parametrize("document", RECORDED, ids=lambda one: f"{one['release']}-{one['name']}")
def test_the_recorded_answer_is_ours(document):
    assert not differs(document)


@pytest.mark.parametrize("document", RECORDED, ids=lambda one: f"{one['release']}-{one['name']}")
def test_it_differs_under_the_newer_rule(document):
    with mock.patch.dict(RELEASES, {document["release"]: with_the_newer_rule(document)}), nothing_resolved():
        assert differs(document)
