"""Progress: shown on a terminal only, after a moment, with sizes and counts, and erased at the end."""

from __future__ import annotations

import io
import re
import subprocess
import time
from pathlib import Path

import pytest

from moorage.basis.inputs.files import InputFile
from moorage.cluster.apiserver.http.serve import open_store
from moorage.interfaces.cli import terminal as progress_module
from moorage.interfaces.cli.cluster_files import read_cluster
from moorage.interfaces.cli.live.store_loader import fill
from moorage.interfaces.cli.terminal import Progress
from moorage.simulator.cluster_reader import USUAL_RULES

ROOT = Path(__file__).resolve().parents[3]


class Terminal(io.StringIO):
    def __init__(self, *, real=True):
        super().__init__()
        self.real = real

    def isatty(self):
        return self.real

    @property
    def lines(self):
        return [line for line in re.split(r"\r|\x1b\[K", self.getvalue()) if line]


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(progress_module, "_PATIENCE_S", 0)
    monkeypatch.setattr(progress_module, "_EVERY_S", 0.001)
    terminal = Terminal()
    monkeypatch.setattr(progress_module, "bare", lambda stream: terminal)
    return terminal


def wait_for(terminal, pattern):
    """Wait until a pattern is shown."""
    until = time.monotonic() + 60
    while re.search(pattern, terminal.getvalue()) is None:
        assert time.monotonic() < until, repr(terminal.getvalue()[-200:])
        time.sleep(0.001)


def test_a_file_is_shown_with_its_size_and_the_objects_so_far(terminal):
    with Progress() as progress:
        progress.reading(InputFile("a.yaml", bytes(37_200_000)), 0)
        wait_for(terminal, r"reading a\.yaml: 37\.2 MB, \d+ s")
        progress.reading(InputFile("a.yaml", bytes(37_200_000)), 1200)
        wait_for(terminal, r"reading a\.yaml: 37\.2 MB, 1,200 objects, \d+ s")
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_parts_are_shown_with_a_bar(terminal):
    with Progress() as progress:
        progress.part("storing objects", 300, 1200)
        wait_for(terminal, "storing objects ██████░░░░░░░░░░░░░░░░░░ 300 of 1,200")


def test_decisions_are_counted(terminal):
    with Progress() as progress:
        progress.say("reading the input …")
        for number in range(30):
            progress.count(placed=number % 3 > 0)
        wait_for(terminal, "30 decisions, 20 pods placed, ")


def test_names_of_files_cannot_control_the_terminal(terminal):
    with Progress() as progress:
        progress.reading(InputFile("a\x1b[2J\n.yaml", b""), 0)
        wait_for(terminal, re.escape(r"reading a\x1b[2J\n.yaml: 0.0 MB"))


@pytest.mark.parametrize(("real", "quiet"), [(False, False), (True, True)])
def test_files_and_those_who_want_quiet_get_nothing(terminal, real, quiet):
    terminal.real = real
    with Progress(quiet=quiet) as progress:
        progress.say("working …")
        progress.count(placed=True)
        time.sleep(0.02)
    assert terminal.getvalue() == ""


def test_listeners_get_progress_at_once_without_a_terminal(terminal, monkeypatch):
    heard = []
    monkeypatch.setattr(progress_module, "_listeners", [heard.append])
    terminal.real = False
    with Progress() as progress:
        progress.say("looking …")
        assert re.fullmatch(r"looking … \d+ s", heard[0])
        progress.count(placed=True)
    assert any(line.startswith("1 decisions, 1 pods placed, ") for line in heard)
    assert terminal.getvalue() == ""


def test_short_work_shows_nothing(terminal, monkeypatch):
    monkeypatch.setattr(progress_module, "_PATIENCE_S", 60)
    with Progress() as progress:
        progress.say("working …")
    assert terminal.getvalue() == ""


class Watched:
    """Takes down what it is shown."""

    def __init__(self):
        self.shown = []

    def reading(self, source, objects):
        self.shown.append((Path(source.where).name, objects))

    def part(self, what, done, total):
        self.shown.append((what, done, total))


def test_reading_and_loading_a_cluster_say_how_far_they_are():
    watched = Watched()
    demo = str(ROOT / "examples/demo")
    read_cluster((demo,), False, (), USUAL_RULES, watched)
    assert [name for name, _ in watched.shown] == ["apps.yaml", "nodes.yaml", "running.yaml"]
    assert [count > 0 for _, count in watched.shown] == [False, True, True]
    watched.shown.clear()
    fill(open_store(None, clock=lambda: 0.0), [demo], progress=watched)
    assert [one[0] for one in watched.shown] == ["apps.yaml", "nodes.yaml", "running.yaml", "storing objects"]


@pytest.mark.parametrize(("target", "package"), [("demo", "msgspec"), ("test", "hypothesis"), ("docs", "mkdocs")])
def test_make_says_what_it_installs(tmp_path, target, package):
    """make prints its commands; the command that says what is installed is run."""
    planned = subprocess.run(
        ["make", "-n", f"VENV={tmp_path}", target], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    told = [line for line in planned if line.startswith('echo "installing into')]
    first = planned.index(told[-1])
    assert "install" in planned[first + 1]
    said = subprocess.run(told[-1], shell=True, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"installing into {tmp_path}: ")
    assert package in said.split()
