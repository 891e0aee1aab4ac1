"""Run `moorage up`, and on it `run` (one leads, one stands by) and `record`, and print how their memory changes.

    python -m tools.soak --minutes 60
    python -m tools.soak --minutes 60 --pods-a-minute 60

Nothing happens in the cluster, or so many pods are created and deleted. Each process's memory is read twice a minute: what
is its own, resident or swapped out, without the pages of files, which the system takes and gives as others need memory.
The slope is that of the straight line through the values after the first ten minutes (or the first half of a shorter run). The
exit status is 1 if one is above the limit, or a process ended.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

import numpy as np

#: The lines of /proc/PID/status about a process's own memory, in KiB.
_OWN: Final = ("RssAnon:", "VmSwap:")
_EVERY_S: Final = 30.0
_SETTLED_MINUTES: Final = 10.0
_START_S: Final = 120.0


@dataclass
class Measured:
    """A process, and its own memory in MB at each of ``minutes``."""

    name: str
    process: subprocess.Popen[bytes]
    minutes: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)

    def measure(self, minute: float) -> None:
        lines = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8").splitlines()
        self.minutes.append(minute)
        self.memory.append(sum(int(line.split()[1]) for line in lines if line.startswith(_OWN)) * 1024 / 1e6)

    @property
    def cpu_s(self) -> float:
        """The CPU time that the process has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def slope(minutes: Sequence[float], memory: Sequence[float], since: float) -> float:
    """Return by how many MB an hour memory grew after a minute; NaN for fewer than two values."""
    later = [(minute, value) for minute, value in zip(minutes, memory, strict=True) if minute >= since]
    if len(later) < 2:
        return float("nan")
    x, y = np.array(later).T
    return float(np.polyfit(x / 60, y, 1)[0])


def table(measured: Sequence[Measured], since: float) -> Iterator[str]:
    """Yield the lines of the table of results, in Markdown."""
    yield f"| process | MB at start | MB after {since:g} min | MB halfway | MB at the end | slope in MB an hour | CPU seconds |"
    yield "|---|---|---|---|---|---|---|"
    for one in measured:
        at = next((value for minute, value in zip(one.minutes, one.memory, strict=True) if minute >= since), one.memory[-1])
        middle = one.memory[len(one.memory) // 2]
        amounts = " | ".join(f"{amount:.1f}" for amount in (one.memory[0], at, middle, one.memory[-1]))
        row = f"{amounts} | {slope(one.minutes, one.memory, since):+.2f}"
        yield f"| {one.name} | {row} | {one.cpu_s:.1f} |"


@contextmanager
def started(name: str, log: IO[bytes], *arguments: str) -> Iterator[Measured]:
    """Run a command of Moorage while the block runs."""
    process = subprocess.Popen([sys.executable, "-m", "moorage", *arguments], stdout=log, stderr=subprocess.STDOUT)  # noqa: S603
    try:
        yield Measured(name, process)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


@contextmanager
def churning(folder: Path, kubeconfig: Path, pods_a_minute: int, minutes: float) -> Iterator[None]:
    """Create pods and delete them a minute later while the block runs; none if ``pods_a_minute`` is 0."""
    if not pods_a_minute:
        yield
        return
    with (folder / "churn.log").open("wb") as log:
        command = [sys.executable, "-m", "tools.soak.churn", str(kubeconfig), str(pods_a_minute), str(minutes)]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)  # noqa: S603  the command is ours
        try:
            yield
        finally:
            process.terminate()
            process.wait(20)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the processes, print the table, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--pods-a-minute", type=int, default=0)
    parser.add_argument("--most", type=float, default=0.1, help="the highest slope, in MB an hour (default: 0.1)")
    parser.add_argument(
        "--settled", type=float, default=_SETTLED_MINUTES, help="minutes after which the slope is measured (default: 10)"
    )
    given = parser.parse_args(arguments)
    since = min(given.settled, given.minutes / 2)
    with tempfile.TemporaryDirectory(prefix="moorage-soak-") as name, ExitStack() as stack:
        folder = Path(name)
        kubeconfig = folder / "kubeconfig"
        log = stack.enter_context((folder / "log").open("wb"))
        up = [
            "up",
            "--nodes",
            str(given.nodes),
            "--home",
            str(folder / "home"),
            "--kubeconfig",
            str(kubeconfig),
            "--no-scheduler",
        ]
        measured = [stack.enter_context(started("up", log, *up))]
        if not _waited_for(kubeconfig):
            sys.stderr.write((folder / "log").read_text(encoding="utf-8"))
            return 1
        # The lease lasts long, so that a busy machine ends no process.
        lease = ["--leader-elect-lease-duration=120s", "--leader-elect-renew-deadline=90s"]
        run = ["run", f"--kubeconfig={kubeconfig}", "--secure-port=0", *lease]
        measured.append(stack.enter_context(started("run, which leads", log, *run)))
        time.sleep(3)
        measured.append(stack.enter_context(started("run, which stands by", log, *run)))
        record = ["record", "--kubeconfig", str(kubeconfig), "--to", str(folder / "record")]
        measured.append(stack.enter_context(started("record", log, *record)))
        time.sleep(15)
        with churning(folder, kubeconfig, given.pods_a_minute, given.minutes):
            ended = _measured(measured, given.minutes)
        if ended is not None:
            sys.stderr.write(f"{(folder / 'log').read_text(encoding='utf-8')[-4000:]}\n{ended.name} ended\n")
            return 1
        sys.stdout.write("\n".join([*table(measured, since), ""]))
        return int(any(not slope(one.minutes, one.memory, since) <= given.most for one in measured))


def _waited_for(kubeconfig: Path) -> bool:
    ends = time.monotonic() + _START_S
    while not kubeconfig.exists() and time.monotonic() < ends:
        time.sleep(0.2)
    return kubeconfig.exists()


def _measured(measured: Sequence[Measured], minutes: float) -> Measured | None:
    """Measure processes for so many minutes. Return one that ended, or None."""
    began = time.monotonic()
    while True:
        minute = (time.monotonic() - began) / 60
        for one in measured:
            if one.process.poll() is not None:
                return one
            one.measure(minute)
        if minute >= minutes:
            return None
        time.sleep(min(_EVERY_S, max(0.1, (minutes - minute) * 60)))


if __name__ == "__main__":
    sys.exit(main())
