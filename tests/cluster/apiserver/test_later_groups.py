"""Workloads and pod groups of 1.37: the versions that are served, their forms, and what may change."""

import pytest

from moorage.api.documents.served_kinds import KindTable, find_kind, group_versions
from moorage.api.feature_gates import FeatureGates
from moorage.api.schema.versions import convert

OPEN = "GenericWorkload=true"
SERVED = {"1.36": ["v1alpha2"], "1.37": ["v1alpha3", "v1beta1"]}
POLICY = {"gang": {"minCount": 2}}


@pytest.mark.parametrize("release", SERVED)
def test_each_release_serves_its_versions(release):
    for text, versions in ((OPEN, SERVED[release]), ("", [])):
        table = KindTable(group_versions(FeatureGates.parse(text, release)))
        found = [kind.version for kind in table.served if kind.kind in {"PodGroup", "Workload"}]
        assert sorted(found) == sorted([*versions, *versions])


SPECS = {
    "a template and a mode": {"workloadRef": {"workloadName": "w", "templateName": "t"}, "disruptionMode": {"all": {}}},
    "what the stored version lacks": {"preemptionPolicy": "Never", "parentCompositePodGroupName": "tree"},
    "one by one": {"disruptionMode": {"single": {}}, "priority": 3},
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("version", ["v1alpha3", "v1beta1"])
def test_a_group_comes_back_as_it_was_written(version, spec):
    kind = find_kind("podgroups", "scheduling.k8s.io", version)
    given = {"schedulingPolicy": POLICY, **spec}
    document = {"apiVersion": kind.api_version, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": dict(given)}
    convert(kind.storage, kind, document)
    assert document["apiVersion"] == "scheduling.k8s.io/v1alpha2"
    assert "workloadRef" not in document["spec"]
    convert(kind, kind.storage, document)
    assert (document["spec"], "annotations" in document["metadata"]) == (given, False)


def test_the_templates_of_a_workload_come_back_as_they_were_written():
    kind = find_kind("workloads", "scheduling.k8s.io", "v1beta1")
    templates = [
        {"name": "a", "schedulingPolicy": POLICY, "disruptionMode": {"all": {}}, "preemptionPolicy": "Never"},
        {"name": "b", "schedulingPolicy": {"basic": {}}},
    ]
    document = {"apiVersion": kind.api_version, "kind": "Workload", "metadata": {"name": "w"},
                "spec": {"podGroupTemplates": [dict(one) for one in templates]}}  # fmt: skip
    convert(kind.storage, kind, document)
    convert(kind, kind.storage, document)
    found = document["spec"]["podGroupTemplates"]
    assert [{name: value for name, value in one.items() if value is not None} for one in found] == templates
