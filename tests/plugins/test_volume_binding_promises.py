"""Test VolumeBinding from Reserve to PreBind and back: planned bindings, writes, waits, and Unreserve."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from moorage.api.storage import ObjectReference, PersistentVolume, PersistentVolumeClaim
from moorage.errors import AttemptError
from moorage.framework.effects import Until, Write
from moorage.plugins.volume_binding import VolumeBinding, VolumeBindingArgs
from moorage.plugins.volumes.assume_cache import Assumptions
from moorage.rules.volumes.bindings import BIND_COMPLETED, SELECTED_NODE
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_queries import refusals
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

HOST = "kubernetes.io/hostname"
MADE, LOCAL = a_class("made"), a_class("local", provisioner="kubernetes.io/no-provisioner")


def cluster_of(*objects):
    return with_objects(a_cluster([a_node(f"n{at}", {HOST: f"n{at}"}) for at in range(2)]), MADE, LOCAL, *objects)


def local(name, node="n0", **rest):
    return a_volume(name, storageClassName="local", nodeAffinity=on_hosts(node), **rest)


def wants(name="data", **rest):
    return a_claim(name, storageClassName="local", **rest)


def reserved(plugin, cluster, pod, node="n0"):
    """Reserve for a pod and return the state that the later extension points get."""
    state = plugin.pre_filter(pod, cluster.snapshot)
    plugin.reserve(state, pod, node)
    return state


def refused(plugin, cluster, *claims):
    return set(refusals(plugin, a_pod("asks", volumes=standing_on(*claims)), cluster.snapshot))


# -- Reserve and Unreserve ----------------------------------------------------------------------------------------------


def test_a_volume_is_planned_for_one_claim():
    cluster = cluster_of(wants("one"), wants("two"), local("pv"))
    plugin, pod = VolumeBinding(), a_pod("first", volumes=standing_on("one"))
    assert refused(plugin, cluster, "two") == {"n1"}
    state = reserved(plugin, cluster, pod)
    assert refused(plugin, cluster, "two") == {"n0", "n1"}
    assert refused(plugin, cluster, "one") == {"n1"}, "a pod that shares the claim goes where its volume is"
    plugin.unreserve(state, pod, "n0")
    assert refused(plugin, cluster, "two") == {"n1"}


def test_plans_of_one_profile_are_seen_by_every_other():
    cluster = cluster_of(wants("one"), wants("two"), local("pv"))
    reserved(VolumeBinding(), cluster, a_pod("first", volumes=standing_on("one")))
    assert refused(VolumeBinding(), cluster, "two") == {"n0", "n1"}


def test_a_volume_is_provisioned_where_the_first_pod_is_placed():
    cluster = cluster_of(a_claim("data", storageClassName="made"))
    plugin, pod = VolumeBinding(), a_pod("first", volumes=standing_on("data"))
    assert refused(plugin, cluster, "data") == set()
    state = reserved(plugin, cluster, pod, "n1")
    assert refused(plugin, cluster, "data") == {"n0"}
    second = a_pod("second", volumes=standing_on("data"))
    theirs = reserved(plugin, cluster, second, "n1")
    plugin.unreserve(state, pod, "n1")
    assert refused(plugin, cluster, "data") == {"n0"}, "the second pod still counts on it"
    plugin.unreserve(theirs, second, "n1")
    assert refused(plugin, cluster, "data") == set()


def test_bound_claims_need_no_plan():
    cluster = cluster_of(a_bound_claim("data", "pv"), local("pv"))
    plugin, pod = VolumeBinding(), a_pod(volumes=standing_on("data"))
    state = reserved(plugin, cluster, pod)
    assert plugin.pre_bind(state, pod, "n0") == ()
    plugin.unreserve(state, pod, "n0")
    assert plugin.pre_bind(None, a_pod(), "n0") == ()


objects = st.lists(st.sampled_from(["found", "made", "bound", "shared"]), min_size=1, max_size=4, unique=True)


@pytest.mark.slow
@settings(max_examples=30)
@given(objects, objects, st.booleans())
def test_reserve_then_unreserve_leaves_no_trace(names, others, before):
    cluster = cluster_of(
        wants("found"), a_claim("made", storageClassName="made"), a_bound_claim("bound", "pv-b"), wants("shared"),
        local("pv-b"), local("pv-1"), local("pv-2", "n1"), local("pv-3"),
        local("pv-4", claimRef={"namespace": "default", "name": "shared"}),
    )  # fmt: skip
    plugin = VolumeBinding()
    if before:
        reserved(plugin, cluster, a_pod("before", volumes=standing_on(*others)))
    reasons = [refused(plugin, cluster, *some) for some in (names, others, ["found", "shared"])]
    assumed = cluster.snapshot.index(Assumptions)
    kept = [dict(of_kind.all()) for of_kind in (assumed.volumes, assumed.claims)]
    pod = a_pod("pod", volumes=standing_on(*names))
    if "n0" not in refused(plugin, cluster, *names):
        state = reserved(plugin, cluster, pod)
        plugin.unreserve(state, pod, "n0")
        plugin.unreserve(state, pod, "n0")
    assert [refused(plugin, cluster, *some) for some in (names, others, ["found", "shared"])] == reasons
    assert [dict(of_kind.all()) for of_kind in (assumed.volumes, assumed.claims)] == kept
    assert pod.uid not in plugin._reserved


# -- PreBind ------------------------------------------------------------------------------------------------------------


def test_what_is_written_and_awaited():
    cluster = cluster_of(wants("found"), a_claim("made", storageClassName="made"), local("pv", labels={"disk": "ssd"}))
    plugin, pod = VolumeBinding(VolumeBindingArgs(bind_timeout_seconds=60)), a_pod(volumes=standing_on("found", "made"))
    state = reserved(plugin, cluster, pod)
    volume, claim, wait = plugin.pre_bind(state, pod, "n0")
    assert isinstance(volume, Write)
    assert isinstance(volume.obj, PersistentVolume)
    assert volume.obj.spec.claim_ref == ObjectReference(
        api_version="v1", kind="PersistentVolumeClaim", namespace="default", name="found", uid="default/found"
    )
    assert volume.obj.metadata.annotations == {"pv.kubernetes.io/bound-by-controller": "yes"}
    assert volume.obj.metadata.labels == {"disk": "ssd"}
    assert volume.base is cluster.objects(PersistentVolume)["pv"], "so that only what changes need be written"
    assert isinstance(claim, Write)
    assert isinstance(claim.obj, PersistentVolumeClaim)
    assert claim.obj.metadata.annotations == {SELECTED_NODE: "n0"}
    assert claim.base is cluster.objects(PersistentVolumeClaim)["default/made"]
    assert isinstance(wait, Until)
    assert (wait.timeout_s, wait.what) == (60, "binding volumes")


def test_a_volume_reserved_by_a_user_stays_reserved():
    by_name = {"namespace": "default", "name": "data"}
    cluster = cluster_of(wants(), local("pv", claimRef=by_name))
    plugin, pod = VolumeBinding(), a_pod(volumes=standing_on("data"))
    volume, wait = plugin.pre_bind(reserved(plugin, cluster, pod), pod, "n0")
    assert volume.obj.spec.claim_ref.uid == "default/data"
    assert volume.obj.metadata.annotations == {}
    for_good = {**by_name, "uid": "default/data"}
    cluster = cluster_of(wants(), local("pv", claimRef=for_good))
    (wait,) = plugin.pre_bind(reserved(plugin, cluster, pod), pod, "n0")
    assert isinstance(wait, Until)
    assert not wait.is_met()


def done(cluster, *names):
    """Act as the volume controller: bind claims to the volumes that are reserved for them."""
    for volume in list(cluster.objects(PersistentVolume).values()):
        ref = volume.spec.claim_ref
        if ref is not None and ref.name in names:
            with_objects(cluster, a_bound_claim(ref.name, volume.name, storageClassName="local"))


def test_waits_until_a_found_volume_is_bound():
    cluster = cluster_of(wants(), local("pv"))
    plugin, pod = VolumeBinding(), a_pod(volumes=standing_on("data"))
    volume, wait = plugin.pre_bind(reserved(plugin, cluster, pod), pod, "n0")
    assert not wait.is_met(), "nothing was seen of the write yet"
    cluster.set_object(volume.obj)
    assert not wait.is_met(), "the claim is not bound"
    done(cluster, "data")
    assert wait.is_met()
    assert refused(plugin, cluster, "data") == {"n1"}


def test_waits_until_a_volume_is_provisioned():
    cluster = cluster_of(a_claim("data", storageClassName="made"))
    plugin, pod = VolumeBinding(), a_pod(volumes=standing_on("data"))
    claim, wait = plugin.pre_bind(reserved(plugin, cluster, pod), pod, "n0")
    assert not wait.is_met()
    cluster.set_object(claim.obj)
    assert not wait.is_met()
    bound = a_bound_claim("data", "pv-new", metadata={"annotations": {SELECTED_NODE: "n0"}})
    cluster.set_object(bound)
    assert not wait.is_met(), "the volume was not seen yet"
    cluster.set_object(local("pv-new"))
    assert wait.is_met()


def without_claim(cluster):
    cluster.remove_object(a_claim("data"))


def without_volume(cluster):
    cluster.remove_object(a_volume("pv"))


def without_node(cluster):
    cluster.remove_node("n0")


def moved(cluster):
    cluster.set_node(a_node("n0", {HOST: "renamed"}))


def reset(cluster):
    volume = cluster.objects(PersistentVolume)["pv"]
    cluster.set_object(replace(volume, spec=replace(volume.spec, claim_ref=None)))


def migrated(cluster):
    with_objects(cluster, a_csi_node("n0", migrated=["kubernetes.io/azure-disk"]))
    broken = {"azureDisk": {"diskURI": "u", "kind": "Dedicated"}}
    with_objects(cluster, local("pv", claimRef={"namespace": "default", "name": "data", "uid": "default/data"}, **broken))


FOUND_BROKEN = {
    "the node is deleted": (without_node, 'failed to get node "n0": node "n0" not found'),
    "the claim is deleted": (without_claim, 'failed to check binding: persistentvolumeclaims "default/data" not found'),
    "the volume is deleted": (without_volume, 'failed to check binding: persistentvolumes "pv" not found'),
    "the node no longer reaches it": (moved, 'pv "pv" node affinity doesn\'t match node "n0": no matching NodeSelectorTerms'),
    "the volume is released": (reset, 'ClaimRef got reset for pv "pv"'),
    "the driver rejects it": (
        migrated, "failed to translate pv to csi: could not translate pv: kind(Dedicated) is not supported in csi migration",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("undo", "why"), FOUND_BROKEN.values(), ids=FOUND_BROKEN)
def test_changes_of_a_found_volume_that_fail_the_binding(undo, why):
    cluster = cluster_of(wants(), local("pv"))
    plugin, pod = VolumeBinding(), a_pod(volumes=standing_on("data"))
    volume, wait = plugin.pre_bind(reserved(plugin, cluster, pod), pod, "n0")
    cluster.set_object(volume.obj)
    undo(cluster)
    with pytest.raises(AttemptError) as raised:
        wait.is_met()
    assert str(raised.value) == f"binding volumes: {why}"


def without_annotations(cluster):
    with_objects(cluster, a_claim("data", storageClassName="made", metadata={"resourceVersion": "2"}))


def other_node(cluster):
    with_objects(cluster, a_claim("data", storageClassName="made", metadata={"annotations": {SELECTED_NODE: "n1"}}))


def made_elsewhere(cluster):
    with_objects(cluster, local("pv", "n1"), a_bound_claim("data", "pv", metadata={"annotations": {SELECTED_NODE: "n0"}}))


MADE_BROKEN = {
    "the claim is deleted": (
        without_claim, 'failed to check provisioning pvc: persistentvolumeclaims "default/data" not found',
    ),
    "its annotations are removed": (without_annotations, 'selectedNode annotation reset for PVC "data"'),
    "another node is selected": (other_node, 'provisioning failed for PVC "data"'),
    "it is provisioned elsewhere": (
        made_elsewhere, 'pv "pv" node affinity doesn\'t match node "n0": no matching NodeSelectorTerms',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("undo", "why"), MADE_BROKEN.values(), ids=MADE_BROKEN)
def test_changes_of_a_volume_being_provisioned_that_fail_the_binding(undo, why):
    cluster = cluster_of(a_claim("data", storageClassName="made"))
    plugin, pod = VolumeBinding(), a_pod(volumes=standing_on("data"))
    claim, wait = plugin.pre_bind(reserved(plugin, cluster, pod), pod, "n0")
    cluster.set_object(claim.obj)
    undo(cluster)
    with pytest.raises(AttemptError) as raised:
        wait.is_met()
    assert str(raised.value) == f"binding volumes: {why}"


def test_a_migrated_volume_is_checked_by_its_drivers_labels():
    zone = "topology.ebs.csi.aws.com/zone"
    cluster = with_objects(
        a_cluster([a_node("n0", {HOST: "n0", zone: "a"})]), LOCAL, wants(), a_volume("pv", storageClassName="local"),
        a_csi_node("n0", migrated=["kubernetes.io/aws-ebs"]),
    )  # fmt: skip
    plugin, pod = VolumeBinding(), a_pod(volumes=standing_on("data"))
    _, wait = plugin.pre_bind(reserved(plugin, cluster, pod), pod, "n0")
    in_a = on_nodes_labelled("topology.kubernetes.io/zone", "a")
    bound = {"namespace": "default", "name": "data", "uid": "default/data"}
    cluster.set_object(a_volume("pv", awsElasticBlockStore={"volumeID": "vol-1"}, nodeAffinity=in_a, claimRef=bound))
    assert not wait.is_met()
    claim = a_bound_claim("data", "pv")
    assert BIND_COMPLETED in claim.metadata.annotations
    cluster.set_object(claim)
    assert wait.is_met()


# -- no volume for two claims ---------------------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(st.sampled_from(["reserve", "unreserve", "write", "bind"]), st.integers(0, 4), st.sampled_from(["n0", "n1"])),
    max_size=25,
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=2), min_size=2, max_size=5), steps)
def test_no_volume_is_planned_for_two_claims(needs, steps):
    cluster = cluster_of(*(wants(f"c{at}") for at in range(4)), local("pv-0"), local("pv-1"), local("pv-2", "n1"))
    plugin = VolumeBinding()
    pods = [a_pod(f"p{at}", volumes=standing_on(*(f"c{claim}" for claim in claims))) for at, claims in enumerate(needs)]
    promised: dict[int, list[Write]] = {}
    for step, at, node in steps:
        pod = pods[at % len(pods)]
        index = at % len(pods)
        if step == "reserve" and index not in promised:
            state = plugin.pre_filter(pod, cluster.snapshot)
            if node not in refusals(plugin, pod, cluster.snapshot):
                plugin.reserve(state, pod, node)
                promised[index] = [effect for effect in plugin.pre_bind(state, pod, node) if isinstance(effect, Write)]
        elif step == "unreserve" and index in promised:
            plugin.unreserve(plugin.pre_filter(pod, cluster.snapshot), pod, node)
            del promised[index]
        elif step == "write":
            for write in promised.get(index, ()):
                cluster.set_object(write.obj)
        elif step == "bind":
            done(cluster, *(f"c{claim}" for claim in range(4)))
        claim_of: dict[str, set[str]] = {}
        for writes in promised.values():
            for write in writes:
                claim_of.setdefault(write.obj.metadata.name, set()).add(write.obj.spec.claim_ref.name)
        assert all(len(claims) == 1 for claims in claim_of.values()), claim_of
