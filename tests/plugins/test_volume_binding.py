"""Test VolumeBinding: which nodes reach, find or provision a pod's volumes."""

from __future__ import annotations

import pytest

from moorage.errors import AttemptError
from moorage.framework.events import Action, Resource
from moorage.framework.verdicts import SKIP, Code, Hold, Status
from moorage.plugins.volume_binding import VolumeBinding
from moorage.rules.volumes.bindings import SELECTED_NODE
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import final_scores, refusals, wakes
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
from tests.plugins.volume_binding_cluster import (
    CLAIM,
    CLASS,
    CSI,
    DRIVER,
    DRIVERS,
    HOST,
    LOST,
    NO_ROOM,
    OTHER,
    ROOM,
    UNMATCHED,
    UNREACHABLE,
    VOLUME,
    ZONE,
    cluster_of,
    counting,
    no,
    refused,
    room,
    topology,
)

# -- claims that reject the pod on every node -----------------------------------------------------------------------------

GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
HELD = {  # the claim, why every node rejects the pod
    "missing": (None, 'persistentvolumeclaim "data" not found'),
    "lost": (
        a_claim("data", volumeName="pv", status={"phase": "Lost"}),
        'persistentvolumeclaim "data" bound to non-existent persistentvolume "pv"',
    ),
    "being deleted": (a_bound_claim("data", "pv", metadata=GOING), 'persistentvolumeclaim "data" is being deleted'),
    "immediate binding, not bound": (
        a_claim("data", storageClassName="now"), "pod has unbound immediate PersistentVolumeClaims",
    ),
    "of no class": (a_claim("data"), "pod has unbound immediate PersistentVolumeClaims"),
    "of a class that does not exist": (
        a_claim("data", storageClassName="x"), "pod has unbound immediate PersistentVolumeClaims",
    ),
    "not fully bound": (
        a_claim("data", storageClassName="made", volumeName="pv"), "pod has unbound immediate PersistentVolumeClaims",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("claim", "why"), HELD.values(), ids=HELD)
def test_a_claim_that_rejects_the_pod_on_every_node(claim, why):
    cluster = cluster_of(*([] if claim is None else [claim]))
    assert refusals(VolumeBinding(), a_pod(volumes=standing_on("data")), cluster.snapshot) == dict.fromkeys(
        ["n0", "n1", "n2"], no(why)
    )


def test_an_ephemeral_volume_waits_for_its_claim():
    pod = a_pod("p", volumes=[{"name": "s", "ephemeral": {}}])
    cluster = cluster_of()
    waiting = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-s"'
    assert VolumeBinding().pre_filter(pod, cluster.snapshot) == Hold.because(waiting, unresolvable=True)
    with_objects(cluster, a_claim("p-s", storageClassName="made"))
    foreign = "PVC default/p-s was not created for pod default/p (pod is not owner)"
    assert VolumeBinding().pre_filter(pod, cluster.snapshot) == Hold.because(foreign, unresolvable=True)
    owned = {"ownerReferences": [{"uid": "default/p", "controller": True}]}
    with_objects(cluster, a_claim("p-s", storageClassName="made", metadata=owned))
    assert refusals(VolumeBinding(), pod, cluster.snapshot) == {}


def test_a_class_without_a_binding_mode_is_an_error():
    cluster = cluster_of(a_claim("data", storageClassName="odd"), a_class("odd", volumeBindingMode=None))
    with pytest.raises(AttemptError) as raised:
        VolumeBinding().pre_filter(a_pod(volumes=standing_on("data")), cluster.snapshot)
    assert str(raised.value) == 'running PreFilter plugin "VolumeBinding": VolumeBindingMode not set for StorageClass "odd"'


def test_pods_without_claims_are_skipped():
    snapshot = cluster_of().snapshot
    for volume in ({"emptyDir": {}}, {"gcePersistentDisk": {"pdName": "d"}}):
        pod = a_pod(volumes=[{"name": "v", **volume}])
        assert VolumeBinding().pre_filter(pod, snapshot) is SKIP
        assert final_scores(VolumeBinding(), pod, snapshot) == {"n0": 0, "n1": 0, "n2": 0}, "PreScore does not skip"
    assert VolumeBinding().reuse.signature(a_pod(volumes=[{"name": "v", "emptyDir": {}}])) == {}
    assert VolumeBinding().reuse.signature(a_pod(volumes=standing_on("data"))) is None


# -- bound claims -------------------------------------------------------------------------------------------------------

NAMED = {"required": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n9"]}]}]}}
BROKEN = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "Like", "values": ["a"]}]}]}}
BOUND = {  # the volume's node affinity, nodes that do not reach the volume
    "reached from every node": (None, ""),
    "local": (on_hosts("n1"), "02"),
    "zonal": (on_nodes_labelled(ZONE, "a"), "1"),
    "nowhere": (on_hosts("n9"), "012"),
    "without an expression": ({}, ""),
    "without a term": ({"required": {"nodeSelectorTerms": []}}, "012"),
    "with field expressions, which volumes do not support": (NAMED, ""),
    "invalid": (BROKEN, "012"),
}


