"""``python -m tools.mutants FILE … --count 40``: put faults into files, one at a time, and run the tests that they reach.

The tests of a file are those that its change reaches (``tools.reach``) without slow ones, in a copy of the tree; ``--tests``
names others. A fault that a test finds is killed; one that none finds survives: read its line, and either add the missing case,
or see that nothing can tell the difference (it is equivalent). ``--seed`` alone decides which faults are drawn.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tools.mutants.faults import Fault, faults
from tools.mutants.trial import Copies
from tools.reach import reached

ROOT: Final = Path(__file__).resolve().parents[2]


def main(argv: Sequence[str] | None = None) -> int:
    """Try faults; print those that survive, and how many were killed. Exit with 1 if the tests fail without a fault."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutants", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("files", nargs="+", help="files of src/moorage, or folders")
    parser.add_argument("--count", type=int, default=40, help="how many faults to try [40]")
    parser.add_argument("--seed", type=int, default=0, help="which ones [0]")
    parser.add_argument("--tests", nargs="*", help="tests to run in place of those that a change of the file reaches")
    parser.add_argument("--distance", type=int, help="how many imports away a test may be [the least that has tests]")
    parser.add_argument("--slow", action="store_true", help="also run tests that are marked slow")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="how many to try at once [cores]")
    parser.add_argument(
        "--timeout", type=float, default=300.0, help="seconds for the tests of one fault; longer is found, too [300]"
    )
    given = parser.parse_args(argv)
    sources = _sources(given.files)
    chosen = choose(list(sources.items()), given.count, given.seed)
    tests = {file: given.tests or _nearest(file, given.distance) for file, _ in chosen}
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(given.workers) as pool:
        marks = () if given.slow else ("-m", "not slow")
        copies = Copies(ROOT, Path(scratch), given.workers, marks, given.timeout)
        if failing := [file for file in tests if not copies.passes(file, sources[file], tests[file])]:
            sys.stderr.write(f"error: without a fault the tests fail or take too long, for {', '.join(failing)}\n")
            return 1
        tried = pool.map(lambda one: copies.passes(one[0], one[1].applied(sources[one[0]]), tests[one[0]]), chosen)
        survivors = _told(chosen, tried)
    killed = len(chosen) - survivors
    sys.stdout.write(f"{killed} of {len(chosen)} killed ({100 * killed / max(len(chosen), 1):.0f} %), {survivors} survived\n")
    return 0


def _nearest(file: str, distance: int | None) -> Sequence[str]:
    for steps in range(1, 9) if distance is None else (distance,):
        if found := reached(ROOT, [file], steps):
            return found
    raise SystemExit(f"error: {file}: no test reaches it; name some with --tests")


def _told(chosen: Sequence[tuple[str, Fault]], tried: Iterable[bool]) -> int:
    """Print the faults that survive, as the runs end; return how many."""
    survivors = 0
    for number, ((file, fault), passed) in enumerate(zip(chosen, tried, strict=True), 1):
        survivors += passed
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{number} of {len(chosen)}, {survivors} survived\x1b[K")
        if passed:
            sys.stdout.write(f"survived  {file}:{fault.line}  {fault.says}\n")
    return survivors


def choose(sources: Sequence[tuple[str, str]], count: int, seed: int) -> list[tuple[str, Fault]]:
    """Return some faults of these files (name, text), drawn with ``seed``, in the order of files and lines."""
    every = [(name, fault) for name, text in sources for fault in faults(text)]
    drawn = random.Random(seed).sample(every, min(count, len(every)))  # noqa: S311
    return sorted(drawn, key=lambda one: (one[0], one[1].start, one[1].text))


def _sources(given: Sequence[str]) -> Mapping[str, str]:
    """Return the text of each file that is named, or below a folder that is."""
    found = [path for name in given for path in (sorted((ROOT / name).rglob("*.py")) or [ROOT / name])]
    if missing := [path for path in found if not path.is_file()]:
        raise SystemExit(f"error: {missing[0]}: no Python file there; name files or folders from the root of the project")
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in found}


if __name__ == "__main__":
    raise SystemExit(main())
