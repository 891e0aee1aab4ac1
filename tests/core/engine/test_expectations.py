"""The expected node of a pod is reported before a slow binding, and cleared if the binding fails."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from moorage.api.feature_gates import FeatureGates
from moorage.framework.effects import Call
from moorage.framework.verdicts import Wait
from tests.core.engine.driving import Driven, Phase, bound, node, pod


class Waits:
    name = "Waits"

    def permit(self, state, pod, node):
        return Wait(10)


class Prepares:
    name = "Prepares"

    def pre_bind(self, state, pod, node):
        return (Call(run=None, stand_in=lambda: None),)


class Idles:
    name = "Idles"

    def pre_bind(self, state, pod, node):
        return ()


def told(driven):
    """What is reported, in order: (phase, node)."""
    return [(work.phase, work.node) for work in driven.work() if not work.phase.is_answered]


CASES = {  # plugins → is it told?
    "nothing to wait for": ((), False),
    "nothing to prepare": ((Idles,), False),
    "something to prepare": ((Prepares,), True),
    "a wait": ((Waits,), True),
    "a wait, then something to prepare": ((Waits, Prepares), True),
}


@pytest.mark.parametrize(("plugins", "tells"), CASES.values(), ids=CASES)
def test_the_expected_node_is_reported_once_for_a_slow_binding(plugins, tells):
    driven = Driven(*plugins)
    driven.see(node(), pod("p"))
    assert driven.step() == ("p", "n")
    works = driven.work()
    for waiting in driven.engine.waiting():
        waiting.allow("Waits")
    driven.step()
    works += driven.work()
    phases = [work.phase for work in works]
    assert phases.count(Phase.EXPECT) == tells
    assert not tells or (phases[0], works[0].node) == (Phase.EXPECT, "n")
    assert Phase.NOMINATE not in phases


def test_no_expected_node_is_reported_without_the_gate():
    driven = Driven(Prepares)
    driven.engine.state.gates = FeatureGates.parse("NominatedNodeNameForExpectation=false")
    driven.see(node(), pod("p"))
    assert driven.step() == ("p", "n")
    assert told(driven) == []


def test_an_expected_node_already_in_status_is_not_reported_again():
    driven = Driven(Prepares)
    driven.see(node(), pod("p", nominated="n"))
    assert driven.step() == ("p", "n")
    assert told(driven) == []


@pytest.mark.parametrize("seen", [True, False], ids=["known to the API", "not yet seen"])
@pytest.mark.parametrize("plugin", [Waits, Prepares])
def test_the_expected_node_is_cleared_when_the_binding_fails(plugin, seen):
    driven = Driven(plugin)
    driven.see(node(), pod("p"))
    driven.step()
    works = driven.work()
    if seen:
        driven.see(replace(pod("p"), status=replace(pod("p").status, nominated_node_name="n")))
    if plugin is Waits:
        driven.step(11.0)
    else:
        driven.done(next(work for work in works if work.phase is Phase.PRE_BIND), "it failed")
    assert told(driven) == [(Phase.NOMINATE, "")]
    assert not driven.engine.queue.nominated


def test_no_expected_node_is_cleared_for_a_bound_or_deleted_pod():
    driven = Driven(Prepares)
    driven.see(node(), pod("p"), pod("q"))
    driven.steps()
    works = driven.work(Phase.PRE_BIND)
    driven.gone(pod("q"))
    for work in works:
        driven.done(work)
    for work in driven.work(Phase.BIND):
        driven.see(bound(pod("p"), "n"))
        driven.done(work)
    assert told(driven) == []
    driven.check_settled()
