"""Random clusters and policies are whole, play to their end on our side, and shrink. The program itself is not needed."""

import pytest

from tools.differential import descheduler
from tools.differential.descheduler_worlds import BALANCE, DESCHEDULE, made


@pytest.mark.parametrize("seed", range(12))
def test_a_world_plays_to_its_end(seed):
    world = made(seed)
    assert world == made(seed)
    assert not descheduler.difference(world, [descheduler.ours(world)])


def test_most_policies_are_played_and_some_are_refused():
    refused = sum(isinstance(descheduler.ours(made(seed)), str) for seed in range(60))
    assert 1 <= refused <= 20


def evicting():
    """The first world in which pods are evicted."""
    return next(world for world in map(made, range(100)) if not isinstance(found := descheduler.ours(world), str) and found[0])


def test_the_worlds_have_all_plugins():
    enabled = {
        name
        for seed in range(60)
        for profile in made(seed)["policy"]["profiles"]
        for point in profile["plugins"].values()
        for name in point["enabled"]
    }
    assert enabled == {*DESCHEDULE, *BALANCE}


def test_a_difference_names_both_outcomes():
    world = evicting()
    text = descheduler.difference(world, [((), ())])
    assert text.startswith("ours [[[")
    assert text.endswith("the descheduler's [[], []]")


def test_a_policy_that_both_refuse_is_no_difference():
    world = evicting()
    world["policy"]["profiles"][0]["plugins"]["deschedule"]["enabled"] = ["Unknown"]
    assert descheduler.difference(world, ["profile configures non-existing plugins"]) == ""
    assert descheduler.difference(world, [((), ())])


def test_outcomes_of_balance_plugins_come_in_any_order():
    def answer(*pods):
        return {"evicted": [{"pod": pod, "profile": "p", "plugin": "RemoveDuplicates"} for pod in pods]}

    assert descheduler.outcomes({"runs": [answer("a/x", "a/y"), answer("a/y", "a/x")]}) == [
        ((("p", "RemoveDuplicates", ("a/x", "a/y")),), ())
    ]
    assert descheduler.outcomes({"fault": "no"}) == ["no"]


def test_a_world_shrinks_to_what_the_disagreement_needs():
    world = evicting()
    profile, plugin, pods = descheduler.ours(world)[0][0]

    def disagree(one):
        mine = descheduler.ours(one)
        return not isinstance(mine, str) and any(group[:2] == (profile, plugin) and pods[0] in group[2] for group in mine[0])

    least = descheduler.shrunk(world, disagree)
    assert len(least["policy"]["profiles"]) == 1
    assert len(least["objects"]) < len(world["objects"])
    assert disagree(least)
