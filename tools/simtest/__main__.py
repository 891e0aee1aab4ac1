"""``python -m tools.simtest``: run many seeds, or repeat one of them."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from moorage.framework.registry import load
from tools.simtest.nemesis import FAULTS
from tools.simtest.run import HOLDINGS, FinishedRun, run


def _print_failure(result: FinishedRun, folder: Path, flags: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"seed-{result.seed}.jsonl"
    result.recording.save(path)
    sys.stdout.write(f"seed {result.seed}: {', '.join(result.faults)}\n")
    for line in result.broken:
        sys.stdout.write(f"    {line}\n")
    sys.stdout.write(f"    history: {path}\n")
    sys.stdout.write(f"    again:   python -m tools.simtest --seed {result.seed}{flags}\n")
    sys.stdout.flush()


def _show(text: str) -> None:
    """Show progress on a terminal; "" erases it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{text}\x1b[K")
        sys.stderr.flush()


def main() -> int:
    """Run seeds; exit with 1 if an invariant was broken."""
    parser = argparse.ArgumentParser(prog="python -m tools.simtest", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="number of runs [20]")
    parser.add_argument("--first", type=int, default=0, help="first seed [0]")
    parser.add_argument("--seed", type=int, help="run only this seed and save its history")
    parser.add_argument("--fault", action="append", choices=sorted(FAULTS), help="use this fault instead of random ones")
    parser.add_argument("--plugins", action="append", default=[], metavar="MODULE:CLASS", help="a custom plugin to enable")
    parser.add_argument("--history", type=Path, default=Path("simtest-failures"), help="directory for failed histories")
    parser.add_argument("--gangs", action="store_true", help="create pod groups with gang scheduling")
    parser.add_argument("--holding", action="append", choices=HOLDINGS, help="what pods use beyond node resources [random]")
    parser.add_argument(
        "--crowded",
        action=argparse.BooleanOptionalAction,
        help="start with full nodes and small inboxes [random]",
    )
    given = parser.parse_args()
    plugins = [load(name) for name in given.plugins]
    seeds = range(given.first, given.first + given.seeds) if given.seed is None else [given.seed]
    flags = "".join(f" --fault '{name}'" for name in given.fault or ()) + "".join(
        f" --plugins {name}" for name in given.plugins
    )
    flags += " --gangs" if given.gangs else ""
    flags += "".join(f" --holding {name}" for name in given.holding or ())
    flags += {None: "", True: " --crowded", False: " --no-crowded"}[given.crowded]
    start, bound = time.process_time(), 0
    failed: list[int] = []
    for done, seed in enumerate(seeds):
        _show(f"{done} of {len(seeds)} runs, {len(failed)} with broken invariants")
        result = run(seed, given.fault, plugins, gangs=given.gangs, holding=given.holding, crowded=given.crowded)
        bound += result.bound
        _show("")
        if result.broken or given.seed is not None:
            _print_failure(result, given.history, flags)
        if result.broken:
            failed.append(seed)
    spent = time.process_time() - start
    sys.stdout.write(
        f"{len(seeds)} runs, {len(failed)} with broken invariants, {bound} pods bound at the end, {spent:.1f} s CPU\n"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
