"""The page of the types that plugins see is that of now, has all of them, and its examples run."""

from __future__ import annotations

import inspect

import pytest

from moorage.testing.fake_handle import FakeWaitingPod
from tools.plugin_types import GIVEN, PAGE, described, main, page

TYPES = described()


def test_the_page_is_that_of_now(monkeypatch, tmp_path):
    """If this fails: make reference."""
    assert PAGE.read_text("utf-8") == page()
    assert main(["--check"]) == 0
    monkeypatch.setattr("tools.plugin_types.PAGE", tmp_path / "page.md")
    (tmp_path / "page.md").write_text("old")
    assert main(["--check"]) == 1
    assert main([]) == 0
    assert main(["--check"]) == 0


def test_the_page_has_every_type_that_plugins_meet():
    names = {one.cls.__name__ for one in TYPES}
    wanted = "PodInfo NodeInfo NodeView Snapshot Handle PodLister WaitingPod Attempt WhatIf PostFilterResult Call Wake Resource"
    assert names >= {*wanted.split(), "ClusterEvent", "Action", "SortableQueued", "Hold", "Reject", "Narrow", "Wait", "Reuse"}


@pytest.mark.parametrize("one", TYPES, ids=lambda one: one.cls.__name__)
def test_each_type_says_what_it_is(one):
    assert inspect.getdoc(one.cls)
    section = page().partition(f"### {one.cls.__name__}\n")[2].partition("\n### ")[0]
    empty = [line for line in section.splitlines() if line.startswith("| `") and line.rstrip(" |").count("|") < 2]
    assert one.cls.__name__ in {"Action", "Scope"} or empty == []


@pytest.mark.parametrize("one", TYPES, ids=lambda one: one.cls.__name__)
def test_the_examples_run(one):
    names = {}
    exec(GIVEN, names)
    names["handle"].held.append(FakeWaitingPod(names["pod"], "n1", ["Mine"]))
    before = set(names)
    exec(compile(one.example, f"the example of {one.cls.__name__}", "exec"), names)
    assert set(names) > before or names["handle"].refreshes
