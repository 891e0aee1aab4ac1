"""The tables of cases: what a row may say, and how it is held against what the program prints."""

import json
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

__all__ = ["FOLDER", "load", "play"]

FOLDER = Path(__file__).parent
FIELDS = {"name", "run", "exit", "first", "says", "never", "json", "within_s", "why", "source", "atlas"}
ATLAS = {"title", "event", "cause", "do", "avoid", "since"}


def load(table):
    """Return the cases of one table; a row with an unknown or missing field, or a name that is taken, is an error."""
    cases = tomllib.loads(table.read_text()).get("case", [])
    names = [case.get("name") for case in cases]
    for case in cases:
        where = f"{table.relative_to(FOLDER)}: {case.get('name', 'a case without a name')}"
        assert case.keys() <= FIELDS, f"{where}: unknown fields {sorted(case.keys() - FIELDS)}"
        assert {"name", "run", "why"} <= case.keys(), f"{where}: name, run and why are required"
        assert case.keys() & {"exit", "first", "says", "json"}, f"{where}: nothing is expected"
        assert case.get("atlas", {}).keys() <= ATLAS, f"{where}: unknown fields of atlas"
        assert names.count(case["name"]) == 1, f"{where}: the name is used twice"
    return cases


def play(case, table, scratch):
    """Run the commands of a case in a copy of its folder; fail where the last answer is not the right one."""
    folder = scratch / table.parent.name
    shutil.copytree(table.parent, folder, ignore=shutil.ignore_patterns("test_*.py", "__pycache__"))
    commands = [case["run"]] if isinstance(case["run"], str) else case["run"]
    for typed in commands:
        start = time.monotonic()
        command, _, into = typed.partition(" > ")
        argv = [sys.executable, "-m", "moorage", *shlex.split(command)]
        ended = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=case.get("within_s", 60), check=False)
        taken_s = time.monotonic() - start
        if into:
            (folder / into).write_text(ended.stdout)
    _hold(case, ended, taken_s)


def _hold(case, ended, taken_s):
    printed = f"exit {ended.returncode} after {taken_s:.1f} s\n{ended.stdout}\n{ended.stderr}"
    said = _folded(ended.stdout + "\n" + ended.stderr)
    assert "Traceback (most recent call last)" not in said, printed
    if "exit" in case:
        assert ended.returncode == case["exit"], printed
    if "first" in case:
        assert ended.stdout.startswith(case["first"]), printed
    for text in case.get("says", ()):
        assert _folded(text) in said, f"{text!r} is not in:\n{printed}"
    for text in case.get("never", ()):
        assert _folded(text) not in said, f"{text!r} is in:\n{printed}"
    if "json" in case:
        answer = json.loads(ended.stdout)
        for path, value in case["json"].items():
            assert _at(answer, path) == value, f"{path} is {_at(answer, path)!r}, not {value!r}"


def _folded(text):
    return " ".join(text.split())


def _at(value, path):
    for step in path.split("/"):
        if step == "#":
            value = len(value)
        elif isinstance(value, list):
            value = value[int(step)]
        else:
            value = value[step]
    return value
