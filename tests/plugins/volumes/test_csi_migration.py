"""Test the translation of in-tree volumes to CSI volumes."""

from __future__ import annotations

import msgspec
import pytest

from moorage.api.core import Volume
from moorage.rules.volumes.csi_migration import (
    MigratedVolume,
    MigrationError,
    driver_of,
    in_tree_plugin,
    is_in_tree_plugin,
    translated,
    translated_inline,
)
from moorage.testing.storage import a_volume, on_nodes_labelled

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
EBS, GCE, CINDER, AZURE, PORTWORX = (
    "ebs.csi.aws.com", "pd.csi.storage.gke.io", "cinder.csi.openstack.org", "disk.csi.azure.com", "pxd.portworx.com",
)  # fmt: skip
ANY = "projects/UNSPECIFIED"

HANDLES = {  # the volume's source and labels, the driver and its handle
    "EBS": ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, {}, (EBS, "vol-1")),
    "EBS, by address": ({"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-1"}}, {}, (EBS, "vol-1")),
    "EBS, a volume URL without a zone": ({"awsElasticBlockStore": {"volumeID": "aws:///vol-1"}}, {}, (EBS, "vol-1")),
    "GCE": ({"gcePersistentDisk": {"pdName": "d"}}, {}, (GCE, f"{ANY}/zones/UNSPECIFIED/disks/d")),
    "GCE, zonal": ({"gcePersistentDisk": {"pdName": "d"}}, {ZONE: "eu-west1-b"}, (GCE, f"{ANY}/zones/eu-west1-b/disks/d")),
    "GCE, the deprecated label first": (
        {"gcePersistentDisk": {"pdName": "d"}}, {BETA_ZONE: "x", ZONE: "y"}, (GCE, f"{ANY}/zones/x/disks/d"),
    ),
    "GCE, regional": (
        {"gcePersistentDisk": {"pdName": "d"}}, {ZONE: "eu-west1-b__eu-west1-c"}, (GCE, f"{ANY}/regions/eu-west1/disks/d"),
    ),
    "Cinder": ({"cinder": {"volumeID": "c"}}, {}, (CINDER, "c")),
    "Azure disk": ({"azureDisk": {"diskURI": "/sub/d", "kind": "Managed"}}, {}, (AZURE, "/sub/d")),
    "Azure disk, kind in lower case": ({"azureDisk": {"diskURI": "/sub/d", "kind": "managed"}}, {}, (AZURE, "/sub/d")),
    "Portworx": ({"portworxVolume": {"volumeID": "p"}}, {}, (PORTWORX, "p")),
}  # fmt: skip


@pytest.mark.parametrize(("source", "labels", "expected"), HANDLES.values(), ids=HANDLES)
def test_the_driver_and_handle_of_a_volume(source, labels, expected):
    known = translated(a_volume("pv", labels, **source))
    assert known is not None
    assert (known.driver, known.handle) == expected
    if not labels:
        inline = msgspec.convert({"name": "v", **source}, Volume)
        assert translated_inline(inline) == MigratedVolume(*expected)


def test_volumes_that_are_not_translated():
    for source in ({"azureFile": {}}, {"vsphereVolume": {}}, {"nfs": {}}, {"csi": {"driver": "d"}}):
        assert translated(a_volume("pv", **source)) is None
    assert translated_inline(msgspec.convert({"name": "v", "azureFile": {}}, Volume)) is None
    assert in_tree_plugin(a_volume("pv", azureFile={}).spec) == "kubernetes.io/azure-file"
    assert in_tree_plugin(a_volume("pv", nfs={}).spec) is None
    assert is_in_tree_plugin("kubernetes.io/vsphere-volume")
    assert not is_in_tree_plugin("csi.example.com")
    assert driver_of("kubernetes.io/vsphere-volume") is None


