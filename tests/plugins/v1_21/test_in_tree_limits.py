"""Test that a node attaches no more in-tree volumes of a type than that type's default limit, or the node's own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.feature_gates import FeatureGates
from moorage.framework.events import Action, Resource
from moorage.framework.verdicts import Code, Status
from moorage.plugins.earlier.balanced_allocation import NodeResourcesBalancedAllocationV121
from moorage.plugins.v1_21.in_tree_limits import AzureDiskLimits, CinderLimits, EBSLimits, GCEPDLimits
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import final_scores, refusals, wakes
from moorage.testing.storage import a_bound_claim, a_claim, a_class, a_csi_node, a_volume, standing_on, with_objects

RULES = {  # the plugin, a volume of its type, its resource, the in-tree plugin, the default limit
    EBSLimits: (lambda name: {"awsElasticBlockStore": {"volumeID": name}}, "aws-ebs", 39),
    GCEPDLimits: (lambda name: {"gcePersistentDisk": {"pdName": name}}, "gce-pd", 16),
    AzureDiskLimits: (lambda name: {"azureDisk": {"diskName": name, "diskURI": name}}, "azure-disk", 16),
    CinderLimits: (lambda name: {"cinder": {"volumeID": name}}, "cinder", 256),
}


def disks(rule, *names):
    source, _, _ = RULES[rule]
    return [{"name": f"v-{name}", **source(name)} for name in names]


def is_refused(rule, pod, cluster, gates=None):
    if gates is not None:
        rule.attach(SimpleNamespace(gates=gates, max_disks=None))
    found = refusals(rule, pod, cluster.snapshot)
    return {name: status.reasons for name, status in found.items()}


def taking(rule, limit, **fields):
    return a_node("n", allocatable={f"attachable-volumes-{RULES[rule][1]}": limit}, **fields)


FULL = {"n": ("node(s) exceed max volume count",)}


@pytest.mark.parametrize("rule", RULES)
def test_the_default_limit_of_the_type(rule):
    _, _, usual = RULES[rule]
    held = [a_pod(f"held-{at}", volumes=disks(rule, f"d{at}")) for at in range(usual - 1)]
    cluster = a_cluster([a_node("n")], {"n": held})
    assert is_refused(rule(), a_pod(volumes=disks(rule, "one")), cluster) == {}
    assert is_refused(rule(), a_pod(volumes=disks(rule, "one", "two")), cluster) == FULL
    assert is_refused(rule(), a_pod(volumes=disks(rule, "one", "d0")), cluster) == {}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("limit", "refused"), [(2, True), (3, False)])
def test_the_node_sets_the_limit(rule, limit, refused):
    cluster = a_cluster([taking(rule, limit)], {"n": [a_pod("held", volumes=disks(rule, "a", "b"))]})
    assert is_refused(rule(), a_pod(volumes=disks(rule, "c")), cluster) == (FULL if refused else {})
    others = next(other for other in RULES if other is not rule)
    assert is_refused(rule(), a_pod(volumes=disks(others, "c", "d", "e", "f")), cluster) == {}
    assert is_refused(rule(), a_pod(), cluster) == {}


@pytest.mark.parametrize(
    ("instance", "limit"), [("m5.large", 25), ("t3.nano", 25), ("x.t3", 25), ("m4.large", 39), ("xm5", 39)]
)
@pytest.mark.parametrize("key", ["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"])
def test_some_instance_types_have_a_lower_limit(key, instance, limit):
    cluster = a_cluster([a_node("n", {key: instance})])
    names = [f"d{at}" for at in range(limit + 1)]
    assert is_refused(EBSLimits(), a_pod(volumes=disks(EBSLimits, *names[:-1])), cluster) == {}
    assert is_refused(EBSLimits(), a_pod(volumes=disks(EBSLimits, *names)), cluster) == FULL


@pytest.mark.parametrize("rule", RULES)
def test_an_environment_variable_sets_the_limit_of_every_type(rule):
    limited = rule()
    limited.attach(SimpleNamespace(gates=FeatureGates(release="1.21"), max_disks=2))
    three = a_pod(volumes=disks(rule, "a", "b", "c"))
    assert is_refused(limited, a_pod(volumes=disks(rule, "a", "b")), a_cluster([a_node("n")])) == {}
    assert is_refused(limited, three, a_cluster([a_node("n", {"beta.kubernetes.io/instance-type": "t3"})])) == FULL
    assert is_refused(limited, three, a_cluster([taking(rule, 3)])) == {}, "what the node says goes before"


CLAIMED = {  # objects other than the claim, does it count?
    "a volume of the type": ([a_bound_claim("c", "pv"), a_volume("pv", awsElasticBlockStore={"volumeID": "x"})], True),
    "the volume already in use": ([a_bound_claim("c", "pv"), a_volume("pv", awsElasticBlockStore={"volumeID": "held"})], False),
    "a volume of another type": ([a_bound_claim("c", "pv"), a_volume("pv", gcePersistentDisk={"pdName": "x"})], False),
    "its class provisions the type": (
        [a_claim("c", storageClassName="ebs"), a_class("ebs", provisioner="kubernetes.io/aws-ebs")], True
    ),
    "its class provisions another type": ([a_claim("c", storageClassName="fast"), a_class("fast")], False),
    "no class": ([a_claim("c")], False),
    "a class that does not exist": ([a_claim("c", storageClassName="ebs")], False),
    "its volume does not exist": (
        [a_bound_claim("c", "pv", storageClassName="ebs"), a_class("ebs", provisioner="kubernetes.io/aws-ebs")], True
    ),
    "no claim": ([], False),
}  # fmt: skip


@pytest.mark.parametrize(("objects", "counts"), CLAIMED.values(), ids=CLAIMED)
def test_claims_count_by_their_volume_or_class(objects, counts):
    cluster = a_cluster([taking(EBSLimits, 1)], {"n": [a_pod("held", volumes=disks(EBSLimits, "held"))]})
    with_objects(cluster, *objects)
    assert is_refused(EBSLimits(), a_pod(volumes=standing_on("c")), cluster) == (FULL if counts else {})


def test_a_claim_without_name_is_an_error():
    found = refusals(EBSLimits(), a_pod(volumes=standing_on("")), a_cluster([a_node("n")]).snapshot)
    assert found == {
        "n": Status(Code.ERROR, "EBSLimits", ('running "EBSLimits" filter plugin: PersistentVolumeClaim had no name',))
    }


OPEN = FeatureGates({"CSIMigrationAWS": True}, "1.21")
MIGRATION = {  # the gates, the CSINode's migrated plugins, does the plugin still count?
    "migrated": (OPEN, ["kubernetes.io/aws-ebs"], False),
    "another type migrated": (OPEN, ["kubernetes.io/gce-pd"], True),
    "the gate is off": (FeatureGates(release="1.21"), ["kubernetes.io/aws-ebs"], True),
    "CSIMigration is off": (
        FeatureGates({"CSIMigrationAWS": True, "CSIMigration": False}, "1.21"), ["kubernetes.io/aws-ebs"], True
    ),
    "no CSINode": (OPEN, None, True),
    "today": (FeatureGates(), ["kubernetes.io/aws-ebs"], False),
}  # fmt: skip


@pytest.mark.parametrize(("gates", "migrated", "counts"), MIGRATION.values(), ids=MIGRATION)
def test_a_migrated_type_is_left_to_the_driver(gates, migrated, counts):
    cluster = a_cluster([taking(EBSLimits, 0)])
    if migrated is not None:
        with_objects(cluster, a_csi_node("n", migrated=migrated))
    assert is_refused(EBSLimits(), a_pod(volumes=disks(EBSLimits, "a")), cluster, gates) == (FULL if counts else {})


def test_the_table_follows_the_snapshot():
    rule, pod = EBSLimits(), a_pod(volumes=disks(EBSLimits, "new"))
    cluster = a_cluster([taking(EBSLimits, 1), a_node("other")])
    assert is_refused(rule, pod, cluster) == {}
    held = a_pod("held", volumes=standing_on("c"))
    cluster.place(held, "n")
    assert is_refused(rule, pod, cluster) == {}
    with_objects(cluster, a_bound_claim("c", "pv"), a_volume("pv", awsElasticBlockStore={"volumeID": "x"}))
    assert is_refused(rule, pod, cluster) == FULL
    cluster.set_node(taking(EBSLimits, 2))
    assert is_refused(rule, pod, cluster) == {}
    cluster.set_node(taking(EBSLimits, 1))
    assert is_refused(rule, pod, cluster) == FULL
    cluster.remove_node("other")
    assert is_refused(rule, pod, cluster) == FULL
    cluster.remove_pod(held.uid)
    assert is_refused(rule, pod, cluster) == {}


def test_simulated_removal_is_temporary():
    rule, pod = EBSLimits(), a_pod(volumes=disks(EBSLimits, "new"))
    held = a_pod("held", volumes=disks(EBSLimits, "a"))
    cluster = a_cluster([taking(EBSLimits, 1)], {"n": [held]})
    assert is_refused(rule, pod, cluster) == FULL
    with cluster.what_if(0) as table:
        table.remove_pod(0, held)
        assert is_refused(rule, pod, cluster) == {}
    assert is_refused(rule, pod, cluster) == FULL


NAMES = st.lists(st.sampled_from("abcde"), max_size=3, unique=True)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(NAMES, st.integers(0, 4)), min_size=1, max_size=4), NAMES)
def test_agrees_with_a_reference_implementation(nodes, wanted):
    cluster = a_cluster(
        [a_node(f"n{at}", allocatable={"attachable-volumes-cinder": limit}) for at, (_, limit) in enumerate(nodes)],
        {f"n{at}": [a_pod(f"p{at}", volumes=disks(CinderLimits, *held))] for at, (held, _) in enumerate(nodes)},
    )
    found = refusals(CinderLimits(), a_pod("new", volumes=disks(CinderLimits, *wanted)), cluster.snapshot)
    expected = {f"n{at}" for at, (held, limit) in enumerate(nodes) if wanted and len({*held, *wanted}) > limit}
    assert set(found) == expected


def test_what_wakes_a_pod():
    assert wakes(EBSLimits(), a_pod(), Resource.POD, Action.DELETE, a_pod())
    assert wakes(EBSLimits(), a_pod(), Resource.NODE, Action.ADD, None, a_node("n"))
    assert not wakes(EBSLimits(), a_pod(), Resource.POD, Action.ADD, None, a_pod())


@pytest.mark.parametrize("rule", RULES)
def test_satisfies_the_plugin_contract(rule):
    pods = [a_pod("plain"), a_pod("with", volumes=disks(rule, "a", "b"))]
    cluster = a_cluster([taking(rule, 2), a_node("m")], {"n": [a_pod("held", volumes=disks(rule, "c"))]})
    check_plugin(rule(), pods=pods, cluster=cluster)
    check_plugin(rule())


# -- volumes as a third fraction of NodeResourcesBalancedAllocation -------------------------------------------------------

ASKS = [{"name": "c", "resources": {"requests": {"cpu": "2", "memory": "2Gi"}}}]
OFFERS = {"cpu": "4", "memory": "8Gi"}
BALANCING = FeatureGates({"BalanceAttachedNodeVolumes": True}, "1.21")
BALANCED = {  # gates, disks of the pod, limit, used; score of cpu 1/2, memory 1/4 and the volumes' fraction
    "the gate is off": (FeatureGates(release="1.21"), "ab", 4, "", 75),
    "no disks": (BALANCING, "", 4, "", 75),
    "half": (BALANCING, "ab", 4, "", 98),  # mean 5/12, variance 1/72
    "a quarter": (BALANCING, "a", 4, "", 98),
    "disks in use lower the limit": (BALANCING, "ab", 4, "a", 98),  # one of three: variance of 1/2, 1/4, 1/3
    "all used": (BALANCING, "abcd", 4, "", 0),
    "no room": (BALANCING, "a", 1, "b", 75),
    "no disk added": (BALANCING, "a", 4, "a", 95),  # none of three: mean 1/4, variance 1/24
}


@pytest.mark.parametrize(("gates", "wanted", "limit", "held", "score"), BALANCED.values(), ids=BALANCED)
def test_volumes_are_a_third_fraction(gates, wanted, limit, held, score):
    rule = NodeResourcesBalancedAllocationV121()
    rule.attach(SimpleNamespace(gates=gates, max_disks=None))
    node = a_node("n", allocatable={**OFFERS, "attachable-volumes-aws-ebs": limit})
    empty = [{"name": "c", "resources": {"requests": {"cpu": "0", "memory": "0"}}}]
    there = [a_pod("held", containers=empty, volumes=disks(EBSLimits, *held))] if held else []
    pod = a_pod(containers=ASKS, volumes=disks(EBSLimits, *wanted))
    assert final_scores(rule, pod, a_cluster([node], {"n": there}).snapshot) == {"n": score}


def test_the_last_of_several_types_counts():
    rule = NodeResourcesBalancedAllocationV121()
    rule.attach(SimpleNamespace(gates=BALANCING, max_disks=None))
    limits = {"attachable-volumes-aws-ebs": 2, "attachable-volumes-azure-disk": 1}
    node = a_node("n", allocatable={**OFFERS, **limits})
    both = [*disks(EBSLimits, "a"), {**disks(AzureDiskLimits, "a")[0], "name": "second"}]
    assert final_scores(rule, a_pod(containers=ASKS, volumes=both), a_cluster([node]).snapshot) == {"n": 0}
