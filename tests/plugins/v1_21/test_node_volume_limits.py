"""Test NodeVolumeLimits in 1.21: a node attaches no more volumes of a driver than the CSINode or the node allows."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.feature_gates import FeatureGates
from moorage.framework.events import Action, Resource
from moorage.framework.verdicts import Code, Status
from moorage.plugins.earlier.node_volume_limits import NodeVolumeLimitsV121, limit_key
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.fake_handle import FakeHandle
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import refusals, wakes
from moorage.testing.storage import a_bound_claim, a_claim, a_class, a_csi_node, a_volume, standing_on, with_objects

DRIVER, EBS = "csi.example.com", "ebs.csi.aws.com"
KEY = f"attachable-volumes-csi-{DRIVER}"
NO = Status(Code.UNSCHEDULABLE, "NodeVolumeLimits", ("node(s) exceed max volume count",))


def bound(name, handle=None, driver=DRIVER):
    """Return a claim and its volume."""
    return [a_bound_claim(name, f"pv-{name}"), a_volume(f"pv-{name}", csi={"driver": driver, "volumeHandle": handle or name})]


def cluster_with_limit(*objects, limit=None, node_limit=None):
    """Return a cluster of one node, whose pod uses claims ``a`` and ``b``; ``c`` and ``d`` are unused."""
    node = a_node("n", allocatable={} if node_limit is None else {KEY: node_limit})
    cluster = a_cluster([node], {"n": [a_pod("held", volumes=standing_on("a", "b"))]})
    known = [obj for name in "abcd" for obj in bound(name)]
    return with_objects(cluster, *known, *([] if limit is None else [a_csi_node("n", {DRIVER: limit})]), *objects)


def refused(cluster, pod, gates=None):
    plugin = NodeVolumeLimitsV121()
    if gates is not None:
        plugin.attach(SimpleNamespace(gates=gates))
    return set(refusals(plugin, pod, cluster.snapshot))


LIMITS = {  # limit of the CSINode, of the node, the pod's claims, rejected?
    "one more fits": (3, None, "c", False),
    "full": (2, None, "c", True),
    "one of two fits": (3, None, "cd", True),
    "shares both": (2, None, "a", False),
    "shares one and adds one": (2, None, "ac", True),
    "over the limit already, adds none": (1, None, "ab", False),
    "uses none": (0, None, "c", True),
    "no limit": (None, None, "cd", False),
    "the node's limit without a CSINode": (None, 2, "c", True),
    "the node's limit is not reached": (None, 3, "c", False),
    "the node's limit is zero": (None, 0, "c", True),
    "the CSINode's limit is higher": (3, 2, "c", False),
    "the CSINode's limit is lower": (2, 9, "c", True),
}


@pytest.mark.parametrize(("limit", "node_limit", "needs", "no"), LIMITS.values(), ids=LIMITS)
def test_rejects(limit, node_limit, needs, no):
    found = refusals(
        NodeVolumeLimitsV121(),
        a_pod(volumes=standing_on(*needs)),
        cluster_with_limit(limit=limit, node_limit=node_limit).snapshot,
    )
    assert found == ({"n": NO} if no else {})


COUNTS = {  # objects other than the claim ``x``, does it count for the driver?
    "a volume of the driver": (bound("x"), True),
    "the volume in use, through another claim": (bound("x", "a"), False),
    "a volume of another driver": (bound("x", driver="other"), False),
    "a volume without a handle": (
        [a_bound_claim("x", "pv"), a_volume("pv", csi={"driver": DRIVER, "volumeHandle": ""})], False,
    ),
    "its class provisions one": ([a_claim("x", storageClassName="fast"), a_class("fast")], True),
    "its volume does not exist, its class provisions one": (
        [a_bound_claim("x", "pv", storageClassName="fast"), a_class("fast")], True,
    ),
    "its class does not exist": ([a_claim("x", storageClassName="fast")], False),
    "no class": ([a_claim("x")], False),
    "no claim": ([], False),
}  # fmt: skip


@pytest.mark.parametrize(("objects", "counts"), COUNTS.values(), ids=COUNTS)
def test_claims_count_by_their_volume_or_class(objects, counts):
    assert bool(refused(cluster_with_limit(*objects, limit=2), a_pod(volumes=standing_on("x")))) is counts


def test_only_persistent_volume_claims_of_a_pod_count():
    pod = a_pod("p", volumes=[{"name": "x", "ephemeral": {}}, {"name": "d", "awsElasticBlockStore": {"volumeID": "v"}}])
    owned = a_claim("p-x", storageClassName="fast")
    assert refused(cluster_with_limit(owned, a_class("fast"), a_csi_node("n", {DRIVER: 0, EBS: 0})), pod) == set()


def test_a_claim_without_name_is_an_error():
    found = refusals(NodeVolumeLimitsV121(), a_pod(volumes=standing_on("")), cluster_with_limit().snapshot)
    text = 'running "NodeVolumeLimits" filter plugin: PersistentVolumeClaim had no name'
    assert found == {"n": Status(Code.ERROR, "NodeVolumeLimits", (text,))}


OPEN = FeatureGates({"CSIMigrationAWS": True}, "1.21")
MIGRATION = {  # gates, the node's migrated plugins, does the disk count for the driver?
    "migrated": (OPEN, ["kubernetes.io/aws-ebs"], True),
    "another type migrated": (OPEN, ["kubernetes.io/cinder"], False),
    "none migrated": (OPEN, [], False),
    "the gate is off": (FeatureGates(release="1.21"), ["kubernetes.io/aws-ebs"], False),
    "CSIMigration is off": (
        FeatureGates({"CSIMigration": False, "CSIMigrationAWS": True}, "1.21"), ["kubernetes.io/aws-ebs"], False,
    ),
}  # fmt: skip
BUILT_IN = {
    "a volume": [a_bound_claim("x", "pv"), a_volume("pv", awsElasticBlockStore={"volumeID": "vol-1"})],
    "a volume to provision": [a_claim("x", storageClassName="ebs"), a_class("ebs", provisioner="kubernetes.io/aws-ebs")],
}


@pytest.mark.parametrize("objects", BUILT_IN.values(), ids=BUILT_IN)
@pytest.mark.parametrize(("gates", "migrated", "counts"), MIGRATION.values(), ids=MIGRATION)
def test_in_tree_volumes_count_for_a_driver_where_they_are_migrated(gates, migrated, counts, objects):
    cluster = cluster_with_limit(a_csi_node("n", {EBS: 0}, migrated=migrated), *objects)
    assert bool(refused(cluster, a_pod(volumes=standing_on("x")), gates)) is counts


@pytest.mark.parametrize("kind", ["Managed", "Dedicated"])
def test_azure_disks_count_for_any_kind(kind):
    gates = FeatureGates({"CSIMigrationAzureDisk": True}, "1.21")
    node = a_csi_node("n", {"disk.csi.azure.com": 0}, migrated=["kubernetes.io/azure-disk"])
    volume = a_volume("pv", azureDisk={"diskURI": "u", "diskName": "d", "kind": kind})
    assert refused(cluster_with_limit(node, a_bound_claim("x", "pv"), volume), a_pod(volumes=standing_on("x")), gates) == {"n"}


def test_long_driver_names_are_shortened_with_a_digest():
    assert limit_key("a" * 39) == "attachable-volumes-csi-" + "a" * 39
    long = limit_key("com.example." + "a" * 40)
    assert long == "attachable-volumes-csi-com.example.aaaaaaaaaaa" + "8dbbdb04b6f8f38f"
    assert len(long) == 62


def test_the_table_follows_the_snapshot():
    plugin, pod = NodeVolumeLimitsV121(), a_pod(volumes=standing_on("c"))
    cluster = a_cluster([a_node("n"), a_node("m")])
    with_objects(cluster, *(obj for name in "abc" for obj in bound(name)), a_csi_node("n", {DRIVER: 2}))

    def full():
        return set(refusals(plugin, pod, cluster.snapshot))

    assert full() == set()
    held = a_pod("held", volumes=standing_on("a", "b"))
    cluster.place(held, "n")
    assert full() == {"n"}
    with_objects(cluster, *bound("b", "a"))
    assert full() == set(), "both claims are of one volume now"
    with_objects(cluster, *bound("b"))
    assert full() == {"n"}
    cluster.set_node(a_node("m", allocatable={KEY: 0}))
    assert full() == {"n", "m"}
    with_objects(cluster, a_csi_node("n", {DRIVER: 3}))
    assert full() == {"m"}
    with cluster.what_if(0) as table:
        table.remove_pod(0, held)
        with_objects(cluster, a_csi_node("n", {DRIVER: 1}))
        assert full() == {"m"}
    assert full() == {"n", "m"}
    cluster.remove_node("m")
    cluster.remove_pod(held.uid)
    assert full() == set()


NAMES = st.lists(st.sampled_from("abcd"), max_size=3, unique=True)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(NAMES, st.none() | st.integers(0, 3), st.none() | st.integers(0, 3)), min_size=1, max_size=4), NAMES)
def test_agrees_with_a_reference_implementation(nodes, wanted):
    cluster = a_cluster(
        [
            a_node(f"n{at}", allocatable={} if node_limit is None else {KEY: node_limit})
            for at, (_, node_limit, _) in enumerate(nodes)
        ],
        {f"n{at}": [a_pod(f"p{at}", volumes=standing_on(*held))] for at, (held, _, _) in enumerate(nodes)},
    )
    with_objects(cluster, *(obj for name in "abcd" for obj in bound(name)))
    expected = set()
    for at, (held, node_limit, limit) in enumerate(nodes):
        with_objects(cluster, a_csi_node(f"n{at}", {DRIVER: limit}))
        most = node_limit if limit is None else limit
        if most is not None and set(wanted) - set(held) and len({*held, *wanted}) > most:
            expected.add(f"n{at}")
    assert refused(cluster, a_pod("new", volumes=standing_on(*wanted))) == expected


def test_events_that_wake():
    pod = a_pod(volumes=standing_on("c"))
    assert wakes(NodeVolumeLimitsV121(), pod, Resource.POD, Action.DELETE, a_pod())
    assert wakes(NodeVolumeLimitsV121(), pod, Resource.CSI_NODE, Action.ADD, None, a_csi_node("n"))
    assert not wakes(NodeVolumeLimitsV121(), pod, Resource.NODE, Action.UPDATE_NODE_LABEL, a_node("n"), a_node("n"))


def test_satisfies_the_plugin_contract():
    pods = [a_pod("plain"), a_pod("with", volumes=standing_on("a", "c", "d"))]
    cluster = cluster_with_limit(limit=3)
    handle = FakeHandle(cluster.snapshot, gates=FeatureGates(release="1.21"))
    check_plugin(NodeVolumeLimitsV121(), pods=pods, cluster=cluster, handle=handle)