FAULTS = {
    "an address that is no volume's": ({"awsElasticBlockStore": {"volumeID": "aws://z/disk-1"}}, {}, "Invalid format for AWS"),
    "an invalid address": ({"awsElasticBlockStore": {"volumeID": "aws://[z/vol-1"}}, {}, "Invalid disk name"),
    "an unmanaged disk": ({"azureDisk": {"diskURI": "u", "kind": "Shared"}}, {}, "kind(Shared) is not supported"),
    "a disk of the default kind": ({"azureDisk": {"diskURI": "u"}}, {}, "kind(Shared) is not supported"),
    "zones without regions": ({"gcePersistentDisk": {"pdName": "d"}}, {ZONE: "a__b"}, "zone in unexpected format"),
    "zones of two regions": (
        {"gcePersistentDisk": {"pdName": "d"}}, {ZONE: "eu-west1-b__us-east1-c"}, "got: map[eu-west1:{} us-east1:{}]",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("source", "labels", "why"), FAULTS.values(), ids=FAULTS)
def test_a_volume_that_its_driver_rejects(source, labels, why):
    with pytest.raises(MigrationError) as raised:
        translated(a_volume("pv", labels, **source))
    assert why in str(raised.value)


def asked(known):
    """Return an affinity by term: (key, operator, values)."""
    if known.affinity is None:
        return None
    return [
        [(one.key, one.operator, one.values) for one in term.match_expressions] for term in known.affinity.node_selector_terms
    ]


DRIVER_ZONE = "topology.ebs.csi.aws.com/zone"
OTHER_KEY = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}}
OF_OLD = {
    "required": {
        "nodeSelectorTerms": [
            {
                "matchExpressions": [
                    {"key": BETA_ZONE, "operator": "In", "values": ["a"]},
                    {"key": BETA_REGION, "operator": "In", "values": ["r"]},
                ]
            }
        ]
    }
}  # fmt: skip
AFFINITIES = {  # the volume's labels and affinity, the resulting node affinity
    "nothing": ({}, None, None),
    "a zone in its affinity": ({}, on_nodes_labelled(ZONE, "a", "b"), [[(DRIVER_ZONE, "In", ("a", "b"))]]),
    "a deprecated zone key in its affinity": ({}, on_nodes_labelled(BETA_ZONE, "a"), [[(DRIVER_ZONE, "In", ("a",))]]),
    "its affinity takes precedence over its label": (
        {ZONE: "b"},
        on_nodes_labelled(ZONE, "a"),
        [[(DRIVER_ZONE, "In", ("a",))]],
    ),
    "a zone label": ({ZONE: "b"}, None, [[(DRIVER_ZONE, "In", ("b",))]]),
    "a label with several zones": ({ZONE: "b__a__b"}, None, [[(DRIVER_ZONE, "In", ("a", "b"))]]),
    "a deprecated zone label": ({BETA_ZONE: "a"}, None, [[(DRIVER_ZONE, "In", ("a",))]]),
    "an empty label": ({ZONE: ""}, None, None),
    "a label that its affinity lacks": ({ZONE: "a"}, OTHER_KEY, [[("disk", "Exists", ()), (DRIVER_ZONE, "In", ("a",))]]),
    "deprecated zone and region labels": ({}, OF_OLD, [[(DRIVER_ZONE, "In", ("a",)), (REGION, "In", ("r",))]]),
    "another label": ({"disk": "ssd"}, OTHER_KEY, [[("disk", "Exists", ())]]),
}


@pytest.mark.parametrize(("labels", "affinity", "expected"), AFFINITIES.values(), ids=AFFINITIES)
def test_zones_become_the_drivers_topology(labels, affinity, expected):
    near = {} if affinity is None else {"nodeAffinity": affinity}
    known = translated(a_volume("pv", labels, awsElasticBlockStore={"volumeID": "vol-1"}, **near))
    assert known is not None
    assert asked(known) == expected


def test_drivers_without_a_topology_key_keep_the_affinity():
    volume = a_volume("pv", {ZONE: "b"}, portworxVolume={"volumeID": "p"}, nodeAffinity=on_nodes_labelled(ZONE, "a"))
    known = translated(volume)
    assert known is not None
    assert asked(known) == [[(ZONE, "In", ("a",))]]
