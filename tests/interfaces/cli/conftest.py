"""Two ways to run the command: in this process, which is quick, and as a process of its own, which is what users do."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = [sys.executable, "-m", "moorage"]


class Ran(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def moorage(monkeypatch, capsys):
    """Run the command in this process; ``stdin`` is what it may read there."""
    from moorage.interfaces.cli.main import main

    def run(*args, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            main([str(arg) for arg in args])
        said = capsys.readouterr()
        return Ran(ended.value.code, said.out, said.err)

    return run


def environment(**extra):
    given = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON", "COV"))}
    return {**given, "PYTHONPATH": str(ROOT / "src"), **extra}


@pytest.fixture
def process():
    """Run the command as a process of its own, in the root of the project unless told otherwise."""

    def run(*args, stdin=b"", cwd=ROOT, timeout=60, **env):
        ran = subprocess.run(
            [*PROGRAM, *map(str, args)], input=stdin, cwd=cwd, env=environment(**env), capture_output=True, check=False,
            timeout=timeout,
        )  # fmt: skip
        return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())

    return run


@pytest.fixture
def start():
    """Start the command and hand over the process; it is killed at the end if need be."""
    started = []

    def run(*args, **options):
        started.append(subprocess.Popen([*PROGRAM, *map(str, args)], env=environment(), cwd=ROOT, **options))
        return started[-1]

    yield run
    for one in started:
        one.kill()
        one.wait()
        for stream in (one.stdin, one.stdout, one.stderr):
            if stream is not None:
                stream.close()


NODE = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p1}
spec:
  containers:
  - name: c
    image: i
    resources: {requests: {cpu: "1"}}
"""


@pytest.fixture
def node():
    return NODE


@pytest.fixture
def pod():
    return POD


@pytest.fixture
def cluster():
    """One node, and one pod that fits on it, as YAML."""
    return f"{NODE}---\n{POD}"
