"""Tables for people: amounts, widths, many pods, none, those that only wait, and text that would break a line."""

from __future__ import annotations

import pytest

from moorage.printable import one_line
from moorage.report.columns import columns, human
from moorage.report.outcome import InputNote, NodeOutcome, PodOutcome, Run
from moorage.report.tables import EVERY_POD, render

AMOUNTS = {
    ("cpu", 0): "0", ("cpu", 1): "1m", ("cpu", 1500): "1500m", ("cpu", 2000): "2", ("cpu", 9999): "9999m",
    ("cpu", 15_890): "15.9", ("cpu", 125_514_000): "125514",
    ("memory", 0): "0", ("memory", 1023): "1023",
    ("memory", 1024): "1Ki", ("memory", 1536): "1.5Ki", ("memory", 64 << 20): "64Mi",
    ("memory", 1 << 30): "1Gi", ("memory", 15 << 30): "15Gi", ("memory", 5 << 39): "2.5Ti", ("hugepages-2Mi", 4 << 20): "4Mi",
    ("ephemeral-storage", 3 << 30): "3Gi", ("nvidia.com/gpu", 8): "8", ("pods", 110): "110",
}  # fmt: skip


@pytest.mark.parametrize(("resource", "amount", "text"), [(*key, text) for key, text in AMOUNTS.items()])
def test_amounts_as_people_write_them(resource, amount, text):
    assert human(resource, amount) == text


def node(name="n1", pods=0, cpu=4000, asked=0):
    return NodeOutcome(name, pods, pods, 110, {"cpu": cpu}, {"cpu": asked} if asked else {})


def pod(name="p", state="Placed", where="n1", **more):
    return PodOutcome("default", name, state, where if state != "Pending" else "", requests={"cpu": 1000}, **more)


def lines(run, **how):
    text = render(run, **how)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert "\n\n\n" not in text
    return text.splitlines()


def test_no_pods_and_no_nodes():
    assert lines(Run((), (), release="1.36")) == ["no pods to place on 0 nodes (kube-scheduler 1.36 semantics, seed 0)"]
    assert lines(Run((), (), release="1.36"), wide=True) == lines(Run((), (), release="1.36"))


def test_pending_pods_with_the_same_reason_are_grouped():
    waiting = tuple(pod(f"p{i}", "Pending", message="0/1 nodes are available: 1 Insufficient cpu.") for i in range(5))
    said = lines(Run(waiting, (node(),), release="1.36"))
    assert said[0].startswith("5 pending on 1 node ")
    assert said[2:5] == [
        "Pending:",
        "  default/p0, default/p1, default/p2 and 2 more",
        "    0/1 nodes are available: 1 Insufficient cpu.",
    ]
    assert "  default/p0, default/p1, default/p2, default/p3, default/p4" in lines(Run(waiting, (node(),)), wide=True)


def test_many_pods_are_summed_up_by_workload():
    pods = [pod(f"p{i}", where=f"n{i % 5}", workload="Deployment/web") for i in range(EVERY_POD)]
    every = lines(Run((*pods,), (node(),)))
    assert len([line for line in every if line.startswith("default ")]) == EVERY_POD
    summed = lines(Run((*pods, pod("alone", where="n7")), (node(),)))
    assert summed[2:6] == [
        "NAMESPACE   WORKLOAD          PODS   NODES",
        "default     Deployment/web     100   5 nodes, up to 20 on one",
        "default     (no controller)      1   n7",
        "(use -o wide for every pod)",
    ]


def test_long_names_widen_their_column_only():
    long = "a" * 253
    said = lines(Run((pod(long), pod("b")), (node(),)))
    row = next(line for line in said if line.startswith("default     b "))
    assert row.split() == ["default", "b", "n1", "cpu=1"]
    assert row.index("n1") == len("default     ") + len(long) + 3


def test_waiting_times_are_shown():
    waited = [pod(f"p{i}", arrived_s=1.0, placed_s=1.0 + wait) for i, wait in enumerate([0, 2, 4, 600])]
    assert lines(Run((*waited,), (node(),)))[1] == (
        "3 pods waited for their places: half of them up to 4s, the longest 600s of simulated time"
    )
    assert lines(Run((*waited[:2],), (node(),)))[1] == "1 pod waited for its place: 2s of simulated time"


def test_peaks_where_pods_finish():
    gone = [pod(f"p{i}", "Finished", placed_s=float(i), ended_s=i + 2.0) for i in range(4)]
    run = Run((*gone, pod("stays", placed_s=10.0)), (node(pods=2, asked=1500),))
    # One pod of 500m was there from the start. Each of the others stays two seconds; the third comes as the first goes.
    assert run.peaks() == {"cpu": 2500, "pods": 3}
    said = lines(run)
    assert [line.split() for line in said if line.startswith(("RESOURCE", "cpu"))] == [
        ["RESOURCE", "ALLOCATABLE", "REQUESTED", "USED", "PEAK", "PEAK", "USED"],
        ["cpu", "4", "1500m", "37.5%", "2500m", "62.5%"],
    ]


def test_foreign_text_cannot_break_lines_or_inject_terminal_codes():
    assert one_line("a\nb\x1b[31m\u202ec\u00a0ü") == r"a\nb\x1b[31m\u202ec\xa0ü"
    said = lines(Run((pod("p", "Pending", message="no\x1b[2J\nway"),), (node(),), (InputNote("Remark", "a\nb"),)))
    assert r"    no\x1b[2J\nway" in said
    assert r"  a\nb" in said


def test_columns_have_no_trailing_blanks():
    assert columns(["A", "B", "C"], [["1", "", "x"], ["22", "333", ""]], right=(1,)) == "A      B   C\n1          x\n22   333"
