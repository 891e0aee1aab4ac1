"""What kubectl and other clients send is answered as by kube-apiserver v1.36.2.

``recorded_honest.json.gz`` holds its answers (a distribution's build, without controllers) to the requests for some kinds:
label, code, media type, warnings and body, with uids, versions and times of its own.
"""

import gzip
import json
from pathlib import Path

import pytest

from moorage.testing.attacks.honest_comparison import honest_answers, recorded_differences

RECORDED = Path(__file__).parent / "recorded_honest.json.gz"
RESOURCES = ("configmaps", "deployments", "nodes", "persistentvolumeclaims", "pods", "services", "things")


@pytest.fixture(scope="module")
def recorded():
    return [tuple(one) for one in json.loads(gzip.decompress(RECORDED.read_bytes()))]


@pytest.mark.slow
def test_the_answers_are_those_of_kube_apiserver(recorded):
    assert len(recorded) > 300
    assert recorded_differences(recorded, RESOURCES) == []


@pytest.mark.slow
def test_a_changed_answer_is_found(recorded):
    changed = [one for one in recorded if one[1] == 200 and one[0].startswith("get: GET /api/v1/namespaces/honest/pods/")]
    changed[0][4]["spec"]["nodeName"] = "elsewhere"
    assert ".spec.nodeName: nothing here, elsewhere there" in "".join(recorded_differences(recorded, RESOURCES))


@pytest.mark.slow
def test_a_sequence_that_parts_is_found(recorded):
    assert recorded_differences(recorded[:-1], RESOURCES)[0].startswith("the sequences part at")


def test_answers_are_of_the_chosen_kinds():
    answers = honest_answers(resources=["leases"])
    labels = [one[0] for one in answers]
    assert labels[0] == "create the namespace: POST /api/v1/namespaces?fieldManager=kubectl-create&fieldValidation=Strict"
    assert any(label.startswith("watch the changes: GET /apis/coordination.k8s.io/v1") for label in labels)
    assert not any("configmaps" in label for label in labels)
