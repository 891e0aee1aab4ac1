"""Test that a node attaches no more volumes of a driver than its CSINode allows."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.feature_gates import FeatureGates
from moorage.api.storage import CSIDriver, VolumeAttachment
from moorage.core.preemption.filter_input import FilterInput
from moorage.core.preemption.what_if import OneNode
from moorage.framework.events import Action, Resource
from moorage.framework.plugin_runner import run_pre_filter
from moorage.framework.profile import make_profile
from moorage.framework.verdicts import SKIP, Code, Status
from moorage.plugins.node_volume_limits import NodeVolumeLimits
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import refusals, wakes
from moorage.testing.storage import a_bound_claim, a_claim, a_class, a_csi_node, a_volume, standing_on, with_objects

DRIVER, EBS = "csi.example.com", "ebs.csi.aws.com"
NO = Status(Code.UNSCHEDULABLE, "NodeVolumeLimits", ("node(s) exceed max volume count",))


def csi(handle, driver=DRIVER):
    return {"driver": driver, "volumeHandle": handle}


def bound(name, handle=None, driver=DRIVER):
    """Return a claim and its volume."""
    return [a_bound_claim(name, f"pv-{name}"), a_volume(f"pv-{name}", csi=csi(handle or name, driver))]


def attached(name, node, volume, driver=DRIVER):
    spec = {"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": volume}}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, VolumeAttachment)


def ebs(volume_id, name="disk"):
    return {"name": name, "awsElasticBlockStore": {"volumeID": volume_id}}


def cluster_with_limit(limit, *, claims=("a", "b"), pods=None):
    """Return a cluster of one node with this limit, whose pod uses claims ``a`` and ``b``; ``c`` and ``d`` are unused."""
    pods = [a_pod("held", volumes=standing_on(*claims))] if pods is None else pods
    cluster = a_cluster([a_node("n")], {"n": pods})
    objects = [obj for name in "abcd" for obj in bound(name)]
    return with_objects(cluster, a_csi_node("n", {DRIVER: limit}), *objects)


LIMITS = {  # the limit of a node that uses a and b, the pod's claims, rejected?
    "one more fits": (3, "c", False),
    "full": (2, "c", True),
    "one of two fits": (3, "cd", True),
    "two more fit": (4, "cd", False),
    "shares both": (2, "a", False),
    "shares one and adds one": (2, "ac", True),
    "over the limit already, adds none": (1, "ab", False),
    "no limit": (None, "cd", False),
    "uses none": (0, "c", True),
}


@pytest.mark.parametrize(("limit", "needs", "refused"), LIMITS.values(), ids=LIMITS)
def test_rejects(limit, needs, refused):
    cluster = cluster_with_limit(limit)
    assert refusals(NodeVolumeLimits(), a_pod(volumes=standing_on(*needs)), cluster.snapshot) == ({"n": NO} if refused else {})


def test_a_node_without_drivers_has_no_limit():
    cluster = with_objects(a_cluster([a_node("n")]), *bound("a"))
    assert refusals(NodeVolumeLimits(), a_pod(volumes=standing_on("a")), cluster.snapshot) == {}


def test_the_limit_is_per_driver():
    cluster = with_objects(cluster_with_limit(2), *bound("other", driver="other.example.com"))
    pod = a_pod(volumes=standing_on("other"))
    assert refusals(NodeVolumeLimits(), pod, cluster.snapshot) == {}
    with_objects(cluster, a_csi_node("n", {DRIVER: 2, "other.example.com": 0}))
    assert refusals(NodeVolumeLimits(), pod, cluster.snapshot) == {"n": NO}


def test_two_claims_of_one_volume_count_once():
    cluster = with_objects(cluster_with_limit(3), *bound("e", handle="c"))
    assert refusals(NodeVolumeLimits(), a_pod(volumes=standing_on("c", "e")), cluster.snapshot) == {}


def test_an_unbound_claim_counts_for_the_driver_of_its_class():
    waiting = a_claim("w", storageClassName="fast")
    cluster = with_objects(cluster_with_limit(2), waiting, a_class("fast"))
    assert refusals(NodeVolumeLimits(), a_pod(volumes=standing_on("w")), cluster.snapshot) == {"n": NO}
    with_objects(cluster, a_claim("w", storageClassName="none"))
    assert refusals(NodeVolumeLimits(), a_pod(volumes=standing_on("w")), cluster.snapshot) == {}


def test_unbound_claims_of_placed_pods_count_too():
    held = [a_pod(f"h{at}", volumes=standing_on(f"w{at}")) for at in range(2)]
    waiting = [a_claim(f"w{at}", storageClassName="fast") for at in range(2)]
    cluster = with_objects(cluster_with_limit(2, pods=held), a_class("fast"), *waiting)
    plugin = NodeVolumeLimits()
    assert refusals(plugin, a_pod(volumes=standing_on("c")), cluster.snapshot) == {"n": NO}
    assert refusals(plugin, a_pod(volumes=standing_on("w0")), cluster.snapshot) == {}


def test_attachments_without_a_pod_count():
    cluster = with_objects(cluster_with_limit(3), attached("va", "n", "pv-d"))
    plugin = NodeVolumeLimits()
    assert refusals(plugin, a_pod(volumes=standing_on("c")), cluster.snapshot) == {"n": NO}
    assert refusals(plugin, a_pod(volumes=standing_on("d")), cluster.snapshot) == {"n": NO}, "counted twice, as upstream does"
    cluster.remove_object(attached("va", "n", "pv-d"))
    assert refusals(plugin, a_pod(volumes=standing_on("c")), cluster.snapshot) == {}


PASSED_OVER = {
    "of a volume that a pod uses": attached("va", "n", "pv-a"),
    "to another node": attached("va", "m", "pv-d"),
    "of a volume that does not exist": attached("va", "n", "gone"),
    "without a driver": attached("va", "n", "pv-d", driver=""),
    "of nothing": msgspec.convert(
        {"metadata": {"name": "va"}, "spec": {"attacher": DRIVER, "nodeName": "n"}}, VolumeAttachment
    ),
}


@pytest.mark.parametrize("attachment", PASSED_OVER.values(), ids=PASSED_OVER)
def test_attachments_that_do_not_count(attachment):
    cluster = with_objects(cluster_with_limit(3), attachment)
    assert refusals(NodeVolumeLimits(), a_pod(volumes=standing_on("c")), cluster.snapshot) == {}


def test_attachments_reported_before_their_node_count():
    cluster = with_objects(cluster_with_limit(9), a_csi_node("late", {DRIVER: 1}), attached("va", "late", "pv-d"))
    plugin, pod = NodeVolumeLimits(), a_pod(volumes=standing_on("c"))
    assert refusals(plugin, pod, cluster.snapshot) == {}
    cluster.set_node(a_node("late"))
    assert refusals(plugin, pod, cluster.snapshot) == {"late": NO}
    cluster.remove_node("n")
    assert refusals(plugin, pod, cluster.snapshot) == {"late": NO}


def test_in_tree_volumes_count_where_their_driver_runs():
    in_tree = [a_bound_claim("old", "pv-old"), a_volume("pv-old", awsElasticBlockStore={"volumeID": "aws://z/vol-1"})]
    cluster = with_objects(a_cluster([a_node("n"), a_node("bare")]), *in_tree, a_csi_node("n", {EBS: 0}))
    plugin = NodeVolumeLimits()
    assert refusals(plugin, a_pod(volumes=standing_on("old")), cluster.snapshot) == {"n": NO}
    assert refusals(plugin, a_pod(volumes=[ebs("vol-2")]), cluster.snapshot) == {"n": NO}
    cluster.place(a_pod("held", volumes=[ebs("vol-1")]), "n")
    assert refusals(plugin, a_pod(volumes=standing_on("old")), cluster.snapshot) == {}, "the same disk by two names"


def test_a_class_of_an_in_tree_plugin_counts_for_its_csi_driver():
    cluster = with_objects(
        a_cluster([a_node("n")]), a_claim("w", storageClassName="gp2"), a_class("gp2", provisioner="kubernetes.io/aws-ebs"),
        a_csi_node("n", {EBS: 0}),
    )  # fmt: skip
    assert refusals(NodeVolumeLimits(), a_pod(volumes=standing_on("w")), cluster.snapshot) == {"n": NO}
    with_objects(cluster, a_class("gp2", provisioner="kubernetes.io/vsphere-volume"))
    assert refusals(NodeVolumeLimits(), a_pod(volumes=standing_on("w")), cluster.snapshot) == {}


NOT_COUNTED = {
    "without a CSI driver": a_volume("pv-v", nfs={"server": "s"}),
    "of a kind that is not migrated": a_volume("pv-v", azureFile={"shareName": "s"}),
    "that its driver rejects": a_volume("pv-v", azureDisk={"diskURI": "u", "kind": "Dedicated"}),
    "without a handle": a_volume("pv-v", csi=csi("")),
}


@pytest.mark.parametrize("volume", NOT_COUNTED.values(), ids=NOT_COUNTED)
def test_volumes_that_do_not_count(volume):
    limits = {DRIVER: 0, "disk.csi.azure.com": 0, "file.csi.azure.com": 0}
    cluster = with_objects(a_cluster([a_node("n")]), a_bound_claim("v", "pv-v"), volume, a_csi_node("n", limits))
    assert refusals(NodeVolumeLimits(), a_pod(volumes=standing_on("v")), cluster.snapshot) == {}


def test_a_missing_claim_rejects_the_pod_on_every_node():
    why = 'looking up PVC default/gone: persistentvolumeclaim "gone" not found'
    missing = Status(Code.UNRESOLVABLE, "NodeVolumeLimits", (why,))
    cluster = with_objects(a_cluster([a_node("n"), a_node("m")]), a_csi_node("n", {DRIVER: 1}))
    assert refusals(NodeVolumeLimits(), a_pod(volumes=standing_on("gone")), cluster.snapshot) == {"n": missing, "m": missing}


def error(text):
    return Status(Code.ERROR, "NodeVolumeLimits", (f'running "NodeVolumeLimits" filter plugin: {text}',))


def test_an_ephemeral_volume_needs_a_claim_owned_by_the_pod():
    scratch = [{"name": "s", "ephemeral": {}}]
    owner = {"ownerReferences": [{"uid": "default/p", "controller": True}]}
    cluster = with_objects(cluster_with_limit(2), a_bound_claim("p-s", "pv-c", metadata=owner))
    plugin = NodeVolumeLimits()
    assert refusals(plugin, a_pod("p", volumes=scratch), cluster.snapshot) == {"n": NO}
    other = a_pod("p", uid="another", volumes=scratch)
    text = "PVC default/p-s was not created for pod default/p (pod is not owner)"
    assert refusals(plugin, other, cluster.snapshot) == {"n": error(text)}
    cluster.place(other, "n")
    assert refusals(plugin, a_pod(volumes=standing_on("c")), cluster.snapshot) == {"n": error(text)}
    cluster.remove_pod("another")
    assert refusals(plugin, a_pod(volumes=standing_on("c")), cluster.snapshot) == {"n": NO}


def test_a_claim_without_a_name_is_an_error():
    text = "PersistentVolumeClaim had no name"
    assert refusals(NodeVolumeLimits(), a_pod(volumes=standing_on("")), cluster_with_limit(9).snapshot) == {"n": error(text)}


def test_a_disk_that_its_driver_rejects_is_an_error_where_drivers_run():
    pod = a_pod(volumes=[ebs("aws://zone/disk")])
    cluster = with_objects(a_cluster([a_node("n"), a_node("bare")]), a_csi_node("n"))
    text = (
        "converting volume(disk) from inline to csi: failed to translate Kubernetes ID to EBS Volume ID "
        "Invalid format for AWS volume (aws://zone/disk)"
    )
    assert refusals(NodeVolumeLimits(), pod, cluster.snapshot) == {"n": error(text)}


@dataclass
class Bench:
    gates: FeatureGates


def test_the_gate_may_require_an_installed_driver():
    plugin = NodeVolumeLimits()
    plugin.attach(Bench(FeatureGates({"VolumeLimitScaling": True})))
    nodes = [a_node(name) for name in ("has", "lacks", "bare")]
    cluster = with_objects(a_cluster(nodes), *bound("a"), a_csi_node("has", {DRIVER: 5}), a_csi_node("lacks", {"other": 5}))
    pod = a_pod(volumes=standing_on("a"))
    assert refusals(plugin, pod, cluster.snapshot) == {}
    for insists in (True, False):
        spec = {"preventPodSchedulingIfMissing": insists}
        with_objects(cluster, msgspec.convert({"metadata": {"name": DRIVER}, "spec": spec}, CSIDriver))
        absent = Status(Code.UNSCHEDULABLE, plugin.name, (f"{DRIVER} CSI driver is not installed on the node",))
        assert refusals(plugin, pod, cluster.snapshot) == ({"lacks": absent, "bare": absent} if insists else {})


def test_pods_without_such_volumes_are_skipped():
    snapshot = cluster_with_limit(0).snapshot
    for volume in ({"emptyDir": {}}, {"csi": {"driver": DRIVER}}, {"rbd": {"monitors": ["m"], "image": "i"}}):
        assert NodeVolumeLimits().pre_filter(a_pod(volumes=[{"name": "v", **volume}]), snapshot) is SKIP
    assert NodeVolumeLimits().reuse.signature(a_pod(volumes=[{"name": "v", "emptyDir": {}}])) == {}
    assert NodeVolumeLimits().reuse.signature(a_pod(volumes=standing_on("a"))) is None


def test_satisfies_the_plugin_contract():
    pods = [a_pod(volumes=standing_on(*names)) for names in ("a", "c", "cd")]
    check_plugin(NodeVolumeLimits(), pods=pods, cluster=cluster_with_limit(2))


def test_removed_pods_free_their_volumes():
    plugin, pod = NodeVolumeLimits(), a_pod(volumes=standing_on("c"))
    held = [a_pod(f"h-{name}", volumes=standing_on(name)) for name in "ab"]
    cluster = cluster_with_limit(2, pods=held)
    snapshot = cluster.snapshot
    profile = make_profile("alone", {plugin.name: plugin}, {"preFilter": [plugin.name], "filter": [plugin.name]}, {})
    for asked_before in (False, True):
        if asked_before:
            assert refusals(plugin, pod, snapshot) == {"n": NO}
        with OneNode(FilterInput(profile, run_pre_filter(profile, pod, snapshot), pod), snapshot, 0, ()) as node:
            assert node.refused_by() == NO
            node.remove(held[0])
            assert node.refused_by() is None
            node.add(held[0])
            assert node.refused_by() == NO
            node.remove(held[1])
            assert node.refused_by() is None
        assert refusals(plugin, pod, snapshot) == {"n": NO}


def test_a_node_that_takes_the_place_of_a_removed_one_keeps_its_volumes():
    """The last row moves to that of the removed node: nothing may look for its volumes where they were."""
    last = a_pod("held", volumes=standing_on("a", "b"))
    cluster = a_cluster([a_node("first"), a_node("last")], {"last": [last]})
    limits = [a_csi_node(name, {DRIVER: 2}) for name in ("first", "last")]
    with_objects(cluster, *limits, *[obj for name in "abc" for obj in bound(name)])
    shares, other = (a_pod(volumes=standing_on(*claims)) for claims in ("a", "c"))
    assert refusals(NodeVolumeLimits(), other, cluster.snapshot) == {"last": NO}
    cluster.remove_node("first")
    assert refusals(NodeVolumeLimits(), shares, cluster.snapshot) == {}
    assert refusals(NodeVolumeLimits(), other, cluster.snapshot) == {"last": NO}


CSI, ATTACHMENT, CLAIM = Resource.CSI_NODE, Resource.VOLUME_ATTACHMENT, Resource.PERSISTENT_VOLUME_CLAIM
PLACED = {"nodeName": "n"}
WAKES = {  # the event, old and new; wakes?
    "a CSINode is added": (CSI, Action.ADD, None, a_csi_node("n"), True),
    "a limit is raised": (CSI, Action.UPDATE_OTHER, a_csi_node("n", {DRIVER: 1}), a_csi_node("n", {DRIVER: 2}), True),
    "a limit is lowered": (CSI, Action.UPDATE_OTHER, a_csi_node("n", {DRIVER: 2}), a_csi_node("n", {DRIVER: 1}), False),
    "a driver is added": (CSI, Action.UPDATE_OTHER, a_csi_node("n"), a_csi_node("n", {DRIVER: 1}), True),
    "a limit is removed": (CSI, Action.UPDATE_OTHER, a_csi_node("n", {DRIVER: 1}), a_csi_node("n", {DRIVER: None}), False),
    "its claim is added": (CLAIM, Action.ADD, None, a_claim("c"), True),
    "its ephemeral claim is added": (CLAIM, Action.ADD, None, a_claim("pod-s"), True),
    "another claim is added": (CLAIM, Action.ADD, None, a_claim("x"), False),
    "a pod with a claim is deleted": (Resource.POD, Action.DELETE, a_pod(volumes=standing_on("x"), **PLACED), None, True),
    "a pod with a disk is deleted": (Resource.POD, Action.DELETE, a_pod(volumes=[ebs("v")], **PLACED), None, True),
    "a pod without volumes is deleted": (Resource.POD, Action.DELETE, a_pod(**PLACED), None, False),
    "an unassigned pod is deleted": (Resource.POD, Action.DELETE, a_pod(volumes=standing_on("x")), None, False),
    "a nominated pod is deleted": (
        Resource.POD, Action.DELETE, a_pod(volumes=standing_on("x"), status={"nominatedNodeName": "n"}), None, True,
    ),
    "a volume is detached": (ATTACHMENT, Action.DELETE, attached("va", "n", "pv"), None, True),
}  # fmt: skip


@pytest.mark.parametrize(("resource", "action", "old", "new", "woken"), WAKES.values(), ids=WAKES)
def test_wakes(resource, action, old, new, woken):
    pod = a_pod(volumes=[*standing_on("c"), {"name": "s", "ephemeral": {}}])
    assert wakes(NodeVolumeLimits(), pod, resource, action, old, new) is woken


def test_a_detached_volume_wakes_pods_with_disks_of_its_driver():
    for disk, driver, woken in (("vol-1", EBS, True), ("vol-1", DRIVER, False), ("aws://z/x", DRIVER, True)):
        pod = a_pod(volumes=[ebs(disk)])
        assert wakes(NodeVolumeLimits(), pod, ATTACHMENT, Action.DELETE, attached("va", "n", "pv", driver)) is woken
    file = a_pod(volumes=[{"name": "f", "azureFile": {"shareName": "s"}}])
    for driver in ("file.csi.azure.com", DRIVER):
        gone = attached("va", "n", "pv", driver)
        assert wakes(NodeVolumeLimits(), file, ATTACHMENT, Action.DELETE, gone) is (driver != DRIVER)
    assert not wakes(NodeVolumeLimits(), a_pod(), ATTACHMENT, Action.DELETE, attached("va", "n", "pv"))


# -- properties ---------------------------------------------------------------------------------------------------------

HANDLES = {"a": "1", "b": "2", "c": "3", "d": "3", "e": "4"}
steps = st.lists(
    st.tuples(
        st.sampled_from(["place", "remove", "limit", "attach", "detach", "rebind", "node"]),
        st.integers(0, 5), st.integers(0, 2), st.integers(0, 4),
    ),
    max_size=20,
)  # fmt: skip


class World:
    """A changing cluster with a reference implementation."""

    def __init__(self, needs):
        self.cluster = a_cluster([a_node(f"n{at}") for at in range(3)])
        self.handles = dict(HANDLES)
        self.limits = {}
        self.attached = {}
        self.pods = [a_pod(f"p{at}", volumes=standing_on(*names)) for at, names in enumerate(needs)]
        for name, handle in HANDLES.items():
            with_objects(self.cluster, *bound(name, handle))

    def names(self, pod):
        return [use.name for use in pod.volumes.claims] if pod.volumes is not None else []

    def refused(self, pod, node):
        if node not in self.limits:
            return False
        held = {self.handles[name] for other in self.on(node) for name in self.names(other)}
        unused = {handle for at, handle in self.attached.values() if at == node} - held
        new = {self.handles[name] for name in self.names(pod)} - held
        return bool(new) and len(held) + len(unused) + len(new) > self.limits[node]

    def on(self, node):
        row = self.cluster.table.row_of.get(node)
        return [] if row is None else self.cluster.table.pods[row].values()

    def do(self, step, at, node, number):
        name, claim = f"n{node}", "abcde"[number]
        pod = self.pods[at % len(self.pods)]
        if step == "place" and self.cluster.node_of(pod.uid) is None and name in self.cluster.table.row_of:
            if not self.refused(pod, name):
                self.cluster.assume(pod, name)
        elif step == "remove":
            self.cluster.remove_pod(pod.uid)
        elif step == "limit":
            self.limits[name] = number
            with_objects(self.cluster, a_csi_node(name, {DRIVER: number}))
        elif step == "attach":
            self.attached[at] = (name, self.handles[claim])
            with_objects(self.cluster, attached(f"va{at}", name, f"pv-{claim}"))
        elif step == "detach" and at in self.attached:
            self.cluster.remove_object(attached(f"va{at}", *self.attached.pop(at)))
        elif step == "rebind" and not self.attached:
            self.handles[claim] = f"new{at}"
            with_objects(self.cluster, bound(claim, f"new{at}")[1])
        elif step == "node" and name in self.cluster.table.row_of:
            for other in list(self.on(name)):
                self.cluster.remove_pod(other.uid)
            self.cluster.remove_node(name)
        elif step == "node":
            self.cluster.set_node(a_node(name))


@pytest.mark.slow
@settings(max_examples=40)
@given(st.lists(st.lists(st.sampled_from("abcde"), max_size=3), min_size=1, max_size=6), steps)
def test_agrees_with_a_reference_implementation_after_any_changes(needs, steps):
    world = World(needs)
    plugin = NodeVolumeLimits()
    for step in steps:
        world.do(*step)
        table = world.cluster.table
        for pod in world.pods[:2]:
            expected = {node: NO for node in table.row_of if world.refused(pod, node)}
            assert refusals(plugin, pod, world.cluster.snapshot) == expected, step


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(st.lists(st.sampled_from("abcde"), min_size=1, max_size=3), min_size=2, max_size=12), st.integers(0, 4))
def test_a_node_never_exceeds_its_limit(needs, limit):
    cluster = with_objects(a_cluster([a_node("n")]), *(obj for name, handle in HANDLES.items() for obj in bound(name, handle)))
    with_objects(cluster, a_csi_node("n", {DRIVER: limit}))
    plugin = NodeVolumeLimits()
    for at, names in enumerate(needs):
        pod = a_pod(f"p{at}", volumes=standing_on(*names))
        if not refusals(plugin, pod, cluster.snapshot):
            cluster.assume(pod, "n")
    held = {HANDLES[use.name] for pod in cluster.snapshot.pods() for use in pod.volumes.claims}
    assert len(held) <= limit


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=3), steps)
def test_every_change_that_makes_the_pod_fit_wakes(wants, steps):
    world = World([wants, *(["a", "b"], ["c"], ["d", "e"])])
    plugin, pod = NodeVolumeLimits(), world.pods[0]
    events = {"remove": (Resource.POD, Action.DELETE), "detach": (ATTACHMENT, Action.DELETE)}
    for step in steps:
        if step[0] == "node" or step[1] % len(world.pods) == 0:
            continue
        before = refusals(plugin, pod, world.cluster.snapshot)
        gone = world.cluster.pod(world.pods[step[1] % len(world.pods)].uid)
        where = world.cluster.node_of(world.pods[step[1] % len(world.pods)].uid)
        world.do(*step)
        if step[0] not in events or not before or refusals(plugin, pod, world.cluster.snapshot) == before:
            continue
        resource, action = events[step[0]]
        old = (
            attached("va", "n", "pv") if step[0] == "detach" else a_pod(volumes=standing_on(*world.names(gone)), nodeName=where)
        )
        assert wakes(plugin, pod, resource, action, old)
