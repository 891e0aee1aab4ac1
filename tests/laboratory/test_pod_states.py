"""Every state that keeps a pod pending, whatever the nodes are like: what is said of it, and what would end it."""

from __future__ import annotations

import pytest

import moorage
from moorage.errors import InputError
from moorage.framework.points import PermitPlugin
from moorage.framework.verdicts import Wait
from moorage.laboratory.explain.explanation import Subject, explain_now
from moorage.laboratory.explain.pod_state import state_of
from moorage.report.explanation import ExplainRequest
from tests.laboratory.test_explanations import node, pod


def obj(kind, name, api="v1", namespace="default", **fields):
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **fields.pop("metadata", {})}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **fields}


def tried(name, *objects, **options):
    """The explanation of a pod after one attempt for each pod."""
    cluster = moorage.Cluster.from_objects(*objects, **options)
    cluster.schedule()
    return cluster.explain(name, probes=0)


# -- the queue --------------------------------------------------------------------------------------------------------


def test_backing_off():
    cluster = moorage.Cluster.from_objects(node("n1"), pod("new", cpu="9", nodeSelector={"disk": "ssd"}))
    cluster.schedule()
    cluster.apply("node/n1 labels.disk=ssd")  # the event concerns the plugin that rejected the pod
    found = cluster.explain("new", probes=0)
    assert (found.standing.name, found.standing.attempts, found.standing.until_seconds) == ("backingOff", 1, 1.0)
    assert found.standing.text == "attempt 1 failed; it is retried at 1s"
    assert found.standing.ended_by == ("time",)


def test_nominated_with_victims_that_are_leaving():
    low = pod("low", cpu="4", on="n1", terminationGracePeriodSeconds=40)
    cluster = moorage.Cluster.from_objects(node("n1"), low, pod("high", cpu="4", priority=9))
    cluster.schedule()
    cluster.run(until_s=10)
    found = cluster.explain("high", probes=0)
    assert (found.standing.name, found.standing.nominated_node) == ("nominated", "n1")
    assert found.summary == "default/high is pending: it is nominated to n1; waits for default/low to leave, for 30s at most."
    assert found.standing.ended_by == ("its victims gone",)


class Holder(PermitPlugin):
    name = "Holder"

    def permit(self, state, pod, node):
        return Wait(60.0)


CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {permit: {enabled: [{name: Holder}]}}}]
"""


def test_at_permit():
    cluster = moorage.Cluster.from_objects(node("n1", cpu="1"), pod("new"), config=CONFIG, plugins=[Holder])
    cluster.schedule()
    found = cluster.explain("new", probes=0)
    assert (found.standing.name, found.standing.nominated_node) == ("permit", "n1")
    assert found.summary == "default/new is pending: Holder holds it at Permit on n1; rejected in 60s unless allowed."
    assert found.standing.ended_by == ("approval by Holder", "timeout")
    assert found.groups == ()  # it is not in its own way


TOO_FEW = (
    "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining, "
    "pod group preemption: No preemption victims found for incoming preemptor"
)


@pytest.mark.parametrize(("members", "says"), [
    (2, "2 of 3 pods exist, 0 placed"),
    (3, f"3 of 3 pods exist, 0 placed, 2 fit at the last attempt; {TOO_FEW}"),
])  # fmt: skip
def test_a_group(members, says):
    group = obj("PodGroup", "g", "scheduling.k8s.io/v1beta1", spec={"schedulingPolicy": {"gang": {"minCount": 3}}})
    pods = [pod(name, schedulingGroup={"podGroupName": "g"}) for name in "abc"[:members]]
    gates = "GenericWorkload=true"
    cluster = moorage.Cluster.from_objects(node("n1", cpu="2"), group, *pods, feature_gates=gates)
    cluster.run()
    found = cluster.explain("a", probes=0)
    assert (found.outcome, found.standing.name) == ("pending", "group")
    assert found.standing.text == f"it waits for its group default/g: {says}"


def test_a_starved_pod():
    first, last = pod("first", cpu="3", priority=5), pod("last", cpu="3")
    cluster = moorage.Cluster.from_objects(node("n1"), first, last)
    found = cluster.explain("last", probes=0)
    assert found.standing.name == "starved"
    assert found.summary == (
        "default/last is pending: it fits now if it is tried alone, but not after the pod ahead of it in the queue "
        "(default/first) is tried."
    )
    assert "its priority is 0, and that of the pods ahead is up to 5" in found.standing.text
    assert found.standing.ended_by[0] == "a priority above 5"
    assert cluster.explain("first", probes=0).standing.name == "active"


def test_changes_that_help_behind_the_queue():
    pods = [pod("first", cpu="3", priority=5), pod("last", cpu="2", nodeSelector={"disk": "ssd"})]
    cluster = moorage.Cluster.from_objects(node("n1"), node("n2", cpu="1"), *pods)
    alone = cluster.least_change("last", may=("node",), alternatives=0)
    behind = cluster.least_change("last", may=("node",), alternatives=0, with_queue=True, all_changes=True)
    assert [change.verb for change in alone[0].changes] == ["label"]
    assert sorted((change.verb, change.target) for change in behind[0].changes) == [
        ("allocatable", "node/n1"), ("label", "node/n1"),
    ]  # fmt: skip
    with cluster.transaction():
        cluster.apply(*behind[0].changes)
        assert cluster.schedule(["first", "last"])[-1]


def test_a_pod_behind_others_that_leave_room_is_not_starved():
    cluster = moorage.Cluster.from_objects(node("n1"), pod("first", cpu="1", priority=5), pod("last", cpu="1"))
    assert cluster.explain("last", probes=0).standing.name == "active"


def test_gated_without_a_node_to_go_to():
    found = tried("new", node("n1"), pod("new", cpu="9", schedulingGates=[{"name": "wait"}]))
    assert (found.standing.name, found.standing.fits_once_released) == ("gated", False)
    assert "released, it would fit on no node" in found.summary


# -- claims -----------------------------------------------------------------------------------------------------------


def wants(claim="data"):
    return pod("new", cpu="3", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": claim}}])


def claim(volume="", storage_class="fast", phase="Bound", **spec):
    bound = {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}} if volume else {}
    amount = {"resources": {"requests": {"storage": "1Gi"}}}
    spec = {"accessModes": ["ReadWriteOnce"], **amount, "storageClassName": storage_class, "volumeName": volume, **spec}
    return obj("PersistentVolumeClaim", "data", spec=spec, status={"phase": phase}, **bound)


def storage_class(mode, provisioner="kubernetes.io/no-provisioner"):
    api = "storage.k8s.io/v1"
    return obj("StorageClass", "fast", api, namespace="", provisioner=provisioner, volumeBindingMode=mode)


def volume(zone):
    term = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]}
    affinity = {"required": {"nodeSelectorTerms": [term]}}
    spec = {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
        "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "data"}, "nodeAffinity": affinity,
    }  # fmt: skip
    return obj("PersistentVolume", "pv", namespace="", spec=spec, status={"phase": "Bound"})


ZONES = [
    node("n1", labels={"topology.kubernetes.io/zone": "a"}),
    node("n2", cpu="2", labels={"topology.kubernetes.io/zone": "b"}),  # too small for the pod
]
HOLDER = pod("holder", on="n1", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
CLAIMS = {  # the objects beside the pod, what its causes say
    "missing": ([], "claim data: not found"),
    "lost": ([claim("gone", phase="Lost")], "claim data: lost its volume gone"),
    "unbound, of a class that binds at once": (
        [claim(phase="Pending"), storage_class("Immediate")],
        "claim data: unbound; class fast binds at once (Immediate), so the pod waits until a volume is bound to it",
    ),
    "unbound, of no class": (
        [claim(phase="Pending", storage_class="")],
        "claim data: unbound; it has no class, so the pod waits until a volume is bound to it",
    ),
    "unbound, of a class that is not there": (
        [claim(phase="Pending")], "claim data: unbound; its class fast does not exist",
    ),
    "unbound, and no volume fits": (
        [claim(phase="Pending"), storage_class("WaitForFirstConsumer")],
        "claim data: no volume matches, class fast provisions no volume on any node",
    ),
    "bound to a volume that few nodes reach": (
        [claim("pv"), volume("b")],
        "claim data: volume pv (class fast) requires topology.kubernetes.io/zone=b: n2",
    ),
    "bound to a volume that no node reaches": (
        [claim("pv"), volume("z")],
        "claim data: volume pv (class fast) requires topology.kubernetes.io/zone=z: no node",
    ),
    "bound to a volume that does not exist": ([claim("gone")], "claim data: bound to volume gone, which does not exist"),
    "held by the one pod that it allows": (
        [claim("pv", accessModes=["ReadWriteOncePod"]), volume("a"), HOLDER],
        "claim data is for one pod; used by default/holder",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("objects", "says"), CLAIMS.values(), ids=CLAIMS)
def test_claims(objects, says):
    found = tried("new", *ZONES, *objects, wants())
    assert any(says in cause for cause in found.standing.causes), (found.standing.causes, found.text(wide=True))


def test_a_node_that_can_attach_no_more_volumes():
    driver = {"drivers": [{"name": "csi.example.com", "nodeID": "n1", "allocatable": {"count": 1}}]}
    csi = obj("CSINode", "n1", "storage.k8s.io/v1", namespace="", spec=driver)
    inline = {"driver": "csi.example.com"}
    held = [
        obj("PersistentVolume", f"pv{at}", namespace="", status={"phase": "Bound"}, spec={
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": {**inline, "volumeHandle": f"h{at}"},
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name},
        })
        for at, name in enumerate(["data", "other"])
    ]  # fmt: skip
    claims = [claim("pv0"), {**claim("pv1"), "metadata": {**claim("pv1")["metadata"], "name": "other"}}]
    other = pod("other", on="n1", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "other"}}])
    found = tried("new", node("n1"), csi, *held, *claims, other, wants())
    assert "csi.example.com: 1 of 1 volumes attached, needs 1" in found.text()


def test_devices_that_are_in_use():
    api = "resource.k8s.io/v1"
    gpu = obj("DeviceClass", "gpu", api, namespace="", spec={})
    devices = [{"name": f"d{at}", "attributes": {"model": {"string": "abx"[at]}}} for at in range(3)]
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    slices = obj("ResourceSlice", "s", api, namespace="", spec={
        "driver": "gpu.example.com", "nodeName": "n1", "pool": pool, "devices": devices,
    })  # fmt: skip
    rule = 'device.attributes["gpu.example.com"].model != "x"'
    exactly = {"deviceClassName": "gpu", "count": 2, "selectors": [{"cel": {"expression": rule}}]}
    asks = {"devices": {"requests": [{"name": "main", "exactly": exactly}]}}
    result = {"request": "main", "driver": "gpu.example.com", "pool": "n1", "device": "d0"}
    status = {"allocation": {"devices": {"results": [result]}}}
    one = {"devices": {"requests": [{"name": "main", "exactly": {"deviceClassName": "gpu"}}]}}
    taken, free = obj("ResourceClaim", "taken", api, spec=one, status=status), obj("ResourceClaim", "mine", api, spec=asks)
    new = pod("new", resourceClaims=[{"name": "c", "resourceClaimName": "mine"}])
    found = tried("new", node("n1"), gpu, slices, taken, free, new)
    says = f"claim mine, request main: needs 2 gpu with {rule}; 3 devices here, 2 match, 1 in use"
    assert says in " ".join(found.text(wide=True).split())


# -- nodes ------------------------------------------------------------------------------------------------------------


def test_a_condition_comes_with_its_time_and_reason_and_repairing_comes_first():
    taints = [
        {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
    ]
    conditions = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
    broken = node("n1", spec={"taints": taints}, conditions=conditions)
    cluster = moorage.Cluster.from_objects(broken, pod("new"))
    found = cluster.explain("new")
    assert found.standing.causes[0] == (
        "node unreachable since 2026-01-01T00:00:00Z (Ready=Unknown, NodeStatusUnknown): n1;"
        " repair the node: the taint goes when it recovers"
    )
    text = found.text()
    assert " ".join(text.split()).index("repair the node") < text.index("What to do")


def test_a_live_engine_and_one_in_virtual_time_are_explained_alike():
    cluster = moorage.Cluster.from_objects(node("n1"), pod("new", nodeSelector={"disk": "ssd"}))
    cluster.schedule()
    state, now = state_of(cluster.simulation, cluster.options), cluster.pod("new")
    found = explain_now(state, Subject(ExplainRequest(pod=now.key, release="1.36"), now))
    assert found.standing == cluster.explain("new", probes=0).standing


# -- extenders --------------------------------------------------------------------------------------------------------

EXTENDED = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders: [{urlPrefix: "http://127.0.0.1:1/", filterVerb: filter, nodeCacheCapable: true}]
"""


