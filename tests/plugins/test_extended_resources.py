"""Test which device class backs an extended resource."""

import msgspec
import pytest

from moorage.api.devices import DeviceClass
from moorage.plugins.resources.device_backed_scores import DEVICE_CLASS_PREFIX, device_class_for
from moorage.testing.builders import a_cluster

GPU = "example.com/gpu"


def device_class(name, resource=None, created=None):
    made = {"metadata": {"name": name, "creationTimestamp": created}, "spec": {"extendedResourceName": resource}}
    return msgspec.convert(made, DeviceClass)


OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"

# classes, resource → the class that backs it
CASES = {
    "no class": ([], GPU, None),
    "by extendedResourceName": ([device_class("a", GPU)], GPU, "a"),
    "by its implicit name": ([device_class("a")], DEVICE_CLASS_PREFIX + "a", "a"),
    "by its implicit name, despite extendedResourceName": ([device_class("a", GPU)], DEVICE_CLASS_PREFIX + "a", "a"),
    "another name": ([device_class("a")], DEVICE_CLASS_PREFIX + "b", None),
    "no resource": ([device_class("a")], GPU, None),
    "the newest": ([device_class("a", GPU, OLD), device_class("b", GPU, NEW)], GPU, "b"),
    "the newest, listed first": ([device_class("b", GPU, NEW), device_class("a", GPU, OLD)], GPU, "b"),
    "equally old, the first name": ([device_class("b", GPU, OLD), device_class("a", GPU, OLD)], GPU, "a"),
}


@pytest.mark.parametrize(("classes", "resource", "expected"), CASES.values(), ids=CASES)
def test_device_class_for(classes, resource, expected):
    cluster = a_cluster([])
    for made in classes:
        cluster.set_object(made)
    found = device_class_for(resource, cluster.snapshot)
    assert (found and found.name) == expected
