"""A forked start of moorage is like one from nothing, and is not used where it would not be."""

import os
import signal
import subprocess
import sys

import pytest

from tests import fork_server

PROGRAM = [sys.executable, "-m", "moorage"]
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": fork_server.SOURCES}

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux hands children over")


@pytest.fixture
def forked(monkeypatch):
    """Count the forks of a test."""
    server, pids = fork_server._server(), []
    fork = server.fork
    monkeypatch.setattr(server, "fork", lambda *asked: pids.append(fork(*asked)) or pids[-1])
    monkeypatch.setattr(subprocess.Popen, "_execute_child", fork_server._execute_child)
    return pids


def ran(*words, **options):
    return subprocess.run([*PROGRAM, *words], capture_output=True, text=True, check=False, **{"env": ENVIRONMENT, **options})


ASKED = {  # the words, and what else is special
    "help": (["simulate", "--help"], {}),
    "standard input": (["simulate", "-f", "-"], {"input": "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n"}),
    "an error": (["simulate", "-f", "missing.yaml"], {"cwd": "/"}),
    "a usage error": (["simulate", "--no-such-flag"], {}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("words", "options"), ASKED.values(), ids=ASKED)
def test_a_forked_process_does_the_same(forked, words, options):
    by_fork = ran(*words, **options)
    assert len(forked) == 1
    with fork_server.fresh_processes():
        fresh = ran(*words, **options)
    assert len(forked) == 1
    assert (by_fork.returncode, by_fork.stdout, by_fork.stderr) == (fresh.returncode, fresh.stdout, fresh.stderr)


def test_a_signal_ends_it(forked, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    process = subprocess.Popen([*PROGRAM, "simulate", "-f", tmp_path / "pipe"], env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    assert process.pid == forked[0]
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL


def test_a_forked_process_is_cheap(forked):
    ran("--version")
    before = os.times()
    ran("--version")
    assert sum(os.times()[2:4]) - sum(before[2:4]) < 1
    assert len(forked) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"env": {**ENVIRONMENT, "PYTHONHASHSEED": "1"}}, {"env": {**ENVIRONMENT, "TZ": "Asia/Tokyo"}},
        {"env": {"PATH": os.environ["PATH"], "PYTHONPATH": "/elsewhere"}}, {"preexec_fn": lambda: None},
    ],
    ids=["hash seed", "time zone", "other modules", "a function"],
)  # fmt: skip
def test_what_a_fork_does_not_have_starts_from_nothing(forked, options):
    assert ran("--version", **options).returncode == 0
    assert forked == []
