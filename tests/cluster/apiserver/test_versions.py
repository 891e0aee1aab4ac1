"""Every version of every built-in kind of kube-apiserver 1.37, and objects that are written in one and read in another."""

from __future__ import annotations

import json
import random
from contextlib import closing, suppress
from functools import partial

import pytest

from moorage.api.documents.served_kinds import (
    ALL_GATES,
    ALL_KINDS,
    REVIEWS,
    RUNTIME_CONFIG,
    UNGATED_KINDS,
    VERSIONS,
    group_versions,
    parse_runtime_config,
    served,
)
from moorage.api.documents.statuses import ApiError
from moorage.api.feature_gates import FeatureGates
from moorage.api.schema.protobuf import read_protobuf, write_protobuf
from moorage.api.schema.versions import convert
from moorage.cluster.apiserver.schema.discovery import group_list
from moorage.cluster.apiserver.schema.openapi import document_of
from moorage.errors import InputError
from moorage.rules.store.store import Store
from tools.attacks.objects import BUNDLE

#: The resources of the OpenAPI documents of Kubernetes 1.37, by group and version.
PUBLISHED = """
admissionregistration.k8s.io/v1 mutatingadmissionpolicies mutatingadmissionpolicybindings mutatingwebhookconfigurations
  validatingadmissionpolicies validatingadmissionpolicybindings validatingwebhookconfigurations
admissionregistration.k8s.io/v1alpha1 mutatingadmissionpolicies mutatingadmissionpolicybindings
admissionregistration.k8s.io/v1beta1 mutatingadmissionpolicies mutatingadmissionpolicybindings
apiextensions.k8s.io/v1 customresourcedefinitions
apiregistration.k8s.io/v1 apiservices
apps/v1 controllerrevisions daemonsets deployments replicasets statefulsets
authentication.k8s.io/v1 selfsubjectreviews tokenreviews
authorization.k8s.io/v1 localsubjectaccessreviews selfsubjectaccessreviews selfsubjectrulesreviews subjectaccessreviews
autoscaling/v1 horizontalpodautoscalers
autoscaling/v2 horizontalpodautoscalers
batch/v1 cronjobs jobs
certificates.k8s.io/v1 certificatesigningrequests clustertrustbundles podcertificaterequests
certificates.k8s.io/v1beta1 clustertrustbundles podcertificaterequests
coordination.k8s.io/v1 leases
coordination.k8s.io/v1alpha2 leasecandidates
coordination.k8s.io/v1beta1 leasecandidates
discovery.k8s.io/v1 endpointslices
events.k8s.io/v1 events
flowcontrol.apiserver.k8s.io/v1 flowschemas prioritylevelconfigurations
internal.apiserver.k8s.io/v1alpha1 storageversions
lifecycle.k8s.io/v1alpha1 evictionrequests evictions
networking.k8s.io/v1 ingressclasses ingresses ipaddresses networkpolicies servicecidrs
node.k8s.io/v1 runtimeclasses
policy/v1 poddisruptionbudgets
rbac.authorization.k8s.io/v1 clusterrolebindings clusterroles rolebindings roles
resource.k8s.io/v1 deviceclasses devicetaintrules resourceclaims resourceclaimtemplates resourceslices
resource.k8s.io/v1alpha3 devicetaintrules resourcepoolstatusrequests
resource.k8s.io/v1beta1 deviceclasses resourceclaims resourceclaimtemplates resourceslices
resource.k8s.io/v1beta2 deviceclasses devicetaintrules resourceclaims resourceclaimtemplates resourceslices
scheduling.k8s.io/v1 priorityclasses
scheduling.k8s.io/v1alpha3 compositepodgroups podgroups workloads
scheduling.k8s.io/v1beta1 podgroups workloads
storage.k8s.io/v1 csidrivers csinodes csistoragecapacities storageclasses volumeattachments volumeattributesclasses
storagemigration.k8s.io/v1 storageversionmigrations
storagemigration.k8s.io/v1beta1 storageversionmigrations
v1 bindings componentstatuses configmaps endpoints events limitranges namespaces nodes persistentvolumeclaims
  persistentvolumes pods podtemplates replicationcontrollers resourcequotas secrets serviceaccounts services
"""
BETA = {one for one in RUNTIME_CONFIG if "beta" in one}
#: The gates of 1.37 that pod groups and their trees need.
GROUPS = "GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true"


def published():
    found = [line.split() for line in PUBLISHED.replace("\n  ", " ").split("\n") if line]
    assert len(found) > 35
    return {(version, one) for version, *names in found for one in names}


def test_a_server_that_emulates_1_37_serves_every_version_of_every_kind_that_is_published_and_no_other():
    gates = FeatureGates.parse(",".join([GROUPS, *(f"{gate}=true" for gate in ALL_GATES)]), "1.37")
    every = parse_runtime_config("api/all")
    with closing(Store(lambda: 0.0, random.Random(1), b"k", gates=gates, runtime_config=every)) as store:
        assert {(one.api_version, one.resource) for one in (*store.kinds.served, *REVIEWS)} == published()
    groups = {"v1alpha2", "v1alpha3", "v1beta1"}
    today = FeatureGates.parse("GenericWorkload=true")
    assert groups & {version.partition("/")[2] for version in group_versions(today)} == {"v1beta1", "v1alpha3"}
    earlier = FeatureGates.parse("GenericWorkload=true", "1.36")
    assert groups & {version.partition("/")[2] for version in group_versions(earlier)} == {"v1alpha2"}


