"""Which pods were made from a template: those that have all that it says."""

from copy import deepcopy

import pytest

from moorage.api.documents.object_fields import DAEMON_SETS, STATEFUL_SETS
from moorage.rules.workloads.made_from import is_made_from, unknown_revision

TEMPLATE = {
    "metadata": {"labels": {"app": "x"}, "annotations": {"a": "1"}},
    "spec": {
        "containers": [{"name": "c", "image": "i:1", "env": [{"name": "A", "value": "b"}], "resources": {}}],
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "volumes": None,
        "hostname": None,
        "hostNetwork": False,
    },
}
POD = {
    "metadata": {"name": "x-0", "labels": {"app": "x", "more": "yes"}, "annotations": {"a": "1", "injected": "yes"}},
    "spec": {
        "nodeName": "n",
        "containers": [
            {"name": "c", "image": "i:1", "env": [{"name": "Z"}, {"name": "A", "value": "b"}], "resources": {"requests": {}}},
            {"name": "sidecar", "image": "s"},
        ],
        "tolerations": [{"key": "added"}, {"key": "k", "operator": "Exists"}],
        "serviceAccountName": "default",
    },
}


def with_change(document, *path, value):
    changed = deepcopy(document)
    held = changed
    for name in path[:-1]:
        held = held[name]
    held[path[-1]] = value
    return changed


CASES = {  # the pod, and whether it is of the template
    "as it was made, and more": (POD, True),
    "another image": (with_change(POD, "spec", "containers", 0, "image", value="i:2"), False),
    "the image in another container": (with_change(POD, "spec", "containers", 0, "name", value="d"), False),
    "another label": (with_change(POD, "metadata", "labels", "app", value="y"), False),
    "no annotation": (with_change(POD, "metadata", "annotations", value=None), False),
    "a variable less": (with_change(POD, "spec", "containers", 0, "env", value=[]), False),
    "another toleration": (with_change(POD, "spec", "tolerations", 1, "operator", value="Equal"), False),
    "an invalid spec": (with_change(POD, "spec", value="x"), False),
    "containers that are none": (with_change(POD, "spec", "containers", value={"name": "c"}), False),
}


@pytest.mark.parametrize(("pod", "is_of_it"), CASES.values(), ids=CASES)
def test_a_pod_matches_its_template(pod, is_of_it):
    assert is_made_from(pod, TEMPLATE) is is_of_it


def labelled(revision, pod=POD, **labels):
    return with_change(pod, "metadata", "labels", value={"app": "x", "controller-revision-hash": revision, **labels})


def owner(status=None, **metadata):
    return {"metadata": {"name": "x", "generation": 2, **metadata}, "spec": {"template": TEMPLATE}, "status": status or {}}


OLD = with_change(POD, "spec", "containers", 0, "image", value="i:0")
COUNTED = {"annotations": {"deprecated.daemonset.template.generation": "3"}}
SAID = {"observedGeneration": 2, "updateRevision": "x-b"}
REVISIONS = {  # the set's kind, the set, its pods, the revisions that are there, and the one to be made again
    "none": (STATEFUL_SETS, owner(), [], [], ""),
    "a pod's": (STATEFUL_SETS, owner(), [labelled("x-a")], [], "x-a"),
    "a daemon's": (DAEMON_SETS, owner(), [labelled("a")], [], "x-a"),
    "known": (DAEMON_SETS, owner(), [labelled("a")], ["x-a"], ""),
    "another template's": (STATEFUL_SETS, owner(), [labelled("x-a", OLD)], [], ""),
    "that of most pods": (STATEFUL_SETS, owner(), [labelled("x-a"), labelled("x-b"), labelled("x-b")], [], "x-b"),
    "as the status says": (STATEFUL_SETS, owner(SAID), [labelled("x-b", OLD)], [], "x-b"),
    "a status of before": (STATEFUL_SETS, owner(SAID, generation=3), [labelled("x-b", OLD)], [], ""),
    "as often changed": (DAEMON_SETS, owner(**COUNTED), [labelled("b", OLD, **{"pod-template-generation": "3"})], [], "x-b"),
    "changed since": (DAEMON_SETS, owner(**COUNTED), [labelled("b", OLD, **{"pod-template-generation": "2"})], [], ""),
    "another set's": (STATEFUL_SETS, owner(), [labelled("y-a")], [], ""),
    "without a label": (DAEMON_SETS, owner(), [POD], [], ""),
}


@pytest.mark.parametrize(("kind", "held", "pods", "known", "made"), REVISIONS.values(), ids=REVISIONS)
def test_the_revision_that_pods_of_the_template_name(kind, held, pods, known, made):
    assert unknown_revision(kind, held, pods, known) == made
