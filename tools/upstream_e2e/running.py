"""Run chosen tests of the upstream program, several at a time, and collect what became of them."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.upstream_e2e.clusters import NODES

__all__ = ["Outcome", "chosen", "run_tests"]

#: Tests with this word must have the cluster for themselves.
SERIAL: Final = "[Serial]"
_LISTING_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a test: ``state`` is ginkgo's word (passed, failed, skipped, timedout …)."""

    name: str
    state: str
    seconds: float
    failure: str = ""


def _call(program: Path, kubeconfig: Path | None, arguments: Sequence[str], limit_s: float) -> tuple[list[Outcome], str]:
    with tempfile.TemporaryDirectory(prefix="e2e-") as folder:
        results = Path(folder) / "results"
        command = [
            str(program), f"-results={results}", "-provider=skeleton", "-ginkgo.no-color", "-ginkgo.silence-skips",
            f"-e2e-output-dir={folder}", f"-num-nodes={NODES}", f"-ginkgo.timeout={limit_s:.0f}s", *arguments,
        ]  # fmt: skip
        if kubeconfig is not None:
            command.append(f"-kubeconfig={kubeconfig}")
        try:
            done = subprocess.run(  # noqa: S603  the command is ours
                command, cwd=folder, capture_output=True, text=True, check=False, timeout=limit_s + 120, errors="replace"
            )
            said = done.stdout[-4000:] + done.stderr[-4000:]
        except subprocess.TimeoutExpired:
            said = f"it did not end within {limit_s + 120:.0f} s"
        if not results.exists():
            return [], said
        lines = [json.loads(line) for line in results.read_text().splitlines()]
    return [Outcome(one["name"], one["state"], one["seconds"], one.get("failure", "")) for one in lines], said


def chosen(program: Path, focus: str, skip: str) -> list[str]:
    """Return the names of the tests that two regular expressions choose; an empty ``skip`` chooses all."""
    arguments = ["-ginkgo.dry-run", f"-ginkgo.focus={focus}", *([f"-ginkgo.skip={skip}"] if skip else [])]
    found, said = _call(program, None, arguments, _LISTING_S)
    if not found:
        raise ValueError(f"no test is called {focus}: {said}")
    return sorted(one.name for one in found)


def run_tests(program: Path, kubeconfig: Path, names: Iterable[str], *, workers: int, limit_s: float) -> list[Outcome]:
    """Run tests by name, first the serial ones and then the others in ``workers`` processes. Return an outcome for each.

    ``limit_s`` bounds each process, in seconds; a test that was not reached is ``not run``.
    """
    serial = [name for name in names if SERIAL in name]
    others = [name for name in names if SERIAL not in name]
    shares = [share for share in (others[number::workers] for number in range(workers)) if share]
    outcomes = _share(program, kubeconfig, serial, limit_s) if serial else []
    with ThreadPoolExecutor(max(len(shares), 1)) as pool:
        for found in pool.map(lambda share: _share(program, kubeconfig, share, limit_s), shares):
            outcomes += found
    return sorted(outcomes, key=lambda one: one.name)


def _share(program: Path, kubeconfig: Path, names: Sequence[str], limit_s: float) -> list[Outcome]:
    focus = "|".join(f"{re.escape(name)}$" for name in names)
    found, said = _call(program, kubeconfig, [f"-ginkgo.focus={focus}"], limit_s)
    by_name = {one.name: one for one in found}
    return [by_name.get(name) or Outcome(name, "not run", 0.0, said[-500:]) for name in names]
