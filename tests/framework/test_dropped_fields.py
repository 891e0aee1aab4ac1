"""What closed gates hide of a pod, wherever it is."""

from __future__ import annotations

import pytest

from moorage.api.feature_gates import FeatureGates
from moorage.api.releases import find_release
from moorage.framework.dropped_fields import ignored_fields_note, pod_reader
from moorage.state.pod_info import PodInfo
from moorage.testing.builders import a_pod
from tools.recordings.answers import answer

LEVEL = "PodLevelResources"
RESIZED = "InPlacePodLevelResourcesVerticalScaling"

CASES = {  # closed gates, cpu of the pod as a whole, cpu that its status reports → cpu that counts
    "all open": ((), "2", None, 2000),
    "no requests as a whole": ((LEVEL, RESIZED), None, None, 500),
    "requests as a whole are hidden": ((LEVEL, RESIZED), "2", None, 500),
    "and so is their resize": ((LEVEL, RESIZED), "2", "3", 500),
    "a resize counts": ((), "2", "3", 3000),
    "a resize is hidden": ((RESIZED,), "2", "3", 2000),
    "there is no resize to hide": ((RESIZED,), "2", None, 2000),
}


def a_pod_with(whole, reported):
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]}
    if whole:
        spec["resources"] = {"requests": {"cpu": whole}}
    return a_pod(status={"resources": {"requests": {"cpu": reported}}} if reported else {}, **spec)


@pytest.mark.parametrize(("closed", "whole", "reported", "counts"), CASES.values(), ids=CASES)
def test_fields_of_a_disabled_gate_are_dropped(closed, whole, reported, counts):
    read = pod_reader(FeatureGates(dict.fromkeys(closed, False)))
    assert PodInfo(read(a_pod_with(whole, reported).pod)).needs.requests["cpu"] == counts


@pytest.mark.parametrize(("closed", "counts"), [((), 3000), ((RESIZED,), 500), ((LEVEL, RESIZED), 500)])
def test_what_the_kubelet_reports_of_a_whole_pod_is_hidden_too(closed, counts):
    status = {
        "resources": {"requests": {"cpu": "3"}},
        "allocatedResources": {"cpu": "3"},
        "containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}],
    }
    pod = a_pod(containers=[{"name": "c", "resources": {"requests": {"cpu": "500m"}}}], status=status).pod
    assert PodInfo(pod_reader(FeatureGates(dict.fromkeys(closed, False)))(pod)).needs.requests["cpu"] == counts


def test_pod_level_requests_of_placed_pods_are_ignored_without_the_gate():
    """kube-scheduler 1.36.2 answers as follows: one node fits, and has all but the pods' own words left."""

    def pod(name, **spec):
        return {"kind": "Pod", "metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}

    held = pod("held", nodeName="n", containers=[{"name": "c"}], resources={"requests": {"memory": "16Gi"}})
    wants = pod("wants", containers=[{"name": "c", "resources": {"requests": {"memory": "256Mi"}}}])
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"memory": "4Gi", "pods": "110"}}}
    scenario = {"name": "closed", "featureGates": {LEVEL: False, RESIZED: False}, "objects": [node, held, wants]}
    (result,) = answer(scenario)["results"]
    assert result["feasible"] == ["n"]
    assert result["scores"]["n"]["NodeResourcesFit"] == 88


IGNORED = {  # what the pod has → the releases that ignore it, and those that do not
    "scheduling gates": ({"schedulingGates": [{"name": "a/b"}]}, ["1.20", "1.24", "1.26"], ["1.27", "1.36"]),
    "claims": ({"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}, ["1.24", "1.28", "1.33"], ["1.34", "1.36"]),
    "requests of the pod": ({"resources": {"requests": {"cpu": "1"}}}, ["1.28", "1.33"], ["1.34", "1.36"]),
    "nothing": ({}, [], ["1.20", "1.24", "1.28", "1.33", "1.36"]),
}


@pytest.mark.parametrize(("spec", "ignoring", "counting"), IGNORED.values(), ids=IGNORED)
def test_a_note_names_the_pods_with_fields_that_the_release_ignores(spec, ignoring, counting):
    pods = [a_pod("plain").pod, a_pod("p", **spec).pod]
    for release in (*ignoring, *counting):
        name = find_release(release).name
        note = ignored_fields_note(pods, FeatureGates(release=name))
        expected = f"1 pod with fields that kube-scheduler {name} ignores: default/p" if release in ignoring else ""
        assert note == expected
