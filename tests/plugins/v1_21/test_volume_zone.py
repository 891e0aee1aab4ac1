"""Test that a pod fits in 1.21 only nodes with its volumes' own zone labels, or without any zone label."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.framework.events import Action, Resource
from moorage.framework.verdicts import Code, Status
from moorage.plugins.earlier.volume_zone import VolumeZoneV121
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import refusals, wakes
from moorage.testing.storage import a_bound_claim, a_claim, a_class, a_volume, standing_on, with_objects

CONFLICT = "node(s) had no available volume zone"
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"


def no(reason):
    return Status(Code.UNRESOLVABLE, "VolumeZone", (reason,))


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
    "deprecated label only on the volume": ({BETA_ZONE: "a"}, {ZONE: "a"}, True),
    "deprecated label only on the node": ({ZONE: "a"}, {BETA_ZONE: "a"}, True),
    "both labels on the volume, one on the node": ({ZONE: "a", BETA_ZONE: "a"}, {ZONE: "a"}, True),
    "deprecated region label only on the volume": ({BETA_REGION: "r"}, {REGION: "r"}, True),
}


@pytest.mark.parametrize(("volume", "node", "refused"), CASES.values(), ids=CASES)
def test_rejects(volume, node, refused):
    cluster = with_objects(a_cluster([a_node("n", node)]), a_bound_claim("data", "pv"), a_volume("pv", volume))
    found = refusals(VolumeZoneV121(), a_pod(volumes=standing_on("data")), cluster.snapshot)
    assert found == ({"n": no(CONFLICT)} if refused else {})


OLD_CLASS = {"annotations": {"volume.beta.kubernetes.io/storage-class": "waits"}}
HELD = {  # the claim, why a node with a zone rejects the pod (None: it does not)
    "missing": (None, 'persistentvolumeclaim "data" not found'),
    "its volume does not exist": (a_claim("data", volumeName="gone"), 'persistentvolume "gone" not found'),
    "neither volume nor class": (a_claim("data"), "PersistentVolumeClaim had no pv name and storageClass name"),
    "its class does not exist": (a_claim("data", storageClassName="none"), 'storageclass.storage.k8s.io "none" not found'),
    "immediate binding, not bound": (a_claim("data", storageClassName="now"), "PersistentVolume had no name"),
    "its class has no binding mode": (
        a_claim("data", storageClassName="unsaid"), 'VolumeBindingMode not set for StorageClass "unsaid"',
    ),
    "waits for the first consumer": (a_claim("data", storageClassName="waits"), None),
    "waits for the first consumer, class in the annotation": (
        a_claim("data", storageClassName="now", metadata=OLD_CLASS), None,
    ),
}  # fmt: skip
CLASSES = [a_class("waits"), a_class("now", volumeBindingMode="Immediate"), a_class("unsaid", volumeBindingMode=None)]


@pytest.mark.parametrize(("claim", "why"), HELD.values(), ids=HELD)
def test_a_claim_without_its_volume_fails_on_nodes_with_a_zone(claim, why):
    nodes = [a_node("zoned", {ZONE: "a"}), a_node("plain")]
    cluster = with_objects(a_cluster(nodes), *CLASSES, *([] if claim is None else [claim]))
    found = refusals(VolumeZoneV121(), a_pod(volumes=standing_on("data")), cluster.snapshot)
    assert found == ({} if why is None else {"zoned": no(why)})


def test_the_first_volume_that_fails_sets_the_reason():
    nodes = [a_node("a", {ZONE: "a"}), a_node("b", {ZONE: "b"})]
    cluster = with_objects(a_cluster(nodes), a_bound_claim("one", "pv"), a_volume("pv", {ZONE: "a"}))
    found = refusals(VolumeZoneV121(), a_pod(volumes=standing_on("one", "gone", "")), cluster.snapshot)
    assert found == {"a": no('persistentvolumeclaim "gone" not found'), "b": no(CONFLICT)}
    found = refusals(VolumeZoneV121(), a_pod(volumes=standing_on("", "one")), cluster.snapshot)
    assert found == dict.fromkeys("ab", no("PersistentVolumeClaim had no name"))


def test_other_volumes_are_skipped():
    pod = a_pod(volumes=[{"name": "scratch", "ephemeral": {}}, {"name": "tmp", "emptyDir": {}}])
    assert refusals(VolumeZoneV121(), pod, a_cluster([a_node("n", {ZONE: "a"})]).snapshot) == {}


KEYS = st.sampled_from([ZONE, REGION, BETA_ZONE, BETA_REGION, "disk"])
LABELS = st.dictionaries(KEYS, st.sampled_from("ab"), max_size=3)
PLACES = st.dictionaries(KEYS, st.sampled_from(["a", "b", "a__b", "a__", ""]), max_size=3)


def suits(volume, node):
    if not set(node) & {ZONE, REGION, BETA_ZONE, BETA_REGION}:
        return True
    zones = {key: volume[key].split("__") for key in volume if key != "disk"}
    return all(node.get(key) in names for key, names in zones.items() if all(names))


@settings(max_examples=40, deadline=None)
@given(st.lists(PLACES, min_size=1, max_size=2), st.lists(LABELS, min_size=1, max_size=5))
def test_agrees_with_a_reference_implementation(volumes, nodes):
    cluster = a_cluster([a_node(f"n{at}", labels) for at, labels in enumerate(nodes)])
    for at, labels in enumerate(volumes):
        with_objects(cluster, a_bound_claim(f"c{at}", f"pv{at}"), a_volume(f"pv{at}", labels))
    found = refusals(VolumeZoneV121(), a_pod(volumes=standing_on(*(f"c{at}" for at in range(len(volumes))))), cluster.snapshot)
    assert set(found) == {f"n{at}" for at, node in enumerate(nodes) if not all(suits(volume, node) for volume in volumes)}


def test_events_that_wake():
    pod = a_pod(volumes=standing_on("data"))
    assert wakes(VolumeZoneV121(), pod, Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, None, a_claim("data"))
    assert not wakes(VolumeZoneV121(), pod, Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, None, a_claim("other"))
    assert wakes(VolumeZoneV121(), pod, Resource.NODE, Action.UPDATE_NODE_LABEL, a_node("n"), a_node("n", {ZONE: "a"}))


def test_satisfies_the_plugin_contract():
    nodes = [a_node(f"n{zone}", {ZONE: zone}) for zone in "abc"]
    cluster = with_objects(a_cluster(nodes), a_bound_claim("data", "pv"), a_volume("pv", {ZONE: "a__b"}))
    check_plugin(VolumeZoneV121(), pods=[a_pod(volumes=standing_on("data")), a_pod()], cluster=cluster)
