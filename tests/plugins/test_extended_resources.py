"""Which device class answers to a resource name."""

import msgspec
import pytest

from moorage.api.devices import DeviceClass
from moorage.plugins.extended_resources import DEVICE_CLASS_PREFIX, device_class_for
from moorage.testing.builders import a_cluster

GPU = "example.com/gpu"


def device_class(name, resource=None, created=None):
    made = {"metadata": {"name": name, "creationTimestamp": created}, "spec": {"extendedResourceName": resource}}
    return msgspec.convert(made, DeviceClass)


OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"

# classes, resource → the class that answers
CASES = {
    "no class": ([], GPU, None),
    "by its resource": ([device_class("a", GPU)], GPU, "a"),
    "by its name": ([device_class("a")], DEVICE_CLASS_PREFIX + "a", "a"),
    "by its name, though it has a resource": ([device_class("a", GPU)], DEVICE_CLASS_PREFIX + "a", "a"),
    "another name": ([device_class("a")], DEVICE_CLASS_PREFIX + "b", None),
    "no resource": ([device_class("a")], GPU, None),
    "the newest": ([device_class("a", GPU, OLD), device_class("b", GPU, NEW)], GPU, "b"),
    "the newest, seen first": ([device_class("b", GPU, NEW), device_class("a", GPU, OLD)], GPU, "b"),
    "the first name of equals": ([device_class("b", GPU, OLD), device_class("a", GPU, OLD)], GPU, "a"),
}


@pytest.mark.parametrize(("classes", "resource", "expected"), CASES.values(), ids=CASES)
def test_device_class_for(classes, resource, expected):
    cluster = a_cluster([])
    for made in classes:
        cluster.set_object(made)
    found = device_class_for(resource, cluster.snapshot)
    assert (found and found.name) == expected
