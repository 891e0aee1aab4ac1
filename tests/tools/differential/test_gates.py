"""Which gates are turned together, and the table of what changes, without the real program."""

from __future__ import annotations

from tools.differential.gates import GateRow, RealGate, table, turned

GATES = {name: RealGate(name, on, "BETA", False) for name, on in {"Base": True, "Built": True, "Late": False}.items()}
NEEDS = {"Built": {"Base"}, "Late": {"Built"}}


def test_a_gate_is_closed_with_those_that_need_it():
    assert turned("Base", GATES, {}, NEEDS) == {"Base": False, "Built": False}


def test_a_gate_is_opened_with_those_that_it_needs():
    assert turned("Late", GATES, {"Base": False, "Built": False}, NEEDS) == {"Base": True, "Built": True, "Late": True}


def test_only_gates_that_decide_are_listed():
    changed = RealGate("DRAConsumableCapacity", True, "BETA", False)
    alone, silent = RealGate("NewThing", False, "ALPHA", False), RealGate("Silent", True, "GA", False)
    text = table([GateRow(changed, 1200, 34, 0), GateRow(alone, 10, 2, 2), GateRow(silent, 10, 0, 0)], "1.37")
    assert "| `DRAConsumableCapacity` | open | 1,200 | 34 | 0 |  |" in text
    assert "| `NewThing` | closed | 10 | 2 | 2 | decides in kube-scheduler alone |" in text
    assert text.endswith("1 other gates that can be set changed none of 10 decisions.")
