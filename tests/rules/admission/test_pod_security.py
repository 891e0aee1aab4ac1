"""Pod security admission: what each level demands in each version, whom it is for, and its labels and exemptions.

``pod_security_answers.json`` has what kube-apiserver 1.37.2 answered to a pod for each control in namespaces of each level and
version: for each text, the versions in which it says so; "" where it accepts the pod.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from moorage.api.documents.http_messages import User
from moorage.api.documents.served_kinds import served
from moorage.api.documents.statuses import ApiError
from moorage.rules.admission.pod_security import LEVELS, PodSecurity, SecurityLevel, SecurityPolicy, parse_version
from moorage.rules.admission.pod_security_standards import violations
from moorage.rules.store.policy_requests import requested_by
from moorage.rules.store.store import Store

RECORDED = json.loads(Path(__file__).with_name("pod_security_answers.json").read_text("utf-8"))
LABEL = "pod-security.kubernetes.io/"
PLAIN = {"containers": [{"name": "c", "image": "i"}]}
NEWEST = 37
#: What a plain pod violates of ``restricted``.
OF_PLAIN = (
    'allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), '
    'unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), '
    'runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), '
    'seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
)
PODS, NAMESPACES, DEPLOYMENTS = served("pods"), served("namespaces"), served("deployments", "apps")


@pytest.mark.parametrize("row", RECORDED, ids=[row["pod"] for row in RECORDED])
def test_a_control_reads_as_that_of_kube_apiserver(row):
    for level, answers in row["answers"].items():
        for text, versions in answers.items():
            for version in versions:
                number = NEWEST if version == "latest" else version
                found = violations(level, number, {"annotations": row["annotations"]}, row["spec"])
                assert ", ".join(map(str, found)) == text, f"{level} {version}"


def test_every_control_is_recorded():
    reasons = {
        "forbidden AppArmor profile", "non-default capabilities", "host namespaces", "hostPath volumes", "hostPort",
        "probe or lifecycle host", "privileged", "procMount", "seLinuxOptions", "seccompProfile", "forbidden sysctls",
        "hostProcess", "allowPrivilegeEscalation != false", "unrestricted capabilities", "restricted volume types",
        "runAsNonRoot != true", "runAsUser=0",
    }  # fmt: skip
    texts = [text for row in RECORDED for answers in row["answers"].values() for text in answers]
    assert {reason for reason in reasons if not any(reason in text for text in texts)} == set()


def labelled(**modes):
    return {f"{LABEL}{mode.replace('_', '-')}": value for mode, value in modes.items()}


def in_namespace(store, **modes):
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "berth", "labels": labelled(**modes)}}
    return store.create(NAMESPACES, "", document)


def a_pod(spec=PLAIN, **metadata):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "heron", **metadata}, "spec": json.loads(json.dumps(spec))}


def a_deployment(spec=PLAIN):
    template = {"metadata": {"labels": {"app": "a"}}, "spec": json.loads(json.dumps(spec))}
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "mast"}, "spec": spec}


def written(store, kind, document, user="jane"):
    """Create an object; return the error, if there is one, and the warnings."""
    with requested_by(User(user)) as warnings:
        try:
            store.create(kind, "berth", document)
        except ApiError as error:
            return error, warnings
    return None, warnings


LEVEL_CASES = {  # labels → the level that refuses a plain pod, the one that warns about it, and about a deployment
    "nothing": ({}, "", "", ""),
    "enforced": ({"enforce": "restricted"}, "restricted:latest", "", "restricted:latest"),
    "a version": ({"enforce": "restricted", "enforce_version": "v1.25"}, "restricted:v1.25", "", "restricted:v1.25"),
    "a weaker level": ({"enforce": "baseline"}, "", "", ""),
    "a warning": ({"warn": "restricted"}, "", "restricted:latest", "restricted:latest"),
    "a warning of a version": (
        {"warn": "restricted", "warn_version": "v1.30"}, "", "restricted:v1.30", "restricted:v1.30",
    ),
    "enforced, and no warning": ({"enforce": "restricted", "warn": "privileged"}, "restricted:latest", "", ""),
    "an audit": ({"audit": "restricted"}, "", "", ""),
    "a warning of a version that is enforced": (
        {"enforce": "restricted", "warn_version": "v1.30"}, "restricted:latest", "", "restricted:v1.30",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("labels", "refused", "warned", "of_workload"), LEVEL_CASES.values(), ids=LEVEL_CASES)
def test_modes(store, labels, refused, warned, of_workload):
    in_namespace(store, **labels)
    error, warnings = written(store, PODS, a_pod())
    if refused:
        assert (error.code, error.reason) == (403, "Forbidden")
        assert str(error) == f'pods "heron" is forbidden: violates PodSecurity "{refused}": {OF_PLAIN}'
    else:
        assert error is None
    assert warnings == ([f'would violate PodSecurity "{warned}": {OF_PLAIN}'] if warned else [])
    error, warnings = written(store, DEPLOYMENTS, a_deployment())
    assert error is None
    assert warnings == ([f'would violate PodSecurity "{of_workload}": {OF_PLAIN}'] if of_workload else [])


WORKLOADS = {
    "deployments.apps": {"spec": {"selector": {"matchLabels": {"app": "a"}}, "template": {}}},
    "replicasets.apps": {"spec": {"selector": {"matchLabels": {"app": "a"}}, "template": {}}},
    "statefulsets.apps": {"spec": {"selector": {"matchLabels": {"app": "a"}}, "template": {}}},
    "daemonsets.apps": {"spec": {"selector": {"matchLabels": {"app": "a"}}, "template": {}}},
    "replicationcontrollers": {"spec": {"selector": {"app": "a"}, "template": {}}},
    "podtemplates": {"template": {}},
    "jobs.batch": {"spec": {"template": {}}},
    "cronjobs.batch": {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {}}}}},
}


@pytest.mark.parametrize("resource", WORKLOADS)
def test_every_workload_warns(store, resource):
    in_namespace(store, enforce="restricted")
    name, _, group = resource.partition(".")
    kind = served(name, group)
    never = {"restartPolicy": "Never"} if group == "batch" else {}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {**PLAIN, **never}}
    text = json.dumps(WORKLOADS[resource]).replace('"template": {}', f'"template": {json.dumps(template)}')
    document = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "w"}, **json.loads(text)}
    error, warnings = written(store, kind, document)
    assert error is None
    assert warnings == [f'would violate PodSecurity "restricted:latest": {OF_PLAIN}']


BAD_LABELS = {
    "a level": (
        {"enforce": "sideways"},
        'enforce]: Invalid value: "sideways": must be one of privileged, baseline, restricted',
    ),
    "a version": ({"warn_version": "1.25"}, 'warn-version]: Invalid value: "1.25": must be "latest" or "v1.x"'),
    "a leading zero": ({"audit_version": "v1.05"}, 'audit-version]: Invalid value: "v1.05": must be "latest" or "v1.x"'),
    "another major version": ({"audit_version": "v2.5"}, 'audit-version]: Invalid value: "v2.5": must be "latest" or "v1.x"'),
}


@pytest.mark.parametrize(("labels", "why"), BAD_LABELS.values(), ids=BAD_LABELS)
def test_labels_of_a_namespace_are_checked(store, labels, why):
    with pytest.raises(ApiError) as refused:
        in_namespace(store, **labels)
    assert refused.value.code == 422
    assert str(refused.value) == f'Namespace "berth" is invalid: metadata.labels[{LABEL}{why}'


def test_labels_that_were_invalid_before_may_stay(store):
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "berth", "labels": labelled(enforce="sideways")}}
    document["spec"] = {"finalizers": ["kubernetes"]}
    held = store.adopt(NAMESPACES, document).document()
    held["metadata"]["labels"]["a"] = "b"
    store.update(NAMESPACES, "", "berth", held)
    assert "restricted:latest" in str(written(store, PODS, a_pod())[0]), "an invalid level enforces the strictest"
    held = store.get(NAMESPACES, "", "berth").document()
    held["metadata"]["labels"][f"{LABEL}enforce"] = "upwards"
    with pytest.raises(ApiError, match="upwards"):
        store.update(NAMESPACES, "", "berth", held)


RELABELLED = {  # labels before and after → the warnings
    "stricter": (
        {}, {"enforce": "restricted"}, [
            'existing pods in namespace "berth" violate the new PodSecurity enforce level "restricted:latest"',
            ("aaa (and 2 other pods): allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, "
             "seccompProfile"),
            ("host: host namespaces, allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, "
             "seccompProfile"),
        ],
    ),
    "baseline": (
        {}, {"enforce": "baseline"}, [
            'existing pods in namespace "berth" violate the new PodSecurity enforce level "baseline:latest"',
            "host: host namespaces",
        ],
    ),
    "relaxed": ({"enforce": "restricted"}, {"enforce": "baseline"}, []),
    "another version": (
        {"enforce": "restricted"}, {"enforce": "baseline", "enforce_version": "v1.20"}, [
            'existing pods in namespace "berth" violate the new PodSecurity enforce level "baseline:v1.20"',
            "host: host namespaces",
        ],
    ),
    "only a warning": ({}, {"warn": "restricted"}, []),
    "privileged": ({"enforce": "baseline"}, {"enforce": "privileged"}, []),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after", "expected"), RELABELLED.values(), ids=RELABELLED)
def test_a_new_level_warns_about_pods_that_are_there(store, before, after, expected):
    held = in_namespace(store).document()
    for name in ("heron", "aaa", "zzz"):
        store.create(PODS, "berth", a_pod() | {"metadata": {"name": name}})
    store.create(PODS, "berth", a_pod({**PLAIN, "hostPID": True}) | {"metadata": {"name": "host"}})
    for labels in (before, after):
        held = store.get(NAMESPACES, "", "berth").document()
        held["metadata"]["labels"] = {"kubernetes.io/metadata.name": "berth", **labelled(**labels)}
        with requested_by(User("jane")) as warnings:
            store.update(NAMESPACES, "", "berth", held)
    assert warnings == expected


def test_an_update_is_checked_if_it_changes_images(store):
    in_namespace(store)
    store.create(PODS, "berth", a_pod())
    held = store.get(NAMESPACES, "", "berth").document()
    held["metadata"]["labels"].update(labelled(enforce="restricted"))
    store.update(NAMESPACES, "", "berth", held)
    pod = store.get(PODS, "berth", "heron").document()
    pod["metadata"]["labels"] = {"a": "b"}
    pod = store.update(PODS, "berth", "heron", pod).document()
    pod["spec"]["containers"][0]["image"] = "other"
    with pytest.raises(ApiError, match="violates PodSecurity"):
        store.update(PODS, "berth", "heron", pod)
    pod = store.get(PODS, "berth", "heron").document()
    pod["spec"]["ephemeralContainers"] = [{"name": "d", "image": "i"}]
    with pytest.raises(ApiError, match='containers "c", "d" must set'):
        store.update(PODS, "berth", "heron", pod, subresource="ephemeralcontainers")
    pod = store.get(PODS, "berth", "heron").document()
    pod["status"]["phase"] = "Running"
    store.update(PODS, "berth", "heron", pod, subresource="status")


EXEMPT = {
    "a user": {"users": frozenset(["jane"])},
    "a namespace": {"namespaces": frozenset(["berth"])},
    "a runtime class": {"runtime_classes": frozenset(["gvisor"])},
}


@pytest.mark.parametrize("given", EXEMPT.values(), ids=EXEMPT)
def test_exemptions(clock, given):
    store = Store(clock, random.Random(7), b"k", pod_security=PodSecurity(NEWEST, **given))
    store.adopt(
        served("runtimeclasses", "node.k8s.io"),
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "gvisor"}, "handler": "h"},
    )
    with requested_by(User("jane")) as warnings:
        in_namespace(store, enforce="restricted", audit_version="v1.25")
    ignored = 'namespace "berth" is exempt from Pod Security, and the policy (enforce=restricted:latest, '
    ignored += "warn=restricted:latest) will be ignored"
    expected = ignored.replace(", warn=restricted:latest", "") if "namespaces" in given else ""
    assert warnings == ([expected] if expected else [])
    spec = {**PLAIN, "runtimeClassName": "gvisor"}
    assert written(store, PODS, a_pod(spec)) == (None, [])
    assert written(store, DEPLOYMENTS, a_deployment(spec)) == (None, [])
    if "users" in given:
        assert written(store, PODS, a_pod(spec, generateName="x-") | {"metadata": {"name": "other"}}, user="joe")[0] is not None


def test_defaults_are_for_namespaces_without_labels(clock):
    policy = SecurityPolicy(enforce=SecurityLevel("restricted", 25))
    store = Store(clock, random.Random(7), b"k", pod_security=PodSecurity(NEWEST, policy))
    in_namespace(store)
    assert 'violates PodSecurity "restricted:v1.25"' in str(written(store, PODS, a_pod())[0])


def test_a_version_after_that_of_the_cluster_is_that_of_the_cluster():
    security = PodSecurity(33)
    probe = {"httpGet": {"port": 80, "host": "x"}}
    spec = {"containers": [{"name": "c", "image": "i", "livenessProbe": probe}]}
    for version, newest, refused in (("v1.34", 37, True), ("v1.34", 33, False), ("latest", 33, False), ("latest", 34, True)):
        security = PodSecurity(newest)
        labels = labelled(enforce="baseline", enforce_version=version)
        if refused:
            with pytest.raises(ApiError, match="probe or lifecycle host"):
                security.admit(PODS, labels, "", None, a_pod(spec, namespace="berth"))
        else:
            assert security.admit(PODS, labels, "", None, a_pod(spec, namespace="berth")) == []


def test_levels_are_ordered():
    assert LEVELS == ("privileged", "baseline", "restricted")
    assert [parse_version(text) for text in ("latest", "v1.0", "v1.37", "v1.", "1.2", "v1.01")] == [-1, 0, 37, None, None, None]
