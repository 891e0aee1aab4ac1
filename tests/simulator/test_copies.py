"""A simulation cannot be copied: plugins, callbacks and timers belong to the one that they were made for."""

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
    "in something else": lambda obj: copy.deepcopy({"the": [obj]}),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("part", ["simulation", "scheduler"])
def test_neither_a_simulation_nor_its_scheduler_is_copied(way, part):
    simulation, _ = prepare(Options())
    simulation.load([node("n"), pod("p")])
    simulation.run()
    with pytest.raises(CopyError) as refused:
        way(simulation if part == "simulation" else simulation.scheduler)
    assert isinstance(refused.value, MoorageError)
    assert isinstance(refused.value, TypeError)
    assert "prepare(options)" in str(refused.value)
    assert {one.pod.name: one.node for one in simulation.records.values()} == {"p": "n"}


def test_what_the_error_says_works_does():
    outcomes = []
    for _ in range(2):
        simulation, _ = prepare(Options())
        simulation.load([node("n"), node("m"), *(pod(f"p{n}") for n in range(3))])
        simulation.run()
        outcomes.append([(one.pod.name, one.node, one.placed_s) for one in simulation.records.values()])
    assert outcomes[0] == outcomes[1]
