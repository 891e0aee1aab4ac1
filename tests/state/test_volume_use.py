"""Claims and disks are found by the rows whose pods hold them, whatever order pods and nodes come and go in."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.state.pod_volumes import ClaimUse, Disk
from moorage.state.table import NodeTable
from moorage.testing.builders import a_node, a_pod


def a_claim(name):
    return {"name": name, "persistentVolumeClaim": {"claimName": name}}


READS = {"readOnly": True}
DISKS = {  # a volume → the disks that must not be shared
    "secret": ({"secret": {"secretName": "s"}}, None),
    "image": ({"image": {"reference": "model:1"}}, None),
    "GCE disk": ({"gcePersistentDisk": {"pdName": "d"}}, (Disk(("gce", "d"), False),)),
    "GCE disk, only read": ({"gcePersistentDisk": {"pdName": "d", **READS}}, (Disk(("gce", "d"), True),)),
    "EBS is never shared": ({"awsElasticBlockStore": {"volumeID": "v", **READS}}, (Disk(("aws", "v"), False),)),
    "iSCSI": ({"iscsi": {"iqn": "q", "targetPortal": "p", **READS}}, (Disk(("iscsi", "q"), True),)),
    "Ceph image": (
        {"rbd": {"monitors": ["a", "b", "a"], "image": "i"}},
        (Disk(("rbd", "a", "rbd", "i"), False), Disk(("rbd", "b", "rbd", "i"), False)),
    ),
    "Ceph pool": ({"rbd": {"monitors": ["a"], "image": "i", "pool": "p"}}, (Disk(("rbd", "a", "p", "i"), False),)),
    "Azure disk is not watched": ({"azureDisk": {"diskURI": "u"}}, ()),
}


@pytest.mark.parametrize(("volume", "disks"), DISKS.values(), ids=DISKS)
def test_disks(volume, disks):
    volumes = a_pod(volumes=[{"name": "v", **volume}]).volumes
    assert (None if volumes is None else volumes.disks) == disks


def test_claims():
    made = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    volumes = a_pod("db", namespace="prod", volumes=[a_claim("data"), made, {"name": "tmp", "emptyDir": {}}]).volumes
    assert volumes is not None
    assert volumes.claims == (ClaimUse("data", "prod/data"), ClaimUse("db-scratch", "prod/db-scratch", ephemeral=True))
    assert not volumes.disks
    assert not volumes.inline


INLINE = ["gcePersistentDisk", "awsElasticBlockStore", "cinder", "azureDisk", "azureFile", "vsphereVolume", "portworxVolume"]


@pytest.mark.parametrize("kind", INLINE)
def test_volumes_migrated_to_csi_drivers(kind):
    volumes = a_pod(volumes=[{"name": "v", kind: {}}]).volumes
    assert volumes is not None
    assert [volume.name for volume in volumes.inline] == ["v"]


VOLUMES = [
    a_claim("one"), a_claim("two"), {"name": "e", "ephemeral": {}}, {"name": "s", "secret": {}},
    {"name": "d", "gcePersistentDisk": {"pdName": "d"}}, {"name": "d", "gcePersistentDisk": {"pdName": "d", "readOnly": True}},
    {"name": "r", "rbd": {"monitors": ["m"], "image": "i"}},
]  # fmt: skip
STEPS = st.lists(st.tuples(st.sampled_from(["come", "go", "node"]), st.integers(0, 30)), max_size=40)


@settings(max_examples=30)
@given(st.lists(st.lists(st.sampled_from(VOLUMES), max_size=3), min_size=1, max_size=6), STEPS)
def test_volume_use_agrees_with_a_scan_of_all_pods(volumes, steps):
    table = NodeTable()
    for at in range(4):
        table.add_node(a_node(f"n{at}"))
    pods = [a_pod(f"p{at}", volumes=of_pod) for at, of_pod in enumerate(volumes)]
    placed: dict[int, str] = {}
    for step, number in steps:
        at = number % len(pods)
        if step == "come" and at not in placed and len(table):
            row = number % len(table)
            table.add_pod(row, pods[at])
            placed[at] = table.nodes[row].name
        elif step == "go" and at in placed:
            table.remove_pod(table.row_of[placed.pop(at)], pods[at])
        elif step == "node" and len(table) > 1:
            gone = table.nodes[number % len(table)].name
            table.remove_node(gone)
            placed = {pod: node for pod, node in placed.items() if node != gone}
        check(table)


def check(table):
    use = table.volume_use
    holders = {row: [pod for pod in pods.values() if pod.volumes is not None] for row, pods in enumerate(table.pods)}
    assert {row: list(use.pods_on(row).values()) for row in use.rows} == {row: pods for row, pods in holders.items() if pods}
    for key in ("default/one", "default/two", "default/p0-e"):
        using = {row for row, pods in holders.items() for pod in pods for claim in pod.volumes.claims if claim.key == key}
        assert set(use.rows_using(key)) == using
        assert (use.claim_uses(key) > 0) is (bool(using) and not key.endswith("-e"))
    for key in (("gce", "d"), ("rbd", "m", "rbd", "i")):
        held = [(row, d.read_only) for row, pods in holders.items() for p in pods for d in p.volumes.disks if d.key == key]
        assert set(use.rows_clashing(Disk(key, False))) == {row for row, _ in held}
        assert set(use.rows_clashing(Disk(key, True))) == {row for row, reads in held if not reads}


def test_a_what_if_leaves_no_trace():
    table = NodeTable()
    row = table.add_node(a_node("n"))
    stays = a_pod("stays", volumes=[VOLUMES[0], VOLUMES[4]])
    table.add_pod(row, stays)
    with table.what_if(row):
        assert set(table.rows_in_what_ifs) == {row}
        table.remove_pod(row, stays)
        table.add_pod(row, a_pod("comes", volumes=[VOLUMES[1]]))
        assert table.volume_use.claim_uses("default/two") == 1
        assert not table.volume_use.rows_clashing(Disk(("gce", "d"), True))
    assert not table.rows_in_what_ifs
    check(table)
