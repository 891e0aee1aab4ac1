"""The first line of a comparison, and how differences and their intervals are written."""

from __future__ import annotations

import math

import pytest

from moorage.laboratory.compare.paired_metrics import compare_pairs
from moorage.report.comparison import comparison_summary, interval_text
from moorage.report.gates import GateResult, amount_text, difference_text, title_of


def compared(name, a, b):
    """Return a comparison of five runs; ``b``: their value, or all of them."""
    of_b = b if isinstance(b, list) else [b] * 5
    return compare_pairs(name, [a] * len(of_b), of_b)


INTERVALS = {
    "the same in all pairs": (compared("pending", 1, 3), "exact"),
    "beyond 0": (compared("wait.p99", 1.0, [3.0, 3.2, 3.4, 3.2, 3.2]), "+2.024s … +2.376s"),
    "below 0": (compared("nodesUsed", 40, [35, 34, 34, 35, 34]), "-6.3 … -4.9"),
    "contains 0": (compared("fragmentation", 0.12, [0.1, 0.13, 0.11, 0.12, 0.1]), "~"),
    "infinite": (compared("wait.p99", 1.0, [2.0, math.inf, 3.0]), "pairs +1s … never"),
    "one": (compared("nodesUsed", 40, [34]), "one run"),
}


@pytest.mark.parametrize(("metric", "text"), INTERVALS.values(), ids=INTERVALS)
def test_intervals(metric, text):
    assert interval_text(metric) == text


AMOUNTS = {
    ("pending", 3.0): "3", ("pending", 2.5): "2.5", ("wait.p99", 1.25): "1.25s", ("wait.p99", math.inf): "never",
    ("utilisation.cpu", 0.3821): "38.2%", ("balance.cpu", 0.0834): "0.083", ("cost", 9.4840): "9.484", ("moved%", 0.05): "5.0%",
    ("pending", None): "?",
}  # fmt: skip


@pytest.mark.parametrize("metric", AMOUNTS, ids=str)
def test_amounts(metric):
    assert amount_text(*metric) == AMOUNTS[metric]


DIFFERENCES = {
    ("pending", 2.0): "+2", ("pending", -6.0): "-6", ("pending", 0.0): "0", ("fragmentation", -1e-6): "0.0%",
    ("wait.p99", math.inf): "never", ("wait.p99", -math.inf): "ends", ("utilisation.cpu", 0.0096): "+1.0%",
}  # fmt: skip


@pytest.mark.parametrize("metric", DIFFERENCES, ids=str)
def test_differences(metric):
    assert difference_text(*metric) == DIFFERENCES[metric]


def test_titles_of_means():
    assert [title_of(name) for name in ("jct.mean", "jct.p90", "slowdown.mean")] == [
        "job completion mean", "job completion p90", "slowdown mean",
    ]  # fmt: skip


def test_titles():
    assert [title_of(name) for name in ("utilisation.cpu.mean", "stranded.nvidia.com/gpu", "pending.high", "wait.p50")] == [
        "cpu used over time", "nvidia.com/gpu stranded", "pending high", "wait p50",
    ]  # fmt: skip


SUMMARIES = {
    "good and bad": (
        [compared("nodesUsed", 40, 34), compared("pending", 0, 2)], None, "B frees 6 nodes but leaves 2 more pods pending.",
    ),
    "good alone": ([compared("nodesUsed", 7, 6)], None, "B frees 1 node."),
    "two that are bad": (
        [compared("nodesUsed", 7, 8), compared("pending", 2, 3)], None, "B uses 1 more node and leaves 1 more pod pending.",
    ),
    "fewer pending": ([compared("pending", 3, 1)], None, "B places 2 more pods."),
    "what chance explains": (
        [compared("nodesUsed", 7, [7, 6, 7, 8, 6])], (0, 5, 0), "No difference between A and B is beyond chance.",
    ),
    "only moves": ([compared("pending", 1, 1)], (3, 9, 1), "B only moves pods: 3 of 9."),
    "moves as many by chance": ([compared("pending", 1, 1)], (3, 9, 4), "No difference between A and B is beyond chance."),
    "nothing": ([compared("pending", 1, 1)], (0, 9, 4), "B does the same as A."),
    "a lesser metric": ([compared("stranded.cpu", 0.2, 0.1)], None, "B lowers cpu stranded from 20.0% to 10.0%."),
    "one run": ([compared("nodesUsed", 7, [6])], None, "In one run, B frees 1 node."),
    "one run that is the same": ([compared("nodesUsed", 7, [7])], (0, 9, 4), "In one run, B does the same as A."),
    "certain enough alone": ([compared("nodesUsed", 7, [6, 6, 6, 7, 6])], None, "B frees 0.8 nodes."),
    "not among many": (
        [compared(name, 7, [6, 6, 6, 7, 6]) for name in ("nodesUsed", "pending", "notCreated")]
        + [compared(name, 7, [7, 6, 8, 7, 6.5]) for name in ("wait.p99", "wait.p50", "cost")],
        None, "No difference between A and B is beyond chance.",
    ),
    "never now": ([compared("wait.p99", 5.0, math.inf)], None, "B changes wait p99 to never."),
}  # fmt: skip


@pytest.mark.parametrize(("metrics", "moved", "text"), SUMMARIES.values(), ids=SUMMARIES)
def test_summaries(metrics, moved, text):
    assert comparison_summary({one.name: one for one in metrics}, moved, ()) == text


def test_summaries_name_gates():
    gates = (GateResult("pending > +0", False, "", "pending"), GateResult("nodesUsed > 4", False, "", "nodesUsed"))
    assert comparison_summary({}, None, gates).endswith(" Gates failed: pending, nodesUsed.")
    assert comparison_summary({}, None, (GateResult("a > 1", True, "", "a"),)).endswith(" 1 gate passed.")
