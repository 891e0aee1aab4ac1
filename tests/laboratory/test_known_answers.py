"""Small clusters whose explanations follow by hand from the rules of kube-scheduler and the costs of changes."""

from __future__ import annotations

import pytest

import moorage

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
GPU = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def node(name, cpu="4", zone="", taints=(), pods=110, labels=None, **spec):
    labels = {HOST: name, **({ZONE: zone} if zone else {}), **(labels or {})}
    status = {"allocatable": {"cpu": cpu, "memory": "1000Mi", "pods": str(pods)}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "spec": {"taints": list(taints), **spec}, "status": status}  # fmt: skip


def pod(name, cpu="1", on="", app="", ports=(), requests=None, limits=None, priority=0, **spec):
    container = {"name": "c", "image": "i", "resources": {"requests": requests or {"cpu": cpu}, "limits": limits or {}}}
    container["ports"] = [{"containerPort": port, "hostPort": port} for port in ports]
    labels = {"app": app} if app else {}
    spec = {"containers": [container], "priority": priority, **({"nodeName": on} if on else {}), **spec}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": spec,
    }


def near(kind, app, key=HOST):
    return {"affinity": {kind: {REQUIRED: [{"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}]}}}


def only_on(name):
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}}}}


def spread(key=ZONE):
    one = {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
    return {"topologySpreadConstraints": [one]}


def volume(claim, zone):
    reach = {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]}
    spec = {"accessModes": ["ReadWriteOnce"], "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default",
     "name": claim},
            "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}, "nodeAffinity": {"required": reach}}  # fmt: skip
    asked = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": "pv",
        "storageClassName": "",
    }
    bound = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}, "name": claim, "namespace": "default"}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "pv"},
            "spec": spec,
            "status": {"phase": "Bound"},
        },
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": bound, "spec": asked, "status": {"phase": "Bound"}},
    ]


