"""Compare how Moorage and a release of kube-scheduler read configurations made at random, most of them with faults.

Another list of plugins, other weights, and a fault for another field are disagreements; faults for the same fields with other
texts are counted apart, as Moorage shows values as written where Go shows its own structures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

Document = dict[str, Any]

#: A profile without effect has other points than kube-scheduler's list, which repeats ``multiPoint``; and a configuration
#: cannot say here which plugins preempt for a pod group.
NOT_COMPARED: Final = frozenset(["multiPoint", "placementGenerate", "placementScore", "podGroupPostFilter"])
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


#: Plugins whose PreFilter only says, since 1.37, that Filter has nothing to do.
ONLY_SKIPPING: Final = frozenset(["NodeName", "NodeUnschedulable", "TaintToleration"])


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
    if point == "PreFilter":
        listed = [one for one in listed if one["Name"] not in ONLY_SKIPPING]
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
