"""Compare decisions, wakings and configurations with kube-scheduler's own code, and shrink what differs."""

from __future__ import annotations

import itertools
import math
import multiprocessing
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing.pool import AsyncResult
from pathlib import Path
from typing import Any, Final, NamedTuple

from tools.differential import decisions, documents, groups, validity, wakes
from tools.differential.bred_clusters import Variation, cluster
from tools.differential.oracle import record
from tools.differential.random_changes import IN_FLIGHT, OWN_UPDATES, changing_cluster
from tools.differential.random_configurations import document
from tools.differential.shapes import SHAPES, cluster_of
from tools.differential.shrinking import shrunk, write
from tools.differential.woken_pods import answered
from tools.recordings.answers import answer

Document = dict[str, Any]
Counts = Counter[tuple[str, str]]

#: Scenarios that one process answers at a time.
BATCH: Final = 25
#: Where disagreements are written; the tests decide them again.
FOUND: Final = Path(__file__).resolve().parents[2] / "tests" / "conformance" / "found"
COLUMNS: Final = ("scenarios", "decisions", "placed", "crashed", "different")


class Disagreement(NamedTuple):
    """A scenario on which the two sides disagree, what kube-scheduler answers, and in which fields they do."""

    scenario: Document
    expected: Document
    lines: list[str]


def _changing(kind: str, seed: int, release: str) -> Document:
    return {**changing_cluster(seed, release, kind), "family": kind or "changes"}


#: Each kind of scenario by its name: how one is made of a seed and a release. ``mixed`` ones are bred from recorded clusters.
MAKERS: Final[Mapping[str, Callable[[int, str], Document]]] = {
    "mixed": cluster,
    "profiles": partial(cluster, variation=Variation(configured=True)),
    "gates": partial(cluster, variation=Variation(opens_gates=True)),
    **{shape: partial(cluster_of, shape) for shape in SHAPES},
    "changes": partial(_changing, ""),
    IN_FLIGHT: partial(_changing, IN_FLIGHT),
    OWN_UPDATES: partial(_changing, OWN_UPDATES),
    "documents": document,
    groups.MODE: groups.clusters_of_groups,
}
OF_WAKES: Final = frozenset(["changes", IN_FLIGHT, OWN_UPDATES])
#: How many real programs share a batch of these: each waits for most of its time.
WAITING: Final = 5


class Batch(NamedTuple):
    """Some scenarios of one kind: their figures, and the disagreements."""

    counts: Counts
    found: list[Disagreement]


def compare(
    program: Path, release: str, kinds: Sequence[str], first: int, count: int, *, processes: int, seconds: float, counts: Counts
) -> Iterator[Disagreement]:
    """Yield each disagreement; ``counts`` gets the numbers of each kind. The kinds take turns, batch by batch.

    Each of ``processes`` makes the scenarios of a batch, asks the real program, which mostly waits, and decides them.
    """
    started = time.monotonic()
    of_kind = [list(range(first + at, first + count, len(kinds))) for at in range(len(kinds))]
    batches = [
        [(kind, seeds[at : at + BATCH]) for at in range(0, len(seeds), BATCH)]
        for kind, seeds in zip(kinds, of_kind, strict=True)
    ]
    turns = (batch for turn in itertools.zip_longest(*batches) for batch in turn if batch is not None)
    in_time = itertools.takewhile(lambda _: time.monotonic() - started < seconds, turns)
    for done in _spread(partial(compared_batch, program, release), in_time, processes):
        counts.update(done.counts)
        yield from done.found


def _spread(
    work: Callable[[str, list[int]], Batch], batches: Iterator[tuple[str, list[int]]], processes: int
) -> Iterator[Batch]:
    """Yield the results in the order of the batches, of which no more are begun ahead than there are processes."""
    if processes <= 1:
        yield from itertools.starmap(work, batches)
        return
    with multiprocessing.get_context("forkserver").Pool(processes) as pool:
        waiting: deque[AsyncResult[Batch]] = deque()
        for kind, seeds in batches:
            waiting.append(pool.apply_async(work, (kind, seeds)))
            if len(waiting) > processes:
                yield waiting.popleft().get()
        yield from (one.get() for one in waiting)


def compared_batch(program: Path, release: str, kind: str, seeds: Sequence[int]) -> Batch:
    """Make the scenarios of a kind and of these seeds, let both sides decide them, and compare."""
    counts: Counts = Counter()
    found = []
    scenarios = [MAKERS[kind](seed, release) for seed in seeds]
    answers = record(program, scenarios, at_once=WAITING if kind in OF_WAKES else 1)
    for scenario, expected in zip(scenarios, answers, strict=True):
        counts[kind, "scenarios"] += 1
        if "crashed" in expected:
            counts[kind, "crashed"] += 1
            continue
        lines = compared(program, kind, scenario, expected, counts)
        if lines:
            counts[kind, "different"] += len(lines)
            found.append(Disagreement(scenario, expected, lines))
    return Batch(counts, found)


