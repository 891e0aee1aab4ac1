"""Validation: rejected objects, unusual but valid objects, and allowed updates."""

import copy

import pytest

from moorage.api.documents.served_kinds import find_kind
from moorage.api.documents.statuses import ApiError
from moorage.api.feature_gates import FeatureGates
from moorage.api.fields.managed_fields import FieldManager
from moorage.cluster.apiserver.schema.request_bodies import Body, form_of_kind, normalized_body, object_of
from moorage.rules.admission.quota_usage import qos_class
from moorage.rules.admission.update_validation import change_faults, resize_faults


def pod(container=None, meta=None, **spec):
    containers = [{"name": "c", "image": "i", **(container or {})}]
    return "pods", {"metadata": {"name": "p", **(meta or {})}, "spec": {"containers": containers, **spec}}


def of(resource, **document):
    return resource, {"metadata": {"name": "x"}, **document}


def create(store, resource, document, **more):
    name, _, group = resource.partition(".")
    kind = find_kind(name, group)
    fit, _ = normalized_body(form_of_kind(kind), Body(copy.deepcopy(document)), "Warn")
    home = "default" if kind.namespaced else None
    return store.create(kind, home or "", object_of(kind, fit, home, ""), **more)


ports = lambda **port: pod({"ports": [{"containerPort": 80, **port}]})  # noqa: E731


def stateful(mount, claim="data"):
    """Return a stateful set with a mount and a claim for each pod."""
    container = {"name": "c", "image": "i", "volumeMounts": [{"name": mount, "mountPath": "/x"}]}
    claimed = {"metadata": {"name": claim}, "spec": CLAIM}
    return of("statefulsets.apps", spec={
        "serviceName": "x", "selector": {"matchLabels": {"a": "b"}}, "volumeClaimTemplates": [claimed],
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container], "hostname": "Not_A_Name"}},
    })  # fmt: skip


CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
REFUSED = {
    "a mount of no claim": (stateful("other"), 'volumeMounts[0].name: Not found: "other"'),
    "an unqualified finalizer": (pod(meta={"finalizers": ["x"]}), "metadata.finalizers[0]: Invalid value"),
    "an owner without uid": (
        pod(meta={"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": ""}]}),
        "metadata.ownerReferences[0].uid: Required value: must not be empty",
    ),
    "no containers": (("pods", {"metadata": {"name": "p"}}), "spec.containers: Required value"),
    "no image": (pod({"image": ""}), "spec.containers[0].image: Required value"),
    "no image in a template": (
        of("deployments.apps", spec={
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}},
        }),
        "spec.template.spec.containers[0].image: Required value",
    ),
    "no such pull policy": (
        pod({"imagePullPolicy": "X"}),
        'imagePullPolicy: Unsupported value: "X": supported values: "Always", "IfNotPresent", "Never"',
    ),
    "an invalid address": (ports(hostPort=80, hostIP="x"), "ports[0].hostIP: Invalid value"),
    "an address with a zone": (ports(hostPort=80, hostIP="fe80::1%eth0"), "ports[0].hostIP: Invalid value"),
    "a negative port": (ports(hostPort=-1), "hostPort: Invalid value: -1: must be between 1 and 65535, inclusive"),
    "another protocol": (ports(protocol="ICMP"), 'protocol: Unsupported value: "ICMP"'),
    "a mount of nothing": (pod({"volumeMounts": [{"name": "v", "mountPath": "/x"}]}), 'volumeMounts[0].name: Not found: "v"'),
    "two mounts in one place": (
        pod({"volumeMounts": [{"name": "v", "mountPath": "/x"}] * 2}, volumes=[{"name": "v"}]),
        'volumeMounts[1].mountPath: Invalid value: "/x": must be unique',
    ),
    "two sources": (
        pod(volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}]),
        "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
    ),
    "a nameless variable": (pod({"env": [{"name": ""}]}), "env[0].name: Required value"),
    "a wrong variable": (pod({"env": [{"name": "a=b"}]}), 'env[0].name: Invalid value: "a=b"'),
    "no time at all": (pod(activeDeadlineSeconds=0), "must be between 1 and 2147483647, inclusive"),
    "a wrong hostname": (pod(hostname="a_b"), 'spec.hostname: Invalid value: "a_b"'),
    "gated and placed": (
        pod(schedulingGates=[{"name": "a"}], nodeName="n"),
        "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
    ),
    "ephemeral from the start": (pod(ephemeralContainers=[{"name": "e", "image": "i"}]), "Forbidden: cannot be set on create"),
    "a priority of one's own": (pod(priority=5), "the integer value of priority (5) must not be provided in pod spec"),
    "a class that is not": (pod(priorityClassName="x"), "no PriorityClass with name x was found"),
    "a runtime that is not": (pod(runtimeClassName="x"), 'pod rejected: RuntimeClass "x" not found'),
    "a key that is no file name": (of("configmaps", data={"a b": "x"}), 'data[a b]: Invalid value: "a b": a valid config key'),
    "a key that leads up": (of("secrets", data={"..": ""}), "must not be '..'"),
    "an event about elsewhere": (
        of("events", involvedObject={"namespace": "other"}), "involvedObject.namespace: Invalid value",
    ),
    "a lease for no time": (
        of("leases.coordination.k8s.io", spec={"leaseDurationSeconds": 0}), "leaseDurationSeconds: Invalid value: 0",
    ),
    "a service without ports": (of("services", spec={}), "spec.ports: Required value"),
    "a volume of nothing": (
        of("persistentvolumes", spec={"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}),
        "spec: Required value: must specify a volume type",
    ),
    "a reserved name": (
        ("priorityclasses.scheduling.k8s.io", {"metadata": {"name": "system-x"}}), "reserved for system use only",
    ),
    "taints twice": (
        of("nodes", spec={"taints": [{"key": "a", "effect": "NoSchedule"}] * 2}),
        "taints must be unique by key and effect pair",
    ),
    "two bounds": (
        of("poddisruptionbudgets.policy", spec={"selector": {}, "minAvailable": 1, "maxUnavailable": 1}),
        "minAvailable and maxUnavailable cannot be both set",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "message"), REFUSED.values(), ids=REFUSED)
def test_invalid_objects(store, sent, message):
    with pytest.raises(ApiError) as refused:
        create(store, *sent)
    assert refused.value.code in {403, 422}
    assert message in str(refused.value)


ACCEPTED = {
    "a mount of a claim that each pod gets": stateful("data"),
    "ten thousand containers": pod(containers=[{"name": f"c{i}", "image": "i"} for i in range(10_000)]),
    "a thousand terms": pod(
        affinity={
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": str(i)}}} for i in range(1000)
                ]
            }
        }
    ),
    "a uid, a time and a deletion of the client's": pod(
        meta={"uid": "u", "creationTimestamp": "2020-01-01T00:00:00Z", "deletionTimestamp": "2020-01-01T00:00:00Z"}
    ),
    "any address": ports(hostPort=80, hostIP="::"),
    "a node that is not": pod(nodeName="nowhere"),
    "a volume of no kind": pod({"volumeMounts": [{"name": "v", "mountPath": "/x"}]}, volumes=[{"name": "v"}]),
    "a scheduler's name of two lines": pod(schedulerName="a\nb"),
    "a request for more than there can be": pod({"resources": {"requests": {"cpu": "1e30"}}}),
    "a node without anything": of("nodes"),
}


@pytest.mark.parametrize("sent", ACCEPTED.values(), ids=ACCEPTED)
def test_valid_objects(store, sent):
    found = create(store, *sent).document()
    assert found["metadata"]["creationTimestamp"] == "2025-06-15T15:06:40Z"
    assert "deletionTimestamp" not in found["metadata"]
    assert found["metadata"]["uid"] != "u"


def test_string_data_of_secrets_is_stored_as_data(store):
    made = create(store, *of("secrets", data={"a": "eA=="}, stringData={"b": "y"})).document()
    assert made["data"] == {"a": "eA==", "b": "eQ=="}
    assert "stringData" not in made


def test_one_priority_class_is_the_default(store):
    create(store, *of("priorityclasses.scheduling.k8s.io", value=1, globalDefault=True))
    with pytest.raises(ApiError, match=r"PriorityClass x is already marked as default\. Only one default can exist"):
        create(store, "priorityclasses.scheduling.k8s.io", {"metadata": {"name": "y"}, "globalDefault": True})


