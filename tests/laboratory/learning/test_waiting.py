"""Waiting as a reward, the scheduler's own action, and registered environments."""

from __future__ import annotations

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from moorage.errors import InputError
from moorage.laboratory.learning import PlacementEnv
from moorage.simulator.trace import Arrival

SIZE = {"cpu": "4", "memory": "8Gi", "pods": "110"}
NODES = [
    {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{at}"}, "status": {"allocatable": SIZE, "capacity": SIZE}}
    for at in range(3)
]


def pod(name, cpu):
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}


def arrivals():
    jobs = [Arrival(10.0 * at, pod(f"p{at}", str(1 + at % 4)), 120.0 + at) for at in range(24)]
    return [*jobs, Arrival(50.0, pod("never", "64"))]


def played(env, act):
    env.reset(seed=0)
    total, over = 0.0, False
    while not over:
        _, reward, ends, cut, _ = env.step(act(env))
        total, over = total + reward, ends or cut
    return total


def test_an_episode_returns_minus_all_waiting():
    """Waits by hand, from the times at which pods are chosen; one pod waits until the end."""
    env = PlacementEnv(NODES, arrivals(), reward="wait")
    came = {f"default/{arrival.pod.name}": arrival.time_s for arrival in env._arrivals}
    _, info = env.reset(seed=0)
    total, waited, over = 0.0, 0.0, False
    while not over:
        waited += info["seconds"] - came.pop(info["pod"])
        _, reward, ends, cut, info = env.step(env.expert_action())
        total, over = total + reward, ends or cut
    assert list(came) == ["default/never"]
    assert waited > 0
    assert total == pytest.approx(-(waited + info["seconds"] - 50.0) / 60)


def test_the_expert_is_open_and_ends_with_the_episode():
    env = PlacementEnv(NODES, arrivals(), reward="placed")

    def act(env):
        row = env.expert_action()
        assert env.action_masks()[row]
        return row

    assert played(env, act) == 24
    with pytest.raises(InputError, match="the episode is over"):
        env.expert_action()


def test_environments_are_registered():
    env = gymnasium.make("moorage.laboratory.learning:moorage/Placement-v0", objects=NODES, arrivals=arrivals(), reward="wait")
    check_env(env.unwrapped, skip_render_check=True)
    assert "moorage/Weights-v0" in gymnasium.registry


def test_an_unknown_reward_is_named():
    with pytest.raises(InputError, match="'waiting' is no reward; use utilisation, placed, wait"):
        PlacementEnv(NODES, arrivals(), reward="waiting")
