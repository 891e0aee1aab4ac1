"""SIGTERM, as Slurm, ``timeout`` and ``docker stop`` send it: workers end, what is there is printed, the status is 143."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from moorage.interfaces.web import question_folders

SLOW = """
import os, time, pathlib

def run(seed):
    pathlib.Path("started", str(os.getpid())).touch()
    if seed:
        time.sleep(300)
    return {"pending": seed}
"""


def is_there(pid):
    """Return whether a process exists and is no zombie."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def wait_until(what, seconds=40.0):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def begun(folder, *, program):
    (folder / "started").mkdir()
    (folder / "slow.py").write_text(SLOW)
    (folder / "program.py").write_text(program)
    return subprocess.Popen(
        [sys.executable, "program.py"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
    )  # fmt: skip


LIBRARY = """
import slow

if __name__ == "__main__":
    from moorage.interfaces.cli.main import run_command
    import click

    @click.command()
    def command():
        from moorage.interfaces.cli.questions.question import ended_by_interrupt
        from moorage.interfaces.cli.terminal import Progress
        from moorage.laboratory.budget import TimeBudget
        from moorage.laboratory.sweeps.store import open_store
        from moorage.laboratory.sweeps.sweep import SweepPlan, _plan_of, run_sweep
        budget = TimeBudget(None)
        with Progress() as progress, ended_by_interrupt(budget, progress):
            found = run_sweep(_plan_of({"seed": [0, 1, 2, 3]}, slow.run), open_store("store"), processes=2, budget=budget)
        print("runs that are there:", len(found.runs))
        return 0

    run_command(command, "sweep", [])
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_workers_end_with_their_command(tmp_path, number):
    process = begun(tmp_path, program=LIBRARY)
    wait_until(lambda: len(list((tmp_path / "started").iterdir())) == 2 or process.poll() is not None)
    workers = [int(path.name) for path in (tmp_path / "started").iterdir()]
    time.sleep(1.0)  # the first run ends, and both workers sleep in the next ones
    began = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert time.monotonic() - began < 8
    wait_until(lambda: not any(map(is_there, workers)), 10)
    if number == signal.SIGTERM:
        assert process.returncode == 143, (out, err)
        assert "runs that are there: 1" in out
        assert "Traceback" not in err


@pytest.mark.slow
def test_a_command_that_has_nothing_to_print_yet_says_that_it_is_terminated():
    argv = [sys.executable, "-m", "moorage", "simulate", "-f", "-"]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(3.0)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err.strip()) == (143, "", "terminated")


# -- temporary folders ---------------------------------------------------------------------------------------------------

HOLD = """
import sys, time
from moorage.interfaces.web.question_folders import question_folder
with question_folder() as folder:
    print(folder, flush=True)
    time.sleep(300)
"""


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.slow
def test_folders_of_killed_processes_are_swept_and_those_of_others_stay(temporary):
    environment = {**os.environ, "TMPDIR": str(temporary)}
    held = [
        subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)
    ]
    killed, alive = (Path(one.stdout.readline().strip()) for one in held)
    try:
        held[0].kill()
        held[0].wait()
        assert killed.is_dir()
        assert question_folders.sweep() == [killed]
        assert (killed.exists(), alive.exists()) == (False, True)
    finally:
        for one in held:
            one.kill()
            one.communicate()


def test_what_is_no_left_folder_stays(temporary):
    fresh, link, other = (temporary / f"moorage-questions-{name}" for name in ("fresh", "link", "file"))
    kept = temporary / "kept"
    kept.mkdir()
    fresh.mkdir()
    link.symlink_to(kept)
    other.write_text("")
    with question_folders.question_folder() as folder:
        assert question_folders.sweep() == []
        assert folder.is_dir()
    assert not folder.exists()
    os.utime(fresh, (1, 1))
    assert question_folders.sweep() == [fresh]
    assert (kept.exists(), link.exists(), other.exists()) == (True, True, True)
