"""Test VolumeBinding in 1.21: volumes are reached, found and provisioned as today, with other messages."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.feature_gates import FeatureGates
from moorage.api.storage import CSIDriver, CSIStorageCapacity
from moorage.errors import AttemptError
from moorage.framework.verdicts import SKIP, Code, Hold, Status
from moorage.plugins.earlier.volume_binding import VolumeBindingArgsV121, VolumeBindingV121
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.fake_handle import FakeHandle
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import final_scores, refusals
from moorage.testing.storage import (
    a_bound_claim,
    a_claim,
    a_class,
    a_csi_node,
    a_volume,
    on_hosts,
    on_nodes_labelled,
    standing_on,
    with_objects,
)

HOST, ZONE, EBS_ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone"
UNREACHABLE = "node(s) had volume node affinity conflict"
UNMATCHED = "node(s) didn't find available persistent volumes to bind"
NO_ROOM = "node(s) did not have enough free storage"
LOST = "pvc(s) bound to non-existent pv(s)"
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"

LOCAL = a_class("local", provisioner="kubernetes.io/no-provisioner")
GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def cluster_of(*objects, count=3):
    nodes = [a_node(f"n{at}", {HOST: f"n{at}", ZONE: "ab"[at % 2]}) for at in range(count)]
    classes = [a_class("made"), a_class("other"), LOCAL, a_class("now", volumeBindingMode="Immediate")]
    return with_objects(a_cluster(nodes), *classes, *objects)


def with_gates(release="1.21", **gates):
    plugin = VolumeBindingV121()
    plugin.attach(SimpleNamespace(gates=FeatureGates(gates, release)))
    return plugin


def refused(cluster, *claims, plugin=None):
    found = refusals(plugin or VolumeBindingV121(), a_pod(volumes=standing_on(*claims)), cluster.snapshot)
    return {name: status.reasons for name, status in found.items()}


HELD = {  # the claim, why every node rejects the pod
    "missing": (None, 'persistentvolumeclaim "data" not found'),
    "being deleted": (a_bound_claim("data", "pv", metadata=GOING), 'persistentvolumeclaim "data" is being deleted'),
    "lost before it was fully bound": (a_claim("data", volumeName="pv", status={"phase": "Lost"}), UNBOUND),
    "immediate binding, not bound": (a_claim("data", storageClassName="now"), UNBOUND),
    "of no class": (a_claim("data"), UNBOUND),
    "not fully bound": (a_claim("data", storageClassName="made", volumeName="pv"), UNBOUND),
}


@pytest.mark.parametrize(("claim", "why"), HELD.values(), ids=HELD)
def test_a_claim_that_rejects_the_pod_on_every_node(claim, why):
    cluster = cluster_of(*([] if claim is None else [claim]))
    answer = VolumeBindingV121().pre_filter(a_pod(volumes=standing_on("data")), cluster.snapshot)
    assert answer == Hold.because(why, unresolvable=True)


def test_an_ephemeral_volume_waits_for_its_claim():
    pod = a_pod("p", volumes=[{"name": "s", "ephemeral": {}}])
    cluster = cluster_of()
    missing = Hold.because('persistentvolumeclaim "p-s" not found', unresolvable=True)
    assert VolumeBindingV121().pre_filter(pod, cluster.snapshot) == missing
    with_objects(cluster, a_claim("p-s", storageClassName="made"))
    foreign = Hold.because('persistentvolumeclaim "p-s" was not created for the pod', unresolvable=True)
    assert VolumeBindingV121().pre_filter(pod, cluster.snapshot) == foreign
    owned = {"ownerReferences": [{"uid": "default/p", "controller": True}]}
    with_objects(cluster, a_claim("p-s", storageClassName="made", metadata=owned))
    assert refusals(VolumeBindingV121(), pod, cluster.snapshot) == {}


def test_a_class_without_a_binding_mode_is_an_error():
    cluster = cluster_of(a_claim("data", storageClassName="odd"), a_class("odd", volumeBindingMode=None))
    with pytest.raises(AttemptError, match='VolumeBindingMode not set for StorageClass "odd"'):
        VolumeBindingV121().pre_filter(a_pod(volumes=standing_on("data")), cluster.snapshot)


def test_pods_without_claims_are_skipped():
    pod = a_pod(volumes=[{"name": "v", "gcePersistentDisk": {"pdName": "d"}}])
    assert VolumeBindingV121().pre_filter(pod, cluster_of().snapshot) is SKIP


NODES = {  # objects other than the claim ``data``, the reasons of the nodes that reject
    "a bound volume elsewhere": (
        [a_bound_claim("data", "pv"), a_volume("pv", nodeAffinity=on_hosts("n1"))], {"n0": UNREACHABLE, "n2": UNREACHABLE},
    ),
    "a bound volume that does not exist": ([a_bound_claim("data", "pv")], dict.fromkeys(["n0", "n1", "n2"], LOST)),
    "a lost claim whose volume does not exist": (
        [a_bound_claim("data", "pv", status={"phase": "Lost"})], dict.fromkeys(["n0", "n1", "n2"], LOST),
    ),
    "an available volume on one node": (
        [a_claim("data", storageClassName="local"), a_volume("pv", storageClassName="local", nodeAffinity=on_hosts("n0"))],
        {"n1": UNMATCHED, "n2": UNMATCHED},
    ),
    "volumes to provision": ([a_claim("data", storageClassName="made")], {}),
}  # fmt: skip


@pytest.mark.parametrize(("objects", "why"), NODES.values(), ids=NODES)
def test_nodes_that_do_not_reach_or_find_a_volume(objects, why):
    assert refused(cluster_of(*objects), "data") == {name: (reason,) for name, reason in why.items()}


# -- CSI drivers ----------------------------------------------------------------------------------------------------------

MIGRATION = {  # gates, the node's migrated plugins, is the volume matched by the driver's label?
    "migrated": ({"CSIMigrationAWS": True}, ["kubernetes.io/aws-ebs"], True),
    "another type migrated": ({"CSIMigrationAWS": True}, ["kubernetes.io/gce-pd"], False),
    "the gate is off": ({}, ["kubernetes.io/aws-ebs"], False),
    "CSIMigration is off": ({"CSIMigrationAWS": True, "CSIMigration": False}, ["kubernetes.io/aws-ebs"], False),
}


@pytest.mark.parametrize(("gates", "migrated", "by_driver"), MIGRATION.values(), ids=MIGRATION)
def test_a_volume_belongs_to_its_driver_only_where_gates_and_node_agree(gates, migrated, by_driver):
    volume = a_volume("pv", awsElasticBlockStore={"volumeID": "vol-1"}, nodeAffinity=on_nodes_labelled(ZONE, "a"))
    nodes = [a_node("old", {ZONE: "a"}), a_node("new", {EBS_ZONE: "a"})]
    csi_nodes = [a_csi_node(name, migrated=migrated) for name in ("old", "new")]
    cluster = with_objects(a_cluster(nodes), a_bound_claim("data", "pv"), volume, *csi_nodes)
    assert refused(cluster, "data", plugin=with_gates(**gates)) == {"old" if by_driver else "new": (UNREACHABLE,)}


def test_azure_disks_of_any_kind_have_a_driver():
    volume = a_volume("pv", azureDisk={"diskURI": "u", "diskName": "d", "kind": "Dedicated"}, nodeAffinity=on_hosts("n1"))
    migrated = [a_csi_node(f"n{at}", migrated=["kubernetes.io/azure-disk"]) for at in range(3)]
    cluster = cluster_of(a_bound_claim("data", "pv"), volume, *migrated)
    plugin = with_gates(CSIMigrationAzureDisk=True)
    assert refused(cluster, "data", plugin=plugin) == {"n0": (UNREACHABLE,), "n2": (UNREACHABLE,)}


def test_a_volume_that_its_driver_rejects_is_an_error():
    volume = a_volume("pv", awsElasticBlockStore={"volumeID": "aws://z/disk"})
    cluster = cluster_of(a_bound_claim("data", "pv"), volume, a_csi_node("n0", migrated=["kubernetes.io/aws-ebs"]))
    found = refusals(with_gates(CSIMigrationAWS=True), a_pod(volumes=standing_on("data")), cluster.snapshot)
    assert {name: status.code for name, status in found.items()} == {"n0": Code.ERROR}


ROOM = msgspec.convert(
    {
        "metadata": {"name": "r", "namespace": "x"}, "storageClassName": "made", "capacity": "1Gi",
        "nodeTopology": {"matchLabels": {HOST: "n1"}},
    },
    CSIStorageCapacity,
)  # fmt: skip
COUNTING = msgspec.convert({"metadata": {"name": "csi.example.com"}, "spec": {"storageCapacity": True}}, CSIDriver)
RELEASES = {  # release, gates, nodes without enough capacity
    "1.21": ("1.21", {}, ["n0", "n2"]),
    "1.21, the gate off": ("1.21", {"CSIStorageCapacity": False}, []),
    "1.20": ("1.20", {}, []),
    "1.19, the gate on": ("1.19", {"CSIStorageCapacity": True}, ["n0", "n2"]),
}


@pytest.mark.parametrize(("release", "gates", "full"), RELEASES.values(), ids=RELEASES)
def test_capacity_is_checked_when_the_gate_is_on(release, gates, full):
    cluster = cluster_of(a_claim("data", storageClassName="made"), ROOM, COUNTING)
    plugin = with_gates(release, **gates)
    assert refused(cluster, "data", plugin=plugin) == dict.fromkeys(full, (NO_ROOM,))


# -- scores -------------------------------------------------------------------------------------------------------------


def local(name, node, size, of="local"):
    return a_volume(name, storageClassName=of, size=size, nodeAffinity=on_hosts(node))


SCORED = {  # claims (name, size, class), volumes, scores
    "higher utilization scores higher": (
        [("a", "1Gi", "local")], [local("x", "n0", "1Gi"), local("y", "n1", "4Gi"), local("z", "n2", "3Gi")], [100, 25, 33],
    ),
    "claims of a class are summed": (
        [("a", "1Gi", "local"), ("b", "2Gi", "local")],
        [local(f"{size}{at}", f"n{at}", f"{size}Gi") for at in range(3) for size in (3, 4)], [42, 42, 42],
    ),
    "the mean over classes, half rounded up": (
        [("a", "1Gi", "local"), ("b", "1Gi", "made")],
        [local("x", "n0", "1Gi"), local("y", "n0", "2Gi", "made"), local("x1", "n1", "4Gi"), local("y1", "n1", "2Gi", "made"),
         local("x2", "n2", "1Gi"), local("y2", "n2", "9Gi", "made")],
        [75, 38, 56],
    ),
    "volumes to provision do not count": ([("a", "1Gi", "made")], [local("x", "n1", "2Gi", "made")], [0, 50, 0]),
    "no volume found": ([("a", "1Gi", "made")], [], [0, 0, 0]),
}  # fmt: skip


@pytest.mark.parametrize(("claims", "volumes", "wanted"), SCORED.values(), ids=SCORED)
def test_scores(claims, volumes, wanted):
    named = [a_claim(name, size=size, storageClassName=of) for name, size, of in claims]
    pod = a_pod(volumes=standing_on(*(name for name, _, _ in claims)))
    snapshot = cluster_of(*named, *volumes).snapshot
    scores = final_scores(with_gates(VolumeCapacityPriority=True), pod, snapshot)
    assert scores == {f"n{at}": score for at, score in enumerate(wanted)}
    assert set(final_scores(with_gates(), pod, snapshot).values()) == {0}, "the gate is closed"


def test_pods_without_claims_score_0():
    assert set(final_scores(with_gates(VolumeCapacityPriority=True), a_pod(), cluster_of().snapshot).values()) == {0}


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.lists(st.none() | st.integers(1, 9), min_size=1, max_size=4))
def test_a_single_volume_scores_its_requested_fraction(asked, sizes):
    volumes = [local(f"v{at}", f"n{at}", f"{size}Gi", "made") for at, size in enumerate(sizes) if size is not None]
    cluster = cluster_of(a_claim("a", size=f"{asked}Gi", storageClassName="made"), *volumes, count=len(sizes))
    scores = final_scores(with_gates(VolumeCapacityPriority=True), a_pod(volumes=standing_on("a")), cluster.snapshot)
    wanted = [100 * asked // size if size is not None and size >= asked else 0 for size in sizes]
    assert list(scores.values()) == wanted


def test_arguments():
    (fault,) = VolumeBindingArgsV121(bind_timeout_seconds=-1).faults("args", FeatureGates(release="1.21"))
    assert (fault.field, fault.value) == ("args.bindTimeoutSeconds", -1)
    assert VolumeBindingArgsV121().faults("args", FeatureGates(release="1.21")) == []


@pytest.mark.parametrize("gates", [{}, {"VolumeCapacityPriority": True}])
def test_satisfies_the_plugin_contract(gates):
    objects = [
        a_claim("free", storageClassName="made"),
        a_bound_claim("bound", "pv"),
        a_volume("pv", nodeAffinity=on_hosts("n1")),
    ]
    pods = [a_pod("plain"), a_pod("one", volumes=standing_on("free")), a_pod("two", volumes=standing_on("bound", "free"))]
    cluster = cluster_of(*objects, local("x", "n0", "3Gi", "made"))
    handle = FakeHandle(cluster.snapshot, gates=FeatureGates(gates, "1.21"))
    check_plugin(VolumeBindingV121(), pods=pods, cluster=cluster, handle=handle)


def test_rejections_are_unresolvable():
    found = refusals(VolumeBindingV121(), a_pod(volumes=standing_on("data")), cluster_of(a_bound_claim("data", "pv")).snapshot)
    assert found["n0"] == Status(Code.UNRESOLVABLE, "VolumeBinding", (LOST,))
