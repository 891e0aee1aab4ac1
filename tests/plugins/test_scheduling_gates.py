"""Test that a pod with scheduling gates is not queued."""

from __future__ import annotations

import pytest

from moorage.framework.events import Action, Resource
from moorage.framework.verdicts import Code
from moorage.plugins.scheduling_gates import SchedulingGates
from moorage.testing.builders import a_pod
from moorage.testing.plugin_queries import wakes

# gates → the message, None for none
CASES = {
    "no gates": ([], None),
    "one gate": (["quota"], "waiting for scheduling gates: [quota]"),
    "several gates": (["quota", "example.com/image"], "waiting for scheduling gates: [quota example.com/image]"),
}


@pytest.mark.parametrize(("gates", "reason"), CASES.values(), ids=CASES)
def test_holds_gated_pods(gates, reason):
    held = SchedulingGates().pre_enqueue(a_pod(schedulingGates=[{"name": gate} for gate in gates]))
    if reason is None:
        assert held is None
    else:
        assert (held.code, held.reasons) == (Code.UNRESOLVABLE, (reason,))


def test_wakes_when_its_own_gates_are_removed():
    gated, other = a_pod("gated", schedulingGates=[{"name": "quota"}]), a_pod("other")
    gone = (Resource.POD, Action.UPDATE_POD_GATES_ELIMINATED)
    assert wakes(SchedulingGates(), gated, *gone, gated, a_pod("gated"))
    assert not wakes(SchedulingGates(), gated, *gone, other, other)
    assert not wakes(SchedulingGates(), gated, Resource.NODE, Action.ADD)
