"""Quota usage of objects, and enforcement. Messages are compared with recordings (``recorded_quotas.json``)."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.documents.served_kinds import KINDS, served
from moorage.api.documents.statuses import ApiError
from moorage.api.fields.managed_fields import FieldManager
from moorage.api.quantity import exact
from moorage.rules.admission.quota_usage import Facts, evaluator_for
from moorage.rules.store.store import Store

PODS, SERVICES, CLAIMS = served("pods"), served("services"), served("persistentvolumeclaims")
DEVICES, CLASSES = served("resourceclaims", "resource.k8s.io"), served("deviceclasses", "resource.k8s.io")
QUOTAS, CONFIG_MAPS = served("resourcequotas"), served("configmaps")
NOW = 1_750_000_000.0


def of(kind, **document):
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "x", "namespace": "default"}, **document}


def container(name="c", **resources):
    return {"name": name, "image": "i", "resources": resources}


def a_pod(*containers, status=None, meta=None, **spec):
    pod = of(PODS, spec={"containers": list(containers) or [container()], **spec}, status=status or {})
    pod["metadata"] |= meta or {}
    return pod


def sidecar(**resources):
    return {**container("s", **resources), "restartPolicy": "Always"}


def service(kind, ports=1, **spec):
    return of(SERVICES, spec={"type": kind, "ports": [{"name": f"p{i}", "port": 80 + i} for i in range(ports)], **spec})


def a_claim(size, meta=None, status=None, **spec):
    claim = of(CLAIMS, spec={"resources": {"requests": {"storage": size}}, **spec}, status=status or {})
    claim["metadata"] |= meta or {}
    return claim


def devices(*requests):
    return of(DEVICES, spec={"devices": {"requests": list(requests)}})


def exactly(cls, count=1, mode="ExactCount"):
    return {"name": "r", "exactly": {"deviceClassName": cls, "allocationMode": mode, **({"count": count} if count else {})}}


def first_of(*pairs):
    held = [
        {"name": f"o{i}", "deviceClassName": cls, "allocationMode": "ExactCount", "count": n}
        for i, (cls, n) in enumerate(pairs)
    ]
    return {"name": "f", "firstAvailable": held}


CPU = {"cpu": "1"}
ENDED = {"count/pods": "1"}
DELETED = {"deletionTimestamp": "2025-06-15T15:00:00Z", "deletionGracePeriodSeconds": 30}
RESIZED = {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "2"}}]}
INFEASIBLE = [{"type": "PodResizePending", "reason": "Infeasible"}]
BY_CLASS = "storageclass.storage.k8s.io"
USAGE = {
    "a pod that asks for nothing": (PODS, a_pod(), {"count/pods": "1", "pods": "1"}),
    "requests and limits": (
        PODS, a_pod(container(requests={"cpu": "500m", "memory": "1Gi"}, limits={"memory": "2Gi"}), container(requests=CPU)),
        {"count/pods": "1", "pods": "1", "cpu": "1500m", "requests.cpu": "1500m", "memory": "1Gi", "requests.memory": "1Gi",
         "limits.memory": "2Gi"},
    ),
    "storage, huge pages, what others define": (
        PODS, a_pod(container(requests={"ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi", "example.com/gpu": "2"},
                              limits={"ephemeral-storage": "2Gi", "hugepages-2Mi": "4Mi", "example.com/gpu": "2"})),
        {"count/pods": "1", "pods": "1", "ephemeral-storage": "1Gi", "requests.ephemeral-storage": "1Gi",
         "limits.ephemeral-storage": "2Gi", "hugepages-2Mi": "4Mi", "requests.hugepages-2Mi": "4Mi",
         "requests.example.com/gpu": "2"},
    ),
    "devices by the name of their class": (
        PODS, a_pod(container(requests={"deviceclass.resource.kubernetes.io/gpu": "2"})),
        {"count/pods": "1", "pods": "1", "requests.deviceclass.resource.kubernetes.io/gpu": "2"},
    ),
    "the largest of those that start, with sidecars": (
        PODS, a_pod(container(requests=CPU), initContainers=[
            container("i", requests={"cpu": "2"}), sidecar(requests={"cpu": "500m"}), container("j", requests={"cpu": "1800m"}),
        ]),
        {"count/pods": "1", "pods": "1", "cpu": "2300m", "requests.cpu": "2300m"},
    ),
    "as a whole, and what it takes on top": (
        PODS, a_pod(container(requests=CPU, limits={"memory": "1Gi"}), overhead={"cpu": "100m", "memory": "1Mi"},
                    resources={"requests": {"cpu": "4"}, "limits": {"cpu": "5"}}),
        {"count/pods": "1", "pods": "1", "cpu": "4100m", "requests.cpu": "4100m", "limits.cpu": "5100m", "memory": "1Mi",
         "requests.memory": "1Mi", "limits.memory": "1025Mi"},
    ),
    "the most of what it has while it is resized": (
        PODS, a_pod(container(requests=CPU), status=RESIZED), {"count/pods": "1", "pods": "1", "cpu": "3", "requests.cpu": "3"},
    ),
    "what it has where a resize cannot be": (
        PODS, a_pod(container(requests={"cpu": "9"}), status={**RESIZED, "conditions": INFEASIBLE}),
        {"count/pods": "1", "pods": "1", "cpu": "3", "requests.cpu": "3"},
    ),
    "a pod that succeeded": (PODS, a_pod(container(requests=CPU), status={"phase": "Succeeded"}), ENDED),
    "a pod that failed": (PODS, a_pod(container(requests=CPU), status={"phase": "Failed"}), ENDED),
    "a pod that should long be gone": (PODS, a_pod(container(requests=CPU), meta=DELETED), ENDED),
    "a pod that is going": (
        PODS, a_pod(meta={**DELETED, "deletionTimestamp": "2025-06-15T15:06:30Z"}), {"count/pods": "1", "pods": "1"},
    ),
    "a service": (SERVICES, service("ClusterIP", 2), {"services.nodeports": "0", "services.loadbalancers": "0"}),
    "a service on nodes": (SERVICES, service("NodePort", 2), {"services.nodeports": "2", "services.loadbalancers": "0"}),
    "a balanced service": (SERVICES, service("LoadBalancer", 3), {"services.nodeports": "3", "services.loadbalancers": "1"}),
    "a balanced service without ports of nodes": (
        SERVICES, service("LoadBalancer", 3, allocateLoadBalancerNodePorts=False),
        {"services.nodeports": "0", "services.loadbalancers": "1"},
    ),
    "a claim": (
        CLAIMS, a_claim("1500m"), {"count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1", "requests.storage": "2"},
    ),
    "a claim of a class": (
        CLAIMS, a_claim("1Gi", storageClassName="gold"),
        {"count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1", "requests.storage": "1Gi",
         f"gold.{BY_CLASS}/persistentvolumeclaims": "1", f"gold.{BY_CLASS}/requests.storage": "1Gi"},
    ),
    "a claim that was given more": (
        CLAIMS, a_claim("1Gi", {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}},
                        {"allocatedResources": {"storage": "3Gi"}}),
        {"count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1", "requests.storage": "3Gi",
         f"old.{BY_CLASS}/persistentvolumeclaims": "1", f"old.{BY_CLASS}/requests.storage": "3Gi"},
    ),
    "devices": (
        DEVICES, devices(exactly("gpu"), exactly("gpu", 2), exactly("nic", None, "All")),
        {"count/resourceclaims.resource.k8s.io": "1", "gpu.deviceclass.resource.k8s.io/devices": "3",
         "nic.deviceclass.resource.k8s.io/devices": "32", "requests.deviceclass.resource.kubernetes.io/gpu": "3",
         "requests.deviceclass.resource.kubernetes.io/nic": "32", "requests.example.com/gpu": "3"},
    ),
    "devices of one class or another": (
        DEVICES, devices(first_of(("nic", 2), ("disk", 3), ("nic", 1)), exactly("nic")),
        {"count/resourceclaims.resource.k8s.io": "1", "nic.deviceclass.resource.k8s.io/devices": "3",
         "disk.deviceclass.resource.k8s.io/devices": "3", "requests.deviceclass.resource.kubernetes.io/nic": "3",
         "requests.deviceclass.resource.kubernetes.io/disk": "3"},
    ),
    "a config map": (CONFIG_MAPS, of(CONFIG_MAPS), {"count/configmaps": "1", "configmaps": "1"}),
    "a deployment": (served("deployments", "apps"), of(served("deployments", "apps")), {"count/deployments.apps": "1"}),
}  # fmt: skip
GPU = {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}}


def facts(*objects):
    """Return the facts of a cluster with a device class and these objects, with their kinds."""
    there = [(CLASSES, GPU), *objects]

    def every(kind, _):
        return [one for held, one in there if held is kind]

    return Facts(NOW, every, lambda kind, _, name: next((o for o in every(kind, _) if o["metadata"]["name"] == name), None))


@pytest.mark.parametrize(("kind", "document", "takes"), USAGE.values(), ids=USAGE)
def test_usage_of_objects(kind, document, takes):
    if kind is SERVICES:
        takes = {"count/services": "1", "services": "1", **takes}
    found = {name: str(amount) for name, amount in evaluator_for(kind).usage(document, facts()).items()}
    assert found == takes


def test_devices_charged_to_a_pod_are_not_charged_again():
    asked = container(requests={"example.com/gpu": "2"})
    pod = a_pod(asked, meta={"name": "p", "uid": "1"})
    claim = devices(exactly("gpu", 3))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": True}
    claim["metadata"] |= {"annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}, "ownerReferences": [owner],
                          "creationTimestamp": "2025-01-01T00:00:01Z"}  # fmt: skip
    other = copy.deepcopy(claim)
    other["metadata"] |= {"name": "earlier", "creationTimestamp": "2025-01-01T00:00:00Z"}

    def extra(*known, pod=pod):
        return str(evaluator_for(DEVICES).usage(claim, facts((PODS, pod), *known)).get("requests.example.com/gpu", 0))

    assert extra((DEVICES, claim)) == "1"
    assert extra((DEVICES, claim), (DEVICES, other)) == "3"  # it is the other claim that the pod stands for
    assert extra(pod={**pod, "status": {"extendedResourceClaimStatus": {"resourceClaimName": "x"}}}) == "1"
    assert extra(pod={**pod, "status": {"extendedResourceClaimStatus": {"resourceClaimName": "y"}}}) == "3"
    assert extra(pod=a_pod(asked, meta={"name": "p", "uid": "2"})) == "3"


def test_every_namespaced_kind_counts_except_events():
    counted = {kind.kind for kind in KINDS if evaluator_for(kind) is not None}
    assert counted == {kind.kind for kind in KINDS if kind.namespaced} - {"Event"}


# -- the store ----------------------------------------------------------------------------------------------------------


BY = FieldManager("me", version="v1")


def limit(store: Store, name="q", used=None, scopes=(), **hard):
    """Create a quota with a counted status."""
    hard = {resource.replace("_", "."): amount for resource, amount in hard.items()}
    store.create(
        QUOTAS, "default", of(QUOTAS, spec={"hard": hard, "scopes": list(scopes)}, metadata={"name": name}), manager=BY
    )
    status = {"hard": hard, "used": {**dict.fromkeys(hard, "0"), **(used or {})}}
    store.change(QUOTAS, "default", name, lambda held: {**held, "status": status}, subresource="status", manager=BY)


def used(store, name="q"):
    return store.get(QUOTAS, "default", name).document()["status"]["used"]


def make(store, kind, name, document, **more):
    document = copy.deepcopy(document)
    document["metadata"] = {"name": name}
    document.pop("status", None)
    return store.create(kind, "default", document, **more)


def refusal(store, kind, name, document, **more):
    version = store.version
    with pytest.raises(ApiError) as refused:
        make(store, kind, name, document, **more)
    assert (refused.value.code, store.version) == (403, version)
    return str(refused.value)


def test_services_use_node_ports_and_load_balancers(store):
    limit(store, services="3", services_nodeports="3", services_loadbalancers="1")
    make(store, SERVICES, "a", service("ClusterIP"))
    make(store, SERVICES, "b", service("NodePort", 2))
    text = "exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=2, limited: services.nodeports=3"
    assert refusal(store, SERVICES, "c", service("LoadBalancer", 2)) == f'services "c" is forbidden: {text}'
    make(store, SERVICES, "d", service("LoadBalancer"))
    assert used(store) == {"services": "3", "services.nodeports": "3", "services.loadbalancers": "1"}
    with pytest.raises(ApiError, match=r"exceeded quota: q, requested: services\.nodeports=1"):
        store.change(SERVICES, "default", "a", lambda held: held["spec"].update(type="NodePort"))


def test_the_charge_and_the_object_are_one_change(store):
    limit(store, pods="2")
    make(store, PODS, "a", a_pod())
    held, version = used(store), store.version
    assert refusal_code(store, "a") == 409  # the name is taken, and no quota is charged
    make(store, PODS, "dry", a_pod(), dry_run=True)
    assert (used(store), store.version) == (held, version)
    managers = store.get(QUOTAS, "default", "q").document()["metadata"]["managedFields"]
    assert {(one["manager"], one.get("subresource")) for one in managers} == {("me", None), ("kube-apiserver", "status")}


def refusal_code(store, name):
    with pytest.raises(ApiError) as refused:
        make(store, PODS, name, a_pod())
    return refused.value.code


def test_other_namespaces_and_uncounted_quotas_limit_nothing(store):
    store.create(served("namespaces"), "", {"metadata": {"name": "other"}, "apiVersion": "v1", "kind": "Namespace"})
    limit(store, pods="0")
    store.create(PODS, "other", {**a_pod(), "metadata": {"name": "a"}})
    store.create(QUOTAS, "other", of(QUOTAS, spec={"hard": {"pods": "0"}}, metadata={"name": "q"}))
    store.create(PODS, "other", {**a_pod(), "metadata": {"name": "b"}})
    assert "exceeded quota: q" in refusal(store, PODS, "a", a_pod())
    store.has_quotas = False
    make(store, PODS, "a", a_pod())


AMOUNTS = st.sampled_from(["0", "100m", "250m", "1", "1500m", "2"])
DEEDS = st.lists(
    st.tuples(st.sampled_from(["create", "dry", "resize"]), st.integers(0, 5), AMOUNTS, st.booleans()), max_size=30
)


@pytest.mark.slow
@given(deeds=DEEDS)
@settings(max_examples=40, deadline=None)
def test_usage_never_exceeds_the_quota_and_all_admitted_objects_are_charged(new_store, deeds):
    store = new_store()
    limit(store, "all", pods="4", cpu="5")
    limit(store, "short", scopes=["Terminating"], pods="2", requests_cpu="2")
    most: dict[str, list[int]] = {"all": [], "short": []}
    for deed, number, amount, is_short in deeds:
        name, nano = f"p{number}", exact(amount).nano
        held = store.find(PODS, "default", name)
        try:
            if deed in {"create", "dry"}:
                spec = {"activeDeadlineSeconds": 9} if is_short else {}
                pod = a_pod(container(requests={"cpu": amount, "memory": "1"}), **spec)
                make(store, PODS, name, pod, dry_run=deed == "dry", manager=BY)
                if deed == "create":
                    for quota in ["all", *(["short"] if is_short else [])]:
                        most[quota].append(nano)
            elif deed == "resize" and held is not None:
                before = held.document()["spec"]
                asked = exact(before["containers"][0]["resources"]["requests"]["cpu"]).nano

                def grow(document, amount=amount):
                    document["spec"]["containers"][0]["resources"]["requests"]["cpu"] = amount

                store.change(PODS, "default", name, grow, subresource="resize")
                for quota in ["all", *(["short"] if "activeDeadlineSeconds" in before else [])]:
                    most[quota].append(max(0, nano - asked))
        except ApiError:
            pass  # whatever it was that was refused, nothing may have been charged for it
        for quota, cpu in (("all", "cpu"), ("short", "requests.cpu")):
            status = store.get(QUOTAS, "default", quota).document()["status"]
            assert all(exact(status["used"][one]).nano <= exact(status["hard"][one]).nano for one in status["hard"])
            assert exact(status["used"][cpu]).nano == sum(most[quota])
