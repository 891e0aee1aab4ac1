"""Clusters made at random, and what the real kube-scheduler decided in them: ours must be the same, field by field.

``found``      what had once been answered otherwise here, reduced to what it takes
``generated``  those of 1,600 scenarios that together show the most of what specs, configurations, gates and answers can say

The answers are those of Kubernetes 1.36.2 with a distribution's patches, asked in its own process, one pod after the other. In
sequences, what a pod is given (its devices, its volumes) is reserved before the next one is judged.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from moorage.core.cycle.cycle import Cycle
from tools.recordings.answers import answer, reserve, without_post_filter
from tools.recordings.scenarios import load_scenario

FOLDER = Path(__file__).parent.parent / "data" / "conformance" / "generated"


def documents(name):
    return [json.loads(line) for line in gzip.decompress((FOLDER / f"{name}.jsonl.gz").read_bytes()).decode().splitlines()]


def agrees(field, expected, actual):
    if field == "postFilter":
        outcome = {k: v for k in ("nominated", "victims") if (v := (actual or {}).get(k))}
        told = {k: (actual or {}).get(k) or "" for k in ("code", "message")}
        return told == {k: expected[k] for k in ("code", "message")} and outcome in expected["anyOf"]
    if field == "filter":
        return expected == (actual or {})
    return expected == actual


def disagreements(document):
    results = {result["pod"]: result for result in answer(document)["results"]}
    for wanted in document["expected"]["results"]:
        got = results.get(wanted["pod"], {})
        fields = [field for field, expected in wanted.items() if not agrees(field, expected, got.get(field))]
        if fields or got.get("error"):
            yield f"{document['name']} {wanted['pod']}: {', '.join(fields)} {got.get('error', '')}"


def disagreements_by_class(document):
    """Place the pods by way of their classes: on one of the recorded best nodes, or nowhere, for the recorded reason."""
    scenario, cycle = load_scenario(document), Cycle(nominated_first=False)
    recorded = {result["pod"]: result for result in document["expected"]["results"]}
    for pod in scenario.pending:
        wanted = recorded[pod.key]
        profile = without_post_filter(scenario.profiles[pod.spec.scheduler_name])
        decision = cycle.decide(profile, pod, scenario.cluster.snapshot, scenario.nominated)
        found = wanted.get("best", [None])
        if decision.node not in found or decision.message != wanted.get("message", ""):
            yield f"{document['name']} {pod.key}: {decision.node} is not among {found}; {decision.message}"
        if "chosen" in wanted:
            scenario.cluster.assume(pod, wanted["chosen"])
            scenario.drop_nomination(pod.uid)
            reserve(profile, decision, wanted["chosen"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["found", "generated"])
def test_every_decision_is_the_real_ones(name):
    assert [line for document in documents(name) for line in disagreements(document)] == []


@pytest.mark.slow
def test_deciding_by_class_comes_to_the_same():
    sequences = [
        document for name in ("found", "generated") for document in documents(name) if document.get("mode") == "sequence"
    ]
    assert len(sequences) > 10
    assert [line for document in sequences for line in disagreements_by_class(document)] == []
