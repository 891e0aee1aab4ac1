"""Compare which waiting pods a change of the cluster wakes, in Moorage and in a release of kube-scheduler.

``python -m tests.conformance.compare_hints RECORDER --release 1.34.7 --count 400`` changes random clusters, and prints for each
plugin how often both wake a pod that it rejected, or only one of them. Moorage wakes pods in more cases, on purpose
(docs/explanation/fidelity.md); each pod that only kube-scheduler wakes is printed. A cluster that differs is recorded again.
``--kind`` chooses what changes: other objects than the pod, also while the pod is being tried, or the pod itself.

Exits with 1 if kube-scheduler wakes a pod that Moorage does not.
"""

from __future__ import annotations

import sys
from argparse import BooleanOptionalAction
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from tests.conformance.compare_random import add_limits, batches_in_time, comparison_parser, record, recorded_ahead
from tests.conformance.random_changes import IN_FLIGHT, KINDS_OF_SCENARIO, changing_cluster
from tests.conformance.woken_pods import answered

Document = dict[str, Any]
AGAIN = 2
#: The index of a change, the pod, its plugin, and whether kube-scheduler and Moorage wake it.
Answer = tuple[int, str, str, bool, bool]


def answers(document: Document, theirs: Document, ours: Sequence[Document]) -> Iterator[Answer]:
    """Yield an answer for each change and each pod that waits in both."""
    for at, (change, there, here) in enumerate(zip(document["changes"], theirs["changes"], ours, strict=True)):
        for pod in sorted({*there["parked"]} & {*here["parked"]}):
            yield at, pod, _rejecter(change, pod), pod in there["woken"], pod in here["woken"]


def _rejecter(change: Document, pod: str) -> str:
    """Return the plugin that rejects a pod, and whether the pod is in flight during the change."""
    flying = change.get("inFlight", {})
    return f"{''.join(flying[pod]) or 'error'} {IN_FLIGHT}" if pod in flying else change["rejectedBy"][pod][0]


def parked_differently(theirs: Document, ours: Sequence[Document]) -> set[str]:
    """Return the pods that wait in only one of the two."""
    pairs = zip(theirs["changes"], ours, strict=True)
    return {pod for there, here in pairs for pod in {*there["parked"]} ^ {*here["parked"]}}


def settled(recorder: str, document: Document, theirs: Document, ours: Sequence[Document]) -> list[Answer]:
    """Return the answers. Those with a pod that only kube-scheduler wakes are recorded again."""
    found = list(answers(document, theirs, ours))
    for _ in range(AGAIN):
        if all(here or not there for *_, there, here in found):
            break
        again = answers(document, record(recorder, [document])[0], ours)
        found = [old if old[4] or not old[3] else new for old, new in zip(found, again, strict=True)]
    return found


def main(arguments: Sequence[str]) -> int:
    """Compare and print."""
    parser = comparison_parser(__doc__, 400)
    parser.add_argument("--more", action="store_true", help="print the pods that only Moorage wakes, too")
    parser.add_argument("--hints", action=BooleanOptionalAction, help="open or close the gate SchedulerQueueingHints")
    parser.add_argument("--kind", choices=KINDS_OF_SCENARIO, default="", help="what changes; the default is other objects")
    add_limits(parser)
    given = parser.parse_args(arguments)
    gates = {} if given.hints is None else {"SchedulerQueueingHints": given.hints}
    counts: Counter[tuple[str, str]] = Counter()

    def made(seed: int) -> Document:
        return {**changing_cluster(seed, given.release, given.kind), "featureGates": gates}

    for documents, recorded in recorded_ahead(given.recorder, batches_in_time(given), given.processes, made):
        for document, expected in zip(documents, recorded, strict=True):
            if "changes" not in expected:
                counts["", "crashed"] += bool(document["changes"])
                continue
            ours = answered(document)
            counts["", "clusters"] += 1
            counts["", "changes"] += len(ours)
            counts["", "parked differently"] += len(parked_differently(expected, ours))
            for at, pod, plugin, there, here in settled(given.recorder, document, expected, ours):
                kind = "both" if there and here else "only there" if there else "only here" if here else "neither"
                counts[plugin, kind] += 1
                if kind == "only there" or (given.more and kind == "only here"):
                    print(f"{document['name']} change {at}: {pod} rejected by {plugin}: {kind}", flush=True)
    names = ("both", "neither", "only here", "only there", "crashed", "parked differently")
    print(f"{counts['', 'clusters']} clusters, {counts['', 'changes']} changes")
    print(f"{'plugin':<30}" + "".join(f"{name:>20}" for name in names))
    for plugin in sorted({plugin for plugin, _ in counts}):
        print(f"{plugin or '-':<30}" + "".join(f"{counts[plugin, name]:>20}" for name in names))
    totals = {name: sum(count for (_, one), count in counts.items() if one == name) for name in names}
    print(f"{'all':<30}" + "".join(f"{totals[name]:>20}" for name in names))
    return 1 if any(kind == "only there" for _, kind in counts) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