DATA = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
#: The API server takes a priority from a class only.
CLASS = "create PriorityClass priority-1 (1), priorityClassName (none) → priority-1"
CASES = {  # objects, what the answer says, the cheapest answers: owner, cost, change
    "a misspelt value": (
        [node("n1", labels={"disk": "ssd"}), node("n2", labels={"disk": "hdd"}), pod("new", nodeSelector={"disk": "sdd"})],
        ["no node matches its nodeSelector disk=sdd.", "No node has disk=sdd; closest is disk=ssd, on 1 node.",
         "disk=ssd here (n1)"],
        [("pod", 1, "nodeSelector disk=sdd → disk=ssd"), ("pod", 10, "drop nodeSelector disk")],
    ),
    "a misspelt key": (
        [node("n1", labels={"disktype": "ssd"}), pod("new", nodeSelector={"disktpye": "ssd"})],
        ["No node has the label disktpye; closest is disktype, on 1 node."],
        [("pod", 1, "nodeSelector disktpye=ssd → disktype=ssd")],
    ),
    "two rules that exclude each other": (
        [node("n1", zone="a"), node("n2", zone="b"), pod("p", on="n1", app="x"),
         pod("new", nodeSelector={ZONE: "a"}, **near("podAntiAffinity", "x", ZONE))],
        ["no node satisfies both its nodeSelector and its anti-affinity.", f"nodeSelector {ZONE}=a · podAntiAffinity"],
        [("pod", 9.5, CLASS), ("pod", 10, f"drop nodeSelector {ZONE}")],
    ),
    "a node by name that is too small": (
        [node("n1"), node("n2", "500m"), pod("new", **only_on("n2"))],
        ["No eligible node satisfies both: nodeAffinity metadata.name=n2 · cpu"],
        [("pod", 6, "requests.cpu 1 → 500m"), ("pod", 10, "drop node affinity metadata.name In [n2]")],
    ),
    "gates, and no room either": (
        [node("n1", "500m"), pod("new", schedulingGates=[{"name": "wait"}])],
        ["is gated", "released, it would fit on no node."],
        [("pod", 8, "remove scheduling gate wait and requests.cpu 1 → 500m")],
    ),
    "an unknown scheduler": (
        [node("n1"), pod("new", schedulerName="volcano")],
        ["its schedulerName is volcano; the profiles here are default-scheduler", "All verified by the engine"],
        [("pod", 1, "schedulerName volcano → default-scheduler"), ("config", 12, "add a profile for scheduler volcano")],
    ),
    "a volume in a zone without nodes": (
        [node("n1", zone="a"), *volume("data", "c"), pod("new", **DATA)],
        ["claim data: volume pv (class none) requires topology.kubernetes.io/zone=c: no node"],
        [("cluster", 8.666667, "add a node like n1-in-c")],
    ),
    "a volume in a zone that is full": (
        [node("n1", zone="a"), node("n2", "500m", zone="b"), *volume("data", "b"), pod("new", **DATA)],
        ["no node satisfies both its cpu request and its volumes."],
        [("pod", 6, "requests.cpu 1 → 500m")],
    ),
    "a taint or a label": (
        [node("n1", taints=[GPU]), node("n2", labels={"disk": "hdd"}), node("n3", taints=[GPU], labels={"disk": "ssd"}),
         pod("new", nodeSelector={"disk": "ssd"})],
        ["every node that matches its nodeSelector disk=ssd has the taint gpu=yes:NoSchedule, which it does not tolerate."],
        [("pod", 2, "tolerate gpu=yes:NoSchedule"), ("pod", 10, "drop nodeSelector disk")],
    ),
    "a label of nodes that are closed for different reasons": (
        [node("n1", labels={"disk": "hdd"}), node("n2", taints=[GPU], labels={"disk": "ssd"}),
         node("n3", unschedulable=True, labels={"disk": "ssd"}), pod("new", nodeSelector={"disk": "ssd"})],
        ["no node that matches its nodeSelector disk=ssd is open to it: of 2, 1 is cordoned, 1 has the taint gpu=yes"],
        [("pod", 2, "tolerate gpu=yes:NoSchedule"), ("node", 2, "kubectl uncordon n3")],
    ),
    "a resource that no node has, behind a taint and a selector": (
        [node("n1"), node("n2", taints=[GPU], labels={"disk": "ssd"}),
         pod("new", nodeSelector={"disk": "ssd"}, requests={"nvidia.com/gpu": "1"}, limits={"nvidia.com/gpu": "1"})],
        ["is pending: no node offers nvidia.com/gpu."],
        [],
    ),
    "the chosen nodes are full": (
        [node("n1", "8"), node("n2", "3", labels={"disk": "ssd"}), pod("a", "1500m", on="n2"),
         pod("new", "2", nodeSelector={"disk": "ssd"})],
        ["no node that matches its nodeSelector disk=ssd has 2 cpu free: n2 has most, 1.5."],
        [("pod", 4.666667, "requests.cpu 2 → 1.5")],
    ),
    "a host port on every node": (
        [node("n1"), node("n2"), pod("a", on="n1", ports=[80]), pod("b", on="n2", ports=[80]), pod("new", ports=[80])],
        ["port 80/TCP held by default/a (n1)"],
        [("cluster", 8.666667, "add a node like n1"), ("pod", 9.5, CLASS), ("pod", 10, "drop hostPort 80/TCP")],
    ),
    "as many pods as the node allows": (
        [node("n1", pods=1), pod("a", on="n1"), pod("new")],
        ["every node is full", "pods: 1 of 1"],
        [("cluster", 8.666667, "add a node like n1"), ("pod", 9.5, CLASS)],
    ),
    "one domain is ahead": (
        [node("n1", zone="a"), node("n2", "500m", zone="b"), pod("a", on="n1", app="x"), pod("new", app="x", **spread())],
        ["zone a has 1 of app=x, the minimum is 0: skew would be 2, maxSkew is 1", "cpu · topologySpread zone app=x"],
        [("pod", 6, "requests.cpu 1 → 500m"), ("pod", 9.5, CLASS),
         ("pod", 9.5, "topologySpreadConstraints[0].maxSkew 1 → 2")],
    ),
    "another pod keeps it away": (
        [node("n1"), pod("a", on="n1", app="y", **near("podAntiAffinity", "x")), pod("new", app="x")],
        ["a has anti-affinity against app=x per host"],
        [("cluster", 8.666667, "add a node like n1"), ("pod", 9.5, CLASS)],
    ),
    "it may not preempt": (
        [node("n1", "2"), pod("low", "2", "n1"), pod("new", priority=100, preemptionPolicy="Never")],
        ["Preemption: not eligible due to preemptionPolicy=Never."],
        [("cluster", 8.666667, "add a node like n1"), ("pod", 9.5, CLASS.replace("1", "100"))],
    ),
    "one millicore too many": (
        [node("n1", "2"), pod("a", "1317m", "n1"), pod("new")],
        ["no node has 1 cpu free: n1 has most, 683m."],
        [("pod", 4.928258, "requests.cpu 1 → 650m"), ("cluster", 8.666667, "add a node like n1")],
    ),
    "memory to the byte": (
        [node("n1"), pod("new", requests={"memory": "1001Mi"})],
        ["it requests 1001Mi memory, and the largest, n1, has 1000Mi."],
        [("pod", 4.002, "requests.memory 1001Mi → 960Mi")],
    ),
    "two owners together are cheapest": (
        [node("n1", "1", taints=[GPU]), pod("a", "800m", "n1"), pod("new", "500m")],
        ["gpu=yes; cpu: needs 500m, 200m free"],
        [("pod", 17, "requests.cpu 500m → 200m and tolerate gpu=yes:NoSchedule")],
    ),
    "no topology label": (
        [node("n1"), pod("new", app="x", **spread())],
        ["No node has the topology label topology.kubernetes.io/zone.\n"],
        [("pod", 10, "topologySpreadConstraints[0].whenUnsatisfiable DoNotSchedule → ScheduleAnyway")],
    ),
    "no nodes at all": ([pod("new")], ["there are no nodes.", "no change that is listed helps"], []),
}  # fmt: skip


@pytest.mark.parametrize(("objects", "says", "changes"), CASES.values(), ids=CASES)
def test_the_answer_is_the_one_worked_out_by_hand(objects, says, changes):
    cluster = moorage.Cluster.from_objects(objects)
    found = cluster.explain("new")
    text = " ".join(found.text().split()) if not any("\n" in one for one in says) else found.text()
    assert [one for one in says if one not in text] == []
    told = [(one.owner, one.cost, " and ".join(atom.text for atom in one.atoms)) for one in found.changes]
    assert told[: len(changes)] == changes
    assert bool(told) == bool(changes)
    assert found.holds is False


def test_a_budget_does_not_stop_preemption_but_is_named():
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "default"},
              "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
               "status": {"disruptionsAllowed": 0}}  # fmt: skip
    cluster = moorage.Cluster.from_objects(node("n1", "2"), pod("low", "2", "n1", app="x"), budget, pod("new", priority=9))
    story = cluster.explain("new").preemption
    assert story.summary == "Preemption evicts default/low on n1, the only candidate, against budget b."
