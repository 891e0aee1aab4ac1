"""Karpenter's own code decided these; see ``karpenter/decisions.toml``."""

import tomllib
from pathlib import Path

import pytest

import moorage
from moorage.simulator.autoscalers import KINDS, Karpenter, read_price_list

FOLDER = Path(__file__).parent / "karpenter"
CASES = tomllib.loads((FOLDER / "decisions.toml").read_text())["case"]


def karpenter(name):
    return Karpenter(moorage.read(FOLDER / f"{name}.yaml", custom=KINDS), read_price_list(str(FOLDER / f"{name}.types.json")))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["input"])
def test_what_karpenter_decides(case):
    judged = karpenter(case["input"])
    plan = judged.plan
    if "claims" in case:
        found = [[[pod.name for pod in one.pods], sorted(held.name for held in one.types)] for one in plan.claims]
        assert sorted(found) == sorted([pods, sorted(types)] for pods, types in case["claims"])
    if "placed" in case:
        assert {node: [pod.name for pod in pods] for node, pods in plan.placed.items()} == case["placed"]
    for uid, texts in case.get("errors", {}).items():
        assert all(text in plan.errors[uid] for text in texts), plan.errors[uid]
    if "verdict" in case:
        verdict = judged.verdict("bow")
        assert (verdict.decision, verdict.why) == (case["verdict"], case.get("why", ""))
        assert "saves" not in case or verdict.saves == pytest.approx(case["saves"])


def test_every_input_has_a_decision():
    assert {path.name.removesuffix(".types.json") for path in FOLDER.glob("*.json")} == {case["input"] for case in CASES}


def test_a_pod_that_chance_leaves_out_gets_its_node_in_a_later_round():
    judged = karpenter("10-tie-of-zones")
    rounds = [judged.round(turn) for turn in range(2)]
    assert [len(one.claims) for one in rounds] == [0, 1]
    assert rounds[0].turns == 2
