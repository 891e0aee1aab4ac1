"""Karpenter's own decisions, recorded in process: of the states in its own tests, and of random clusters."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulator.autoscalers.karpenter.recordings import differences, recorded

#: Reading the recording alone takes a second.
pytestmark = pytest.mark.slow
PARTS = 16


def test_there_are_as_many_cases_as_we_say():
    counts = Counter((case["kind"], case["title"] == "random") for case in recorded()[0])
    assert counts["provision", False] >= 450
    assert counts["compute", False] + counts["command", False] >= 150
    assert counts["provision", True] >= 150
    assert counts["compute", True] + counts["command", True] >= 250
    assert sum(bool(case.get("ties")) for case in recorded()[0]) < 40


def test_every_tenth_answer_is_karpenters():
    few = [case for case in recorded()[0] if len(case["objects"]) < 12][::10]
    assert len(few) > 50
    assert not list(differences(few))


@pytest.mark.parametrize("part", range(PARTS))
def test_every_answer_is_karpenters(part):
    assert not list(differences(recorded()[0][part::PARTS]))


def test_another_answer_is_noticed():
    case = next(case for case in recorded()[0] if case["kind"] == "provision" and case["answer"]["claims"])
    pool, pods, types = case["answer"]["claims"][0]
    fewer = [[pool, pods, types[1:]], *case["answer"]["claims"][1:]]
    assert list(differences([{**case, "answer": {**case["answer"], "claims": fewer}, "ties": False}]))
