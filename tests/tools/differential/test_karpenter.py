"""Random clusters of NodePools are whole, get all our answers, and shrink. Karpenter's program itself is not needed."""

import json

import pytest

from tools.differential import karpenter
from tools.differential.karpenter_worlds import made


def as_karpenter(world):
    """Our own answers in the form of the program's."""
    mine = karpenter.ours(world)
    claims, placed, left = json.loads(mine["plan"][0])
    plan = {
        "claims": [{"pool": pool, "pods": pods, "types": types} for pool, pods, types in claims],
        "existing": placed, "errors": {pod: mine[f"pod {pod}"][0] for pod in left},
    }  # fmt: skip
    verdicts = {}
    for question, texts in mine.items():
        if question.startswith("verdict "):
            node = question.removeprefix("verdict ")
            decision, types = json.loads(texts[0])
            verdicts[node] = {"decision": decision, "types": types, "why": mine.get(f"why {node}", [""])[0]}
    decision, removed, types = json.loads(mine["command"][0])
    command = {"decision": decision, "removed": removed, "types": types}
    return {"runs": [{"plan": plan, "verdicts": verdicts, "command": command}]}


@pytest.mark.parametrize("seed", range(8))
def test_a_world_gets_all_answers(seed):
    world = made(seed)
    assert world == made(seed)
    assert karpenter._is_whole(world)
    assert not dict(karpenter.differences(world, as_karpenter(world)))


def test_a_difference_names_the_question_and_both_answers():
    world = next(world for world in map(made, range(50)) if json.loads(karpenter.ours(world)["plan"][0])[0])
    answer = as_karpenter(world)
    answer["runs"][0]["plan"]["claims"] = []
    found = dict(karpenter.differences(world, answer))
    assert list(found) == ["plan"]
    assert found["plan"].startswith("ours [[[")


def test_a_fault_of_the_program_is_a_difference():
    assert dict(karpenter.differences(made(0), {"fault": "panic: no"})) == {"fault": "Karpenter's program: panic: no"}


def test_sentences_are_compared_without_numbers_of_placeholders():
    one = karpenter._sentence("b In [hostname-placeholder-0012]; a  needs")
    assert one == karpenter._sentence("a needs; b In [hostname-placeholder-0002]")
    assert karpenter._sentence("Can't remove without creating 2 candidates, 1 of them for pods that are pending anyway") == (
        "Can't remove without creating 2 candidates"
    )


def test_a_world_shrinks_to_what_the_disagreement_needs():
    world = next(world for world in map(made, range(50)) if json.loads(karpenter.ours(world)["plan"][0])[0])
    least = karpenter.shrunk(world, lambda one: bool(json.loads(karpenter.ours(one)["plan"][0])[0]))
    kinds = sorted(one["kind"] for one in least["objects"])
    assert [kind for kind in kinds if kind != "Pod"] == ["NodePool"]
    assert kinds.count("Pod") == 1
    assert [len(one["offerings"]) for one in least["types"]] == [1]
