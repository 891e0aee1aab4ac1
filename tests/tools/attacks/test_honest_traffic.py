"""What kubectl and other clients send is answered as by kube-apiserver v1.36.2.

``recorded_honest.json.gz`` holds its answers (a distribution's build, without controllers) to the requests for some kinds:
label, code, media type, warnings and body, with uids, versions and times of its own.
"""

import gzip
import json
from pathlib import Path

import pytest

from tools.attacks.honest_comparison import honest_answers, honest_differences

RECORDED = Path(__file__).parent / "recorded_honest.json.gz"
RESOURCES = ("configmaps", "deployments", "limitranges", "nodes", "poddisruptionbudgets", "pods", "services", "things")


@pytest.fixture(scope="module")
def recorded():
    return [tuple(one) for one in json.loads(gzip.decompress(RECORDED.read_bytes()))]


@pytest.fixture(scope="module")
def answers():
    return honest_answers(resources=RESOURCES)


@pytest.mark.slow
def test_the_answers_are_those_of_kube_apiserver(answers, recorded):
    assert len(recorded) > 400
    assert [*honest_differences(answers, recorded)] == []


@pytest.mark.slow
def test_a_changed_answer_is_found(answers, recorded):
    at = next(i for i, one in enumerate(recorded) if one[0].startswith("get: GET /api/v1/namespaces/honest/pods/"))
    label, code, *rest, body = recorded[at]
    changed = (label, code, *rest, {**body, "spec": {**body["spec"], "nodeName": "elsewhere"}})
    found = [*honest_differences(answers, [*recorded[:at], changed, *recorded[at + 1 :]])]
    assert found == [f"{label}\n    body at .spec.nodeName: nothing here, elsewhere there"]


@pytest.mark.slow
def test_a_sequence_that_parts_is_found(answers, recorded):
    assert next(honest_differences(answers, recorded[1:])).startswith("the sequences part at 'create the namespace")


@pytest.mark.slow
def test_the_sequence_covers_what_clients_do(answers):
    labels = {one[0].partition(":")[0] for one in answers}
    assert {"watch the changes", "apply", "scale", "restart", "bind", "resize", "evict", "list the next page"} <= labels


def watch_of(resource, *labels):
    body = [{"type": "MODIFIED", "object": {"metadata": {"labels": {"a": label}}}} for label in labels]
    return (f"watch the changes: GET /api/v1/namespaces/honest/{resource}?watch=1", 200, "application/json", [], body)


@pytest.mark.parametrize(
    ("resource", "ours", "theirs", "count"),
    [
        ("persistentvolumeclaims", "bc", "abc", 0), ("persistentvolumeclaims", "bc", "bac", 0),
        ("persistentvolumeclaims", "bc", "cb", 2), ("persistentvolumeclaims", "abc", "ab", 1), ("pods", "bc", "abc", 1),
    ],
)  # fmt: skip
def test_a_kube_apiserver_may_write_some_kinds_unchanged(resource, ours, theirs, count):
    assert len([*honest_differences([watch_of(resource, *ours)], [watch_of(resource, *theirs)])]) == count