def test_some_kinds_are_replaced_with_a_resource_version_only(store):
    made = create(store, *of("poddisruptionbudgets.policy", spec={"selector": {}, "minAvailable": 1})).document()
    del made["metadata"]["resourceVersion"]
    kind = find_kind("poddisruptionbudgets", "policy")
    with pytest.raises(ApiError, match=r"metadata\.resourceVersion: Invalid value: 0: must be specified for an update"):
        store.update(kind, "default", "x", made, manager=FieldManager("me", version="policy/v1"))


# -- changes ------------------------------------------------------------------------------------------------------------

BASE = {
    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "terminationGracePeriodSeconds": 30,
}
GATED = {**BASE, "schedulingGates": [{"name": "g"}, {"name": "h"}], "nodeSelector": {"a": "b"}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def node_affinity(*keys):
    terms = [{"matchExpressions": [{"key": key, "operator": "Exists"} for key in keys]}]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


OTHER = "spec: Forbidden: pod updates may not change fields other than"
POD_CHANGES = {  # from, to, what is said of it
    "nothing": (BASE, {}, []),
    "an image": (BASE, {"containers": [{**BASE["containers"][0], "image": "j"}]}, []),
    "resources": (BASE, {"containers": [{**BASE["containers"][0], "resources": {}}]}, [OTHER]),
    "empty limits that are left out": (
        {**BASE, "containers": [{**BASE["containers"][0], "resources": {"limits": {}, "requests": {"cpu": "1"}}, "env": []}]},
        {"containers": [{**BASE["containers"][0], "resources": {"requests": {"cpu": "1"}}}]}, [],
    ),
    "a container more": (BASE, {"containers": BASE["containers"] * 2}, ["spec.containers: Forbidden: pod updates may not add"]),
    "a node": (BASE, {"nodeName": "n"}, [OTHER]),
    "a scheduler": (BASE, {"schedulerName": "x"}, [OTHER]),
    "a deadline": (BASE, {"activeDeadlineSeconds": 5}, []),
    "a shorter deadline": ({**BASE, "activeDeadlineSeconds": 5}, {"activeDeadlineSeconds": 4}, []),
    "a longer deadline": (
        {**BASE, "activeDeadlineSeconds": 5}, {"activeDeadlineSeconds": 6},
        ["activeDeadlineSeconds: Invalid value: 6: must be"],
    ),
    "no deadline any more": (
        {**BASE, "activeDeadlineSeconds": 5}, {"activeDeadlineSeconds": None},
        ["must not update from a positive integer to nil"],
    ),
    "a toleration more": (BASE, {"tolerations": [*BASE["tolerations"], {"operator": "Exists"}]}, []),
    "a toleration for a while": (BASE, {"tolerations": [{**BASE["tolerations"][0], "tolerationSeconds": 5}]}, []),
    "a toleration less": (BASE, {"tolerations": []}, ["existing toleration can not be modified"]),
    "a gate less": (GATED, {"schedulingGates": [{"name": "h"}]}, []),
    "no gates": (GATED, {"schedulingGates": None}, []),
    "a gate more": (
        BASE, {"schedulingGates": [{"name": "g"}]},
        ["schedulingGates[0].name: Forbidden: only deletion is allowed"],
    ),
    "a selector of a gated pod more": (GATED, {"nodeSelector": {"a": "b", "c": "d"}}, []),
    "a selector of a gated pod changed": (GATED, {"nodeSelector": {"a": "c"}}, ["only additions to spec.nodeSelector"]),
    "a selector of another pod": (BASE, {"nodeSelector": {"a": "b"}}, [OTHER]),
    "an affinity of a gated pod": (GATED, {"affinity": node_affinity("x")}, []),
    "a narrower affinity": ({**GATED, "affinity": node_affinity("x")}, {"affinity": node_affinity("x", "y")}, []),
    "another affinity": (
        {**GATED, "affinity": node_affinity("x")}, {"affinity": node_affinity("y")}, ["only additions are allowed"],
    ),
    "an affinity to pods of a gated pod": (GATED, {"affinity": {"podAffinity": {}}}, [OTHER]),
    "a grace that was negative": ({**BASE, "terminationGracePeriodSeconds": -1}, {"terminationGracePeriodSeconds": 1}, []),
    "a grace": (BASE, {"terminationGracePeriodSeconds": 1}, [OTHER]),
}  # fmt: skip


@pytest.mark.parametrize(("old", "change", "wanted"), POD_CHANGES.values(), ids=POD_CHANGES)
def test_pod_updates(old, change, wanted):
    new = {**copy.deepcopy(old), **change}
    kept = copy.deepcopy(new)
    found = [str(fault) for fault in change_faults(find_kind("pods"), {"spec": old}, {"spec": new}, FeatureGates())]
    assert len(found) == len(wanted)
    assert all(one in other for one, other in zip(wanted, found, strict=True))
    assert new == kept


def sized(**resources):
    return {"spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}}


HALF, ONE = {"cpu": "500m"}, {"cpu": "1"}
RESIZES = {
    "more": (sized(requests=HALF), sized(requests=ONE), []),
    "a limit more": (sized(requests=HALF), sized(requests=HALF, limits=ONE), []),
    "another quality": (sized(requests=HALF), sized(), ["QOS Class may not change", "resource requests cannot be removed"]),
    "a request less": (
        sized(requests={**HALF, "memory": "1Gi"}), sized(requests=HALF), ["requests: Forbidden: resource requests cannot"],
    ),
    "a device": (sized(requests=HALF), sized(requests={**HALF, "a.b/c": "1"}), ["only cpu and memory resources are mutable"]),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "wanted"), RESIZES.values(), ids=RESIZES)
def test_pod_resizes(old, new, wanted):
    found = [str(fault) for fault in resize_faults(old, new, qos_class)]
    assert len(found) == len(wanted)
    assert all(one in other for one, other in zip(wanted, found, strict=True))


def test_a_pod_is_resized_through_its_subresource(against_a_server):
    async def test(client, _):
        path = "/api/v1/namespaces/default/pods"
        await client.ask("POST", path, {"metadata": {"name": "p"}, **sized(requests=HALF)})
        patch = {"spec": {"containers": [{"name": "c", "image": "other", "resources": {"requests": {"cpu": "2"}}}]}}
        code, found = await client.ask("PATCH", f"{path}/p/resize", patch, form="application/strategic-merge-patch+json")
        container = found["spec"]["containers"][0]
        assert (code, container["image"], container["resources"]) == (200, "i", {"requests": {"cpu": "2"}})
        entry = found["metadata"]["managedFields"][-1]
        assert (entry["subresource"], found["metadata"]["generation"]) == ("resize", 2)
        assert (await client.ask("PATCH", f"{path}/p", patch, form="application/strategic-merge-patch+json"))[0] == 200
        patch = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}}
        assert (await client.ask("PATCH", f"{path}/p", patch, form="application/strategic-merge-patch+json"))[0] == 422

    against_a_server(test)


