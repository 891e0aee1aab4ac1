"""The file that configures admission plugins: what it does, as kube-apiserver 1.37.2 does it, and what it may not say."""

import random
from contextlib import suppress

import pytest

from moorage.api.documents.http_messages import User
from moorage.api.documents.served_kinds import served
from moorage.api.documents.statuses import ApiError
from moorage.cluster.apiserver.admission_configuration import read_admission_configuration
from moorage.cluster.apiserver.http.serve import open_store
from moorage.errors import ConfigError, InputError
from moorage.rules.store.policy_requests import requested_by

FILE = """
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline, warn: restricted, warn-version: v1.30}
    exemptions: {namespaces: [free], usernames: [trusted], runtimeClasses: [sandbox]}
- name: ResourceQuota
  path: quota.yaml
"""
QUOTA = """
apiVersion: apiserver.config.k8s.io/v1
kind: ResourceQuotaConfiguration
limitedResources:
- resource: pods
  matchContains: [requests.example.com/gpu]
- resource: pods
  matchScopes:
  - {scopeName: PriorityClass, operator: In, values: [precious]}
- resource: persistentvolumeclaims
  matchContains: [gold.storageclass.storage.k8s.io/requests.storage]
"""
PODS, CLAIMS, SPACES = served("pods"), served("persistentvolumeclaims"), served("namespaces")
GPU = {"example.com/gpu": "1"}


@pytest.fixture
def store(tmp_path):
    (tmp_path / "config.yaml").write_text(FILE)
    (tmp_path / "quota.yaml").write_text(QUOTA)
    made = open_store(seed=1, admission=read_admission_configuration(tmp_path / "config.yaml"))
    made.needs_accounts = False
    for name, labels in (("plain", {}), ("free", {}), ("own", {"pod-security.kubernetes.io/enforce": "privileged"})):
        made.create(SPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "sandbox"}, "handler": "x"}
    made.create(served("runtimeclasses", "node.k8s.io"), "", runtime)
    precious = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "precious"}, "value": 5}
    made.create(served("priorityclasses", "scheduling.k8s.io"), "", precious)
    return made


def a_pod(name="p", resources=(), **spec):
    amounts = {"requests": dict(resources), "limits": dict(resources)}
    containers = [{"name": "c", "image": "i", "resources": amounts}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def refused(store, kind, namespace, document):
    with pytest.raises(ApiError) as found:
        store.create(kind, namespace, document)
    return found.value.code, str(found.value)


def test_namespaces_without_labels_have_the_default_levels(store):
    assert refused(store, PODS, "plain", a_pod(hostNetwork=True)) == (
        403, 'pods "p" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)',
    )  # fmt: skip
    with requested_by(User("me")) as warnings:
        store.create(PODS, "plain", a_pod())
    assert warnings[0].startswith('would violate PodSecurity "restricted:v1.30": ')


@pytest.mark.parametrize(("namespace", "spec"), [("free", {}), ("own", {}), ("plain", {"runtimeClassName": "sandbox"})])
def test_what_is_exempted_or_labelled_is_not_refused(store, namespace, spec):
    assert store.create(PODS, namespace, a_pod(hostNetwork=True, **spec))


def test_what_no_quota_covers_is_refused(store):
    gold = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "p"},
        "spec": {"storageClassName": "gold", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }  # fmt: skip
    assert refused(store, PODS, "plain", a_pod(resources=GPU)) == (
        403, 'pods "p" is forbidden: insufficient quota to consume: requests.example.com/gpu',
    )  # fmt: skip
    code, why = refused(store, CLAIMS, "plain", gold)
    assert (code, why.rpartition(": ")[2]) == (403, "gold.storageclass.storage.k8s.io/requests.storage")
    assert refused(store, PODS, "plain", a_pod(priorityClassName="precious")) == (
        500, "insufficient quota to match these scopes: [{PriorityClass In [precious]}]",
    )  # fmt: skip
    gold["spec"]["storageClassName"] = "silver"
    assert store.create(CLAIMS, "plain", gold)


