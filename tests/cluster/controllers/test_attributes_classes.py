"""Volume attributes classes are kept while a volume or a claim names them."""

import pytest

from moorage.rules.volumes.attributes_classes import AttributesClassProtection

CLASS = {
    "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": "fast"},
    "driverName": "disks.example.org", "parameters": {"iops": "3000"},
}  # fmt: skip
FINALIZER = "kubernetes.io/vac-protection"


def a_claim(**spec):
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": asked}


def a_volume(**spec):
    has = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "nfs": {"server": "s", "path": "/"}, **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"}, "spec": has}


USERS = {
    "a claim that asks for it": ("persistentvolumeclaims", "data", a_claim(volumeAttributesClassName="fast")),
    "a volume that has it": ("persistentvolumes", "disk", a_volume(volumeAttributesClassName="fast")),
    "a claim that changes to it": (
        "persistentvolumeclaims", "data",
        {**a_claim(), "status": {"modifyVolumeStatus": {"targetVolumeAttributesClassName": "fast", "status": "Pending"}}},
    ),
}  # fmt: skip


@pytest.fixture
def cluster(lab):
    made = lab(AttributesClassProtection())
    yield made
    assert made.reports == []


def test_an_unused_class_is_deleted_at_once(cluster):
    cluster.apply(CLASS)
    cluster.settle()
    assert cluster.all("volumeattributesclasses")[0]["metadata"]["finalizers"] == [FINALIZER]
    cluster.delete("volumeattributesclasses", "fast")
    cluster.settle()
    assert cluster.all("volumeattributesclasses") == []


@pytest.mark.parametrize(("resource", "name", "user"), USERS.values(), ids=USERS)
def test_a_used_class_stays_until_it_is_unused(cluster, resource, name, user):
    cluster.apply(CLASS)
    cluster.apply(user)
    if "status" in user:
        cluster.edit(resource, name, lambda found: found.update(status=user["status"]), subresource="status")
    cluster.settle()
    cluster.delete("volumeattributesclasses", "fast")
    cluster.settle()
    (kept,) = cluster.all("volumeattributesclasses")
    assert kept["metadata"]["deletionTimestamp"]
    cluster.delete(resource, name)
    cluster.settle()
    assert cluster.all("volumeattributesclasses") == []