PAUSED = {
    "status": {"startTime": "2026-01-01T00:00:00Z", "conditions": [{"type": "Suspended", "status": "True"}]},
}


def asking(cpu, image="i"):
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}
    return {"suspend": True, "template": {"spec": {"containers": [container]}}}


CHANGES = {
    "a claim's size": (
        "persistentvolumeclaims", {"spec": CLAIM}, {"spec": {**CLAIM, "resources": {"requests": {"storage": "3Gi"}}}},
        "spec: Forbidden: spec is immutable after creation",
    ),
    "a bound claim's size": (
        "persistentvolumeclaims", {"spec": CLAIM, "status": {"phase": "Bound"}},
        {"spec": {**CLAIM, "resources": {"requests": {"storage": "3Gi"}}}, "status": {"phase": "Bound"}}, "",
    ),
    "a claim's volume": ("persistentvolumeclaims", {"spec": CLAIM}, {"spec": {**CLAIM, "volumeName": "v"}}, ""),
    "a volume's source": (
        "persistentvolumes", {"spec": {"hostPath": {"path": "/a"}}}, {"spec": {"hostPath": {"path": "/b"}}},
        "spec.persistentvolumesource is immutable after creation",
    ),
    "a deployment's selector": (
        "deployments.apps", {"spec": {"selector": {}}}, {"spec": {"selector": {"matchLabels": {"a": "b"}}}},
        "field is immutable",
    ),
    "a stateful set's service": (
        "statefulsets.apps", {"spec": {"serviceName": "a"}}, {"spec": {"serviceName": "b"}},
        'spec.serviceName: Invalid value: "b": field is immutable',
    ),
    "a stateful set's copies": ("statefulsets.apps", {"spec": {"replicas": 1}}, {"spec": {"replicas": 2}}, ""),
    "a class's value": ("priorityclasses.scheduling.k8s.io", {"value": 1}, {"value": 2}, "may not be changed in an update."),
    "a fixed config map": (
        "configmaps", {"immutable": True, "data": {"a": "b"}}, {"immutable": True, "data": {}},
        "data: Forbidden: field is immutable",
    ),
    "a job's pods": (
        "jobs.batch", {"spec": {"template": {}}}, {"spec": {"template": {"spec": {}}}},
        "spec.template: Invalid value",
    ),
    "a suspended job's pods": (
        "jobs.batch", {"spec": {"suspend": True, "template": {"spec": {}}}},
        {"spec": {"suspend": True, "template": {"spec": {"nodeSelector": {"a": "b"}}}}}, "",
    ),
    "what a suspended job's pods ask for": (
        "jobs.batch", {**PAUSED, "spec": asking("1")}, {**PAUSED, "spec": asking("2")}, "",
    ),
    "what a job's pods ask for that never began": ("jobs.batch", {"spec": asking("1")}, {"spec": asking("2")}, ""),
    "what a job's pods ask for while one is left": (
        "jobs.batch", {"spec": asking("1"), "status": {**PAUSED["status"], "active": 1}}, {"spec": asking("2")},
        "spec.template: Invalid value",
    ),
    "what a job's pods ask for that began": (
        "jobs.batch", {"spec": asking("1"), "status": {"startTime": "2026-01-01T00:00:00Z"}}, {"spec": asking("2")},
        "spec.template: Invalid value",
    ),
    "what a suspended job's pods run": (
        "jobs.batch", {**PAUSED, "spec": asking("1")}, {**PAUSED, "spec": asking("2", image="j")},
        "spec.template.spec: Invalid value",
    ),
    "a node's provider": (
        "nodes", {"spec": {"providerID": "a"}}, {"spec": {"providerID": "b"}},
        "spec.providerID: Invalid value: null: field cannot be modified once set",
    ),
    "a node's provider that is taken off": (
        "nodes", {"spec": {"providerID": "a"}}, {"spec": {}},
        "spec.providerID: Invalid value: null: field cannot be cleared once set",
    ),
    "a node's first provider": ("nodes", {"spec": {}}, {"spec": {"providerID": "a"}}, ""),
    "a claim's devices": (
        "resourceclaims.resource.k8s.io", {"spec": {}}, {"spec": {"devices": {}}}, "spec: Invalid value",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("resource", "old", "new", "wanted"), CHANGES.values(), ids=CHANGES)
def test_updates_of_other_kinds(resource, old, new, wanted):
    name, _, group = resource.partition(".")
    found = [str(fault) for fault in change_faults(find_kind(name, group), old, new, FeatureGates())]
    assert (wanted in found[0]) if wanted else not found


def held(requests=None, limits=None):
    return {"resources": {"requests": requests or {}, "limits": limits or {}}}


BOTH = {"cpu": "1", "memory": "1Gi"}
QUALITIES = {
    "nothing": ([held()], None, "BestEffort"),
    "nothing in figures": ([held({"cpu": "0", "memory": "0"})], None, "BestEffort"),
    "what is not told apart by": ([held({"ephemeral-storage": "1Gi"})], None, "BestEffort"),
    "a request": ([held({"cpu": "1"}), held()], None, "Burstable"),
    "all that it may have": ([held(BOTH, BOTH)], None, "Guaranteed"),
    "as much, otherwise written": ([held({"cpu": "1000m", "memory": "1Gi"}, BOTH)], None, "Guaranteed"),
    "one container without limits": ([held(BOTH, BOTH), held()], None, "Burstable"),
    "a request for the pod": ([held()], {"requests": {"cpu": "1"}}, "Burstable"),
    "limits of the pod, not of containers": ([held()], {"requests": BOTH, "limits": BOTH}, "Guaranteed"),
    "nothing for the pod": ([held(BOTH, BOTH)], {}, "BestEffort"),
}


@pytest.mark.parametrize(("containers", "whole", "quality"), QUALITIES.values(), ids=QUALITIES)
def test_qos_classes(containers, whole, quality):
    assert qos_class({"containers": containers, **({} if whole is None else {"resources": whole})}) == quality
