"""Compare which waiting pods a change of the cluster wakes, in Moorage and in a release of kube-scheduler.

``python -m tests.conformance.compare_hints RECORDER --release 1.34.7 --count 400`` changes random clusters, and prints for each
plugin how often both wake a pod that it rejected, or only one of them. Moorage wakes pods in more cases, on purpose
(docs/explanation/fidelity.md); each pod that only kube-scheduler wakes is printed. A cluster that differs is recorded again.

Exits with 1 if kube-scheduler wakes a pod that Moorage does not.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from tests.conformance.compare_random import AGAIN, BATCH, record
from tests.conformance.random_changes import changing_cluster
from tests.conformance.woken_pods import answered

Document = dict[str, Any]
#: The index of a change, the pod, its plugin, and whether kube-scheduler and Moorage wake it.
Answer = tuple[int, str, str, bool, bool]


def answers(document: Document, expected: Document) -> Iterator[Answer]:
    """Yield an answer for each change and each pod that waits in both."""
    for at, (change, theirs, ours) in enumerate(zip(document["changes"], expected["changes"], answered(document), strict=True)):
        for pod in sorted({*theirs["parked"]} & {*ours["parked"]}):
            yield at, pod, change["rejectedBy"][pod][0], pod in theirs["woken"], pod in ours["woken"]


def parked_differently(document: Document, expected: Document) -> set[str]:
    """Return the pods that wait in only one of the two."""
    pairs = zip(expected["changes"], answered(document), strict=True)
    return {pod for theirs, ours in pairs for pod in {*theirs["parked"]} ^ {*ours["parked"]}}


def _settled(recorder: str, document: Document, expected: Document) -> list[Answer]:
    """Return the answers; those that differ are recorded again, because handlers may take longer than the recorder waits."""
    found = list(answers(document, expected))
    for _ in range(AGAIN):
        if all(theirs == ours for *_, theirs, ours in found):
            break
        again = answers(document, record(recorder, [document])[0])
        found = [old if old[3] == old[4] else new for old, new in zip(found, again, strict=True)]
    return found


def main(arguments: Sequence[str]) -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recorder")
    parser.add_argument("--release", required=True)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--more", action="store_true", help="print the pods that only Moorage wakes, too")
    given = parser.parse_args(arguments)
    counts: Counter[tuple[str, str]] = Counter()
    for first in range(given.first, given.first + given.count, BATCH):
        documents = [changing_cluster(at, given.release) for at in range(first, min(first + BATCH, given.first + given.count))]
        for document, expected in zip(documents, record(given.recorder, documents), strict=True):
            if "changes" not in expected:
                counts["", "crashed"] += 1
                continue
            counts["", "parked differently"] += len(parked_differently(document, expected))
            for at, pod, plugin, theirs, ours in _settled(given.recorder, document, expected):
                kind = "both" if theirs and ours else "only there" if theirs else "only here" if ours else "neither"
                counts[plugin, kind] += 1
                if kind == "only there" or (given.more and kind == "only here"):
                    print(f"{document['name']} change {at}: {pod} rejected by {plugin}: {kind}", flush=True)
    names = ("both", "neither", "only here", "only there", "crashed", "parked differently")
    print(f"{'plugin':<20}" + "".join(f"{name:>20}" for name in names))
    for plugin in sorted({plugin for plugin, _ in counts}):
        print(f"{plugin or '-':<20}" + "".join(f"{counts[plugin, name]:>20}" for name in names))
    return 1 if any(kind == "only there" for _, kind in counts) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
