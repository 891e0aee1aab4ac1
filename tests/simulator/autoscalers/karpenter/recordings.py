"""Decisions that Karpenter itself made, recorded, and ours beside them.

``recorded.jsonl.gz`` has lines of two forms: the instance types of cases, by ``hash``, and cases. A case has the
objects as they were, and what Karpenter 226646810 answered in process, with a client in memory and the fake cloud
provider: ``provision`` (claims, pods on nodes that exist, pods that fit nowhere), ``compute`` (what to do with these
candidates) or ``command`` (the next command). ``title`` is the upstream test that the state was taken from, or
``random``. ``ties``: Karpenter's own answer differs from run to run, because types have equal prices or domains equal
counts, so only the numbers of claims, pods and types are compared.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from moorage.api.pod_requests import amount
from moorage.laboratory.cluster_objects import read_given
from moorage.simulator.autoscalers import KINDS, InstanceType, Karpenter, KeyRequirement, Offering, PriceList
from moorage.simulator.autoscalers.karpenter import solve as solving
from moorage.simulator.autoscalers.karpenter.consolidation import DisruptionCommand
from moorage.simulator.autoscalers.karpenter.solve import LaunchPlan
from moorage.simulator.autoscalers.key_requirements import WELL_KNOWN

PATH = Path(__file__).with_name("recorded.jsonl.gz")


@cache
def recorded() -> tuple[list[dict[str, Any]], dict[str, list[Any]]]:
    """Return the cases, and the types by hash."""
    lines = [json.loads(line) for line in gzip.decompress(PATH.read_bytes()).splitlines()]
    return [one for one in lines if "title" in one], {one["hash"]: one["types"] for one in lines if "hash" in one}


def _requirements(given: list[dict[str, Any]]) -> dict[str, KeyRequirement]:
    return {
        one["key"]: KeyRequirement(
            one["key"],
            frozenset(one["values"]),
            one.get("complement", False),
            one.get("gte"),
            one.get("lte"),
            one.get("minValues"),
        )
        for one in given
    }


def _type(given: dict[str, Any]) -> InstanceType:
    amounts = ({name: amount(name, text) for name, text in (given[key] or {}).items()} for key in ("capacity", "overhead"))
    offerings = tuple(
        Offering(_requirements(one["requirements"]), one["price"], one["available"]) for one in given["offerings"]
    )
    return InstanceType(given["name"], _requirements(given["requirements"]), *amounts, offerings)


@cache
def price_list_of(name: str) -> PriceList:
    held = [_type(one) for one in recorded()[1].get(name, ())]
    keys = {key for one in held for key in (*one.requirements, *(key for of in one.offerings for key in of.requirements))}
    return PriceList(tuple(held), "USD", "2026-08-20", WELL_KNOWN | keys)


def karpenter_of(case: dict[str, Any]) -> Karpenter:
    given = read_given(case["objects"], validated=False, custom=KINDS)
    return Karpenter(given, price_list_of(case["types"]), now_s=case["now"], spot_to_spot=case.get("spotToSpot", False))


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """Return our answer, in the form of the recorded one. ``max``: upstream's tests pass on fewer types than Karpenter does."""
    with patch.object(solving, "_MOST_TYPES", case.get("max", 600)):
        return _answer(case)


def _answer(case: dict[str, Any]) -> dict[str, Any]:
    judged = karpenter_of(case)
    if case["kind"] == "provision":
        return _planned(
            judged.plan, {pod.metadata.uid: pod.key for pod in (*judged.cluster.pending, *judged.cluster.displaced)}
        )
    if case["kind"] == "compute":
        found = judged._disruptor.compute([judged._candidates[name] for name in case["candidates"]])
        return _command(found)
    return _command(judged.next_command())


def _planned(plan: LaunchPlan, names: dict[str, str]) -> dict[str, Any]:
    claims = [
        [held.pool.name, sorted(pod.key for pod in held.pods), sorted(one.name for one in held.types)] for held in plan.claims
    ]
    existing = {node: sorted(pod.key for pod in pods) for node, pods in sorted(plan.placed.items())}
    return {"claims": sorted(claims), "existing": existing, "errors": sorted(names[uid] for uid in plan.errors)}


def _command(found: DisruptionCommand | None) -> dict[str, Any]:
    if found is None or found.decision == "no-op":
        return {"decision": "no-op", "removed": [], "types": [], "why": "" if found is None else " ".join(found.why.split())}
    types = sorted(one.name for claim in found.claims for one in claim.types)
    return {"decision": found.decision, "removed": sorted(one.name for one in found.candidates), "types": types}


def numbers(answer: dict[str, Any]) -> Any:
    """Return what holds however ties are broken."""
    if "claims" in answer:
        claims = sorted((pool, len(pods)) for pool, pods, _ in answer["claims"])
        return claims, sorted(map(len, answer["existing"].values())), len(answer["errors"])
    return answer["decision"], len(answer["removed"]), len(answer["types"])


def differences(cases: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> Iterator[str]:
    """Yield the cases with another answer than Karpenter's."""
    for case in cases:
        want, got = case["answer"], answer(case)
        why = want.get("why", "")
        if why and not got.get("why", "").startswith(why[:40]):
            yield f"{case['title']}: Karpenter: {why!r}, we: {got.get('why')!r}"
        want, got = ({key: value for key, value in one.items() if key != "why"} for one in (want, got))
        if want != got and not (case.get("ties") and numbers(want) == numbers(got)):
            yield f"{case['title']}: Karpenter: {want}, we: {got}"
