"""Which pods that wait for volumes an event wakes; see ``test_integration_wakes.py``. Only the tests bind claims."""

import pytest

from tests.regressions import cluster_objects as on
from tests.regressions.test_integration_wakes import nodes, placed, together
from tests.regressions.waking import Case, play

ZONE = "topology.kubernetes.io/zone"
HERE, THERE = {ZONE: "here"}, {ZONE: "there"}
IN_ZONE = nodes(("n1", HERE))
ONE_NODE = nodes(("n1", {"node": "n1"}))
ONCE = ("ReadWriteOncePod",)
P = {"p": on.using("c1")}
P_AND_Q = {"p": on.using("c1"), "q": on.using("c2")}


def volume(name, labels=None, **more):
    return lambda w: on.volume(w, name, labels, **more)


def claim(name, bound_to="", **more):
    return lambda w: on.claim(w, name, bound_to, **more)


def again(step, path):
    """Delete the object at a path and create it again."""
    return together(lambda w: on.drop(w, path), step)


VOLUME_ZONE = {
    "zone: the volume comes": Case(
        "VolumeZone", together(IN_ZONE, claim("c1", "v1")), P, volume("v1", HERE), "p",
    ),
    "zone: the volume moves": Case(
        "VolumeZone", together(IN_ZONE, volume("v1", THERE), claim("c1", "v1")), P,
        lambda w: on.patch(w, f"{on.VOLUMES}/v1", metadata={"labels": HERE}), "p",
    ),
    "zone: the volume changes otherwise": Case(
        "VolumeZone", together(IN_ZONE, volume("v1", THERE), claim("c1", "v1")), P,
        lambda w: on.patch(w, f"{on.VOLUMES}/v1", metadata={"labels": {"unrelated": "x"}}), "",
    ),
    "zone: the claim comes": Case(
        "VolumeZone", together(IN_ZONE, volume("v1", HERE)), P_AND_Q, claim("c1", "v1"), "p",
    ),
    "zone: the claim is bound": Case(
        "VolumeZone", together(IN_ZONE, volume("v1", HERE), claim("c1")), P_AND_Q, lambda w: on.bind_claim(w, "c1", "v1"), "p",
    ),
    "zone: a storage class comes": Case(
        "VolumeZone", together(IN_ZONE, claim("c1", "v1")), P, lambda w: on.storage_class(w, "sc"), "p",
    ),
}  # fmt: skip

RESTRICTIONS = {
    "restrictions: the claim comes": Case(
        "VolumeRestrictions", together(ONE_NODE, volume("v1")), P_AND_Q, claim("c1", "v1", modes=ONCE), "p",
    ),
    "restrictions: who uses the claim goes": Case(
        "VolumeRestrictions", together(ONE_NODE, volume("v1"), claim("c1", "v1", modes=ONCE), placed("x", **on.using("c1"))),
        P_AND_Q, lambda w: w.delete_pod("x", grace=0), "p",
    ),
}  # fmt: skip


def sorted_class(*zones, **labels):
    return lambda w: on.storage_class(w, "sc", zones=zones, **labels)


def ephemeral(driver):
    """A claim that is not bound, and a volume of its own by a driver."""
    spec = on.using("c1")
    return {"volumes": [*spec["volumes"], {"name": "own", "csi": {"driver": driver}}]}


LATE = together(ONE_NODE, volume("v1", klass="sc"), claim("c1", klass="sc"))
SOON = together(LATE, lambda w: on.storage_class(w, "sc", "Immediate"))
CLASSES = f"{on.STORAGE}/storageclasses/sc"

