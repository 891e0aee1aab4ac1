"""Texts that fit a terminal, and names without what they share."""

from __future__ import annotations

import pytest

from moorage.report.short_names import shared_end, some_pods, together, without_end
from moorage.report.style import columns, fitted, lines_of, paragraph

END = ".eu-west-1.compute.internal"
NODES = [f"ip-10-4-0-{at}{END}" for at in range(4)]
TIMES = "\N{MULTIPLICATION SIGN}"


def test_the_end_that_all_names_share_begins_at_a_dot():
    assert shared_end(NODES) == END
    assert shared_end([*NODES, "other.us-east-1.compute.internal"]) == ".compute.internal"
    assert shared_end([*NODES, "n1"]) == ""
    assert shared_end(NODES[:2]) == END
    assert shared_end(NODES[:1]) == ""
    assert shared_end(["a.b", "b.b", "c.b"]) == ""


def test_commands_keep_whole_names():
    assert without_end((f"add a node like {NODES[0]}", f"kubectl uncordon {NODES[1]}"), END) == (
        "add a node like ip-10-4-0-0", f"kubectl uncordon {NODES[1]}",
    )  # fmt: skip


PODS = {  # names, as they are listed
    "of one replica set": (["a/web-7d9f8b6c5d-bcdfg", "a/web-7d9f8b6c5d-zzxwv"], [f"a/web {TIMES}2"]),
    "of one stateful set": (["a/db-0", "a/db-1", "b/db-0"], [f"a/db {TIMES}2", "b/db-0"]),
    "alone": (["a/web-7d9f8b6c5d-bcdfg", "a/cart"], ["a/web-7d9f8b6c5d-bcdfg", "a/cart"]),
}


@pytest.mark.parametrize(("names", "listed"), PODS.values(), ids=PODS)
def test_pods_of_one_workload_are_one_name(names, listed):
    assert together(names) == listed


def test_a_few_pods_keep_their_names():
    assert some_pods(["a/db-0", "a/db-1"]) == "a/db-0, a/db-1"
    assert some_pods([*(f"a/db-{at}" for at in range(9)), "a/b", "a/c", "a/d", "a/e"]) == f"a/db {TIMES}9, a/b, a/c and 2 more"


ROWS = [["payments", "payments-api-7d9f8b6c5d-57e2b", NODES[0], "15.5"], ["edge", "edge-0", NODES[1], "9.75"]]


@pytest.mark.parametrize("width", [50, 80, 120])
def test_a_table_is_as_narrow_as_the_terminal(width):
    with lines_of(width, END):
        lines = columns(["NAMESPACE", "NAME", "NODE", "CPU"], ROWS, right=(3,)).split("\n")
    assert max(map(len, lines)) <= width
    assert all(line.endswith(amount) for line, amount in zip(lines, ("CPU", "15.5", "9.75"), strict=True))
    assert "ip-10-4-0-0" in lines[1]
    assert ("payments-api-7d9f8b6c5d-57e2b" in lines[1]) == (width > 50)


def test_a_table_in_a_file_has_whole_cells():
    with lines_of(None):
        assert NODES[0] in columns(["NAMESPACE", "NAME", "NODE", "CPU"], ROWS * 9)


def test_lines_are_wrapped_for_a_terminal_alone():
    text = "word " * 30
    assert fitted(text.strip()) == text.strip()
    with lines_of(40):
        assert fitted(text) == paragraph(text)
        assert max(map(len, fitted(text).split("\n"))) <= 40