def compared(program: Path, kind: str, scenario: Document, expected: Document, counts: Counts) -> list[str]:
    """Return a line for each decision that differs from the real answer; ``counts`` gets the numbers of the kind."""
    if kind == "documents":
        counts[kind, "decisions"] += 1
        counts[kind, "placed"] += "profiles" in expected
        found = documents.differences(expected, answer(scenario))
        return [f"{what}: {details}" for what, details in found if what != documents.TEXTS]
    if kind in OF_WAKES:
        if "changes" not in expected:
            return []
        answers = wakes.settled(program, scenario, expected, answered(scenario))
        counts[kind, "decisions"] += len(answers)
        counts[kind, "placed"] += sum(there and here for *_, there, here in answers)
        missed = [one for one in answers if one[3] and not one[4]]
        return [f"change {at}: {pod}, rejected by {plugin}, is woken there alone" for at, pod, plugin, *_ in missed]
    if kind == groups.MODE:
        played = expected.get("played", {})
        counts[kind, "decisions"] += sum(len(played.get(part, ())) for part in ("bound", "failed", "groups"))
        counts[kind, "placed"] += len(played.get("bound", ()))
        return groups.settled(program, scenario, expected)
    results = expected.get("results", ())
    counts[kind, "decisions"] += len(results)
    counts[kind, "placed"] += sum("best" in one for one in results)
    return decisions.settled(program, scenario, expected)


def shrink(program: Path, found: Disagreement) -> Disagreement:
    """Return the smallest scenario that was found on which the two sides differ in the same way.

    A smaller scenario counts if a pod still differs in a field that differed for it, and if no more of it is refused.
    """
    differing, refused = _differing(found.lines), validity.refused(found.scenario)

    def disagree(candidate: Document) -> bool:
        if validity.refused(candidate) - refused:
            return False
        expected = record(program, [candidate])[0]
        return bool(differing & _differing(_settled(program, candidate, expected)))

    smallest = shrunk(found.scenario, disagree)
    expected = record(program, [smallest])[0]
    return Disagreement(smallest, expected, _settled(program, smallest, expected) or found.lines)


def _settled(program: Path, scenario: Document, expected: Document) -> list[str]:
    if scenario.get("mode") == groups.MODE:
        return groups.settled(program, scenario, expected)
    return decisions.settled(program, scenario, expected) if "results" in expected else []


def _differing(lines: Sequence[str]) -> set[tuple[str, str]]:
    """Return pod and field of each difference; of a refused configuration, its text."""
    named = (line.partition(": ") for line in lines)
    return {(pod, field) for pod, _, fields in named for field in fields.split(", ")}


def table(counts: Counts) -> str:
    """Return the figures by kind, as a table of Markdown."""
    kinds = [kind for kind in MAKERS if counts[kind, "scenarios"]]
    rows = [[kind, *(f"{counts[kind, column]:,}" for column in COLUMNS)] for kind in kinds]
    sums = [f"{sum(counts[kind, column] for kind in kinds):,}" for column in COLUMNS]
    lines = [["kind", *COLUMNS], ["---"] * (1 + len(COLUMNS)), *rows, ["**all**", *sums]]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def counted(text: str) -> Counts:
    """Return the figures of tables that runs printed, added up; lines that are no row of a kind are passed over."""
    counts: Counts = Counter()
    for line in text.splitlines():
        kind, *numbers = [cell.strip() for cell in line.strip("|").split("|")]
        if kind in MAKERS and len(numbers) == len(COLUMNS):
            counts.update(
                {(kind, column): int(number.replace(",", "")) for column, number in zip(COLUMNS, numbers, strict=True)}
            )
    return counts


def run(
    program: Path, release: str, *, kinds: Sequence[str] = (), seed: int = 0, count: int = 1000, processes: int = 2,
    seconds: float = math.inf, folder: Path = FOUND, shrinks: bool = True,
) -> Counts:  # fmt: skip
    """Compare, print each disagreement and the figures, and write each disagreement of decisions as a test."""
    counts: Counts = Counter()
    chosen = tuple(kinds) or tuple(kind for kind in MAKERS if kind != groups.MODE or groups.are_in(release))
    first = seed * 1_000_000
    for one in compare(program, release, chosen, first, count, processes=processes, seconds=seconds, counts=counts):
        _say(f"{one.scenario['name']}: {'; '.join(one.lines)[:600]}")
        if shrinks and "objects" in one.scenario and "changes" not in one.scenario:
            smallest = shrink(program, one)
            path = write(folder, smallest.scenario, smallest.expected)
            _say(f"  the smallest input, of {len(smallest.scenario['objects'])} objects: {path}")
    _say(table(counts))
    return counts


def with_figures(page: str, release: str, text: str) -> str:
    """Return a page with ``text`` between the markers of a release.

    Raises  ValueError if the page has no markers of the release
    """
    begin, end = (f"<!-- differential {release}: {edge} -->" for edge in ("begin", "end"))
    before, is_there, rest = page.partition(begin)
    _, has_end, after = rest.partition(end)
    if not (is_there and has_end):
        raise ValueError(f"the page has no lines `{begin}` and `{end}`")
    return f"{before}{begin}\n{text}\n{end}{after}"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
