"""Build a small cluster with storage classes, and return VolumeBinding's verdicts on pods in it."""

from __future__ import annotations

import msgspec

from moorage.api.storage import CSIDriver, CSIStorageCapacity
from moorage.framework.events import Action, Resource
from moorage.framework.verdicts import Code, Status
from moorage.plugins.volume_binding import VolumeBinding
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_queries import refusals
from moorage.testing.storage import (
    a_class,
    standing_on,
    with_objects,
)

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
DRIVER = "csi.example.com"


def no(*reasons):
    return Status(Code.UNRESOLVABLE, "VolumeBinding", reasons)


UNREACHABLE = "node(s) didn't match PersistentVolume's node affinity"
UNMATCHED = "node(s) didn't find available persistent volumes to bind"
NO_ROOM = "node(s) did not have enough free storage"
LOST = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"

MADE = a_class("made")
LOCAL = a_class("local", provisioner="kubernetes.io/no-provisioner")
CLAIM, VOLUME, CLASS = Resource.PERSISTENT_VOLUME_CLAIM, Resource.PERSISTENT_VOLUME, Resource.STORAGE_CLASS
CSI, DRIVERS, ROOM = Resource.CSI_NODE, Resource.CSI_DRIVER, Resource.CSI_STORAGE_CAPACITY
OTHER = Action.UPDATE_OTHER
AT_ONCE = a_class("now", volumeBindingMode="Immediate")


def nodes(count=3):
    """Return nodes n0, n1, …, alternately in zones a and b."""
    return [a_node(f"n{at}", {HOST: f"n{at}", ZONE: "ab"[at % 2]}) for at in range(count)]


def cluster_of(*objects, count=3):
    return with_objects(a_cluster(nodes(count)), MADE, LOCAL, AT_ONCE, *objects)


def refused(cluster, *claims):
    return {
        name: s.reasons for name, s in refusals(VolumeBinding(), a_pod(volumes=standing_on(*claims)), cluster.snapshot).items()
    }


def topology(*terms):
    return [{"matchLabelExpressions": [{"key": key, "values": list(values)} for key, values in term.items()]} for term in terms]


def room(name, capacity=None, *, of="made", labels=None, **rest):
    selector = {} if labels is None else {"nodeTopology": {"matchLabels": labels}}
    given = {"metadata": {"name": name, "namespace": "default"}, "storageClassName": of, **selector, **rest}
    return msgspec.convert({**given, **({} if capacity is None else {"capacity": capacity})}, CSIStorageCapacity)


def counting(keeps=True):
    return msgspec.convert({"metadata": {"name": DRIVER}, "spec": {"storageCapacity": keeps}}, CSIDriver)
