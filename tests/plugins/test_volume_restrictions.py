"""Test that a disk is mounted once on a node unless all mounts are read-only, and ReadWriteOncePod claims by one pod."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.core.preemption.filter_input import FilterInput
from moorage.core.preemption.what_if import OneNode
from moorage.framework.events import Action, Resource
from moorage.framework.plugin_runner import run_pre_filter
from moorage.framework.profile import make_profile
from moorage.framework.verdicts import SKIP, Code, Hold, Status
from moorage.plugins.volume_restrictions import VolumeRestrictions
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import refusals, wakes
from moorage.testing.storage import a_claim, standing_on, with_objects

DISK = Status(Code.UNSCHEDULABLE, "VolumeRestrictions", ("node(s) had no available disk",))
TAKEN = Status(
    Code.UNSCHEDULABLE, "VolumeRestrictions",
    ("node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",),
)  # fmt: skip


def gce(name, **rest):
    return {"gcePersistentDisk": {"pdName": name, **rest}}


def ebs(name, **rest):
    return {"awsElasticBlockStore": {"volumeID": name, **rest}}


def iscsi(iqn, **rest):
    return {"iscsi": {"iqn": iqn, "targetPortal": "10.0.0.1", **rest}}


def rbd(*monitors, image="i", **rest):
    return {"rbd": {"monitors": list(monitors), "image": image, **rest}}


READS = {"readOnly": True}
DISKS = {  # the pod's disk, the node's disk, rejected?
    "no disk in use": (gce("d"), None, False),
    "no disk requested": ({"emptyDir": {}}, gce("d"), False),
    "GCE, same disk": (gce("d"), gce("d"), True),
    "GCE, other disk": (gce("d"), gce("e"), False),
    "GCE, one read-only": (gce("d"), gce("d", **READS), True),
    "GCE, both read-only": (gce("d", **READS), gce("d", **READS), False),
    "EBS, same volume": (ebs("v"), ebs("v"), True),
    "EBS, other volume": (ebs("v"), ebs("w"), False),
    "EBS, both read-only": (ebs("v", **READS), ebs("v", **READS), True),
    "iSCSI, same target": (iscsi("q"), iscsi("q"), True),
    "iSCSI, other target": (iscsi("q"), iscsi("r"), False),
    "iSCSI, both read-only": (iscsi("q", **READS), iscsi("q", **READS), False),
    "RBD, a common monitor": (rbd("a", "b"), rbd("b", "c"), True),
    "RBD, no common monitor": (rbd("a"), rbd("b"), False),
    "RBD, other image": (rbd("a"), rbd("a", image="j"), False),
    "RBD, other pool": (rbd("a"), rbd("a", pool="p"), False),
    "RBD, the default pool": (rbd("a"), rbd("a", pool="rbd"), True),
    "RBD, both read-only": (rbd("a", **READS), rbd("a", **READS), False),
    "disks of two types with one name": (gce("x"), ebs("x"), False),
}


def mounting(*volumes, name="pod", **rest):
    return a_pod(name, volumes=[{"name": f"v{at}", **volume} for at, volume in enumerate(volumes)], **rest)


def holding(*volumes):
    return a_cluster([a_node("n"), a_node("free")], {"n": [mounting(*volumes, name="held")]})


@pytest.mark.parametrize(("wants", "holds", "refused"), DISKS.values(), ids=DISKS)
def test_a_disk_is_mounted_once(wants, holds, refused):
    snapshot = holding(*([holds] if holds else [])).snapshot
    assert refusals(VolumeRestrictions(), mounting(wants), snapshot) == ({"n": DISK} if refused else {})


@pytest.mark.parametrize(("wants", "holds", "refused"), DISKS.values(), ids=DISKS)
def test_the_deletion_of_the_disks_user_wakes_the_pods_it_blocked(wants, holds, refused):
    gone = mounting(*([holds] if holds else []), name="gone", nodeName="n")
    assert wakes(VolumeRestrictions(), mounting(wants), Resource.POD, Action.DELETE, gone) is refused


ALONE = ["ReadWriteOncePod"]


def test_a_read_write_once_pod_claim_is_used_by_one_pod():
    user = a_pod("user", volumes=standing_on("mine", "shared"))
    cluster = with_objects(
        a_cluster([a_node("n"), a_node("m")], {"n": [user]}), a_claim("mine", accessModes=ALONE), a_claim("shared")
    )
    plugin = VolumeRestrictions()
    assert refusals(plugin, a_pod(volumes=standing_on("mine")), cluster.snapshot) == {"n": TAKEN, "m": TAKEN}
    assert refusals(plugin, a_pod(volumes=standing_on("shared")), cluster.snapshot) == {}
    cluster.remove_pod(user.uid)
    assert refusals(plugin, a_pod(volumes=standing_on("mine")), cluster.snapshot) == {}


def test_a_claim_of_that_name_in_another_namespace_is_a_different_claim():
    user = a_pod("user", namespace="other", volumes=standing_on("mine"))
    cluster = with_objects(a_cluster([a_node("n")], {"n": [user]}), a_claim("mine", accessModes=ALONE))
    assert refusals(VolumeRestrictions(), a_pod(volumes=standing_on("mine")), cluster.snapshot) == {}


def test_a_disk_conflict_is_reported_before_a_claim_conflict():
    user = mounting(gce("d"), standing_on("mine")[0], name="user")
    cluster = with_objects(a_cluster([a_node("n"), a_node("m")], {"n": [user]}), a_claim("mine", accessModes=ALONE))
    assert refusals(VolumeRestrictions(), mounting(gce("d"), standing_on("mine")[0]), cluster.snapshot) == {
        "n": DISK,
        "m": TAKEN,
    }


def test_a_missing_claim_rejects_the_pod_on_every_node():
    missing = Status(Code.UNRESOLVABLE, "VolumeRestrictions", ('persistentvolumeclaim "gone" not found',))
    assert refusals(VolumeRestrictions(), a_pod(volumes=standing_on("gone")), a_cluster([a_node("n")]).snapshot) == {
        "n": missing
    }


def test_the_claim_of_an_ephemeral_volume_is_not_read():
    pod = a_pod(volumes=[{"name": "scratch", "ephemeral": {}}])
    assert VolumeRestrictions().pre_filter(pod, a_cluster([a_node("n")]).snapshot) is SKIP


def test_removing_the_claims_user_admits_the_pod():
    user, stranger = (a_pod(name, namespace=of, volumes=standing_on("mine")) for name, of in (("u", "default"), ("s", "else")))
    cluster = with_objects(a_cluster([a_node("n")], {"n": [user, stranger]}), a_claim("mine", accessModes=ALONE))
    plugin, pod, snapshot = VolumeRestrictions(), a_pod(volumes=standing_on("mine")), cluster.snapshot
    profile = make_profile("alone", {plugin.name: plugin}, {"preFilter": [plugin.name], "filter": [plugin.name]}, {})
    with OneNode(FilterInput(profile, run_pre_filter(profile, pod, snapshot), pod), snapshot, 0, ()) as node:
        assert node.refused_by() == TAKEN
        node.remove(user)
        assert node.refused_by() is None
        node.add(user)
        assert node.refused_by() == TAKEN
        node.remove(stranger)  # as in kube-scheduler, only the claim's name is compared here
        assert node.refused_by() is None


def test_pods_without_such_volumes_share_a_signature():
    plugin = VolumeRestrictions()
    assert plugin.reuse.signature(a_pod(volumes=[{"name": "s", "secret": {"secretName": "s"}}])) == {}
    assert plugin.reuse.signature(a_pod(volumes=standing_on("mine"))) is None


def test_satisfies_the_plugin_contract():
    cluster = with_objects(holding(gce("d"), standing_on("mine")[0]), a_claim("mine", accessModes=ALONE))
    pods = [mounting(gce("d")), mounting(gce("d"), standing_on("mine")[0]), a_pod(volumes=standing_on("mine"))]
    check_plugin(VolumeRestrictions(), pods=pods, cluster=cluster)


WAKES = {  # the deleted pod, wakes?
    "used the claim": (a_pod("gone", volumes=standing_on("mine")), True),
    "used another claim": (a_pod("gone", volumes=standing_on("other")), False),
    "used a claim of that name in another namespace": (a_pod("gone", namespace="other", volumes=standing_on("mine")), False),
    "used no claim": (a_pod("gone"), False),
}


@pytest.mark.parametrize(("gone", "woken"), WAKES.values(), ids=WAKES)
def test_which_deletions_wake(gone, woken):
    pod = a_pod(volumes=standing_on("mine"))
    assert wakes(VolumeRestrictions(), pod, Resource.POD, Action.DELETE, gone) is woken


def test_other_events_that_wake():
    plugin, pod = VolumeRestrictions(), a_pod(volumes=standing_on("mine"))
    assert wakes(plugin, pod, Resource.NODE, Action.ADD, None, a_node("n"))
    assert not wakes(plugin, pod, Resource.NODE, Action.UPDATE_NODE_LABEL, a_node("n"), a_node("n"))
    claims = Resource.PERSISTENT_VOLUME_CLAIM
    assert wakes(plugin, pod, claims, Action.ADD, None, a_claim("mine"))
    assert not wakes(plugin, pod, claims, Action.ADD, None, a_claim("other"))
    assert not wakes(plugin, pod, claims, Action.ADD, None, a_claim("mine", namespace="other"))
    assert not wakes(plugin, pod, claims, Action.UPDATE_OTHER, a_claim("mine"), a_claim("mine"))


# -- properties ---------------------------------------------------------------------------------------------------------

volumes = st.one_of(
    st.builds(gce, st.sampled_from("de"), readOnly=st.booleans()),
    st.builds(ebs, st.sampled_from("de")),
    st.builds(iscsi, st.sampled_from("de"), readOnly=st.booleans()),
    st.builds(rbd, st.sampled_from("ab"), st.sampled_from("ab"), pool=st.sampled_from(["", "p"]), readOnly=st.booleans()),
    st.sampled_from([{"persistentVolumeClaim": {"claimName": name}} for name in ("mine", "shared")]),
)
mounts = st.lists(volumes, max_size=3)


def conflicts(one, other):
    (kind, a), (other_kind, b) = next(iter(one.items())), next(iter(other.items()))
    if kind != other_kind or kind == "persistentVolumeClaim":
        return False
    if kind == "rbd":
        same = set(a["monitors"]) & set(b["monitors"]) and (a["pool"] or "rbd", a["image"]) == (b["pool"] or "rbd", b["image"])
    else:
        name = {"gcePersistentDisk": "pdName", "awsElasticBlockStore": "volumeID", "iscsi": "iqn"}[kind]
        same = a[name] == b[name]
    return bool(same) and not (a.get("readOnly") and b.get("readOnly"))


@pytest.mark.slow
@settings(max_examples=40)
@given(mounts, st.lists(st.lists(mounts, max_size=2), min_size=1, max_size=4), st.data())
def test_agrees_with_a_reference_implementation(wants, on_nodes, data):
    names = [f"n{at}" for at in range(len(on_nodes))]
    placed = {
        name: [mounting(*held, name=f"{name}-{at}") for at, held in enumerate(pods)]
        for name, pods in zip(names, on_nodes, strict=True)
    }
    cluster = with_objects(a_cluster(map(a_node, names), placed), a_claim("mine", accessModes=ALONE), a_claim("shared"))
    part = cluster.snapshot.nodes.only(cluster.snapshot.nodes.named({name for name in names if data.draw(st.booleans())}))
    mine = {"persistentVolumeClaim": {"claimName": "mine"}}
    used = mine in wants and any(mine in held for pods in on_nodes for held in pods)
    expected = {}
    for name, pods in zip(names, on_nodes, strict=True):
        if name in part.names():
            if any(conflicts(want, hold) for want in wants for held in pods for hold in held):
                expected[name] = DISK
            elif used:
                expected[name] = TAKEN
    assert refusals(VolumeRestrictions(), mounting(*wants), part) == expected


@pytest.mark.slow
@settings(max_examples=40)
@given(mounts, mounts, mounts)
def test_every_deletion_that_admits_the_pod_wakes(wants, leaves, stays):
    pods = [mounting(*stays, name="stays"), mounting(*leaves, name="leaves")]
    cluster = with_objects(a_cluster([a_node("n")], {"n": pods}), a_claim("mine", accessModes=ALONE), a_claim("shared"))
    pod, plugin = mounting(*wants), VolumeRestrictions()
    before = refusals(plugin, pod, cluster.snapshot)
    gone = cluster.remove_pod(pods[1].uid)
    if before and not refusals(plugin, pod, cluster.snapshot):
        assert wakes(plugin, pod, Resource.POD, Action.DELETE, gone)


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from(["place", "remove"]), st.integers(0, 5), st.integers(0, 2)), max_size=25))
def test_two_pods_never_use_one_read_write_once_pod_claim(steps):
    pods = [a_pod(f"p{at}", volumes=standing_on("mine" if at % 2 else "shared")) for at in range(6)]
    nodes = [a_node(f"n{at}") for at in range(3)]
    cluster = with_objects(a_cluster(nodes), a_claim("mine", accessModes=ALONE), a_claim("shared"))
    plugin = VolumeRestrictions()
    for step, at, node in steps:
        if step == "remove":
            cluster.remove_pod(pods[at].uid)
        elif cluster.node_of(pods[at].uid) is None:
            state = plugin.pre_filter(pods[at], cluster.snapshot)
            assert not isinstance(state, Hold)
            if f"n{node}" not in refusals(plugin, pods[at], cluster.snapshot):
                cluster.assume(pods[at], f"n{node}")
        holders = [pod for pod in cluster.snapshot.pods() if pod.volumes.claims[0].name == "mine"]
        assert len(holders) <= 1
