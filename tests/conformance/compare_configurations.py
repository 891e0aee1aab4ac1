"""Compare how Moorage and a release of kube-scheduler read configurations made at random.

``python -m tests.conformance.compare_configurations RECORDER --release 1.34.7 --count 1000`` prints a line for each difference:
a document that only one of them refuses, another list of plugins, other weights, or a fault for another field. It counts the
faults with other texts, and prints them with ``--texts``.

Exits with 1 if anything but a text differs.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tests.conformance.compare_random import comparison_parser, record
from tests.conformance.random_configurations import document
from tools.recordings.answers import answer

Document = dict[str, Any]

#: A profile without effect has other points than kube-scheduler's list, which repeats ``multiPoint``.
NOT_COMPARED: Final = frozenset(["multiPoint", "placementGenerate", "placementScore"])
#: Where the faults are that kube-scheduler finds when it starts, and so only if validation finds none: in arguments of
#: NodeResourcesFit, where 1.24 leaves ``scoringStrategy`` out of the path.
AT_THE_START: Final = re.compile(
    r"profiles\[\d+\]\.(plugins\.|pluginConfig\[\d+\]\.args\.(scoringStrategy|ignoredResource|resources|shape))"
)
TEXTS: Final = "texts"


def differences(expected: Document, ours: Document) -> Iterator[tuple[str, str]]:
    """Yield what differs, and the details."""
    is_refused = "profiles" not in expected
    if is_refused != ours["refused"]:
        yield "refused" if is_refused else "accepted", str(ours["faults"] or expected)[:400]
    elif not is_refused:
        yield from _of_profiles(expected["profiles"], ours["profiles"])
    elif "faults" in expected:
        yield from _of_faults(expected["faults"], ours["faults"])


def _of_profiles(expected: Document, ours: Document) -> Iterator[tuple[str, str]]:
    for name, points in expected.items():
        theirs = {point: plugins for point, one in points.items() if (plugins := _listed(point, one))}
        found = {_lower(point): plugins for point, plugins in theirs.items() if _lower(point) not in NOT_COMPARED}
        mine = {p: [*map(_as_list, plugins)] for p, plugins in ours.get(name, {}).items() if plugins and p not in NOT_COMPARED}
        for point in sorted(found.keys() | mine.keys()):
            if found.get(point) != mine.get(point):
                yield "plugins", f"{name} {point}: {found.get(point)}, here {mine.get(point)}"


def _listed(point: str, plugins: Document) -> list[Any]:
    listed = plugins.get("Enabled") or []
    return [[one["Name"], one["Weight"]] if point == "Score" else one["Name"] for one in listed]


def _as_list(plugin: Any) -> Any:
    return plugin if isinstance(plugin, str) else list(plugin)


def _lower(point: str) -> str:
    return point[0].lower() + point[1:]


def _of_faults(expected: Sequence[Document], ours: Sequence[Document]) -> Iterator[tuple[str, str]]:
    fields = sorted({one["field"] for one in expected if one.get("field")})
    kept = [one for one in ours if one["field"] in fields or not AT_THE_START.match(one["field"])]
    mine = sorted({one["field"] for one in kept})
    if fields != mine:
        yield "fields", f"{fields}, here {mine}"
        return
    texts = sorted(one["text"] for one in expected)
    my_texts = sorted(f"{one['field']}: {one['detail']}" if one["detail"] else one["field"] for one in kept)
    if texts != my_texts:
        yield TEXTS, f"{[one for one in texts if one not in my_texts]}, here {[one for one in my_texts if one not in texts]}"


def main(arguments: Sequence[str]) -> int:
    """Compare and print."""
    parser = comparison_parser(__doc__, 1000)
    parser.add_argument("--texts", action="store_true", help="print faults with other texts")
    given = parser.parse_args(arguments)
    documents = [document(seed, given.release) for seed in range(given.first, given.first + given.count)]
    counts: Counter[str] = Counter()
    for one, expected in zip(documents, record(given.recorder, documents), strict=True):
        if "crashed" in expected:
            counts["crashed"] += 1
            continue
        counts["accepted by both" if "profiles" in expected else "refused by both"] += 1
        for kind, details in differences(expected, answer(one)):
            counts[f"other {kind}"] += 1
            if kind != TEXTS or given.texts:
                print(f"{one['name']} {kind}: {details}", flush=True)
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    return 1 if any(name.startswith("other") and name != f"other {TEXTS}" for name in counts) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
