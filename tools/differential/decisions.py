"""Compare decisions: every field of what kube-scheduler and Moorage say of each pending pod of a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from moorage.errors import MoorageError
from tools.differential.oracle import record
from tools.recordings.answers import answer
from tools.recordings.comparing import agrees, differing

Document = dict[str, Any]

#: How often kube-scheduler is asked again: it iterates over maps in random order, and any of its answers is right.
AGAIN: Final = 8


def differences(expected: Mapping[str, Any], scenario: Document) -> list[str]:
    """Return what differs: a refused configuration, or the fields of each pod's result."""
    try:
        results = {one["pod"]: one for one in answer(scenario)["results"]}
    except MoorageError as error:
        return [] if "refused" in expected else [f"refused: {error}"]
    if "refused" in expected:
        return [f"not refused: {expected['refused']}"]
    found = []
    for wanted in expected["results"]:
        given = results.get(wanted["pod"], {})
        fields = differing(as_it_went(wanted, given), given)
        found += [f"{wanted['pod']}: {', '.join(fields)}"] if fields else []
    return found


def as_it_went(wanted: Document, given: Mapping[str, Any]) -> Document:
    """Return what kube-scheduler answers where its preemption chooses as in ``given``: the texts may name the node chosen."""
    seen = wanted.get("postFilter", {}).get("anyOf", ())
    if not any("event" in one for one in seen):
        return wanted
    outcomes = [{name: value for name, value in one.items() if name not in {"message", "event"}} for one in seen]
    for told, outcome in zip(seen, outcomes, strict=True):
        if agrees(
            "postFilter", {**wanted["postFilter"], "message": told["message"], "anyOf": [outcome]}, given.get("postFilter")
        ):
            post = {**wanted["postFilter"], "message": told["message"], "anyOf": [outcome]}
            return {**wanted, "message": told["event"], "postFilter": post}
    return {**wanted, "postFilter": {**wanted["postFilter"], "anyOf": outcomes}}


def settled(program: Path, scenario: Document, expected: Document) -> list[str]:
    """Return what differs each time that kube-scheduler is asked; nothing if its process ends with a fault."""
    if "crashed" in expected:
        return []
    found = differences(expected, scenario)
    for _ in range(AGAIN):
        if not found:
            break
        repeated = record(program, [scenario])[0]
        again = [] if "crashed" in repeated else differences(repeated, scenario)
        found = [line for line in found if line.split(":")[0] in {one.split(":")[0] for one in again}]
    return found