@pytest.mark.parametrize(("affinity", "elsewhere"), BOUND.values(), ids=BOUND)
def test_a_bound_volume_must_be_reachable(affinity, elsewhere):
    volume = a_volume("pv", phase="Bound", **({} if affinity is None else {"nodeAffinity": affinity}))
    cluster = cluster_of(a_bound_claim("data", "pv"), volume)
    assert refused(cluster, "data") == {f"n{at}": (UNREACHABLE,) for at in elsewhere}


def test_a_bound_volume_that_does_not_exist():
    cluster = cluster_of(
        a_bound_claim("data", "gone"), a_bound_claim("other", "pv"), a_volume("pv", nodeAffinity=on_hosts("n0"))
    )
    assert refused(cluster, "data") == dict.fromkeys(["n0", "n1", "n2"], (LOST,))
    first_reached = {"n0": (LOST,), "n1": (UNREACHABLE,), "n2": (UNREACHABLE,)}
    assert refused(cluster, "other", "data") == first_reached, "the first claim that fails on a node says why"


EBS_ZONE = "topology.ebs.csi.aws.com/zone"
ON_EBS = {"awsElasticBlockStore": {"volumeID": "vol-1"}, "nodeAffinity": on_nodes_labelled(ZONE, "a")}


def test_a_migrated_volume_is_matched_by_its_drivers_labels():
    there = [a_node("old", {ZONE: "a"}), a_node("moved", {EBS_ZONE: "a"}), a_node("both", {ZONE: "a"})]
    cluster = with_objects(
        a_cluster(there), a_bound_claim("data", "pv"), a_volume("pv", **ON_EBS),
        a_csi_node("moved", migrated=["kubernetes.io/aws-ebs"]), a_csi_node("both", migrated=["kubernetes.io/aws-ebs"]),
    )  # fmt: skip
    assert refused(cluster, "data") == {"both": (UNREACHABLE,)}
    with_objects(cluster, a_csi_node("both"))
    assert refused(cluster, "data") == {}


def test_an_invalid_migrated_volume_is_an_error_where_its_plugin_was_migrated():
    volume = a_volume("pv", azureDisk={"diskURI": "u", "kind": "Dedicated"})
    migrated = a_csi_node("n1", migrated=["kubernetes.io/azure-disk"])
    cluster = cluster_of(a_bound_claim("data", "pv"), volume, migrated)
    found = refusals(VolumeBinding(), a_pod(volumes=standing_on("data")), cluster.snapshot)
    text = 'running "VolumeBinding" filter plugin: could not translate pv: kind(Dedicated) is not supported in csi migration'
    assert found == {"n1": Status(Code.ERROR, "VolumeBinding", (text,))}


# -- existing volumes -----------------------------------------------------------------------------------------------------


def wants(name="data", **rest):
    return a_claim(name, storageClassName="local", **rest)


def offers(name="pv", **rest):
    return a_volume(name, storageClassName="local", **rest)


MINE, THEIRS = {"name": "data", "namespace": "default"}, {"name": "other", "namespace": "default"}
OFFERS = {  # an existing volume, does it match the claim?
    "matches exactly": (offers(), True),
    "larger": (offers(size="2Gi"), True),
    "smaller": (offers(size="500Mi"), False),
    "of another class": (a_volume("pv", storageClassName="made"), False),
    "of no class": (a_volume("pv"), False),
    "of the class by the annotation": (
        a_volume("pv", metadata={"annotations": {"volume.beta.kubernetes.io/storage-class": "local"}}), True,
    ),
    "not available": (offers(phase="Pending"), False),
    "going": (offers(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), False),
    "for block devices": (offers(volumeMode="Block"), False),
    "for ReadWriteMany": (offers(accessModes=["ReadWriteMany"]), False),
    "for ReadWriteOnce and ReadWriteMany": (offers(accessModes=["ReadWriteMany", "ReadWriteOnce"]), True),
    "with another attributes class": (offers(volumeAttributesClassName="gold"), False),
    "reserved for the claim": (offers(claimRef=MINE), True),
    "reserved for the claim, and bound": (offers(claimRef={**MINE, "uid": "default/data"}, phase="Bound"), True),
    "reserved for an earlier claim of that name": (offers(claimRef={**MINE, "uid": "old"}), False),
    "reserved for the claim, smaller": (offers(claimRef=MINE, size="500Mi"), False),
    "reserved for another": (offers(claimRef=THEIRS), False),
}  # fmt: skip


