"""Test that a disk is mounted once on a node in 1.21 unless all mounts are read-only; other users of a claim do not matter."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.framework.events import Action, Resource
from moorage.framework.verdicts import Code, Status
from moorage.plugins.earlier.volume_restrictions import VolumeRestrictionsV121
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import refusals, wakes
from moorage.testing.storage import a_claim, standing_on, with_objects

DISK = Status(Code.UNSCHEDULABLE, "VolumeRestrictions", ("node(s) had no available disk",))
READS = {"readOnly": True}


def gce(name, **rest):
    return {"gcePersistentDisk": {"pdName": name, **rest}}


def ebs(name, **rest):
    return {"awsElasticBlockStore": {"volumeID": name, **rest}}


def iscsi(iqn, **rest):
    return {"iscsi": {"iqn": iqn, "targetPortal": "10.0.0.1", **rest}}


def rbd(*monitors, image="i", **rest):
    return {"rbd": {"monitors": list(monitors), "image": image, **rest}}


DISKS = {  # the pod's disk, the node's disk, rejected?
    "no disk in use": (gce("d"), None, False),
    "no disk requested": ({"emptyDir": {}}, gce("d"), False),
    "GCE": (gce("d"), gce("d"), True),
    "GCE, another": (gce("d"), gce("e"), False),
    "GCE, one read-only": (gce("d"), gce("d", **READS), True),
    "GCE, both read-only": (gce("d", **READS), gce("d", **READS), False),
    "EBS, even if both are read-only": (ebs("v", **READS), ebs("v", **READS), True),
    "EBS, another": (ebs("v"), ebs("w"), False),
    "iSCSI": (iscsi("q"), iscsi("q"), True),
    "iSCSI, both read-only": (iscsi("q", **READS), iscsi("q", **READS), False),
    "RBD, a common monitor": (rbd("a", "b"), rbd("b", "c"), True),
    "RBD, no common monitor": (rbd("a"), rbd("b"), False),
    "RBD, another image": (rbd("a"), rbd("a", image="j"), False),
    "disks of two types with one name": (gce("x"), ebs("x"), False),
}


def mounting(*volumes, name="pod"):
    return a_pod(name, volumes=[{"name": f"v{at}", **volume} for at, volume in enumerate(volumes)])


@pytest.mark.parametrize(("wants", "holds", "refused"), DISKS.values(), ids=DISKS)
def test_a_disk_is_mounted_once(wants, holds, refused):
    held = [mounting(holds, name="held")] if holds else []
    snapshot = a_cluster([a_node("n"), a_node("free")], {"n": held}).snapshot
    assert refusals(VolumeRestrictionsV121(), mounting(wants), snapshot) == ({"n": DISK} if refused else {})


def test_a_read_write_once_pod_claim_may_be_shared():
    alone = a_claim("data", accessModes=["ReadWriteOncePod"])
    held = a_pod("held", volumes=standing_on("data"))
    cluster = with_objects(a_cluster([a_node("n")], {"n": [held]}), alone)
    assert refusals(VolumeRestrictionsV121(), a_pod(volumes=standing_on("data")), cluster.snapshot) == {}


def test_a_missing_claim_is_ignored():
    assert refusals(VolumeRestrictionsV121(), a_pod(volumes=standing_on("gone")), a_cluster([a_node("n")]).snapshot) == {}


disk = st.tuples(st.sampled_from(["d", "e"]), st.booleans())


@settings(max_examples=50, deadline=None)
@given(st.lists(disk, max_size=2), st.lists(st.lists(disk, max_size=2), min_size=1, max_size=4))
def test_agrees_with_a_reference_implementation(wanted, nodes):
    def pod(name, disks):
        return mounting(*(gce(one, readOnly=reads) for one, reads in disks), name=name)

    cluster = a_cluster(
        [a_node(f"n{at}") for at in range(len(nodes))], {f"n{at}": [pod(f"p{at}", held)] for at, held in enumerate(nodes)}
    )
    expected = {
        f"n{at}"
        for at, held in enumerate(nodes)
        if any(one == other and not (reads and also) for one, reads in wanted for other, also in held)
    }
    assert set(refusals(VolumeRestrictionsV121(), pod("new", wanted), cluster.snapshot)) == expected


def test_events_that_wake():
    assert wakes(VolumeRestrictionsV121(), mounting(gce("d")), Resource.POD, Action.DELETE, mounting(gce("d")))
    assert wakes(VolumeRestrictionsV121(), mounting(gce("d")), Resource.NODE, Action.ADD, None, a_node("n"))
    assert not wakes(
        VolumeRestrictionsV121(), mounting(gce("d")), Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, None, a_claim()
    )


def test_satisfies_the_plugin_contract():
    cluster = a_cluster([a_node("n"), a_node("m")], {"n": [mounting(gce("d"), name="held")]})
    check_plugin(VolumeRestrictionsV121(), pods=[mounting(gce("d")), a_pod("plain")], cluster=cluster)
