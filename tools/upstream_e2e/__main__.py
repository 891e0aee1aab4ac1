"""``python -m tools.upstream_e2e``: run Kubernetes' own end-to-end tests, and write what became of each as a page."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final, NamedTuple

from moorage.basis.printable import some_lines
from tools.oracles import BuildError, OracleMissingError, built
from tools.real_cluster import ClusterError
from tools.upstream_e2e.clusters import CLUSTERS
from tools.upstream_e2e.page import page
from tools.upstream_e2e.running import Outcome, chosen, run_tests

#: The exit status where the programs cannot be had.
SKIPPED = 77
PAGE: Final = Path(__file__).resolve().parents[2] / "docs/contribute/upstream-e2e.md"


class Area(NamedTuple):
    """Tests, by regular expressions of their names, and the clusters they run on; ``alone``: one test at a time."""

    focus: str
    skip: str
    clusters: Sequence[str]
    alone: bool = False


AREAS: Final = {
    "scheduling": Area(r"\[sig-scheduling\]", "GPU", ("kube-scheduler", "moorage run", "moorage up"), alone=True),
    "apps": Area(r"\[sig-apps\].*\[Conformance\]", "", ("moorage up",)),
    "api-machinery": Area(r"\[sig-api-machinery\].*\[Conformance\]", "", ("moorage up",)),
}  # fmt: skip


def main() -> int:
    """Run; exit with 1 if schedulers differ or a failure is unknown, with 77 without the programs."""
    given = _parser().parse_args()
    try:
        program = built("e2e")
        built("cluster")
        results = [one for area in given.areas or AREAS for one in _area(program, area, given)]
    except OracleMissingError as error:
        sys.stderr.write(f"skipped: {some_lines(str(error))}\n")
        return SKIPPED
    except (BuildError, ClusterError, ValueError) as error:
        sys.stderr.write(f"error: {some_lines(str(error))}\n")
        return 2
    if given.json:
        given.json.write_text("".join(json.dumps(one) + "\n" for one in results))
    text, faults = page(results)
    if given.write:
        PAGE.write_text(text)
    for fault in faults:
        sys.stdout.write(f"FAULT {some_lines(fault)}\n")
    return int(bool(faults))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.upstream_e2e", description=__doc__)
    parser.add_argument("areas", nargs="*", choices=[*AREAS, []], metavar="AREA", help=f"{', '.join(AREAS)} [all]")
    parser.add_argument("--cluster", action="append", choices=list(CLUSTERS), help="only on this one; can be repeated [all]")
    parser.add_argument("--focus", default="", metavar="REGEX", help="only tests whose names match")
    parser.add_argument("--workers", type=int, default=4, help="how many tests run at a time [4]")
    parser.add_argument(
        "--limit", type=float, default=3600.0, metavar="SECONDS", help="how long the tests of one process may take [3600]"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes, one a line")
    parser.add_argument("--from", dest="earlier", type=Path, action="append", default=[], metavar="FILE",
        help="take the last outcome of each test from a file of --json instead of running; can be repeated")  # fmt: skip
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    return parser


def _area(program: Path, area: str, given: argparse.Namespace) -> list[dict[str, object]]:
    focus, skip, clusters, alone = AREAS[area]
    workers = 1 if alone else given.workers  # tests of scheduling change what nodes have
    kept = [json.loads(line) for file in given.earlier for line in file.read_text().splitlines()]
    found = list({(one["cluster"], one["name"]): one for one in kept if one["area"] == area}.values())
    if given.earlier:
        return found
    names = [name for name in chosen(program, focus, skip) if not given.focus or _matches(given.focus, name)]
    for cluster in clusters:
        if given.cluster and cluster not in given.cluster:
            continue
        begin = time.monotonic()
        with CLUSTERS[cluster]() as started:
            outcomes = run_tests(program, started.kubeconfig, names, workers=workers, limit_s=given.limit)
        _tell(area, cluster, outcomes, time.monotonic() - begin)
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        found += [{"area": area, "cluster": cluster, "run": today, **asdict(one)} for one in outcomes]
    return found


def _matches(pattern: str, name: str) -> bool:
    import re

    return re.search(pattern, name) is not None


def _tell(area: str, cluster: str, outcomes: Sequence[Outcome], seconds: float) -> None:
    counts = ", ".join(f"{count} {state}" for state, count in sorted(Counter(one.state for one in outcomes).items()))
    sys.stdout.write(f"{area} on {cluster}: {counts} ({seconds:.0f} s)\n")
    for one in outcomes:
        if one.state not in {"passed", "skipped"}:
            sys.stdout.write(some_lines(f"    {one.state}: {one.name}\n        {one.failure[:300]}\n"))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
