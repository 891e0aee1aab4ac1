"""Decisions of Kueue's own scheduler, recorded: random trees of queues over many cycles, and its own tests' cases."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.simulator.kueue.replaying import (
    assignment_differences,
    borrowing_differences,
    choice_differences,
    differences,
    lendable_differences,
    order_differences,
    policy_differences,
    preference_differences,
    reduction_differences,
    share_differences,
    table_differences,
    target_differences,
    turn_differences,
)

FOLDER = Path(__file__).parents[2] / "data" / "conformance" / "kueue"


def cases(name):
    with gzip.open(FOLDER / name, "rt") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.slow
def test_random_queues_decide_as_kueue_does():
    recorded = cases("random.jsonl.gz")
    found = [difference for case in recorded for difference in differences(case)]
    assert not found, "\n".join(found[:5])
    cycles = [cycle for case in recorded for cycle in case["cycles"]]
    assert sum(len(cycle.get("admitted", ())) for cycle in cycles) > 2000
    evictions = [one for cycle in cycles for one in cycle["changed"].values() if one.get("evicted", ["False"])[0] == "True"]
    assert {one["preempted"][1] for one in evictions} == {
        "InClusterQueue",
        "InCohortReclamation",
        "InCohortFairSharing",
        "InCohortReclaimWhileBorrowing",
    }


@pytest.mark.parametrize("case", cases("tables.jsonl.gz"), ids=lambda case: case["name"])
def test_cases_of_kueue_s_own_tests(case):
    assert not list(table_differences(case))


def test_gates_decide_as_kueue_does():
    recorded = cases("gates.jsonl.gz")
    assert not [difference for case in recorded for difference in differences(case)]
    assert all(any(True for _ in differences({**case, "gates": {}})) for case in recorded), "each tree needs its gates"


def test_places_that_are_found_after_checks_are_kueue_s():
    recorded = cases("delayed.jsonl.gz")
    assert not [difference for case in recorded for difference in differences(case)]
    states = [one for case in recorded for cycle in case["cycles"] for one in cycle.get("changed", {}).values()]
    assert sum(held.get("delayed") == "Ready" for one in states for held in one.get("admission", ())) >= 50


FUNCTIONS = {
    "targets": target_differences,
    "podSets": assignment_differences,
    "shares": share_differences,
    "order": order_differences,
    "allows": policy_differences,
    "turns": turn_differences,
    "prefers": preference_differences,
    "reduced": reduction_differences,
    "lendable": lendable_differences,
    "borrowsAsked": borrowing_differences,
    "chosen": choice_differences,
}


@pytest.mark.parametrize("case", cases("functions.jsonl.gz"), ids=lambda case: case["name"])
def test_cases_of_single_functions(case):
    [check] = [check for field, check in FUNCTIONS.items() if field in case]
    assert not list(check(case))
