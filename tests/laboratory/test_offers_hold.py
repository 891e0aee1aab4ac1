"""Every command that an answer prints is run in ``moorage up``: it succeeds, and the pod is then where the answer said.

``make offers CLUSTERS=2000`` takes more random clusters at their word than the suite does.
"""

import os

import pytest

from tests.laboratory.up_in_process import broken_offers

CLUSTERS = int(os.environ.get("CLUSTERS", "8"))
FIRST = int(os.environ.get("FIRST", "0"))


@pytest.mark.slow
def test_commands_do_what_the_answer_says():
    found = [broken_offers(seed) for seed in range(FIRST, FIRST + CLUSTERS)]
    assert sum(tried for tried, _ in found) >= CLUSTERS
    assert [why for _, broken in found for why in broken] == []