@pytest.mark.parametrize(("volume", "suits"), OFFERS.values(), ids=OFFERS)
def test_a_volume_that_matches(volume, suits):
    cluster = cluster_of(wants(), volume)
    assert refused(cluster, "data") == ({} if suits else dict.fromkeys(["n0", "n1", "n2"], (UNMATCHED,)))


SELECTORS = {"matches": ({"disk": "ssd"}, True), "does not match": ({"disk": "hdd"}, False), "everything": ({}, True)}


@pytest.mark.parametrize(("labels", "suits"), SELECTORS.values(), ids=SELECTORS)
def test_a_claim_may_select_volumes(labels, suits):
    cluster = cluster_of(
        wants(selector={"matchLabels": labels}), offers(), a_volume("ssd", {"disk": "ssd"}, storageClassName="local")
    )
    assert bool(refused(cluster, "data")) is not suits


def test_an_invalid_selector_is_an_error():
    broken = {"matchExpressions": [{"key": "disk", "operator": "Like"}]}
    cluster = cluster_of(wants(selector=broken), offers(), count=1)
    found = refusals(VolumeBinding(), a_pod(volumes=standing_on("data")), cluster.snapshot)
    why = 'error creating internal label selector for claim: default/data: "Like" is not a valid label selector operator'
    assert found == {"n0": Status(Code.ERROR, "VolumeBinding", (f'running "VolumeBinding" filter plugin: {why}',))}


def test_only_nodes_that_reach_a_volume_find_it():
    cluster = cluster_of(wants(), offers("a", nodeAffinity=on_hosts("n0")), offers("b", nodeAffinity=on_hosts("n2")))
    assert refused(cluster, "data") == {"n1": (UNMATCHED,)}


def test_each_claim_needs_its_own_volume():
    here = {"nodeAffinity": on_hosts("n0")}
    cluster = cluster_of(
        wants("one"), wants("two"), offers("a", **here), offers("b", **here), offers("c", nodeAffinity=on_hosts("n1"))
    )
    assert refused(cluster, "one", "two") == {"n1": (UNMATCHED,), "n2": (UNMATCHED,)}


def test_the_smallest_claim_is_matched_first():
    large, small = a_claim("large", size="2Gi", storageClassName="made"), a_claim("small", storageClassName="made")
    cluster = cluster_of(large, small, a_volume("pv", size="2Gi", storageClassName="made"), counting())
    with_objects(cluster, room("r", "1Gi", labels={}))
    assert refused(cluster, "large", "small") == dict.fromkeys(["n0", "n1", "n2"], (NO_ROOM,)), "so a large one must be made"


def test_a_claim_takes_the_smallest_volume():
    cluster = cluster_of(wants("one"), wants("two", size="2Gi"), offers("large", size="2Gi"), offers("small", size="1Gi"))
    assert refused(cluster, "one", "two") == {}


def test_an_unreachable_reserved_volume_is_not_replaced():
    cluster = cluster_of(wants(), offers("mine", claimRef=MINE, nodeAffinity=on_hosts("n0")), offers("free"))
    assert refused(cluster, "data") == {"n1": (UNMATCHED,), "n2": (UNMATCHED,)}


# -- volumes to provision -------------------------------------------------------------------------------------------------


CLASSES = {  # the class, nodes for which it provisions no volumes
    "provisions for every node": ({}, ""),
    "provisions for no node": ({"provisioner": "kubernetes.io/no-provisioner"}, "012"),
    "has no provisioner": ({"provisioner": ""}, "012"),
    "in one zone": ({"allowedTopologies": topology({ZONE: "a"})}, "1"),
    "in either of two topologies": ({"allowedTopologies": topology({ZONE: "b"}, {HOST: ["n2"]})}, "0"),
    "where both labels match": ({"allowedTopologies": topology({ZONE: "a", HOST: ["n2"]})}, "01"),
    "with an empty topology": ({"allowedTopologies": topology({})}, "012"),
    "with an invalid topology": ({"allowedTopologies": topology({ZONE: []})}, "012"),
}


