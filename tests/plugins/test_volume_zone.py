"""Test that a pod fits only nodes in the zones and regions of its volumes' labels."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.framework.events import Action, Resource
from moorage.framework.verdicts import SKIP, Code, Hold, Status
from moorage.plugins.volume_zone import VolumeZone
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import refusals, wakes
from moorage.testing.storage import a_bound_claim, a_claim, a_class, a_volume, standing_on, with_objects

NO = Status(Code.UNRESOLVABLE, "VolumeZone", ("node(s) had no available volume zone",))
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"

CASES = {  # the volume's labels, the node's labels, rejected?
    "no labels": ({}, {ZONE: "a"}, False),
    "same zone": ({ZONE: "a"}, {ZONE: "a"}, False),
    "other zone": ({ZONE: "a"}, {ZONE: "b"}, True),
    "one of several zones": ({ZONE: "a__b"}, {ZONE: "b"}, False),
    "none of several zones": ({ZONE: "a__b"}, {ZONE: "c"}, True),
    "whitespace around zones": ({ZONE: "a __ b"}, {ZONE: "b"}, False),
    "an empty zone among several": ({ZONE: "a__"}, {ZONE: "c"}, False),
    "a node without any label": ({ZONE: "a"}, {"disk": "ssd"}, False),
    "a node without that label": ({ZONE: "a"}, {REGION: "r"}, True),
    "same zone, other region": ({ZONE: "a", REGION: "r"}, {ZONE: "a", REGION: "s"}, True),
    "deprecated labels on both": ({BETA_ZONE: "a"}, {BETA_ZONE: "a"}, False),
    "deprecated label only on the volume": ({BETA_ZONE: "a"}, {ZONE: "a"}, False),
    "deprecated label only on the volume, another zone": ({BETA_ZONE: "a"}, {ZONE: "b"}, True),
    "deprecated label only on the node": ({ZONE: "a"}, {BETA_ZONE: "a"}, True),
    "the node's deprecated label takes precedence": ({BETA_ZONE: "a"}, {BETA_ZONE: "b", ZONE: "a"}, True),
    "deprecated region label": ({BETA_REGION: "r"}, {REGION: "r"}, False),
}


def a_zone(volume_labels, node_labels):
    nodes = [a_node("n", node_labels)]
    return with_objects(a_cluster(nodes), a_bound_claim("data", "pv"), a_volume("pv", volume_labels))


@pytest.mark.parametrize(("volume", "node", "refused"), CASES.values(), ids=CASES)
def test_rejects(volume, node, refused):
    pod = a_pod(volumes=standing_on("data"))
    assert refusals(VolumeZone(), pod, a_zone(volume, node).snapshot) == ({"n": NO} if refused else {})


WAITING, AT_ONCE = a_class("waits"), a_class("now", volumeBindingMode="Immediate")
UNSAID = a_class("unsaid", volumeBindingMode=None)
OLD_CLASS = {"annotations": {"volume.beta.kubernetes.io/storage-class": "waits"}}
HELD = {  # the claim, why every node rejects the pod (None: it may fit)
    "missing": (None, 'persistentvolumeclaim "data" not found'),
    "its volume does not exist": (a_claim("data", volumeName="gone"), 'persistentvolume "gone" not found'),
    "neither volume nor class": (a_claim("data"), "PersistentVolumeClaim had no pv name and storageClass name"),
    "its class does not exist": (
        a_claim("data", storageClassName="none"), 'storageclass.storage.k8s.io "none" not found',
    ),
    "immediate binding, not bound": (a_claim("data", storageClassName="now"), "PersistentVolume had no name"),
    "its class has no binding mode": (
        a_claim("data", storageClassName="unsaid"), 'VolumeBindingMode not set for StorageClass "unsaid"',
    ),
    "waits for the first consumer": (a_claim("data", storageClassName="waits"), None),
    "waits for the first consumer, class in the annotation": (
        a_claim("data", storageClassName="now", metadata=OLD_CLASS), None,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("claim", "why"), HELD.values(), ids=HELD)
def test_a_claim_without_its_volume(claim, why):
    cluster = with_objects(a_cluster([a_node("n")]), WAITING, AT_ONCE, UNSAID, *([] if claim is None else [claim]))
    answer = VolumeZone().pre_filter(a_pod(volumes=standing_on("data")), cluster.snapshot)
    assert answer == (SKIP if why is None else Hold.because(why, unresolvable=True))


def test_a_claim_without_a_name():
    snapshot = a_cluster([a_node("n")]).snapshot
    answer = VolumeZone().pre_filter(a_pod(volumes=standing_on("")), snapshot)
    assert answer == Hold.because("PersistentVolumeClaim had no name", unresolvable=True)


def test_other_volumes_are_skipped():
    pod = a_pod(volumes=[{"name": "scratch", "ephemeral": {}}, {"name": "tmp", "emptyDir": {}}])
    assert VolumeZone().pre_filter(pod, a_cluster([a_node("n")]).snapshot) is SKIP
    assert VolumeZone().reuse.signature(a_pod(volumes=[{"name": "tmp", "emptyDir": {}}])) == {}
    assert VolumeZone().reuse.signature(pod) is None


def test_satisfies_the_plugin_contract():
    nodes = [a_node(f"n{zone}", {ZONE: zone}) for zone in "abc"]
    cluster = with_objects(a_cluster(nodes), a_bound_claim("data", "pv"), a_volume("pv", {ZONE: "a__b"}))
    check_plugin(VolumeZone(), pods=[a_pod(volumes=standing_on("data")), a_pod()], cluster=cluster)


CLAIM, VOLUME, CLASS = Resource.PERSISTENT_VOLUME_CLAIM, Resource.PERSISTENT_VOLUME, Resource.STORAGE_CLASS
IN_A = a_volume("pv", {ZONE: "a"})
WAKES = {  # event, object, old object; wakes?
    "a node is added": (Resource.NODE, Action.ADD, None, a_node("n"), True),
    "a node's labels changed": (Resource.NODE, Action.UPDATE_NODE_LABEL, a_node("n"), a_node("n", {ZONE: "a"}), True),
    "a node's taints changed": (Resource.NODE, Action.UPDATE_NODE_TAINT, a_node("n"), a_node("n"), False),
    "its claim is added": (CLAIM, Action.ADD, None, a_claim("data"), True),
    "its claim is updated": (CLAIM, Action.UPDATE_OTHER, a_claim("data"), a_claim("data", volumeName="pv"), True),
    "another claim is added": (CLAIM, Action.ADD, None, a_claim("other"), False),
    "a claim of that name is added in another namespace": (CLAIM, Action.ADD, None, a_claim("data", namespace="other"), False),
    "a class with WaitForFirstConsumer is added": (CLASS, Action.ADD, None, WAITING, True),
    "a class with Immediate is added": (CLASS, Action.ADD, None, AT_ONCE, False),
    "a volume is added": (VOLUME, Action.ADD, None, a_volume("pv"), True),
    "a volume's zone label changes": (VOLUME, Action.UPDATE_OTHER, IN_A, a_volume("pv", {ZONE: "a__b"}), True),
    "a volume's other label changes": (VOLUME, Action.UPDATE_OTHER, IN_A, a_volume("pv", {ZONE: "a", "x": "y"}), False),
}  # fmt: skip


@pytest.mark.parametrize(("resource", "action", "old", "new", "woken"), WAKES.values(), ids=WAKES)
def test_wakes(resource, action, old, new, woken):
    assert wakes(VolumeZone(), a_pod(volumes=standing_on("data")), resource, action, old, new) is woken


# -- properties ---------------------------------------------------------------------------------------------------------

keys = st.sampled_from([ZONE, REGION, BETA_ZONE, BETA_REGION, "disk"])
node_labels = st.dictionaries(keys, st.sampled_from("ab"), max_size=3)
volume_labels = st.dictionaries(keys, st.sampled_from(["a", "b", "a__b", "a__", ""]), max_size=3)


def suits(volume, node):
    newer = {BETA_ZONE: ZONE, BETA_REGION: REGION}
    if not any(key in node for key in (ZONE, REGION, BETA_ZONE, BETA_REGION)):
        return True
    for key in (ZONE, REGION, BETA_ZONE, BETA_REGION):
        zones = volume[key].split("__") if key in volume else []
        if zones and all(zones) and node.get(key, node.get(newer.get(key, key))) not in zones:
            return False
    return True


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(volume_labels, min_size=1, max_size=3), st.lists(node_labels, min_size=1, max_size=5), st.data())
def test_agrees_with_a_reference_implementation(volumes, nodes, data):
    cluster = a_cluster([a_node(f"n{at}", labels) for at, labels in enumerate(nodes)])
    for at, labels in enumerate(volumes):
        with_objects(cluster, a_bound_claim(f"c{at}", f"pv{at}"), a_volume(f"pv{at}", labels))
    part = {f"n{at}" for at in range(len(nodes)) if data.draw(st.booleans())}
    view = cluster.snapshot.nodes.only(cluster.snapshot.nodes.named(part))
    expected = {
        f"n{at}": NO
        for at, labels in enumerate(nodes)
        if f"n{at}" in part and not all(suits(volume, labels) for volume in volumes)
    }
    pod = a_pod(volumes=standing_on(*(f"c{at}" for at in range(len(volumes)))))
    assert refusals(VolumeZone(), pod, view) == expected


@pytest.mark.slow
@settings(max_examples=50)
@given(volume_labels, volume_labels, node_labels, node_labels)
def test_every_change_that_makes_the_pod_fit_wakes(volume, moved, node, relabelled):
    pod, plugin = a_pod(volumes=standing_on("data")), VolumeZone()
    cluster = a_zone(volume, node)
    before = refusals(plugin, pod, cluster.snapshot)
    old = cluster.set_object(a_volume("pv", moved))
    if before and not refusals(plugin, pod, cluster.snapshot):
        assert wakes(plugin, pod, VOLUME, Action.UPDATE_OTHER, old, a_volume("pv", moved))
    cluster = a_zone(volume, node)
    cluster.set_node(a_node("n", relabelled))
    if before and not refusals(plugin, pod, cluster.snapshot):
        assert wakes(plugin, pod, Resource.NODE, Action.UPDATE_NODE_LABEL, a_node("n", node), a_node("n", relabelled))
