"""A dry run of a pod with volumes or devices has the outcome of an attempt, and needs none where binding is certain."""

from __future__ import annotations

import random

import pytest

import moorage
from moorage.laboratory.trial import dry_run
from tests.laboratory.test_pod_states import node, obj, pod

DEVICES = "resource.k8s.io/v1"
DRIVER, GONE = "disks.example.com", "2026-01-01T00:00:00Z"
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}


def pvc(name, storage_class="late", volume="", **metadata):
    spec = {"storageClassName": storage_class, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    bound = BOUND if volume else {}
    made = obj("PersistentVolumeClaim", name, spec={**spec, **({"volumeName": volume} if volume else {})})
    return {**made, "metadata": {**made["metadata"], "uid": name, "annotations": bound, **metadata}}


def volume(name, on="", storage_class="late", claim="", uid="", **source):
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": storage_class}
    spec |= source or {"csi": {"driver": DRIVER, "volumeHandle": name}}
    if on:
        here = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [on]}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": here}]}}
    if claim:
        spec["claimRef"] = {"namespace": "default", "name": claim, **({"uid": uid} if uid else {})}
    return {**obj("PersistentVolume", name, namespace="", spec=spec), "status": {"phase": "Bound" if uid else "Available"}}


def storage_class(name, provisioner=DRIVER):
    made = obj("StorageClass", name, "storage.k8s.io/v1", namespace="")
    return {**made, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}


def slices(name, count, **device):
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": name, "pool": pool}
    return obj("ResourceSlice", f"s-{name}", DEVICES, namespace="", spec={
        **spec, "devices": [{"name": f"d{at}", **device} for at in range(count)],
    })  # fmt: skip


def claim(name, users=(), device="", count=1):
    asks = {"devices": {"requests": [{"name": "main", "exactly": {"deviceClassName": "gpu", "count": count}}]}}
    made = obj("ResourceClaim", name, DEVICES, spec=asks)
    if device:
        result = {"request": "main", "driver": "gpu.example.com", "pool": "n1", "device": device}
        here = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}
        consumers = [{"resource": "pods", "name": user, "uid": user} for user in users]
        allocation = {"devices": {"results": [result]}, "nodeSelector": here}
        made["status"] = {"allocation": allocation, "reservedFor": consumers}
    return made


def uses(*claims):
    return {"volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]}


def takes(*claims):
    return {"resourceClaims": [{"name": name, "resourceClaimName": name} for name in claims]}


GPU = obj("DeviceClass", "gpu", DEVICES, namespace="", spec={})
LATE, LOCAL = storage_class("late"), storage_class("late", "kubernetes.io/no-provisioner")
#: What the pod uses, other objects, whether a dry run needs no attempt, and whether the pod is placed.
CASES = {
    "a bound volume": (uses("a"), [pvc("a", volume="v"), volume("v", claim="a", uid="a")], True, True),
    "a volume to provision": (uses("a"), [LATE, pvc("a")], True, True),
    "two volumes to provision": (uses("a", "b"), [LATE, pvc("a"), pvc("b")], True, True),
    "a local volume": (uses("a"), [LOCAL, pvc("a"), volume("v", "n1")], True, True),
    "a volume of an in-tree plugin": (
        uses("a"),
        [LATE, pvc("a"), volume("v", "n1", awsElasticBlockStore={"volumeID": "i"})],
        False, None,
    ),
    "a provisioner and a volume elsewhere": (uses("a"), [LATE, pvc("a"), volume("v", "n9")], False, None),
    "a volume reserved for the claim": (
        uses("a"),
        [LOCAL, pvc("a"), volume("v", "n1", claim="a"), volume("w", "n2")],
        None, None,
    ),
    "a volume of that name": (uses("a"), [LATE, pvc("a"), volume("pvc-a", storage_class="other")], False, False),
    "no devices": (takes("c"), [GPU, claim("c")], None, False),
    "a device": (takes("c"), [GPU, slices("n1", 1), claim("c")], True, True),
    "two claims": (takes("c", "d"), [GPU, slices("n1", 3), claim("c"), claim("d", count=2)], True, True),
    "a device that is allocated": (takes("c"), [GPU, slices("n1", 1), claim("c", device="d0")], True, True),
    "a device with 255 users": (
        takes("c"),
        [GPU, slices("n1", 1), claim("c", [f"u{at}" for at in range(255)], device="d0")],
        True, True,
    ),
    "a device with 256 users": (
        takes("c"),
        [GPU, slices("n1", 1), claim("c", [f"u{at}" for at in range(256)], device="d0")],
        False, False,
    ),
    "a device with a condition": (
        takes("c"),
        [GPU, slices("n1", 1, bindingConditions=["ready"], bindingFailureConditions=["broken"]), claim("c")],
        False, None,
    ),
    "a device and a volume": (
        {**takes("c"), **uses("a")}, [GPU, slices("n1", 1), claim("c"), LATE, pvc("a")], True, True,
    ),
}  # fmt: skip


def names(name):
    return {"kubernetes.io/hostname": name}


def compare(cluster, ref, monkeypatch):
    """Return whether the dry run needed no attempt, and the outcome, which must be the one of an attempt."""
    found = []
    quick = dry_run.is_certain
    with monkeypatch.context() as patched:
        patched.setattr(dry_run, "is_certain", lambda *args: found.append(quick(*args)) or found[-1])
        before = cluster.digest()
        told = cluster.schedule([ref], dry_run=True)
        assert cluster.digest() == before
    assert cluster.schedule([ref]) == told
    return found[-1] if found else None, told[0]


@pytest.mark.parametrize(("spec", "objects", "certain", "placed"), CASES.values(), ids=CASES)
def test_a_dry_run_has_the_outcome_of_an_attempt(spec, objects, certain, placed, monkeypatch):
    nodes = [node(name, cpu="4", labels=names(name)) for name in ("n1", "n2")]
    cluster = moorage.Cluster.from_objects(nodes, pod("p", **spec), *objects)
    was_certain, outcome = compare(cluster, "p", monkeypatch)
    assert certain in (None, was_certain)
    assert placed in (None, bool(outcome))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_dry_runs_of_random_pods_have_the_outcomes_of_attempts(seed, monkeypatch):
    chance = random.Random(seed)
    certain = 0
    for _ in range(25):
        provisioner = chance.choice([DRIVER, DRIVER, "kubernetes.io/no-provisioner"])
        objects = [GPU, storage_class("late", provisioner), *(slices(f"n{at}", chance.randrange(3)) for at in range(3))]
        objects += [volume(f"v{at}", f"n{chance.randrange(3)}") for at in range(chance.randrange(4))]
        pods = []
        for at in range(6):
            objects += [pvc(f"a{at}"), pvc(f"b{at}"), claim(f"c{at}", count=chance.choice([1, 1, 2]))]
            spec = chance.choice(
                [uses(f"a{at}"), takes(f"c{at}"), uses(f"a{at}", f"b{at}"), {**uses(f"a{at}"), **takes(f"c{at}")}]
            )
            pods.append(pod(f"p{at}", **spec))
        nodes = [node(name, cpu="4", labels=names(name)) for name in ("n0", "n1", "n2")]
        cluster = moorage.Cluster.from_objects(nodes, pods, *objects)
        for at in range(6):
            certain += bool(compare(cluster, f"p{at}", monkeypatch)[0])
    assert certain > 30