BINDING = {
    "binding: a node within reach": Case(
        "VolumeBinding", together(nodes(("n1", HERE)), volume("v1", within=(ZONE, "there")), claim("c1", "v1")), P,
        lambda w: on.node(w, "n2", THERE), "p",
    ),
    "binding: a node comes within reach": Case(
        "VolumeBinding", together(nodes(("n1", {"aaa": "bbb"})), volume("v1", within=("aaa", "ccc")), claim("c1", "v1")), P,
        lambda w: on.label(w, "n1", aaa="ccc"), "p",
    ),
    "binding: the volume comes elsewhere": Case(
        "VolumeBinding", together(nodes(("n1", {"aaa": "bbb"})), volume("v1", within=("aaa", "ccc")), claim("c1", "v1")), P,
        again(volume("v1", within=("aaa", "bbb")), f"{on.VOLUMES}/v1"), "p",
    ),
    "binding: the volume changes": Case(
        "VolumeBinding", together(nodes(("n1", {"aaa": "bbb"})), volume("v1", within=("aaa", "ccc")), claim("c1", "v1")), P,
        lambda w: on.patch(w, f"{on.VOLUMES}/v1", metadata={"labels": {"x": "y"}}), "p",
    ),
    "binding: the claim comes bound": Case(
        "VolumeBinding", together(ONE_NODE, volume("v1"), claim("c1"), claim("c2")), P_AND_Q,
        again(claim("c1", "v1"), f"{on.CLAIMS}/c1"), "p",
    ),
    "binding: the claim is bound": Case(
        "VolumeBinding", together(ONE_NODE, volume("v1"), claim("c1"), claim("c2")), P_AND_Q,
        lambda w: on.bind_claim(w, "c1", "v1"), "p",
    ),
    "binding: the class comes": Case(
        "VolumeBinding", LATE, P, lambda w: on.storage_class(w, "sc"), "p",
    ),
    "binding: the class allows the zone": Case(
        "VolumeBinding", together(IN_ZONE, claim("c1", klass="sc"), sorted_class("there")), P,
        again(sorted_class("here"), CLASSES), "p",
    ),
    "binding: the class changes otherwise": Case(
        "VolumeBinding", together(IN_ZONE, claim("c1", klass="sc"), sorted_class("there")), P,
        lambda w: on.patch(w, CLASSES, metadata={"labels": {"key": "updated"}}), "",
    ),
    "binding: the drivers of the node come": Case(
        "VolumeBinding", together(ONE_NODE, volume("v1"), claim("c1")), P, lambda w: on.csi_node(w, "n1"), "p",
    ),
    "binding: the node takes over volumes of in-tree drivers": Case(
        "VolumeBinding", together(LATE, lambda w: on.csi_node(w, "n1")), P, lambda w: on.patch(
            w, f"{on.STORAGE}/csinodes/n1", metadata={"annotations": {"storage.alpha.kubernetes.io/migrated-plugins": "value"}}
        ), "p",
    ),
    "binding: the driver no longer counts": Case(
        "VolumeBinding", together(ONE_NODE, volume("v1"), claim("c1"), lambda w: on.csi_driver(w, "csi", True)),
        {"p": ephemeral("csi")},
        lambda w: on.patch(w, f"{on.STORAGE}/csidrivers/csi", spec={"storageCapacity": False}), "p",
    ),
    "binding: the driver counts from now on": Case(
        "VolumeBinding", together(ONE_NODE, volume("v1"), claim("c1"), lambda w: on.csi_driver(w, "csi", False)),
        {"p": ephemeral("csi")},
        lambda w: on.patch(w, f"{on.STORAGE}/csidrivers/csi", spec={"storageCapacity": True}), "",
    ),
    "binding: capacity comes": Case("VolumeBinding", SOON, P, lambda w: on.capacity(w, "cap", "sc", "10"), "p"),
    "binding: capacity grows": Case(
        "VolumeBinding", together(SOON, lambda w: on.capacity(w, "cap", "sc", "10")), P,
        lambda w: on.patch(w, f"{on.CAPACITIES}/cap", capacity="20"), "p",
    ),
    "binding: capacity shrinks": Case(
        "VolumeBinding", together(SOON, lambda w: on.capacity(w, "cap", "sc", "10")), P,
        lambda w: on.patch(w, f"{on.CAPACITIES}/cap", capacity="5"), "",
    ),
}  # fmt: skip


def limited(count, *more):
    """A node that takes so many volumes of a driver, and two volumes of it."""
    return together(
        ONE_NODE, volume("v1", driver="csi"), volume("v2", driver="csi"), lambda w: on.csi_driver(w, "csi", True),
        lambda w: on.csi_node(w, "n1", csi=count), *more,
    )  # fmt: skip


EBS, GCE = "ebs.csi.aws.com", "pd.csi.storage.gke.io"
OLD_DISKS = together(
    ONE_NODE, volume("v1", driver=EBS), volume("v2", driver=GCE),
    lambda w: on.attachment(w, "a1", "n1", EBS, "v1"), lambda w: on.attachment(w, "a2", "n1", GCE, "v2"),
    lambda w: on.csi_node(w, "n1", ebs_csi_aws_com=0, pd_csi_storage_gke_io=0),
)  # fmt: skip
EBS_DISK = {"name": "v", "awsElasticBlockStore": {"volumeID": "v1"}}
GCE_DISK = {"name": "v", "gcePersistentDisk": {"pdName": "v2"}}

LIMITS = {
    "limits: the drivers of a node come": Case(
        "NodeVolumeLimits", limited(0, claim("c1", "v1")), P, lambda w: on.csi_node(w, "n2"), "p",
    ),
    "limits: who has a volume goes": Case(
        "NodeVolumeLimits", limited(1, claim("c1", "v1"), claim("c2", "v2"), placed("x", **on.using("c1"))),
        {"p": on.using("c2")}, lambda w: w.delete_pod("x", grace=0), "p",
    ),
    "limits: the claim comes": Case(
        "NodeVolumeLimits", limited(1, claim("c1", "v1"), placed("x", **on.using("c1"))), {"p": on.using("c2")},
        claim("c2", "v2"), "p",
    ),
    "limits: a volume is detached": Case(
        "NodeVolumeLimits", limited(0, claim("c1", "v1"), lambda w: on.attachment(w, "a1", "n1", "csi", "v1")), P,
        lambda w: on.drop(w, f"{on.STORAGE}/volumeattachments/a1"), "p",
    ),
    "limits: a disk of an old kind is detached": Case(
        "NodeVolumeLimits", OLD_DISKS, {"p": {"volumes": [EBS_DISK]}, "q": {"volumes": [GCE_DISK]}},
        lambda w: on.drop(w, f"{on.STORAGE}/volumeattachments/a1"), "p",
    ),
}  # fmt: skip

CASES = {**VOLUME_ZONE, **RESTRICTIONS, **BINDING, **LIMITS}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_pods_that_an_event_wakes(case):
    play(case)
