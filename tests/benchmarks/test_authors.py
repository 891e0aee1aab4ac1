"""The benchmark of custom plugins: all forms decide alike."""

from __future__ import annotations

import pytest

from benchmarks.authors import _CONFIG, FORMS, _nodes, _pods, measure_forms
from moorage.simulator.simulate import Options, simulate


@pytest.mark.slow
def test_all_forms_place_the_pods_alike():
    world = [*_nodes(40), *_pods(60)]
    places = [
        [(pod.name, pod.node) for pod in simulate(world, Options(config=_CONFIG, plugins=(cls,))).pods]
        for cls in FORMS.values()
        if cls is not None
    ]
    assert all(one == places[0] for one in places)
    assert all(node for _, node in places[0])


@pytest.mark.slow
def test_the_figures_have_a_ratio_to_no_plugin():
    found = {one["form"]: one for one in measure_forms(6, 6, 1)}
    assert list(found) == list(FORMS)
    assert found["none"]["times"] == 1
    assert {one["placed"] for one in found.values()} == {6}
