"""Test that new objects are admitted, that objects of a dump are not, and that would-be rejections are reported."""

from __future__ import annotations

import msgspec
import pytest

from moorage.api.core import LimitRange, Pod
from moorage.api.storage import PersistentVolumeClaim, StorageClass
from moorage.api.workloads import PriorityClass
from moorage.simulator.admission import admit
from moorage.simulator.cluster_input import ClusterInput


def pod(name: str = "p", created: str | None = None, **spec: object) -> Pod:
    metadata = {"name": name, "namespace": "default", "creationTimestamp": created}
    return msgspec.convert({"metadata": metadata, "spec": {"containers": [{"name": "c"}], **spec}}, Pod)


HIGH = msgspec.convert({"metadata": {"name": "high"}, "value": 1000}, PriorityClass)
LIMITS = msgspec.convert(
    {
        "metadata": {"name": "l", "namespace": "default"},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "2"}}]},
    },
    LimitRange,
)
CLUSTER = {"priority_classes": (HIGH,), "limit_ranges": (LIMITS,)}


def test_new_pods_get_every_default():
    (admitted,) = admit(ClusterInput(pods=(pod(priorityClassName="high"),), **CLUSTER)).pods
    assert admitted.spec.priority == 1000
    assert admitted.spec.containers[0].resources.requests == {"cpu": "1"}
    assert len(admitted.spec.tolerations) == 2


def test_pods_from_a_dump_stay_unchanged():
    old = pod(created="2024-01-01T00:00:00Z", priority=5)
    assert admit(ClusterInput(pods=(old,), **CLUSTER)).pods[0] is old


def test_dumped_pods_without_a_priority_get_that_of_their_class():
    old = pod(created="2024-01-01T00:00:00Z", priorityClassName="high")
    admitted = admit(ClusterInput(pods=(old,), **CLUSTER)).pods[0]
    assert admitted.spec.priority == 1000
    assert admitted.spec.tolerations == ()


@pytest.mark.parametrize("created", [None, "2024-01-01T00:00:00Z"])
def test_copies_keep_sharing_their_spec_and_admission_is_idempotent(created):
    first = pod("a", created=created, priorityClassName="high")
    second = msgspec.structs.replace(first, metadata=msgspec.structs.replace(first.metadata, name="b"))
    once = admit(ClusterInput(pods=(first, second), **CLUSTER))
    assert once.pods[0].spec is once.pods[1].spec
    assert admit(once) == once


def test_each_rejection_is_reported_once():
    broken = [pod(f"p{i}", priorityClassName="gone") for i in range(5)]
    cluster = admit(ClusterInput(pods=tuple(broken)))
    assert len(cluster.pods) == 5
    (note,) = cluster.report.notes
    assert note == (
        "the API server would reject 5 pods (default/p0, default/p1, default/p2 and 2 more), simulated anyway: "
        "no PriorityClass with name gone was found"
    )


FAST = msgspec.convert(
    {"metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}, StorageClass
)
CLAIMS = {  # the claim's spec → its class
    "no class given": ({}, "fast"),
    "an empty class": ({"storageClassName": ""}, ""),
    "is bound": ({"volumeName": "pv"}, None),
}


@pytest.mark.parametrize(("spec", "expected"), CLAIMS.values(), ids=CLAIMS)
def test_claims_get_the_default_class(spec, expected):
    claim = msgspec.convert({"metadata": {"name": "c", "namespace": "d"}, "spec": spec}, PersistentVolumeClaim)
    cluster = admit(ClusterInput(persistent_volume_claims=(claim,), storage_classes=(FAST,)))
    assert cluster.persistent_volume_claims[0].spec.storage_class_name == expected