def test_what_an_extender_refuses_is_a_group_of_its_own():
    asked = []

    def ask(question):
        asked.append(question.verb)
        return b'{"NodeNames": [], "FailedNodes": {"n1": "no licence", "n2": "no licence"}}'

    objects = [node("n1"), node("n2"), node("n3", spec={"unschedulable": True}), pod("new")]
    cluster = moorage.Cluster.from_objects(*objects, config=EXTENDED, ask=ask)
    found = cluster.explain("new", probes=0)
    (group,) = [one for one in found.groups if one.refusals[0].stage == "extender"]
    assert [found.nodes[at] for at in group.nodes] == ["n1", "n2"]
    assert group.refusals[0].reason == "no licence"
    assert found.funnel[-1].plugin == "Extender http://127.0.0.1:1/"
    assert (found.funnel[-1].before, found.funnel[-1].after) == (2, 0)
    assert asked == ["filter"]
    assert found.assumptions == ()


def test_an_extender_that_fails_refuses_what_is_left():
    def ask(question):
        raise InputError("connection refused")

    found = moorage.Cluster.from_objects(node("n1"), pod("new"), config=EXTENDED, ask=ask).explain("new", probes=0)
    assert "connection refused" in found.summary


def test_skipped_extenders_are_marked():
    found = tried("new", node("n1"), pod("new", nodeSelector={"a": "b"}), config=EXTENDED)
    assert found.assumptions[0].value == "1 extender was not asked, and may refuse more nodes"
    assert "1 extender was not asked" in found.text()
