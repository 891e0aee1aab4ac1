"""Shrink a scenario on which the two sides disagree to a small one on which they still do."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

Document = dict[str, Any]

#: What each kind needs, and what is not worth taking away alone.
KEPT: Final = frozenset(
    [
        "apiVersion",
        "kind",
        "metadata",
        "name",
        "namespace",
        "uid",
        "containers",
        "nodeName",
        "allocationMode",
        "count",
        "generation",
    ]
)


def shrunk(scenario: Document, disagree: Callable[[Document], bool], tries: int = 400) -> Document:
    """Return the smallest scenario that was found in ``tries``: without objects, then without fields of those that are left."""
    left = tries
    best = scenario

    def attempt(candidate: Document) -> bool:
        nonlocal left, best
        left -= 1
        if disagree(candidate):
            best = candidate
            return True
        return False

    for field in ("config", "featureGates", "mode"):
        if field in best and left > 0:
            attempt({name: value for name, value in best.items() if name != field})
    size = max(1, len(best["objects"]) // 2)
    while left > 0:
        at, cut = 0, False
        while at < len(best["objects"]) and left > 0:
            objects = [*best["objects"][:at], *best["objects"][at + size :]]
            if attempt({**best, "objects": objects}):
                cut = True
            else:
                at += size
        if size == 1 and not cut:
            break
        size = max(1, size // 2)
    while left > 0 and any(attempt(one) for one in _without_a_field(best) if left > 0):
        pass
    return best


def _without_a_field(scenario: Document) -> Iterator[Document]:
    """Yield the scenario without one field of an object, or one item of a list, the highest first."""
    for at, thing in enumerate(scenario["objects"]):
        for path in sorted(_paths(thing), key=len):
            changed = copy.deepcopy(thing)
            inner: Any = changed
            for part in path[:-1]:
                inner = inner[part]
            del inner[path[-1]]
            yield {**scenario, "objects": [*scenario["objects"][:at], changed, *scenario["objects"][at + 1 :]]}


def _paths(thing: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items: Any = thing.items() if isinstance(thing, dict) else enumerate(thing) if isinstance(thing, list) else ()
    for name, value in items:
        if name not in KEPT:
            yield (*above, name)
        yield from _paths(value, (*above, name))


def write(folder: Path, scenario: Document, expected: Document) -> Path:
    """Write a scenario with the real answer as a test, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{scenario['name']}.json"
    path.write_text(json.dumps({**scenario, "expected": expected}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return path
