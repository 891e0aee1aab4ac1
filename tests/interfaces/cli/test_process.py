"""The program as a process: its streams, its end at a broken pipe, a full disk or Ctrl-C, its progress on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
DEMO = ["simulate", "-f", "examples/demo"]


def test_only_results_are_on_standard_output(process):
    ran = process(*DEMO)
    assert ran.status == 2
    assert ran.out.startswith("19 placed")
    assert ran.err == ""
    assert "\x1b" not in ran.out, "no colours without a terminal"


def test_a_closed_pipe_is_not_reported(start):
    running = start(*DEMO, "-o", "json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    running.stdout.close()
    assert running.wait(60) == 1
    assert running.stderr.read() == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this machine has no disk that is always full")
def test_a_full_disk_is_reported(start):
    with open("/dev/full", "wb") as full:
        running = start(*DEMO, stdout=full, stderr=subprocess.PIPE)
        assert running.wait(60) == 1
    assert running.stderr.read() == b"error: the output cannot be written: No space left on device\n"


def unread(pipe):
    """Return how many bytes of a pipe were not read yet."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_interrupting(start):
    running = start("simulate", "-f", "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    running.stdin.write(b"apiVersion: v1\n")
    running.stdin.flush()
    until = time.monotonic() + 60
    while unread(running.stdin):
        assert time.monotonic() < until
        time.sleep(0.01)
    time.sleep(0.2)  # it waits for the rest of its input
    running.send_signal(signal.SIGINT)
    assert running.wait(30) == 130
    assert running.stdout.read() == b""
    assert running.stderr.read().strip() == b"interrupted"


def on_a_terminal(*args, until=b"", stdin=b""):
    """Run with standard error on a terminal; return what was shown there. ``stdin`` is given once ``until`` is shown."""
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-m", "moorage", *args], stderr=theirs, stdout=subprocess.DEVNULL, stdin=subprocess.PIPE,
        cwd=Path(__file__).resolve().parents[3], env={**os.environ, "PYTHONPATH": "src"},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    try:
        while until not in shown:
            shown += os.read(ours, 4096)
        running.communicate(stdin)
        while part := os.read(ours, 4096):
            shown += part
    except OSError:
        pass  # the other end is closed
    finally:
        os.close(ours)
        running.wait(60)
    return shown


def test_progress_is_shown_on_a_terminal_and_wiped():
    shown = on_a_terminal("simulate", "-f", "-", until=b"reading", stdin=b"apiVersion: v1\nkind: List\nitems: [{kind: Pod}]")
    assert shown.startswith("\rreading the input … ".encode())
    assert b"\r\x1b[K\x1b[31merror:\x1b[0m -:1: items[0]: apiVersion not set" in shown
    assert on_a_terminal(*DEMO, "--quiet") == b""