@pytest.mark.parametrize(("fields", "elsewhere"), CLASSES.values(), ids=CLASSES)
def test_a_class_provisions_in_its_allowed_topologies(fields, elsewhere):
    cluster = cluster_of(a_claim("data", storageClassName="c"), a_class("c", **fields))
    assert refused(cluster, "data") == {f"n{at}": (UNMATCHED,) for at in elsewhere}


def test_a_volume_that_is_not_found_is_provisioned():
    cluster = cluster_of(
        a_claim("data", storageClassName="made"), a_claim("more", storageClassName="made"),
        a_volume("pv", storageClassName="made", nodeAffinity=on_hosts("n0")),
    )  # fmt: skip
    assert refused(cluster, "data", "more") == {}


def test_a_volume_being_provisioned_is_expected_on_its_selected_node():
    selected = {"annotations": {SELECTED_NODE: "n1"}}
    cluster = cluster_of(a_claim("data", storageClassName="made", metadata=selected), a_claim("more", storageClassName="made"))
    assert refused(cluster, "data") == {"n0": (UNMATCHED,), "n2": (UNMATCHED,)}
    assert refused(cluster, "data", "more") == {"n0": (UNMATCHED,), "n2": (UNMATCHED,)}
    with_objects(cluster, a_claim("more", storageClassName="made", metadata={"annotations": {SELECTED_NODE: "n2"}}))
    assert refused(cluster, "data", "more") == dict.fromkeys(["n0", "n1", "n2"], (UNMATCHED,))