def test_the_preferred_version_of_a_group_is_the_stored_one():
    groups = {one["name"]: one for one in group_list(UNGATED_KINDS)["groups"]}
    assert [one["version"] for one in groups["autoscaling"]["versions"]] == ["v2", "v1"]
    assert [one["version"] for one in groups["resource.k8s.io"]["versions"]] == ["v1"]
    every = {one["name"]: one for one in group_list(ALL_KINDS)["groups"]}
    assert [one["version"] for one in every["resource.k8s.io"]["versions"]] == ["v1", "v1beta2", "v1beta1", "v1alpha3"]


TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}
MEMORY = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}
PODS = {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}}}
OBJECT = {
    "type": "Object",
    "object": {
        "describedObject": {"kind": "Service", "name": "web"},
        "metric": {"name": "hits", "selector": {"matchLabels": {"a": "b"}}},
        "target": {"type": "Value", "value": "100"},
    },
}  # fmt: skip
EXTERNAL = {
    "type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "30"}},
}  # fmt: skip
CONTAINER = {
    "type": "ContainerResource",
    "containerResource": {"name": "cpu", "container": "c", "target": {"type": "Utilization", "averageUtilization": 50}},
}  # fmt: skip
SLICE = {"driver": "gpu.example.com", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "nodeName": "n1"}
REQUEST = {"deviceClassName": "gpu", "count": 2, "allocationMode": "ExactCount"}
OLDEST = "OldestEmulationVersion"
#: Version, kind, the fields that a client sends in it, and those that are stored.
WRITTEN = {
    "a target of CPU": (
        "autoscaling/v1 HorizontalPodAutoscaler",
        {"spec": {"scaleTargetRef": TARGET, "maxReplicas": 5, "targetCPUUtilizationPercentage": 60}},
        {"spec": {"scaleTargetRef": TARGET, "maxReplicas": 5, "minReplicas": 1, "metrics": [CPU]}},
    ),
    "no target": (
        "autoscaling/v1 HorizontalPodAutoscaler",
        {"spec": {"scaleTargetRef": TARGET, "maxReplicas": 5}},
        {"spec": {"metrics": [{"resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]}},
    ),
    "a request": (
        "resource.k8s.io/v1beta1 ResourceClaim",
        {"spec": {"devices": {"requests": [{"name": "a", **REQUEST}]}}},
        {"spec": {"devices": {"requests": [{"name": "a", "exactly": REQUEST}]}}},
    ),
    "a request in a template": (
        "resource.k8s.io/v1beta1 ResourceClaimTemplate",
        {"spec": {"spec": {"devices": {"requests": [{"name": "a", **REQUEST}]}}}},
        {"spec": {"spec": {"devices": {"requests": [{"name": "a", "exactly": REQUEST}]}}}},
    ),
    "a device": (
        "resource.k8s.io/v1beta1 ResourceSlice",
        {"spec": {**SLICE, "devices": [{"name": "d", "basic": {"attributes": {"model": {"string": "x"}}}}]}},
        {"spec": {**SLICE, "devices": [{"name": "d", "attributes": {"model": {"string": "x"}}}]}},
    ),
    "a version of the same fields": (
        "resource.k8s.io/v1beta2 DeviceClass",
        {"spec": {"selectors": [{"cel": {"expression": "true"}}]}}, {"spec": {"selectors": [{"cel": {"expression": "true"}}]}},
    ),
    "a bundle": ("certificates.k8s.io/v1beta1 ClusterTrustBundle", {"spec": {"trustBundle": BUNDLE}}, {}),
    "a candidate": (
        "coordination.k8s.io/v1alpha2 LeaseCandidate",
        {"spec": {"leaseName": "l", "binaryVersion": "1.37.0", "emulationVersion": "1.37.0", "strategy": OLDEST}},
        {"spec": {"leaseName": "l"}},
    ),
}  # fmt: skip


def contains(whole, part):
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(name in whole and contains(whole[name], one) for name, one in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(contains, whole, part))
    return whole == part


@pytest.mark.parametrize(("what", "sent", "stored"), WRITTEN.values(), ids=WRITTEN)
def test_an_object_of_one_version_is_read_in_all(store, what, sent, stored):
    version, name = what.split()
    kind = ALL_KINDS.find_type(version, name)
    namespace = "default" if kind.namespaced else ""
    document = {"apiVersion": version, "kind": name, "metadata": {"name": "one"}, **json.loads(json.dumps(sent))}
    made = store.create(kind, namespace, document).document()
    assert made["apiVersion"] == version
    assert contains(made, sent)
    assert contains(store.get(kind.storage, namespace, "one").document(), stored)
    assert store.get(kind, namespace, "one").document() == made

    made["metadata"]["labels"] = {"a": "b"}
    changed = store.update(kind, namespace, "one", made).document()
    assert changed["metadata"]["labels"] == {"a": "b"}
    assert contains(store.get(kind.storage, namespace, "one").document(), stored)
    assert [one.document() for one in store.all(kind)] == [changed]
    assert read_protobuf(write_protobuf(changed))["apiVersion"] == version
    assert store.delete(kind, namespace, "one").record.document()["apiVersion"] == version
    assert store.find(kind.storage, namespace, "one") is None


@pytest.mark.parametrize("metrics", [[CPU, MEMORY], [MEMORY, CPU], [PODS, OBJECT, EXTERNAL, CONTAINER], [CPU, CPU]], ids=str)
def test_what_version_1_of_an_autoscaler_lacks_is_in_annotations(metrics):
    kind = served("horizontalpodautoscalers", "autoscaling", "v2")
    old = ALL_KINDS.find_type("autoscaling/v1", "HorizontalPodAutoscaler")
    document = {
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a", "annotations": {"x": "y"}},
        "spec": {
            "scaleTargetRef": TARGET, "maxReplicas": 3, "metrics": json.loads(json.dumps(metrics)),
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 1}},
        },
        "status": {
            "currentReplicas": 1, "desiredReplicas": 2,
            "conditions": [{"type": "AbleToScale", "status": "True", "reason": "r", "message": "m"}],
            "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 70}}}],
        },
    }  # fmt: skip
    before = json.loads(json.dumps(document))
    convert(old, kind, document)
    assert document["apiVersion"] == "autoscaling/v1"
    assert document["spec"].get("targetCPUUtilizationPercentage") == (60 if CPU in metrics else None)
    assert document["status"]["currentCPUUtilizationPercentage"] == 70
    assert not {"metrics", "behavior"} & document["spec"].keys()
    convert(kind, old, document)
    first = [one for one in before["spec"]["metrics"] if one == CPU][:1]
    others = [one for at, one in enumerate(before["spec"]["metrics"]) if at != metrics.index(CPU)] if first else metrics
    before["spec"]["metrics"] = [*first, *others]  # the one of CPU comes first
    assert contains(document, before)


@pytest.mark.parametrize("text", ["{", "1", "[1]", '[{"type": "Pods", "pods": 1}]', '[{"type": 5}]', '{"a": 1}'])
@pytest.mark.parametrize("name", ["metrics", "behavior", "current-metrics", "conditions"])
def test_an_annotation_that_holds_no_fields_is_refused(store, name, text):
    kind = ALL_KINDS.find_type("autoscaling/v1", "HorizontalPodAutoscaler")
    document = {
        "metadata": {"name": "a", "annotations": {f"autoscaling.alpha.kubernetes.io/{name}": text}},
        "spec": {"scaleTargetRef": TARGET, "maxReplicas": 5},
    }  # fmt: skip
    create = partial(store.create, kind, "default", {"apiVersion": kind.api_version, "kind": kind.kind, **document})
    if name == "metrics" or text == "{":
        with pytest.raises(ApiError) as refused:
            create()
        assert refused.value.code in {400, 422}
    else:  # a status, which no client sets here, or an unknown field of a behavior
        with suppress(ApiError):
            assert not (create().document().get("status") or {}).get("conditions")


def test_every_version_is_described_with_its_own_names():
    for kind in VERSIONS:
        document = document_of(f"apis/{kind.group}/{kind.version}", ALL_KINDS)
        own = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        found = [
            one for one in document["components"]["schemas"].values()
            if own in one.get("x-kubernetes-group-version-kind", ())
        ]  # fmt: skip
        assert len(found) == 1, kind.api_version
        assert "spec" in found[0]["properties"]


@pytest.mark.parametrize(
    ("text", "adds"),
    [
        ("", set()), ("api/all=true", RUNTIME_CONFIG), ("lifecycle.k8s.io/v1alpha1=true", {"lifecycle.k8s.io/v1alpha1"}),
        ("api/beta=true,resource.k8s.io/v1beta1=false", {one for one in BETA if one != "resource.k8s.io/v1beta1"}),
        ("resource.k8s.io/v1beta2", {"resource.k8s.io/v1beta2"}),
    ],
)  # fmt: skip
def test_a_runtime_config(text, adds):
    assert parse_runtime_config(text) == adds


@pytest.mark.parametrize(
    "text", ["scheduling.k8s.io/v1beta1=true", "apps/v1", "v1=true", "authentication.k8s.io/v1=true", "autoscaling/v2=true"]
)
def test_a_version_that_is_served_anyway_may_be_named(text):
    """kube-apiserver serves pod groups with GenericWorkload and such a setting."""
    assert parse_runtime_config(text) == frozenset()


@pytest.mark.parametrize("text", ["apps/v2=true", "api/none", "resource.k8s.io/v1beta1=yes", "="])
def test_a_runtime_config_that_names_no_version(text):
    with pytest.raises(InputError, match="is no version to add"):
        parse_runtime_config(text)
