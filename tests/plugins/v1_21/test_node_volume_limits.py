"""In 1.21 a node takes no more volumes of a driver than the driver, or the node itself, says."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.framework.events import Action, Resource
from moorage.framework.features import FeatureGates
from moorage.framework.verdicts import Code, Status
from moorage.plugins.v1_21.node_volume_limits import NodeVolumeLimitsV121, limit_key
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import refusals, wakes
from moorage.testing.storage import a_bound_claim, a_claim, a_class, a_csi_node, a_volume, standing_on, with_objects

DRIVER, EBS = "csi.example.com", "ebs.csi.aws.com"
KEY = f"attachable-volumes-csi-{DRIVER}"
NO = Status(Code.UNSCHEDULABLE, "NodeVolumeLimits", ("node(s) exceed max volume count",))


def bound(name, handle=None, driver=DRIVER):
    """Return a claim and its volume."""
    return [a_bound_claim(name, f"pv-{name}"), a_volume(f"pv-{name}", csi={"driver": driver, "volumeHandle": handle or name})]


def a_house(*objects, limit=None, says=None):
    """Return a cluster of one node, on which a pod holds claims ``a`` and ``b``; ``c`` and ``d`` are free."""
    node = a_node("n", allocatable={} if says is None else {KEY: says})
    cluster = a_cluster([node], {"n": [a_pod("held", volumes=standing_on("a", "b"))]})
    known = [obj for name in "abcd" for obj in bound(name)]
    return with_objects(cluster, *known, *([] if limit is None else [a_csi_node("n", {DRIVER: limit})]), *objects)


def refused(cluster, pod, gates=None):
    plugin = NodeVolumeLimitsV121()
    if gates is not None:
        plugin.attach(SimpleNamespace(gates=gates))
    return set(refusals(plugin, pod, cluster.snapshot))


LIMITS = {  # limit of the CSINode, of the node, what the pod needs, refused?
    "room for one": (3, None, "c", False),
    "full": (2, None, "c", True),
    "room for one of two": (3, None, "cd", True),
    "shares what is there": (2, None, "a", False),
    "shares one and brings one": (2, None, "ac", True),
    "over the limit already, brings none": (1, None, "ab", False),
    "takes none": (0, None, "c", True),
    "no limit": (None, None, "cd", False),
    "the node says, there is no CSINode": (None, 2, "c", True),
    "the node says, and there is room": (None, 3, "c", False),
    "the node says none at all": (None, 0, "c", True),
    "the driver says more": (3, 2, "c", False),
    "the driver says less": (2, 9, "c", True),
}


@pytest.mark.parametrize(("limit", "says", "needs", "no"), LIMITS.values(), ids=LIMITS)
def test_refuses(limit, says, needs, no):
    found = refusals(NodeVolumeLimitsV121(), a_pod(volumes=standing_on(*needs)), a_house(limit=limit, says=says).snapshot)
    assert found == ({"n": NO} if no else {})


COUNTS = {  # objects beside the claim ``x``, does it count with the driver?
    "a volume of the driver": (bound("x"), True),
    "the volume that is there by another claim": (bound("x", "a"), False),
    "a volume of another driver": (bound("x", driver="other"), False),
    "a volume without a handle": (
        [a_bound_claim("x", "pv"), a_volume("pv", csi={"driver": DRIVER, "volumeHandle": ""})], False,
    ),
    "its class makes one": ([a_claim("x", storageClassName="fast"), a_class("fast")], True),
    "its volume is gone, its class makes one": ([a_bound_claim("x", "pv", storageClassName="fast"), a_class("fast")], True),
    "its class is gone": ([a_claim("x", storageClassName="fast")], False),
    "no class": ([a_claim("x")], False),
    "no claim": ([], False),
}  # fmt: skip


@pytest.mark.parametrize(("objects", "counts"), COUNTS.values(), ids=COUNTS)
def test_claims_count_by_what_stands_behind_them(objects, counts):
    assert bool(refused(a_house(*objects, limit=2), a_pod(volumes=standing_on("x")))) is counts


def test_only_claims_that_a_pod_names_count():
    pod = a_pod("p", volumes=[{"name": "x", "ephemeral": {}}, {"name": "d", "awsElasticBlockStore": {"volumeID": "v"}}])
    owned = a_claim("p-x", storageClassName="fast")
    assert refused(a_house(owned, a_class("fast"), a_csi_node("n", {DRIVER: 0, EBS: 0})), pod) == set()


def test_a_claim_without_name_is_an_error():
    found = refusals(NodeVolumeLimitsV121(), a_pod(volumes=standing_on("")), a_house().snapshot)
    text = 'running "NodeVolumeLimits" filter plugin: PersistentVolumeClaim had no name'
    assert found == {"n": Status(Code.ERROR, "NodeVolumeLimits", (text,))}


OPEN = FeatureGates({"CSIMigrationAWS": True}, "1.21")
MIGRATION = {  # gates, what the node handed over, does the disk count with the driver?
    "handed over": (OPEN, ["kubernetes.io/aws-ebs"], True),
    "another kind was": (OPEN, ["kubernetes.io/cinder"], False),
    "nothing was": (OPEN, [], False),
    "the gate is closed": (FeatureGates(release="1.21"), ["kubernetes.io/aws-ebs"], False),
    "migration as a whole is": (
        FeatureGates({"CSIMigration": False, "CSIMigrationAWS": True}, "1.21"), ["kubernetes.io/aws-ebs"], False,
    ),
}  # fmt: skip
BUILT_IN = {
    "a volume": [a_bound_claim("x", "pv"), a_volume("pv", awsElasticBlockStore={"volumeID": "vol-1"})],
    "one to be made": [a_claim("x", storageClassName="ebs"), a_class("ebs", provisioner="kubernetes.io/aws-ebs")],
}


@pytest.mark.parametrize("objects", BUILT_IN.values(), ids=BUILT_IN)
@pytest.mark.parametrize(("gates", "migrated", "counts"), MIGRATION.values(), ids=MIGRATION)
def test_disks_count_with_a_driver_where_they_were_handed_over(gates, migrated, counts, objects):
    cluster = a_house(a_csi_node("n", {EBS: 0}, migrated=migrated), *objects)
    assert bool(refused(cluster, a_pod(volumes=standing_on("x")), gates)) is counts


@pytest.mark.parametrize("kind", ["Managed", "Dedicated"])
def test_disks_of_azure_count_whatever_their_kind(kind):
    gates = FeatureGates({"CSIMigrationAzureDisk": True}, "1.21")
    node = a_csi_node("n", {"disk.csi.azure.com": 0}, migrated=["kubernetes.io/azure-disk"])
    volume = a_volume("pv", azureDisk={"diskURI": "u", "diskName": "d", "kind": kind})
    assert refused(a_house(node, a_bound_claim("x", "pv"), volume), a_pod(volumes=standing_on("x")), gates) == {"n"}


def test_long_names_of_drivers_end_in_a_digest():
    assert limit_key("a" * 39) == "attachable-volumes-csi-" + "a" * 39
    long = limit_key("com.example." + "a" * 40)
    assert long == "attachable-volumes-csi-com.example.aaaaaaaaaaa" + "8dbbdb04b6f8f38f"
    assert len(long) == 62


def test_it_keeps_up():
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


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NAMES, st.none() | st.integers(0, 3), st.none() | st.integers(0, 3)), min_size=1, max_size=4), NAMES)
def test_the_table_says_what_the_rule_says_of_each_node(nodes, wanted):
    cluster = a_cluster(
        [a_node(f"n{at}", allocatable={} if says is None else {KEY: says}) for at, (_, says, _) in enumerate(nodes)],
        {f"n{at}": [a_pod(f"p{at}", volumes=standing_on(*held))] for at, (held, _, _) in enumerate(nodes)},
    )
    with_objects(cluster, *(obj for name in "abcd" for obj in bound(name)))
    expected = set()
    for at, (held, says, limit) in enumerate(nodes):
        with_objects(cluster, a_csi_node(f"n{at}", {DRIVER: limit}))
        most = says if limit is None else limit
        if most is not None and set(wanted) - set(held) and len({*held, *wanted}) > most:
            expected.add(f"n{at}")
    assert refused(cluster, a_pod("new", volumes=standing_on(*wanted))) == expected


def test_what_wakes_a_pod():
    pod = a_pod(volumes=standing_on("c"))
    assert wakes(NodeVolumeLimitsV121(), pod, Resource.POD, Action.DELETE, a_pod())
    assert wakes(NodeVolumeLimitsV121(), pod, Resource.CSI_NODE, Action.ADD, None, a_csi_node("n"))
    assert not wakes(NodeVolumeLimitsV121(), pod, Resource.NODE, Action.UPDATE_NODE_LABEL, a_node("n"), a_node("n"))


def test_it_keeps_its_contract():
    pods = [a_pod("plain"), a_pod("with", volumes=standing_on("a", "c", "d"))]
    check_plugin(NodeVolumeLimitsV121(), pods=pods, cluster=a_house(limit=3))
