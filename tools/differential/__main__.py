"""``python -m tools.differential scheduler --seed 7 --count 1000 --release 1.37``: compare with the real scheduler's code.

``python -m tools.differential apiserver --cluster FOLDER`` compares the embedded API server with kube-apiserver
(`apiserver.py`).
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from moorage.api.releases import CURRENT, TODAY, find_release
from tools.differential import apiserver
from tools.differential.scheduler import FOUND, MAKERS, run
from tools.oracles import OracleMissingError, built

#: The exit status if the program cannot be had here.
SKIPPED = 77


def main() -> int:
    """Compare; exit with 1 if a decision differs, with 77 and the reason if the real program cannot be had."""
    if sys.argv[1:2] == ["apiserver"]:
        return apiserver.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m tools.differential", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    scheduler = commands.add_parser("scheduler", help="kube-scheduler's scheduling framework")
    scheduler.add_argument("--release", default=TODAY, help=f"the minor release, one that oracles/verdicts has [{TODAY}]")
    scheduler.add_argument("--seed", type=int, default=0, help="other numbers make other scenarios [0]")
    scheduler.add_argument("--count", type=int, default=1000, help="scenarios, of all kinds together [1000]")
    scheduler.add_argument("--kind", action="append", choices=sorted(MAKERS), help="only scenarios of this kind [all]")
    scheduler.add_argument(
        "--seconds", type=float, default=math.inf, help="stop after so long; the figures then say how far it got"
    )
    scheduler.add_argument("--processes", type=int, default=2, help="real programs that answer at once [2]")
    scheduler.add_argument("--program", type=Path, help="a program that was built before")
    scheduler.add_argument("--folder", type=Path, default=FOUND, help="where the smallest inputs go")
    scheduler.add_argument("--no-shrinking", dest="shrinks", action="store_false", help="do not look for smaller inputs")
    given = parser.parse_args()
    release = find_release(given.release)
    if release is None:
        parser.error(f"--release: {given.release} is not known")
    try:
        program = given.program or built("verdicts", "" if release.series == CURRENT.series else release.series)
    except OracleMissingError as error:
        sys.stdout.write(f"skipped: {error}\n")
        return SKIPPED
    counts = run(
        program, release.name, kinds=given.kind or (), seed=given.seed, count=given.count, processes=given.processes,
        seconds=given.seconds, folder=given.folder, shrinks=given.shrinks,
    )  # fmt: skip
    return int(any(column == "different" and number for (_, column), number in counts.items()))


if __name__ == "__main__":
    sys.exit(main())
