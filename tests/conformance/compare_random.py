"""Compare Moorage with a release of kube-scheduler in clusters made at random.

``python -m tests.conformance.compare_random RECORDER --release 1.34.7 --count 5000`` makes the clusters, lets the recorder and
Moorage decide in them, and prints a line for each family and each difference; docs/how-to/add-a-release.md says what a recorder
is. A cluster with a difference is recorded again: kube-scheduler iterates over maps in random order, and any of its answers is
right.

Exits with 1 if a decision differs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from moorage.errors import MoorageError
from tests.conformance.random_clusters import Variation, cluster
from tests.conformance.test_recorded import differing
from tools.recordings.answers import answer

AGAIN = 8
BATCH = 50

Document = dict[str, Any]


def record(recorder: str, scenarios: Sequence[Document]) -> list[Document]:
    """Return what kube-scheduler decides in each scenario. A process that crashes is started again for each scenario alone."""
    text = "".join(json.dumps(one) + "\n" for one in scenarios)
    run = subprocess.run([recorder], input=text, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    if run.returncode == 0:
        return [json.loads(line)["expected"] for line in run.stdout.splitlines()]
    if len(scenarios) == 1:
        return [{"crashed": f"exit status {run.returncode}"}]
    return [record(recorder, [one])[0] for one in scenarios]


def differences(expected: Document, scenario: Document) -> list[str]:
    """Return what differs: a refused configuration, or the fields of each pod's result."""
    try:
        results = {one["pod"]: one for one in answer(scenario)["results"]}
    except MoorageError as error:
        return [] if "refused" in expected else [f"refused: {error}"]
    if "refused" in expected:
        return [f"not refused: {expected['refused']}"]
    found = []
    for wanted in expected["results"]:
        fields = differing(wanted, results.get(wanted["pod"], {}))
        found += [f"{wanted['pod']}: {', '.join(fields)}"] if fields else []
    return found


def recorded_ahead(
    recorder: str, batches: Iterable[range], processes: int, made: Callable[[int], Document]
) -> Iterator[tuple[list[Document], list[Document]]]:
    """Yield the scenarios ``made`` of each batch of seeds, and what kube-scheduler answers.

    The recorder mostly waits for its own caches, so ``processes`` of them work on the next batches meanwhile.
    """

    def recorded(seeds: range) -> tuple[list[Document], list[Document]]:
        scenarios = [made(seed) for seed in seeds]
        return scenarios, record(recorder, scenarios)

    with ThreadPoolExecutor(processes) as pool:
        waiting: deque[Future[tuple[list[Document], list[Document]]]] = deque()
        for seeds in batches:
            waiting.append(pool.submit(recorded, seeds))
            if len(waiting) > processes:
                yield waiting.popleft().result()
        yield from (one.result() for one in waiting)


def compare(
    recorder: str, scenarios: Sequence[Document], answers: Sequence[Document], counts: Counter[tuple[str, str]]
) -> Iterator[str]:
    """Yield a line for each cluster that differs, and count clusters, decisions and differences by family."""
    for scenario, expected in zip(scenarios, answers, strict=True):
        family = scenario["family"]
        counts[family, "clusters"] += 1
        if "crashed" in expected:
            counts[family, "crashed"] += 1
            continue
        counts[family, "decisions"] += len(expected.get("results", ()))
        counts[family, "placed"] += sum("best" in one for one in expected.get("results", ()))
        found = differences(expected, scenario)
        for _ in range(AGAIN):
            if not found:
                break
            repeated = record(recorder, [scenario])[0]
            again = [] if "crashed" in repeated else differences(repeated, scenario)
            found = [line for line in found if line.split(":")[0] in {one.split(":")[0] for one in again}]
        counts[family, "different"] += len(found)
        yield from (f"{scenario['name']} {line}" for line in found)


def comparison_parser(about: str | None, count: int) -> argparse.ArgumentParser:
    """Return a parser with the arguments that all comparisons with a recorder take; ``count`` is the default of --count."""
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("recorder")
    parser.add_argument("--release", required=True)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    return parser


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that limit how fast and how long a comparison runs."""
    parser.add_argument("--processes", type=int, default=1, help="how many recorders work at once")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="stop after so long; the table then tells how far it got"
    )


def batches_in_time(given: argparse.Namespace) -> Iterator[range]:
    """Yield the seeds in batches, until they or the seconds are used up."""
    started, end = time.monotonic(), given.first + given.count
    batches = (range(first, min(first + BATCH, end)) for first in range(given.first, end, BATCH))
    return itertools.takewhile(lambda _: time.monotonic() - started < given.seconds, batches)


def main(arguments: Sequence[str]) -> int:
    """Compare and print."""
    parser = comparison_parser(__doc__, 1000)
    add_limits(parser)
    parser.add_argument("--configurations", action="store_true", help="give every cluster a random configuration")
    parser.add_argument("--open-gates", action="store_true", help="open feature gates that are off by default")
    parser.add_argument(
        "--old-configurations", action="store_true", help="give every cluster a Policy or a v1beta1 configuration of 1.21"
    )
    given = parser.parse_args(arguments)
    variation = Variation(given.configurations, given.open_gates, given.old_configurations)
    counts: Counter[tuple[str, str]] = Counter()
    in_time = batches_in_time(given)
    made = partial(cluster, release=given.release, variation=variation)
    for scenarios, answers in recorded_ahead(given.recorder, in_time, given.processes, made):
        for line in compare(given.recorder, scenarios, answers, counts):
            print(line, flush=True)
    names = ("clusters", "decisions", "placed", "crashed", "different")
    print(f"{'family':<18}" + "".join(f"{name:>11}" for name in names))
    for family in sorted({family for family, _ in counts}):
        print(f"{family:<18}" + "".join(f"{counts[family, name]:>11}" for name in names))
    totals = {name: sum(count for (_, one), count in counts.items() if one == name) for name in names}
    print(f"{'all':<18}" + "".join(f"{totals[name]:>11}" for name in names))
    return 1 if totals["different"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
