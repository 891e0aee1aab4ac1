"""On a terminal, the cause of a pending pod is printed before changes are searched for; in a pipe, COLUMNS gives the width."""

import io
import sys

import pytest

import moorage
from moorage.interfaces.cli.questions.explain import _EarlyCause, print_explanations
from moorage.interfaces.cli.terminal import output_style
from moorage.report.style import WIDTH

POD = "examples/demo"


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Progressed:
    def __init__(self, stream):
        self.answers = stream


@pytest.fixture(scope="module")
def found():
    cluster = moorage.Cluster.read(POD)
    cluster.run()
    pending = next(pod for pod in cluster.objects() if type(pod).__name__ == "Pod" and not pod.spec.node_name)
    return cluster.explain(pending.key, probes=0)


def given(**more):
    return {"output": "text", "ascii_only": False, "probes": 100, **more}


def test_the_cause_comes_first_and_once(found, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    early = _EarlyCause(Progressed(terminal), given())
    early([found])
    assert "is pending" in terminal.getvalue()
    assert "What to do" not in terminal.getvalue()
    text = print_explanations([found], "text", printed=early.printed)
    assert terminal.getvalue() == text


@pytest.mark.parametrize(("options", "stream"), [({"output": "json"}, Terminal), ({"probes": 0}, Terminal), ({}, io.StringIO)])
def test_nothing_is_printed_early_without_a_reader_or_a_search(found, options, stream):
    out = stream()
    early = _EarlyCause(Progressed(out), given(**options))
    early([found])
    assert (out.getvalue(), early.printed) == ("", "")


@pytest.mark.parametrize(("told", "width"), [("", WIDTH), ("60", 60), ("0", WIDTH), ("wide", WIDTH), ("9999", 120)])
def test_columns_give_the_width_of_a_pipe(told, width, monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setenv("COLUMNS", told)
    assert output_style().width == width
