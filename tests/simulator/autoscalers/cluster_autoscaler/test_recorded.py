"""Rounds of cluster-autoscaler itself on random clusters, recorded in process, and ours beside them."""

from __future__ import annotations

import pytest

from tests.simulator.autoscalers.cluster_autoscaler.recordings import differences, recorded

#: Reading the recording takes a second.
pytestmark = pytest.mark.slow
PARTS = 12


def test_there_are_as_many_rounds_as_we_say():
    steps = [case["steps"] for case in recorded()]
    assert len(steps) >= 300
    assert sum(len(rounds) > 1 for rounds in steps) < 20
    rounds = [one for held in steps for one in held[0]]
    assert len(rounds) >= 1000
    assert sum(bool(one["ups"]) for one in rounds) >= 200
    assert sum(len(one["empty"]) + len(one["drain"]) for one in rounds) >= 200


@pytest.mark.parametrize("part", range(PARTS))
def test_every_round_is_cluster_autoscalers(part):
    assert not list(differences(recorded()[part::PARTS]))


def test_another_round_is_noticed():
    case = next(case for case in recorded() if case["steps"][0][0]["unneeded"])
    first, *others = case["steps"][0]
    assert list(differences([{**case, "steps": [[{**first, "unneeded": []}, *others]]}]))
