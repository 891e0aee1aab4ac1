"""Test which pod fields kube-scheduler 1.21 keeps."""

from __future__ import annotations

import pytest

from moorage.api.feature_gates import FeatureGates
from moorage.framework.dropped_fields import pod_reader
from moorage.state.pod_info import PodInfo
from moorage.testing.builders import a_pod

READ = pod_reader(FeatureGates({"PodOverhead": True}, "1.21"))
SAME = {"labelSelector": {"matchLabels": {"a": "b"}}}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **SAME}
TERM = {"topologyKey": "zone", **SAME}


def near(**more):
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{**TERM, **more}]}}


def requesting(**requests):
    return [{"name": "c", "resources": {"requests": requests}}]


NEWER = {  # fields of a current pod, what 1.21 keeps of them
    "sidecars": (
        {"initContainers": [{"name": "s", "restartPolicy": "Always"}]}, {"initContainers": [{"name": "s"}]},
    ),
    "gates": ({"schedulingGates": [{"name": "wait"}]}, {}),
    "pod-level requests": ({"resources": {"requests": {"cpu": "1"}}}, {}),
    "device claims": ({"resourceClaims": [{"name": "gpu", "resourceClaimName": "x"}]}, {}),
    "minDomains": ({"topologySpreadConstraints": [{**SPREAD, "minDomains": 2}]}, {"topologySpreadConstraints": [SPREAD]}),
    "node inclusion policies": (
        {"topologySpreadConstraints": [{**SPREAD, "nodeTaintsPolicy": "Honor", "nodeAffinityPolicy": "Ignore"}]},
        {"topologySpreadConstraints": [SPREAD]},
    ),
    "match label keys of spread constraints": (
        {"topologySpreadConstraints": [{**SPREAD, "matchLabelKeys": ["v"]}]},
        {"topologySpreadConstraints": [SPREAD]},
    ),
    "match label keys of affinity terms": ({"affinity": near(matchLabelKeys=["v"])}, {"affinity": near()}),
    "namespace selectors": ({"affinity": near(namespaceSelector={})}, {"affinity": near()}),
}  # fmt: skip


@pytest.mark.parametrize(("written", "kept"), NEWER.values(), ids=NEWER)
def test_newer_fields_are_dropped(written, kept):
    assert READ(a_pod(**written).pod) == a_pod(**kept).pod


ROUNDED = {  # requests of the containers, the pod's total request
    "whole units": ([{"cpu": "100m"}, {"cpu": "0.2"}], ("cpu", 300)),
    "less than a thousandth": ([{"cpu": "100u"}, {"cpu": "100u"}], ("cpu", 2)),
    "fractions of a byte": ([{"memory": "100m"}, {"memory": "1.5"}], ("memory", 3)),
}


@pytest.mark.parametrize(("requests", "expected"), ROUNDED.values(), ids=ROUNDED)
def test_requests_are_rounded_per_container(requests, expected):
    pod = a_pod(containers=[{"name": f"c{at}", "resources": {"requests": one}} for at, one in enumerate(requests)])
    name, amount = expected
    assert PodInfo(READ(pod.pod)).needs.requests[name] == amount


def test_invalid_requests_stay():
    pod = a_pod(containers=requesting(cpu="lots")).pod
    assert READ(pod) is pod


def test_a_pod_without_newer_fields_is_the_same_object():
    pod = a_pod(containers=requesting(cpu="1"), affinity=near(), topologySpreadConstraints=[SPREAD], overhead={"cpu": "1"}).pod
    assert READ(pod) is pod


GATES = {  # gate, the fields it guards, whether they stay by default
    "PodAffinityNamespaceSelector": ({"affinity": near(namespaceSelector={})}, False),
    "PodOverhead": ({"overhead": {"cpu": "1"}}, True),
    "GenericEphemeralVolume": ({"volumes": [{"name": "v", "ephemeral": {}}]}, True),
    "LocalStorageCapacityIsolation": ({"containers": requesting(**{"ephemeral-storage": "1Gi"})}, True),
}


@pytest.mark.parametrize(("gate", "written", "default"), [(gate, *row) for gate, row in GATES.items()], ids=GATES)
@pytest.mark.parametrize("setting", [None, True, False])
def test_gates_decide_which_fields_stay(gate, written, default, setting):
    gates = FeatureGates({} if setting is None else {gate: setting}, "1.21")
    pod = a_pod(**written).pod
    assert (pod_reader(gates)(pod) == pod) is (default if setting is None else setting)


def test_the_current_release_keeps_every_field():
    for written, _ in NEWER.values():
        pod = a_pod(**written).pod
        assert pod_reader(FeatureGates())(pod) is pod
