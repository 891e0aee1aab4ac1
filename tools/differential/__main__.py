"""``python -m tools.differential scheduler --seed 7 --count 1000 --release 1.37``: compare with the real scheduler's code.

``python -m tools.differential apiserver --cluster FOLDER`` compares the embedded API server with kube-apiserver
(`apiserver.py`), ``python -m tools.differential kueue --seed 7 --count 1000`` admission to queues with Kueue (`kueue.py`), and
so with ``descheduler`` what a DeschedulerPolicy evicts (`descheduler.py`), and with ``karpenter`` new nodes and disruptions
(`karpenter.py`).
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from moorage.api.releases import CURRENT, TODAY, find_release
from moorage.api.releases.release import Release
from tools.differential import apiserver, descheduler, gates, karpenter, kueue, recordings
from tools.differential.scheduler import FOUND, MAKERS, counted, run, table, with_figures
from tools.oracles import OracleMissingError, Program, built

#: The exit status if the program cannot be had here.
SKIPPED = 77
#: What begins the line of a run that says which scenarios it made.
_COMMAND = "scenarios of "
PAGE = Path(__file__).resolve().parents[2] / "docs" / "project" / "fidelity.md"


def main() -> int:
    """Compare; exit with 1 if a decision differs, with 77 and the reason if the real program cannot be had."""
    if sys.argv[1:2] == ["apiserver"]:
        return apiserver.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m tools.differential", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    of_any = argparse.ArgumentParser(add_help=False)
    of_any.add_argument("--release", default=TODAY, help=f"the minor release, one that oracles/verdicts has [{TODAY}]")
    of_any.add_argument("--processes", type=int, default=2, help="processes that compare, each with a real program [2]")
    of_any.add_argument("--program", type=Path, help="a program that was built before")
    scheduler = commands.add_parser("scheduler", parents=[of_any], help="kube-scheduler's scheduling framework, and Moorage")
    scheduler.add_argument("--seed", type=int, default=0, help="other numbers make other scenarios [0]")
    scheduler.add_argument("--count", type=int, default=1000, help="scenarios, of all kinds together [1000]")
    scheduler.add_argument("--kind", action="append", choices=sorted(MAKERS), help="only scenarios of this kind [all]")
    scheduler.add_argument(
        "--seconds", type=float, default=math.inf, help="stop after so long; the figures then say how far it got"
    )
    scheduler.add_argument("--folder", type=Path, default=FOUND, help="where the smallest inputs go")
    scheduler.add_argument("--no-shrinking", dest="shrinks", action="store_false", help="do not look for smaller inputs")
    scheduler.add_argument("--write", action="store_true", help="write the figures into docs/project/fidelity.md")
    recorded = commands.add_parser(
        "recordings", parents=[of_any], help="recorded decisions of the same program, and what it says now"
    )
    recorded.add_argument("folder", type=Path, help="a folder of recorded decisions, such as ../shared/conformance/v1.37.2")
    sweep = commands.add_parser("gates", parents=[of_any], help="each feature gate turned: which decisions change")
    sweep.add_argument("--seed", type=int, default=0, help="other numbers make other scenarios [0]")
    sweep.add_argument("--count", type=int, default=3, help="scenarios of each kind for a gate that decides [3]")
    sweep.add_argument("--write", action="store_true", help="write the table into docs/project/fidelity.md")
    several = commands.add_parser("figures", help="the figures of several runs of `scheduler`, added up")
    several.add_argument("--release", default=TODAY, help=f"the minor release of the runs [{TODAY}]")
    several.add_argument("--write", action="store_true", help="write the figures into docs/project/fidelity.md")
    several.add_argument("outputs", type=Path, nargs="+", help="files with what the runs printed")
    of_worlds = argparse.ArgumentParser(add_help=False)
    of_worlds.add_argument("--seed", type=int, default=0, help="the first world's seed [0]")
    of_worlds.add_argument("--count", type=int, default=500, help="worlds [500]")
    of_worlds.add_argument("--program", type=Path, help="a program that was built before")
    of_worlds.add_argument("--folder", type=Path, help="where the smallest worlds go [build/differential]")
    of_worlds.add_argument("--no-shrinking", dest="shrinks", action="store_false", help="do not look for smaller worlds")
    for name, (says, _, _) in _WORLDS.items():
        commands.add_parser(name, parents=[of_worlds], help=says)
    given = parser.parse_args()
    if given.command in _WORLDS:
        return _worlds(given)
    if given.command == "figures":
        return _figures(given)
    asked = find_release(given.release)
    if asked is None:
        parser.error(f"--release: {given.release} is not known")
    try:
        oracle = Program("verdicts", "" if asked.series == CURRENT.series else asked.series)
        version = oracle.kubernetes()
        program = given.program or built(oracle.name, oracle.release)
    except OracleMissingError as error:
        sys.stdout.write(f"skipped: {error}\n")
        return SKIPPED
    if given.command == "recordings":
        return _replay(program, given)
    release = find_release(version) or asked
    return _sweep(program, release, version, given) if given.command == "gates" else _compare(program, release, version, given)


def _sweep(program: Path, release: Release, version: str, given: argparse.Namespace) -> int:
    rows = list(gates.swept(program, release.name, seed=given.seed, count=given.count))
    day = datetime.now(UTC).strftime("%-d %B %Y")
    text = f"{version}, `gates --release {release.series} --seed {given.seed} --count {given.count}`, {day}:\n\n"
    text += gates.table(rows, release.name)
    sys.stdout.write(text + "\n")
    if given.write:
        PAGE.write_text(with_figures(PAGE.read_text("utf-8"), f"gates {release.series}", text), "utf-8")
    return int(any(row.different for row in rows))


def _replay(program: Path, given: argparse.Namespace) -> int:
    if not given.folder.is_dir():
        sys.stdout.write(f"skipped: there is no folder {given.folder}\n")
        return SKIPPED
    found = list(recordings.replays(program, given.folder, given.processes))
    lines = [line for one in found for line in one.different]
    sys.stdout.write("\n".join([*lines, recordings.table(found)]) + "\n")
    return int(bool(lines))


def _compare(program: Path, release: Release, version: str, given: argparse.Namespace) -> int:
    started = time.monotonic()
    made = f"--release {release.series} --seed {given.seed} --count {given.count}"
    made += "".join(f" --kind '{kind}'" for kind in given.kind or ())
    sys.stdout.write(f"{_COMMAND}{version}, {made}\n")
    counts = run(
        program, release.name, kinds=given.kind or (), seed=given.seed, count=given.count, processes=given.processes,
        seconds=given.seconds, folder=given.folder, shrinks=given.shrinks,
    )  # fmt: skip
    if given.write:
        day = datetime.now(UTC).strftime("%-d %B %Y")
        lasting = f"{time.monotonic() - started:,.0f} seconds with {given.processes} processes"
        text = f"{version}, `{made}`, {day}, {lasting}:\n\n{table(counts)}"
        PAGE.write_text(with_figures(PAGE.read_text("utf-8"), release.series, text), "utf-8")
    return int(any(column == "different" and number for (_, column), number in counts.items()))


def _figures(given: argparse.Namespace) -> int:
    texts = [one.read_text("utf-8") for one in given.outputs]
    counts = counted("\n".join(texts))
    commands = [line for text in texts for line in text.splitlines() if line.startswith(_COMMAND)]
    if len(commands) != len(texts) or any(f"--release {given.release} " not in line for line in commands):
        sys.stdout.write(f"each file must have one line that begins with `{_COMMAND}` and names --release {given.release}\n")
        return 2
    first, last = (line.removeprefix(_COMMAND) for line in (commands[0], commands[-1]))
    told = f"`{first}` to `{last}`, {len(commands)} runs, {datetime.now(UTC).strftime('%-d %B %Y')}:\n\n{table(counts)}"
    sys.stdout.write(told + "\n")
    if given.write:
        PAGE.write_text(with_figures(PAGE.read_text("utf-8"), given.release, told), "utf-8")
    return int(any(column == "different" and number for (_, column), number in counts.items()))


#: What compares random worlds, by the name of its program: what the program runs, how, and where worlds go that differ.
_WORLDS: Final[dict[str, tuple[str, Callable[..., Counter[str]], Path]]] = {
    "descheduler": ("the descheduler's plugins, evictor and policies", descheduler.run, descheduler.FOUND),
    "karpenter": ("Karpenter's provisioner and methods of disruption", karpenter.run, karpenter.FOUND),
    "kueue": ("Kueue's scheduler, cache and queues", kueue.run, kueue.FOUND),
}


def _worlds(given: argparse.Namespace) -> int:
    try:
        program = given.program or built(given.command)
    except OracleMissingError as error:
        sys.stdout.write(f"skipped: {error}\n")
        return SKIPPED
    _, run_worlds, folder = _WORLDS[given.command]
    counts = run_worlds(program, seed=given.seed, count=given.count, folder=given.folder or folder, shrinks=given.shrinks)
    return int(counts["different"] > 0)


if __name__ == "__main__":
    sys.exit(main())
