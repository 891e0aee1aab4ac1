"""The command itself: version, help, mistyped words, and what becomes of errors on the way out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import moorage as library
from moorage.interfaces.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[3]


def test_version(moorage):
    assert moorage("--version") == (0, f"moorage {library.__version__}\n", "")


@pytest.mark.parametrize("args", [["--help"], ["-h"], ["simulate", "-h"], ["config", "validate", "--help"]])
def test_help_is_a_result(moorage, args):
    ran = moorage(*args)
    assert ran.status == 0
    assert ran.out.startswith("Usage: moorage")
    assert ran.err == ""


def test_without_a_command_the_usage_is_an_error(moorage):
    ran = moorage()
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("Usage: moorage")


def test_help_lists_every_command_with_what_it_is_for(moorage):
    said = moorage("--help").out
    assert COMMANDS
    for name, (_, purpose) in COMMANDS.items():
        assert any(line.split(maxsplit=1) == [name, purpose] for line in said.splitlines()), name


WRONG = {
    "a mistyped command": (["simulat"], "error: No such command 'simulat'. Did you mean 'simulate'?"),
    "a mistyped command of a group": (["config", "shwo"], "error: No such command 'shwo'. Did you mean 'show'?"),
    "a command of no group": (["config", "frobnicate"], "error: No such command 'frobnicate'."),
    "a command of another program": (["frobnicate"], "error: No such command 'frobnicate'."),
    "an unknown option": (["simulate", "--nope"], "error: No such option '--nope'."),
    "a value that is not offered": (
        ["simulate", "-o", "xml"],
        "error: Invalid value for '-o' / '--output': 'xml' is not one of",
    ),
    "a seed that is no number": (["simulate", "--seed", "x"], "error: Invalid value for '--seed': 'x' is not a valid integer."),
    "two files to compare": (
        ["compare", "x", "y"],
        "error: Got unexpected extra arguments (x y); -f reads a cluster; --a and --b read configurations",
    ),
    "one argument too many": (["simulate", "-f", "x", "y"], "error: Got unexpected extra argument (y)"),
    "a file without its flag": (
        ["simulate", "x", "y"],
        "error: Got unexpected extra arguments (x y); give -f before each file",
    ),
    "another file without its flag": (
        ["up", "-f", "x", "y"],
        "error: Got unexpected extra argument (y); give -f before each file",
    ),
    "nothing to simulate": (["simulate"], "error: nothing to simulate: give -f PATH"),
    "a trace without its files": (["simulate", "--trace", "openb"], "error: --trace openb needs --pods FILE"),
    "a trace and manifests": (["simulate", "--trace", "openb", "-f", "x"], "error: -f and --trace exclude each other"),
    "a trace's files, but no trace": (["simulate", "--nodes", "x"], "error: --nodes and --pods need --trace"),
    "standard input for two": (["simulate", "-f", "-", "--config", "-"], "error: standard input can be read only once"),
}


@pytest.mark.parametrize(("args", "message"), WRONG.values(), ids=WRONG)
def test_usage_errors_have_two_lines(moorage, args, message):
    ran = moorage(*args)
    assert (ran.status, ran.out) == (1, "")
    first, second = ran.err.splitlines()
    assert first.startswith(message)
    assert second.startswith("See 'moorage")
    assert second.endswith("--help' for usage.")


FAILS = {
    "memory": (MemoryError(), "error: out of memory; split the input into smaller parts\n", 1),
    "Ctrl-C": (KeyboardInterrupt(), "\ninterrupted\n", 130),
}


@pytest.mark.parametrize(("error", "said", "status"), FAILS.values(), ids=FAILS)
def test_what_ends_a_run(moorage, monkeypatch, error, said, status):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("moorage.interfaces.cli.cluster_files.read", fail)
    assert moorage("simulate", "-f", "x") == (status, "", said)


#: Commands whose help is kube-scheduler's, or a list of subcommands.
OTHER_HELP = {"completion", "config", "demo", "help", "man", "plugin", "run"}


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - OTHER_HELP))
def test_a_help_page_has_sections_two_examples_and_the_page_to_read(moorage, name):
    ran = moorage(name, "--help")
    shown = ran.out.partition("Examples:")[2]
    examples = [line for line in shown.splitlines() if re.match(r" +(.* \| )?moorage ", line)]
    assert len(examples) >= 2
    assert all(f"moorage {name} " in line for line in examples)
    page = re.search(r"moorage help\s+([\w-]+)", ran.out)
    assert page is not None
    assert (ROOT / "docs/reference" / f"{page[1]}.md").is_file()
    assert "\nInput:\n" in ran.out or name in {"record", "sweep", "up"}
