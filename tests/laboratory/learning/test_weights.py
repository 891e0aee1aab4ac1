"""Test learning of weights: the environment, the configuration that it makes, and the search."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
from gymnasium.utils.env_checker import check_env

import moorage
from moorage.errors import InputError
from moorage.laboratory.learning import DEFAULT_PLUGINS, WeightsEnv, configuration_of_weights, cross_entropy_search
from moorage.simulator.trace import Arrival
from moorage.testing.builders import a_node, a_pod

NODES = [a_node(f"n{at}", allocatable={"cpu": "4", "memory": "8Gi", "pods": 110}) for at in range(2)]


def pod(name, cpu):
    return a_pod(name, containers=[{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]).pod


def arrivals(random):
    return [Arrival(60.0 * at, pod(f"p{at}", "1"), 60.0 * float(random.integers(1, 20))) for at in range(12)]


def test_gymnasium_finds_no_fault():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(WeightsEnv(NODES, arrivals), skip_render_check=True)


def test_the_default_weights_are_those_of_kube_scheduler():
    simulation = moorage.Simulation.from_objects(NODES)
    (profile,) = simulation.engine.scheduler.profiles.values()
    assert {name: profile.weights[name] for name in DEFAULT_PLUGINS} == DEFAULT_PLUGINS


def test_the_configuration_has_the_weights_and_no_plugin_of_weight_0():
    text = configuration_of_weights({"NodeResourcesFit": 0.0, "NodeResourcesBalancedAllocation": 2.55})
    (profile,) = moorage.Simulation.from_objects(NODES, config=text).engine.scheduler.profiles.values()
    assert profile.weights["NodeResourcesBalancedAllocation"] == 26
    scoring = [step.name for step in profile.at("score")]
    assert "NodeResourcesFit" not in scoring
    assert "TaintToleration" in scoring
    assert "NodeResourcesFit" in [step.name for step in profile.at("filter")]


def test_the_default_weights_decide_as_no_configuration():
    env = WeightsEnv(NODES, arrivals)
    env.reset(seed=3)
    episode = env._episode
    _, reward, ended, _, info = env.step([0.1, 0.1, 0.2, 0.2])
    plain = env.simulated(episode, None).totals()
    assert (ended, info["arrived"]) == (True, 12)
    assert dict(plain.to_dict()) == info
    assert reward == pytest.approx(-plain.wait_mean_s / 60)
    with pytest.raises(InputError, match="call reset"):
        env.step([0.1, 0.1, 0.2, 0.2])


def test_a_pod_that_never_fits_has_waited_until_the_end():
    env = WeightsEnv(NODES, [Arrival(0.0, pod("big", "9")), Arrival(60.0, pod("ok", "1"), 60.0)], until_s=600.0)
    env.reset(seed=0)
    assert env.step([0.1, 0.1, 0.2, 0.2])[1] == pytest.approx(-600.0 / 2 / 60)


def test_the_search_finds_the_highest_value():
    def value_of(vector):
        return -((vector[0] - 3) ** 2) - (vector[1] - 7) ** 2

    found = cross_entropy_search(value_of, (0, 0), (10, 10), rounds=12, population=20, elite=5, seed=2)
    assert found.best == pytest.approx((3, 7), abs=0.2)
    assert found.evaluations == 240
    assert list(found.history) == sorted(found.history)
    with ThreadPoolExecutor(2) as executor:
        assert found == cross_entropy_search(
            value_of, (0, 0), (10, 10), rounds=12, population=20, elite=5, seed=2, executor=executor
        )


def test_a_search_never_ends_below_its_start():
    def value_of(vector):
        return 1.0 if vector[0] == 5.0 else 0.0

    found = cross_entropy_search(value_of, (0,), (10,), start=(5.0,), rounds=2, population=3, elite=1)
    assert (found.best, found.value) == ((5.0,), 1.0)
    for wrong in (((1,), (0,)), ((), ())):
        with pytest.raises(InputError, match="bounds"):
            cross_entropy_search(value_of, *wrong)
    with pytest.raises(InputError, match="elite"):
        cross_entropy_search(value_of, (0,), (1,), elite=99)
