"""Test ``PlacementEnv``: Gymnasium's checks, the mask, equal episodes, and that the engine's rules hold for chosen nodes."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import moorage
from moorage.errors import InputError
from moorage.laboratory.learning import PlacementEnv
from moorage.laboratory.learning.chosen_placements import ChosenPlacements
from moorage.laboratory.trial.feasibility import feasibility_of
from moorage.simulator.trace import Arrival
from moorage.state.pod_info import PodInfo
from moorage.testing.builders import a_node, a_pod

GPU = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def nodes(count=6):
    return [
        a_node(
            f"n{at}", {"kubernetes.io/hostname": f"n{at}", "disk": "ssd" if at % 2 else "hdd"},
            allocatable={"cpu": str(2 + at), "memory": "8Gi", "pods": 5}, taints=[GPU] if at == 0 else [],
        )
        for at in range(count)
    ]  # fmt: skip


def pod(name, cpu="1", **spec):
    requests = {"cpu": cpu, "memory": "1Gi"}
    return a_pod(name, {"app": name[0]}, containers=[{"name": "c", "resources": {"requests": requests}}], **spec).pod


APART = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
    {"labelSelector": {"matchLabels": {"app": "d"}}, "topologyKey": "kubernetes.io/hostname"}
]}}  # fmt: skip
KINDS = [
    lambda at: pod(f"a{at}", "500m"), lambda at: pod(f"b{at}", "2", nodeSelector={"disk": "ssd"}),
    lambda at: pod(f"c{at}", tolerations=[{"operator": "Exists"}]), lambda at: pod(f"d{at}", affinity=APART),
    lambda at: pod(f"e{at}", priority=at % 3),
]  # fmt: skip
PODS = [KINDS[at % len(KINDS)](at) for at in range(30)]


def first_open(observation):
    return int(observation["action_mask"].argmax())


def episode(env, choose=first_open, seed=0):
    """Return what an agent saw and got, step by step."""
    observation, info = env.reset(seed=seed)
    steps, over = [], info["pod"] == ""
    while not over:
        action = choose(observation)
        seen = info["pod"], action, observation["nodes"].sum().item(), tuple(observation["action_mask"])
        observation, reward, ended, truncated, info = env.step(action)
        steps.append((*seen, reward, info["seconds"]))
        over = ended or truncated
    return steps, info


def test_gymnasium_finds_no_fault():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(PlacementEnv(nodes(), PODS, max_nodes=9, max_steps=200), skip_render_check=True)


def test_the_mask_is_what_filter_says():
    env = PlacementEnv(nodes(), PODS, max_nodes=8)
    observation, info = env.reset(seed=0)
    table, narrow = env.simulation.scheduler.cluster.table, 0
    while info["pod"]:
        now = env.simulation.pod_named(info["pod"])
        open_ = feasibility_of(env.simulation, PodInfo(now), None).nodes
        masked = [table.nodes[row].name for row in np.flatnonzero(observation["action_mask"])]
        assert sorted(masked) == sorted(open_)
        narrow += len(open_) < 6
        observation, _, _, _, info = env.step(first_open(observation))
    assert narrow > 10
    assert (table.requested("cpu").view <= table.allocatable("cpu").view).all()
    assert (table.pod_count.view <= 5).all()


def test_an_agent_that_chooses_as_the_engine_places_as_the_engine():
    env = PlacementEnv(nodes(), PODS)

    def as_the_engine(_):
        scheduler = env.simulation.scheduler
        choice = env._choice.pod
        profile = scheduler.profiles[choice.spec.scheduler_name]
        return scheduler.cluster.table.row_of[scheduler.cycle.decide(profile, choice, scheduler.snapshot, {}).node]

    _, info = episode(env, as_the_engine)
    placed = {key.name: key.spec.node_name for key in env.simulation.pods.values()}
    run = moorage.simulate([*nodes(), *PODS])
    assert placed == {one.name: one.node for one in run.pods}
    assert info["placed"] == len(run.in_state("Placed"))
    assert info["pending"] == len(run.in_state("Pending")) > 0


def arrivals(random):
    return [Arrival(float(random.uniform(0, 50)), pod(f"a{at}", "1"), float(random.uniform(5, 30))) for at in range(40)]


def test_equal_seeds_give_equal_episodes_on_used_and_fresh_environments():
    env, fresh = PlacementEnv(nodes(), arrivals), PlacementEnv(nodes(), arrivals)
    first, other = episode(env, seed=5), episode(env, seed=6)
    again = episode(env, seed=5)
    assert first == again == episode(fresh, seed=5)
    assert first != other
    assert first[0][-1][-1] > 5.0  # time passes
    shuffled = PlacementEnv(nodes(), PODS, shuffle=True)
    assert episode(shuffled, seed=1)[0] != episode(shuffled, seed=2)[0]


@pytest.mark.parametrize(("shuffle", "max_steps"), [(False, None), (True, None), (False, 7)])
def test_an_episode_that_begins_again_is_as_on_a_fresh_environment(shuffle, max_steps):
    def made():
        placed = [pod("old", "2", nodeName="n3")]
        return PlacementEnv([*nodes(), *placed], PODS, shuffle=shuffle, max_steps=max_steps)

    def at_random(seed):
        draw = np.random.default_rng(seed)
        return lambda observation: int(draw.choice(np.flatnonzero(observation["action_mask"])))

    env = made()
    env.reset(seed=0)
    used = env.simulation
    for seed in range(5):
        fresh = made()
        assert episode(env, at_random(seed), seed) == episode(fresh, at_random(seed), seed)
        assert env.simulation is used
        assert env.simulation.pods == fresh.simulation.pods
        assert list(env.simulation.newest_first()) == list(fresh.simulation.newest_first())
        for name in ("cpu", "memory"):
            columns = [one.simulation.scheduler.cluster.table.requested(name).view.tolist() for one in (env, fresh)]
            assert columns[0] == columns[1]


def test_plain_pods_are_put_back_without_events(monkeypatch):
    env = PlacementEnv(nodes(), [pod(f"a{at}") for at in range(30)], shuffle=True)
    first = episode(env, seed=1)
    monkeypatch.setattr(ChosenPlacements, "_restore", None)
    assert episode(env, seed=1) == first
    assert first[1]["pending"]


def test_pods_that_wait_at_the_beginning_wait_in_every_episode():
    env = PlacementEnv([*nodes(2), pod("early", "1")], [pod("late", "1")])
    for _ in range(3):
        assert {step[0] for step in episode(env)[0]} == {"default/early", "default/late"}


def test_an_illegal_action_costs_a_penalty_and_the_pod_waits_for_an_event():
    env = PlacementEnv(nodes(2), [pod("a", "3")], max_nodes=4)
    for action in (0, 3):
        observation, _ = env.reset(seed=0)
        assert observation["action_mask"].tolist() == [0, 1, 0, 0]
        _, reward, ended, _, info = env.step(action)
        assert (reward, ended, info["placed"], info["pending"]) == (-1.0, True, 0, 1)
    with pytest.raises(InputError, match=r"call reset\(\)"):
        env.step(1)
    env = PlacementEnv(nodes(2), [Arrival(0.0, pod("a", "1")), Arrival(1.0, pod("b", "1"), 60.0)])
    env.reset(seed=0)
    assert env.step(0)[-1]["pod"] == "default/b"
    assert env.step(1)[-1]["pod"] == "default/a"  # b was bound, which is an event
    assert env.step(1)[1:3] == (pytest.approx(0.2), True)


def test_observations_are_the_free_shares():
    env = PlacementEnv(nodes(), PODS)
    observation, info = env.reset(seed=0)
    table = env.simulation.scheduler.cluster.table
    for _ in range(12):
        free = np.stack([
            1 - table.requested(name).view / table.allocatable(name).view for name in ("cpu", "memory")
        ])  # fmt: skip
        assert observation["nodes"][:, :2] == pytest.approx(free.T, abs=1e-6)
        assert observation["nodes"][:, 2] == pytest.approx(1 - table.pod_count.view / 5, abs=1e-6)
        kept = {name: value.copy() for name, value in observation.items()}
        before = observation
        observation, _, _, _, info = env.step(first_open(observation))
        assert all((before[name] == kept[name]).all() for name in kept)  # what an agent kept does not change
    asked = PodInfo(env.simulation.pod_named(info["pod"])).requests["cpu"]
    assert observation["pod"][0] == pytest.approx(asked / 7000)


def test_rewards_can_be_chosen():
    one = [pod("a", "1")]
    for reward, action, value in (("placed", 1, 1.0), (lambda env, pod, row: row + 0.5, 1, 1.5), ("utilisation", 1, 0.2)):
        env = PlacementEnv(nodes(2), one, reward=reward)
        env.reset(seed=0)
        assert env.step(action)[1] == pytest.approx(value)
    with pytest.raises(InputError, match="is no reward"):
        PlacementEnv(nodes(2), one, reward="wealth")
    with pytest.raises(InputError, match="2 nodes"):
        PlacementEnv(nodes(2), one, max_nodes=1)


def make():
    return PlacementEnv(nodes(), PODS)


@pytest.mark.slow
def test_environments_run_in_processes():
    several = gymnasium.vector.AsyncVectorEnv([make, make], context="fork")
    try:
        observations, _ = several.reset(seed=[1, 1])
        for _ in range(20):
            observations, rewards, *_ = several.step(observations["action_mask"].argmax(axis=1))
            assert rewards[0] == rewards[1]
    finally:
        several.close(terminate=True)