ROOMS = {  # CSIStorageCapacity objects, nodes without enough capacity
    "nothing": ([], "012"),
    "capacity everywhere": ([room("r", "1Gi", labels={})], ""),
    "too little": ([room("r", "1023Mi", labels={})], "012"),
    "capacity on one node": ([room("r", "2Gi", labels={HOST: "n1"})], "02"),
    "capacity in a zone and on a node": ([room("r", "2Gi", labels={ZONE: "a"}), room("s", "2Gi", labels={HOST: "n1"})], ""),
    "capacity of another class": ([room("r", "2Gi", of="local", labels={})], "012"),
    "capacity that no node reaches": ([room("r", "2Gi")], "012"),
    "a maximum volume size below the claim's": ([room("r", "2Gi", labels={}, maximumVolumeSize="1Mi")], "012"),
    "a maximum volume size above the claim's, with less capacity": ([room("r", "1Mi", labels={}, maximumVolumeSize="2Gi")], ""),
    "unknown capacity": ([room("r", labels={})], "012"),
    "capacity by a matchExpressions topology": (
        [room("r", "2Gi", nodeTopology={"matchExpressions": [{"key": HOST, "operator": "NotIn", "values": ["n0"]}]})], "0",
    ),
    "capacity by an invalid topology": (
        [room("r", "2Gi", nodeTopology={"matchExpressions": [{"key": HOST, "operator": "Like"}]})], "012",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rooms", "without"), ROOMS.values(), ids=ROOMS)
def test_a_driver_that_reports_capacity_needs_enough(rooms, without):
    cluster = cluster_of(a_claim("data", storageClassName="made"), *rooms)
    for driver in (None, counting(keeps=False)):
        assert refused(cluster if driver is None else with_objects(cluster, driver), "data") == {}
    assert refused(with_objects(cluster, counting()), "data") == {f"n{at}": (NO_ROOM,) for at in without}


def test_a_claim_without_a_size_needs_no_capacity():
    cluster = cluster_of(a_claim("data", storageClassName="made", resources={}), counting())
    assert refused(cluster, "data") == {}


def test_several_reasons_have_kube_schedulers_order():
    cluster = cluster_of(
        a_bound_claim("far", "pv"), a_volume("pv", nodeAffinity=on_hosts("n0")), wants("none"),
        a_claim("large", storageClassName="made"), counting(), a_bound_claim("gone", "gone"),
    )  # fmt: skip
    assert refused(cluster, "far", "none")["n1"] == (UNREACHABLE, UNMATCHED)
    assert refused(cluster, "far", "large")["n1"] == (UNREACHABLE, NO_ROOM)
    assert refused(cluster, "gone", "none")["n1"] == (UNMATCHED, LOST)
    assert refused(cluster, "large", "none")["n1"] == (NO_ROOM,), "what fails first says why"
    assert refused(cluster, "none", "large")["n1"] == (UNMATCHED,)


def test_satisfies_the_plugin_contract():
    cluster = cluster_of(
        a_bound_claim("bound", "pv"), a_volume("pv", nodeAffinity=on_hosts("n0", "n1")), wants("found"),
        offers("free", nodeAffinity=on_nodes_labelled(ZONE, "a")), a_claim("made", storageClassName="made"), counting(),
        room("r", "2Gi", labels={HOST: "n1"}),
    )  # fmt: skip
    pods = [
        a_pod(volumes=standing_on(*names)) for names in (["bound"], ["found"], ["made"], ["bound", "found", "made"], ["gone"])
    ]
    check_plugin(VolumeBinding(), pods=pods, cluster=cluster)


# -- events -------------------------------------------------------------------------------------------------------------

EBS = "kubernetes.io/aws-ebs"
WAKES = {  # the event, old and new; wakes?
    "a node is added": (Resource.NODE, Action.ADD, None, a_node("n"), True),
    "a node's labels changed": (Resource.NODE, Action.UPDATE_NODE_LABEL, a_node("n"), a_node("n"), True),
    "a node's taints changed": (Resource.NODE, Action.UPDATE_NODE_TAINT, a_node("n"), a_node("n"), False),
    "its claim is added": (CLAIM, Action.ADD, None, a_claim("data"), True),
    "its claim is updated": (CLAIM, OTHER, a_claim("data"), a_claim("data"), True),
    "its ephemeral claim is added": (CLAIM, Action.ADD, None, a_claim("pod-s"), True),
    "another claim is added": (CLAIM, Action.ADD, None, a_claim("x"), False),
    "a claim of that name is added in another namespace": (CLAIM, Action.ADD, None, a_claim("data", namespace="x"), False),
    "a volume is added": (VOLUME, Action.ADD, None, a_volume("pv"), True),
    "a volume is updated": (VOLUME, OTHER, a_volume("pv"), a_volume("pv"), True),
    "a class is added": (CLASS, Action.ADD, None, a_class("c"), True),
    "a class allows other topologies": (
        CLASS,
        OTHER,
        a_class("c"),
        a_class("c", allowedTopologies=topology({ZONE: "a"})),
        True,
    ),
    "a class is updated otherwise": (CLASS, OTHER, a_class("c"), a_class("c", reclaimPolicy="Retain"), False),
    "a CSINode is added": (CSI, Action.ADD, None, a_csi_node("n"), True),
    "a plugin is migrated": (CSI, OTHER, a_csi_node("n"), a_csi_node("n", migrated=[EBS]), True),
    "a limit is raised": (CSI, OTHER, a_csi_node("n", {DRIVER: 1}), a_csi_node("n", {DRIVER: 2}), False),
    "the driver stops reporting capacity": (DRIVERS, OTHER, counting(), counting(keeps=False), True),
    "the driver starts to report capacity": (DRIVERS, OTHER, counting(keeps=False), counting(), False),
    "capacity is reported": (ROOM, Action.ADD, None, room("r", "1Gi"), True),
    "capacity grows": (ROOM, OTHER, room("r", "1Gi"), room("r", "2Gi"), True),
    "capacity shrinks": (ROOM, OTHER, room("r", "2Gi"), room("r", "1Gi"), False),
    "capacity becomes known": (ROOM, OTHER, room("r"), room("r", "1Gi"), True),
    "capacity becomes unknown": (ROOM, OTHER, room("r", "1Gi"), room("r"), False),
}


@pytest.mark.parametrize(("resource", "action", "old", "new", "woken"), WAKES.values(), ids=WAKES)
def test_wakes(resource, action, old, new, woken):
    pod = a_pod(volumes=[*standing_on("data"), {"name": "s", "ephemeral": {}}, {"name": "c", "csi": {"driver": DRIVER}}])
    assert wakes(VolumeBinding(), pod, resource, action, old, new) is woken


def test_an_unrelated_driver_wakes_no_pod():
    assert not wakes(VolumeBinding(), a_pod(volumes=standing_on("data")), DRIVERS, OTHER, counting(), counting(keeps=False))
