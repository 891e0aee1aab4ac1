"""Test that a simulation cannot be copied: plugins, callbacks and timers belong to the original."""

from __future__ import annotations

import copy
import pickle

import pytest

from moorage.errors import CopyError, MoorageError
from moorage.simulator.simulate import Options, prepare
from tests.simulator.test_simulation import node, pod

WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "an old pickle": lambda obj: pickle.dumps(obj, 0),
    "inside another object": lambda obj: copy.deepcopy({"the": [obj]}),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("part", ["simulation", "scheduler"])
def test_copying_a_simulation_or_its_scheduler_fails(way, part):
    simulation, _ = prepare(Options())
    simulation.load([node("n"), pod("p")])
    simulation.run()
    with pytest.raises(CopyError) as refused:
        way(simulation if part == "simulation" else simulation.scheduler)
    assert isinstance(refused.value, MoorageError)
    assert isinstance(refused.value, TypeError)
    assert "prepare(options)" in str(refused.value)
    assert {one.pod.name: one.node for one in simulation.records.values()} == {"p": "n"}


def test_the_alternative_in_the_error_message_works():
    outcomes = []
    for _ in range(2):
        simulation, _ = prepare(Options())
        simulation.load([node("n"), node("m"), *(pod(f"p{n}") for n in range(3))])
        simulation.run()
        outcomes.append([(one.pod.name, one.node, one.placed_s) for one in simulation.records.values()])
    assert outcomes[0] == outcomes[1]
