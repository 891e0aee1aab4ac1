"""Random worlds of queues are whole, play to their end on our side, and shrink; Kueue's program itself is not needed here."""

import pytest

from tools.differential import kueue


@pytest.mark.parametrize("seed", range(12))
def test_a_world_plays_to_its_end(seed):
    world = kueue.made(seed)
    assert world == kueue.made(seed)
    answers = kueue.ours(world)
    assert len(answers) == len(world["events"])
    assert not list(kueue.differences(world, answers))


def test_a_difference_names_the_event_and_both_answers():
    world = kueue.made(3)
    theirs = [[{"name": one["name"]} for one in step] for step in kueue.ours(world)]
    found = list(kueue.differences(world, theirs))
    assert found
    assert all(text.startswith("event 0: ours ") for text in found)


def test_a_world_shrinks_to_what_the_disagreement_needs():
    world = kueue.made(3)
    name = next(event["create"]["metadata"]["name"] for event in reversed(world["events"]) if "create" in event)

    def disagree(one):
        return any(event.get("create", {}).get("metadata", {}).get("name") == name for event in one["events"])

    least = kueue.shrunk(world, disagree)
    assert len(least["events"]) == 1
    kinds = sorted(one["kind"] for one in least["objects"])
    assert [kind for kind in kinds if kind != "ResourceFlavor"] == ["ClusterQueue", "LocalQueue", "Namespace"]
