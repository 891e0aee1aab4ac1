"""The volume that is provisioned for a pod's node is in the node's zone, as the disks of clouds are."""

import pytest

from moorage.api import storage
from moorage.api.core import ObjectMeta
from moorage.rules.volumes.bindings import SELECTED_NODE
from moorage.rules.volumes.volumes import PRETENDED, made_for

ZONE = "topology.kubernetes.io/zone"
ZONAL = {ZONE: "a", "kubernetes.io/hostname": "n1"}
CASES = {  # provisioner, the node's labels, what its CSINode lists, the labels of the volume's affinity
    "the class of moorage up": (PRETENDED, ZONAL, {}, {ZONE: ("a",)}),
    "a node without a zone": (PRETENDED, {"kubernetes.io/hostname": "n1"}, {}, {}),
    "a disk of a cloud": ("ebs.csi.aws.com", ZONAL, {}, {ZONE: ("a",)}),
    "an in-tree disk of a cloud": ("kubernetes.io/aws-ebs", ZONAL, {}, {ZONE: ("a",)}),
    "what the driver says goes first": ("ebs.csi.aws.com", ZONAL, {"ebs.csi.aws.com": ("kubernetes.io/hostname",)},
                                        {"kubernetes.io/hostname": ("n1",)}),
    "a file system of a cloud": ("efs.csi.aws.com", ZONAL, {}, {}),
    "another driver": ("example.com/disk", ZONAL, {}, {}),
}  # fmt: skip


@pytest.mark.parametrize(("provisioner", "labels", "listed", "expected"), CASES.values(), ids=CASES)
def test_the_volume_is_in_the_zone_of_the_node(provisioner, labels, listed, expected):
    claim = storage.PersistentVolumeClaim(
        metadata=ObjectMeta(name="c", namespace="default", uid="1", annotations={SELECTED_NODE: "n1"})
    )
    drivers = tuple(storage.CSINodeDriver(name=name, topology_keys=keys) for name, keys in listed.items())
    csi_node = storage.CSINode(metadata=ObjectMeta(name="n1"), spec=storage.CSINodeSpec(drivers=drivers)) if listed else None
    storage_class = storage.StorageClass(metadata=ObjectMeta(name="standard"), provisioner=provisioner)
    made = made_for(claim, storage_class, lambda name: labels, lambda name: csi_node)
    affinity = made.spec.node_affinity
    terms = [] if affinity is None else affinity.required.node_selector_terms
    assert {one.key: one.values for term in terms for one in term.match_expressions} == expected
