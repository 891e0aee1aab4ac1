"""Recorded answers of kube-scheduler 1.36.2 to configuration documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moorage.api.feature_gates import FeatureGates
from tools.recordings.config_answers import answer

RECORDED = Path(__file__).parents[2] / "data" / "conformance" / "config" / "v1.36.jsonl"
DOCUMENTS = {document["name"]: document for document in map(json.loads, RECORDED.read_text().splitlines())}
GOOD = {name: document for name, document in DOCUMENTS.items() if "profiles" in document["expected"]}
BAD = {name: document for name, document in DOCUMENTS.items() if name not in GOOD}
RELEASE = FeatureGates(release="1.36")
NOT_IN_SCHEME = 'no kind "{}" is registered for version "{}"'
#: What stops upstream before it looks for faults, or after: words that its text and ours share.
SHARED_WORDS = {
    "empty": ["Object 'Kind' is missing in ''"],
    "no-kind": ["Object 'Kind' is missing in 'apiVersion: kubescheduler.config.k8s.io/v1"],
    "wrong-kind": [NOT_IN_SCHEME.format("Pod", "v1")],
    "unknown-version": [NOT_IN_SCHEME.format("KubeSchedulerConfiguration", "kubescheduler.config.k8s.io/v7")],
    "removed-version": [NOT_IN_SCHEME.format("KubeSchedulerConfiguration", "kubescheduler.config.k8s.io/v1beta3")],
    "unknown-field": ['unknown field "parallelizm"'],
    "duplicate-field": ['line 4: key "parallelism" already set in map'],
    "wrong-type": ["json: cannot unmarshal string into Go struct field KubeSchedulerConfiguration.parallelism of type int32"],
    "unknown-plugin": ['FilterPlugin "Nope" does not exist'],
    "wrong-point": ['plugin "ImageLocality" does not extend FilterPlugin plugin'],
    "weight-neg": ["score plugins: total score of Score plugins could overflow"],
    "no-bind": ['at least one bind plugin is needed for profile with scheduler name "default-scheduler"'],
    "no-queuesort": ['only one queue sort plugin required for profile with scheduler name "default-scheduler", but got 0'],
    "args-unknown-field": ['unknown field "hardWeight"'],
    "args-wrong-type": [
        "cannot unmarshal string into Go struct field InterPodAffinityArgs.hardPodAffinityWeight of type int32"
    ],
    "fit-type": [
        'Unsupported value: "Random": supported values: "LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"'
    ],
    "fit-weight-0": ["Invalid value: 101: resource weight of memory not in valid range (0, 100]"],
    "fit-rtcr-missing": ["Required value: must be specified when type is RequestedToCapacityRatio"],
    "fit-rtcr-shape": [
        "Invalid value: 50: values must be sorted in increasing order",
        "Invalid value: 11: not in valid range [0, 10]",
    ],
    "fit-ignored": [
        "Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.'",
        "Invalid value: \"a/b\": resource group name can't contain '/'",
    ],
}


def test_all_recordings_are_here():
    assert (len(GOOD), len(BAD)) == (12, 50)


@pytest.mark.parametrize("document", GOOD.values(), ids=GOOD)
def test_a_valid_document_resolves_to_the_same_plugins(document):
    found = answer(document["name"], document["text"], RELEASE)
    assert (found["refused"], found["faults"]) == (False, [])
    assert found["profiles"] == document["expected"]["profiles"]


@pytest.mark.parametrize("document", BAD.values(), ids=BAD)
def test_an_invalid_document_is_rejected_at_the_same_fields(document):
    found = answer(document["name"], document["text"], RELEASE)
    assert found["refused"]
    recorded = document["expected"].get("faults")
    if recorded is not None:
        assert sorted({fault["field"] for fault in found["faults"]}) == sorted({fault["field"] for fault in recorded})


@pytest.mark.parametrize(
    ("document", "fault"),
    [(document, fault) for document in BAD.values() for fault in document["expected"].get("faults") or []],
    ids=lambda value: value.get("name") or value["field"],
)
def test_a_fault_has_the_recorded_message(document, fault):
    mine = [
        one["detail"] for one in answer(document["name"], document["text"], RELEASE)["faults"] if one["field"] == fault["field"]
    ]
    kind, _, rest = fault["detail"].partition(": ")
    words = rest.rpartition(": ")[2]
    # Upstream shows an empty object for the name that is there twice; the name says more.
    assert any(one.startswith(kind) and (words in one or words == "{}") for one in mine), mine


def test_other_faults_share_words_with_the_recording():
    assert list(SHARED_WORDS) == [name for name, document in BAD.items() if "faults" not in document["expected"]]


@pytest.mark.parametrize(("name", "words"), SHARED_WORDS.items(), ids=SHARED_WORDS)
def test_a_document_that_fails_to_load_has_the_recorded_message(name, words):
    expected = BAD[name]["expected"]
    recorded = expected.get("loadError") or expected["startError"]
    mine = [fault["detail"] for fault in answer(name, BAD[name]["text"])["faults"]]
    assert len(mine) == len(words)
    for one, detail in zip(words, mine, strict=True):
        assert one in recorded
        assert one in detail
