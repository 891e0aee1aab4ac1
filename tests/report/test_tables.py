"""Tables for people: amounts, widths, many pods, none, those that only wait, and text that would break a line."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.selectors import parse_selector
from moorage.basis.printable import one_line
from moorage.report.narrowing import Narrowing
from moorage.report.obstacles import obstacle_lines
from moorage.report.outcome import InputNote, NodeOutcome, PodOutcome, Run
from moorage.report.style import COLOURS, Style, columns, human
from moorage.report.tables import FEW_PODS, render

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


def test_placed_pods_are_summed_up_by_workload():
    pods = [pod(f"p{i}", where=f"n{i % 5}", workload="Deployment/web") for i in range(100)]
    assert lines(Run((*pods, pod("alone", where="n7")), (node(),)))[2:7] == [
        "Placed:",
        "NAMESPACE   WORKLOAD         PODS   EACH REQUESTS   NODES",
        "default     Deployment/web    100   cpu=1           5 nodes, up to 20 on one",
        "default     Pod/alone           1   cpu=1           n7",
        "(-o wide lists every pod)",
    ]
    every = lines(Run((*pods,), (node(),)), wide=True)
    assert len([line for line in every if line.startswith("default ")]) == 100


def test_many_pods_without_a_controller_are_summed_up():
    single = [pod(f"p{i}") for i in range(FEW_PODS)]
    large = PodOutcome("default", "large", "Placed", "n1", requests={"cpu": 9000})
    one_by_one = [line.split() for line in lines(Run((*single,), (node(),)))]
    assert ["default", "Pod/p0", "1", "cpu=1", "n1"] in one_by_one
    together = [line.split() for line in lines(Run((*single, large), (node(),)))]
    assert ["default", "(no", "controller)", "21", "(various)", "n1", "x21"] in together


def test_what_is_pending_comes_before_what_is_placed():
    said = lines(Run((pod("a"), pod("b", "Pending"), pod("c", "Preempted")), (node(),)))
    assert [line for line in said if line.endswith(":")] == ["Pending:", "Preempted:", "Placed:", "Cluster at the end:"]


def test_changes_show_the_pods_that_end_elsewhere():
    before = Run((pod("a"), pod("b", "Pending"), pod("stays")), (node(),))
    after = Run((pod("a", where="n2"), pod("b"), pod("stays"), pod("new")), (node(),), changes=("add n2",), before=before)
    said = lines(after)
    assert said[said.index("Changed:") + 1 :][:3] == [
        "NAMESPACE   NAME   BEFORE    NOW",
        "default     a      n1        n2",
        "default     b      pending   n1",
    ]
    assert said.index("Changed:") == 4


# -- messages --------------------------------------------------------------------------------------------------------------

MESSAGE = (
    "0/8 nodes are available: 1 node(s) were unschedulable, 2 node(s) had taint {a: b}, that the pod didn't tolerate, "
    "5 Insufficient cpu. no new claims to deallocate, preemption: 0/8 nodes are available: 8 Preemption is not helpful."
)


def test_messages_break_at_commas_and_start_with_the_biggest_obstacle():
    assert list(obstacle_lines(MESSAGE, style=Style(width=70))) == [
        "    0/8 nodes are available: 5 Insufficient cpu,",
        "      2 node(s) had taint {a: b}, that the pod didn't tolerate,",
        "      1 node(s) were unschedulable.",
        "    no new claims to deallocate, preemption: 0/8 nodes are available:",
        "      8 Preemption is not helpful.",
    ]


NUMBERS = st.integers(1, 9999)
REASONS = st.text("ab ,.:/0n", min_size=1, max_size=60).map(lambda text: text.strip() or "a")
MESSAGES = st.one_of(
    st.text("ab ,.:/08\n\x1b", max_size=150),
    st.builds(
        lambda reasons, rest: f"0/9 nodes are available: {', '.join(f'{n} {why}' for n, why in reasons)}. {rest}",
        st.lists(st.tuples(NUMBERS, REASONS), min_size=1, max_size=5), st.one_of(st.just(""), st.just(MESSAGE), REASONS),
    ),
)  # fmt: skip


@given(message=MESSAGES, width=st.integers(40, 100))
def test_messages_keep_their_words(message, width):
    told = "\n".join(obstacle_lines(message, style=Style(width=width)))
    letters = [sorted(text.translate({ord(c): None for c in " \n,."})) for text in (told, one_line(message))]
    assert letters[0] == letters[1]
    assert "\x1b" not in told


# -- colours ----------------------------------------------------------------------------------------------------------------


def test_colours_change_no_word():
    asked = {"pods": 2, "cpu": 3900}
    run = Run((pod("a"), pod("b", "Pending", message=MESSAGE)), (NodeOutcome("n1", 1, 1, 110, {"cpu": 4000}, asked),))
    painted = render(run, style=Style(colour=True))
    plain = re.sub("|".join(map(re.escape, COLOURS)), "", painted)
    assert plain == render(run)
    assert [part in painted for part in ("\x1b[31m1 pending\x1b[0m", "\x1b[1mPending:\x1b[0m", "\x1b[33m97.5%\x1b[0m")] == [
        True
    ] * 3
    assert "\x1b[1m5 Insufficient cpu,\x1b[0m" in painted


# -- a part of the pods -----------------------------------------------------------------------------------------------------

PODS = (
    pod("web-1", labels={"app": "web"}),
    PodOutcome("shop", "web-1", "Pending", labels={"app": "web"}),
    PodOutcome("shop", "db-0", "Placed", "n1"),
)
NARROWED = {
    "a namespace": (Narrowing("shop"), ["shop/web-1", "shop/db-0"]),
    "labels": (Narrowing(selector=parse_selector("app=web")), ["default/web-1", "shop/web-1"]),
    "a namespace and labels": (Narrowing("shop", parse_selector("app")), ["shop/web-1"]),
    "a name": (Narrowing(names=("web-1",)), ["default/web-1", "shop/web-1"]),
    "a name with its namespace": (Narrowing(names=("shop/web-1",)), ["shop/web-1"]),
    "patterns": (Narrowing(names=("d?-*", "default/*")), ["default/web-1", "shop/db-0"]),
    "all": (Narrowing(), ["default/web-1", "shop/web-1", "shop/db-0"]),
}


@pytest.mark.parametrize(("narrowing", "keys"), NARROWED.values(), ids=NARROWED)
def test_which_pods_are_listed(narrowing, keys):
    run = Run(PODS, (node(),))
    listed = narrowing.narrowed(run).pods
    assert [f"{one.namespace}/{one.name}" for one in listed] == keys
    told = render(run, narrowing=narrowing)
    assert told.startswith("2 placed, 1 pending on 1 node ")
    assert ("pods are listed: " in told) == bool(narrowing)


def test_long_names_widen_their_column_only():
    long = "a" * 253
    said = lines(Run((pod(long), pod("b")), (node(),)))
    row = next(line for line in said if line.startswith("default     Pod/b "))
    assert row.split() == ["default", "Pod/b", "1", "cpu=1", "n1"]
    assert row.index("   1 ") == len("default     Pod/") + len(long) + 3


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