def test_what_a_quota_covers_is_admitted_and_charged(store):
    kind, hard = served("resourcequotas"), {"requests.example.com/gpu": "1"}
    made = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}
    store.create(kind, "plain", made)
    status = {"hard": hard, "used": {"requests.example.com/gpu": "0"}}
    store.change(kind, "plain", "q", lambda quota: {**quota, "status": status}, subresource="status")
    store.create(PODS, "plain", a_pod(resources=GPU))
    assert store.get(kind, "plain", "q").document()["status"]["used"] == {"requests.example.com/gpu": "1"}
    assert "exceeded quota: q" in refused(store, PODS, "plain", a_pod("p2", resources=GPU))[1]
    scoped = {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "s"},
        "spec": {"hard": {"pods": "5"}, "scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "In", "values": ["precious"]},
        ]}},
    }  # fmt: skip
    store.create(kind, "plain", scoped)
    status = {"hard": {"pods": "5"}, "used": {"pods": "0"}}
    store.change(kind, "plain", "s", lambda quota: {**quota, "status": status}, subresource="status")
    assert store.create(PODS, "plain", a_pod("p3", priorityClassName="precious"))


SECURITY = (
    "{name: PodSecurity, configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration"
)
HEAD = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: ["
FAULTS = {
    "a webhook about images": (HEAD + "{name: ImagePolicyWebhook}]", "plugins[0].name", "ImagePolicyWebhook cannot"),
    "a limit of events": (HEAD + "{name: EventRateLimit}]", "plugins[0].name", "events are not limited"),
    "no plugin": (HEAD + "{name: Sideways}]", "plugins[0].name: Unsupported value", "PodSecurity and ResourceQuota have"),
    "one twice": (HEAD + "{name: PodSecurity}, {name: PodSecurity}]", "plugins[1].name: Duplicate value", ""),
    "no level": (HEAD + SECURITY + ", defaults: {enforce: x}}}]", "defaults.enforce: Invalid value", "one of privileged"),
    "no version": (HEAD + SECURITY + ", defaults: {warn-version: 3}}}]", "defaults.warn-version: Invalid value", "latest"),
    "no namespace": (HEAD + SECURITY + ", exemptions: {namespaces: [A_]}}}]", "exemptions.namespaces[0]", "RFC 1123"),
    "a user twice": (HEAD + SECURITY + ", exemptions: {usernames: [a, a]}}}]", "exemptions.usernames[1]: Duplicate value", ""),
    "a field that is not there": (HEAD + SECURITY + ", extra: 1}}]", "plugins[0].configuration.extra", "unknown field"),
    "another kind": ("apiVersion: v1\nkind: Pod", "kind: Unsupported value", "AdmissionConfiguration"),
    "no resource": (
        HEAD + "{name: ResourceQuota, configuration: {apiVersion: apiserver.config.k8s.io/v1, "
        "kind: ResourceQuotaConfiguration, limitedResources: [{}]}}]", "limitedResources[0].resource: Required value", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "place", "why"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_named_with_its_place(tmp_path, text, place, why):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError) as found:
        read_admission_configuration(tmp_path / "config.yaml")
    assert place in str(found.value)
    assert why in str(found.value)


@pytest.mark.parametrize("seed", range(40))
def test_any_text_is_read_or_refused(tmp_path, seed):
    """Random files: pieces of a right one, cut and joined."""
    draw = random.Random(seed)
    lines = FILE.replace("quota.yaml", "config.yaml").splitlines()
    text = "\n".join(draw.choice(lines) if draw.random() < 0.2 else line for line in lines if draw.random() < 0.9)
    (tmp_path / "config.yaml").write_text(text)
    with suppress(ConfigError, InputError):
        read_admission_configuration(tmp_path / "config.yaml")
