"""Every built-in kind of kube-apiserver 1.36 and 1.37: stored, defaulted, checked and shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from moorage.api.documents.served_kinds import ALL_KINDS, KINDS, REVIEWS, UNGATED_KINDS
from moorage.api.documents.statuses import ApiError
from moorage.api.schema.normalization import FieldTypeError, conform
from moorage.api.schema.schemas import kind_schema
from moorage.cluster.apiserver.tables.tables import table

EXAMPLES = yaml.safe_load((Path(__file__).parent / "every_kind.yaml").read_text("utf-8"))
BY_KIND = {one["object"]["kind"]: one for one in EXAMPLES}
#: What kube-apiserver 1.37 serves if no gate and no runtime configuration says otherwise, from its storage providers.
SERVED = """
ComponentStatus ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume PersistentVolumeClaim Pod PodTemplate
ReplicationController ResourceQuota Secret Service ServiceAccount MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration
CustomResourceDefinition APIService ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet HorizontalPodAutoscaler
CronJob Job CertificateSigningRequest Lease EndpointSlice FlowSchema PriorityLevelConfiguration IPAddress Ingress IngressClass
NetworkPolicy ServiceCIDR RuntimeClass PodDisruptionBudget ClusterRole ClusterRoleBinding Role RoleBinding DeviceClass
ResourceClaim ResourceClaimTemplate ResourceSlice PriorityClass CSIDriver CSINode CSIStorageCapacity StorageClass
VolumeAttachment VolumeAttributesClass ClusterTrustBundle PodCertificateRequest
""".split()  # noqa: SIM905
#: What a gate or a runtime configuration adds.
GATED = """
CompositePodGroup DeviceTaintRule Eviction EvictionRequest LeaseCandidate PodGroup ResourcePoolStatusRequest StorageVersion
StorageVersionMigration Workload
""".split()  # noqa: SIM905
#: What is created and not stored.
ASKED = """
Binding LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectReview SelfSubjectRulesReview SubjectAccessReview
TokenReview
""".split()  # noqa: SIM905


def kind_of(document):
    found = ALL_KINDS.find_type(document["apiVersion"], document["kind"])
    assert found is not None, document["kind"]
    return found


def value_at(document, path):
    for step in re.findall(r"[^.\[\]]+", path):
        document = document[int(step)] if step.isdigit() else document[step]
    return document


def create(store, document):
    kind = kind_of(document)
    return store.create(kind, "default" if kind.namespaced else "", yaml.safe_load(yaml.safe_dump(document)))


def test_every_kind_is_served():
    assert {kind.kind for kind in UNGATED_KINDS.served} == {*SERVED}
    assert {kind.kind for kind in KINDS} == {*SERVED, *GATED}
    assert {one.kind for one in REVIEWS} == {*ASKED}


@pytest.mark.parametrize("kind", BY_KIND)
def test_an_object_is_stored_with_defaults_and_shown(store, kind):
    example = BY_KIND[kind]
    made = create(store, example["object"]).document()
    for path, value in example.get("defaults", {}).items():
        assert value_at(made, path) == value, path
    shown = table(kind_of(made), [made], store.clock(), "None")
    (row,) = shown["rows"]
    assert len(row["cells"]) == len(shown["columnDefinitions"])
    assert row["cells"][1 : 1 + len(example["row"])] == example["row"]


@pytest.mark.parametrize("kind", BY_KIND)
def test_an_unchanged_update_keeps_the_generation(store, kind):
    made = create(store, BY_KIND[kind]["object"])
    document = made.document()
    updated = store.update(kind_of(document), document["metadata"].get("namespace", ""), document["metadata"]["name"], document)
    assert updated.document()["metadata"].get("generation") == document["metadata"].get("generation")


def changed(kind, path, value):
    """Return the example of a kind with another value at a path; None takes the field away."""
    document = yaml.safe_load(yaml.safe_dump(BY_KIND[kind]["object"]))
    *before, last = re.findall(r"[^.\[\]]+", path)
    held = value_at(document, ".".join(before)) if before else document
    if value is None:
        del held[last]
    else:
        held[int(last) if last.isdigit() else last] = value
    return document


PORTS = "spec.ingress[0].ports[1]"
METRICS = "spec.metrics[0]"
REFUSED = {  # kind, field, value, what kube-apiserver says
    "no side effects": ("ValidatingWebhookConfiguration", "webhooks[0].sideEffects", None,
                        "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun"),
    "a webhook of no place": ("ValidatingWebhookConfiguration", "webhooks[0].clientConfig", {},
                              "webhooks[0].clientConfig: Required value: exactly one of url or service is required"),
    "a long time": ("ValidatingWebhookConfiguration", "webhooks[0].timeoutSeconds", 31,
                    "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds"),
    "an unknown operation": (
        "ValidatingWebhookConfiguration", "webhooks[0].rules[0].operations", ["GET"],
        'webhooks[0].rules[0].operations[0]: Unsupported value: "GET": supported values: "*", "CONNECT", "CREATE", "DELETE"',
    ),
    "a policy for nothing": ("ValidatingAdmissionPolicy", "spec.matchConstraints", None,
                             "spec.matchConstraints: Required value"),
    "no action": ("ValidatingAdmissionPolicyBinding", "spec.validationActions", [], "spec.validationActions: Required value"),
    "an autoscaler of nothing": ("HorizontalPodAutoscaler", "spec.scaleTargetRef", {"kind": "Deployment"},
                                 "spec.scaleTargetRef.name: Required value"),
    "no highest number": ("HorizontalPodAutoscaler", "spec.maxReplicas", None,
                          "spec.maxReplicas: Required value"),
    "more than the most": ("HorizontalPodAutoscaler", "spec.minReplicas", 9,
                           "spec.maxReplicas: Invalid value: 5: must be greater than or equal to `minReplicas`"),
    "no source": ("HorizontalPodAutoscaler", "spec.metrics", [{"type": "Pods"}],
                  f"{METRICS}.pods: Required value: must populate information for the given metric source"),
    "another source": (
        "HorizontalPodAutoscaler", "spec.metrics",
        [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}, "pods": {}}],
        f"{METRICS}.pods: Forbidden: must populate the given metric source only",
    ),
    "no target": (
        "HorizontalPodAutoscaler", "spec.metrics",
        [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}],
        f"{METRICS}.resource.target.averageUtilization: Required value: must set either a target raw value or a target",
    ),
    "a short duration": ("CertificateSigningRequest", "spec.expirationSeconds", 5,
                         "spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 600 seconds"),
    "a lease of no time": ("Lease", "spec.leaseDurationSeconds", 0,
                           "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"),
    "no address type": ("EndpointSlice", "addressType", None, "addressType: Required value"),
    "no address": ("EndpointSlice", "endpoints[0].addresses", [],
                   "endpoints[0].addresses: Required value"),
    "a level of no name": ("FlowSchema", "spec.priorityLevelConfiguration", {},
                           "spec.priorityLevelConfiguration.name: Required value: must reference a priority level"),
    "a level without type": ("PriorityLevelConfiguration", "spec.type", None, "spec.type: Required value"),
    "no spec": ("IngressClass", "spec", None, "spec.controller: Required value"),
    "a range that ends before": ("NetworkPolicy", f"{PORTS}.endPort", 8,
                                 f"{PORTS}.endPort: Invalid value: 8: must be greater than or equal to `port`"),
    "a port of no number": ("NetworkPolicy", f"{PORTS}.port", 70000,
                            f"{PORTS}.port: Invalid value: 70000: must be between 1 and 65535, inclusive"),
    "no peer": ("NetworkPolicy", "spec.ingress[0].from[0]", {}, "spec.ingress[0].from[0]: Required value: must specify a peer"),
    "no block": ("NetworkPolicy", "spec.egress[0].to[0].ipBlock.cidr", "10",
                 'spec.egress[0].to[0].ipBlock.cidr: Invalid value: "10": must be a valid CIDR'),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "field", "value", "why"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_object_is_refused(store, kind, field, value, why):
    with pytest.raises(ApiError) as refused:
        create(store, changed(kind, field, value))
    assert refused.value.code == 422
    assert why in str(refused.value)


def test_a_field_of_the_wrong_type_is_refused():
    document = changed("HorizontalPodAutoscaler", "spec.maxReplicas", "five")
    with pytest.raises(FieldTypeError, match=r"cannot unmarshal string into .*\.maxReplicas of type int32"):
        conform(kind_schema(kind_of(document)), document)


@pytest.mark.parametrize("kind", BY_KIND)
def test_the_schema_has_every_field(kind):
    document = BY_KIND[kind]["object"]
    assert conform(kind_schema(kind_of(document)), yaml.safe_load(yaml.safe_dump(document)))[1] == []


def test_a_request_is_approved(store):
    made = create(store, BY_KIND["CertificateSigningRequest"]["object"]).document()
    kind = kind_of(made)
    made["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "Me"}]}
    held = store.update(kind, "", "me", made, subresource="status").document()
    (row,) = table(kind, [held], store.clock(), "None")["rows"]
    assert row["cells"][-1] == "Approved"


@pytest.mark.parametrize(("spec", "types"), [(None, ["Ingress"]), ({"egress": [{}]}, ["Ingress", "Egress"])])
def test_a_network_policy_is_about_incoming_traffic_and_stays_as_it_is(store, spec, types):
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "p", "namespace": "default"}}
    made = create(store, {**policy, **({} if spec is None else {"spec": spec})}).document()
    assert made["spec"]["policyTypes"] == types
    again = store.update(kind_of(made), "default", "p", made).document()
    assert again["metadata"]["generation"] == made["metadata"]["generation"]
