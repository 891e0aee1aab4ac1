"""Which pending pods an event wakes: kube-scheduler's CoreResourceEnqueue cases, end to end, with hints.

Each case has a world in which its pods are turned down, something that happens then, and which pods are tried again for it. The
scheduler makes its attempts; before the event it is kept from making more, so that nothing else happens. Volumes and devices
have cases of their own, in ``test_integration_volume_wakes.py``.
"""

import pytest

from tests.regressions import cluster_objects as on
from tests.regressions.waking import Case, play

NOT_READY = on.no_schedule("node.kubernetes.io/not-ready")
FIT = "NodeResourcesFit"
BESIDE = ("n1", {"group": "a"}), ("n2", {"group": "b"})


def nodes(*named, **more):
    return lambda w: [on.node(w, name, labels, **more) for name, labels in named]


def together(*steps):
    return lambda w: [step(w) for step in steps]


def placed(name, labels=None, at="n1", **spec):
    return lambda w: on.pod(w, name, labels, nodeName=at, **spec)


def beside(amounts):
    """Two nodes, the larger of which the pod may not go to."""
    return lambda w: (on.node(w, "n1", {"group": "a"}, **amounts), on.node(w, "n2", {"group": "b"}, cpu=2))


TAINTS = {
    "a larger node that is tainted": Case(
        f"TaintToleration {FIT}", lambda w: on.node(w, "n1", taints=[NOT_READY], cpu=2),
        {"plain": {"cpu": "4"}, "tolerant": {"cpu": "4", **on.tolerating(NOT_READY["key"])}},
        lambda w: on.grow(w, "n1", cpu=4), "tolerant",
    ),
    "a pod gets a toleration": Case(
        "TaintToleration", lambda w: on.node(w, "n1", taints=[on.no_schedule("k")]), {"p": {}, "q": {}},
        lambda w: on.tolerate(w, "p", "k"), "p",
    ),
    "a taint becomes another": Case(
        "TaintToleration", lambda w: on.node(w, "n1", taints=[NOT_READY]),
        {"p": on.tolerating("k"), "q": on.tolerating("other"), "r": {}},
        lambda w: on.taint(w, "n1", on.no_schedule("k")), "p",
    ),
    "a node with another taint": Case(
        "TaintToleration", lambda w: on.node(w, "n1", taints=[NOT_READY]), {"p": on.tolerating("k"), "q": {}},
        lambda w: on.node(w, "n2", taints=[on.no_schedule("k")]), "p",
    ),
    "a label is nothing to taints": Case(
        "TaintToleration", lambda w: on.node(w, "n1", taints=[NOT_READY]), {"p": {}},
        lambda w: w.change_pod("p", labels={"key": "val"}), "",
    ),
    "a node is opened": Case(
        "NodeUnschedulable", lambda w: on.node(w, "n1", unschedulable=True), {"p": {}},
        lambda w: on.patch(w, f"{on.NODES}/n1", spec={"unschedulable": False}), "p",
    ),
    "an open node": Case(
        "NodeUnschedulable", lambda w: on.node(w, "n1", unschedulable=True), {"p": {}}, lambda w: on.node(w, "n2"), "p",
    ),
    "another closed node": Case(
        "NodeUnschedulable", lambda w: on.node(w, "n1", unschedulable=True), {"p": {}},
        lambda w: on.node(w, "n2", unschedulable=True), "",
    ),
}  # fmt: skip

NODE_AFFINITY = {
    "a node's label becomes the one": Case(
        "NodeAffinity", nodes(("n1", {"group": "a"})), {"p": on.on_nodes("group", "b"), "q": on.on_nodes("group", "c")},
        lambda w: on.label(w, "n1", group="b"), "p",
    ),
    "a node that matched gets another label": Case(
        f"NodeAffinity {FIT}", nodes(*BESIDE, cpu=2), {"p": {"cpu": "4", **on.on_nodes("group", "a")}},
        lambda w: on.label(w, "n1", more="x"), "",
    ),
    "a node with the label": Case(
        "NodeAffinity", nodes(("n1", {"group": "a"})), {"p": on.on_nodes("group", "b"), "q": on.on_nodes("group", "c")},
        lambda w: on.node(w, "n2", {"group": "b"}), "p",
    ),
    "narrowed and too small": Case(
        f"NodeAffinity {FIT}", nodes(("n1", {"node": "n1"}), ("n2", {"node": "n2"}), cpu=2),
        {"p": {"cpu": "4", "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [on.within_term("metadata.name", "n1")]}]}}}}},
        lambda w: on.grow(w, "n1", cpu=4), "p",
    ),
}  # fmt: skip

GPU = "example.com/gpu"
OLD_WAYS = {"DRAExtendedResource": False}
ONE_GPU = {"requests": {"cpu": "4", GPU: "1"}}
ONE_OTHER = {"requests": {"cpu": "4", "example.com/other": "1"}}
WANTS_B = {"cpu": "4", **on.on_nodes("group", "b")}


def resized(world):
    """Resize a pod that was not placed yet to half."""
    small = [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]
    path = f"{on.PODS}/p/resize"
    kind = "application/strategic-merge-patch+json"
    assert world.api.do("PATCH", path, {"spec": {"containers": small}}, media_type=kind) is not None


def more_memory(world):
    on.grow(world, "n1", memory="16Gi")


RESOURCES = {
    "the pod asks for less": Case(FIT, lambda w: on.node(w, "n1", cpu=2), {"p": {"cpu": "4"}}, resized, "p"),
    "a pod is deleted": Case(
        FIT, together(lambda w: on.node(w, "n1", cpu=2), placed("x", cpu="2")), {"p": {"cpu": "2"}},
        lambda w: w.delete_pod("x", grace=0), "p",
    ),
    "a larger node comes": Case(
        FIT, lambda w: on.node(w, "n1", cpu=2), {"p": {"cpu": "4"}, "q": {"cpu": "5"}}, lambda w: on.node(w, "n2", cpu=4), "p",
    ),
    "a node grows": Case(
        FIT, lambda w: on.node(w, "n1", cpu=2), {"p": {"cpu": "4"}, "q": {"cpu": "5"}}, lambda w: on.grow(w, "n1", cpu=4), "p",
    ),
    "a node grows in what was not asked for": Case(
        f"{FIT} NodeAffinity", beside({}), {"p": WANTS_B}, more_memory, "",
    ),
    "a node grows that the pod may not go to": Case(
        f"{FIT} NodeAffinity", beside({}), {"p": WANTS_B}, lambda w: on.grow(w, "n1", cpu=5), "p",
    ),
    "a node takes more pods": Case(
        f"{FIT} NodeAffinity", together(
            lambda w: on.node(w, "n1", {"group": "a"}, pods=2), lambda w: on.node(w, "n2", {"group": "b"}, pods=1),
            placed("x", at="n2"),
        ), {"p": on.on_nodes("group", "b")}, lambda w: on.grow(w, "n1", pods=3), "p",
    ),
    "more memory, too little CPU for a device": Case(
        f"{FIT} DynamicResources", lambda w: on.node(w, "n1", **{GPU: 1}), {"p": {"requests": {"cpu": "5", GPU: "1"}}},
        more_memory, "", opened=OLD_WAYS,
    ),
    "more memory, too little CPU for a device that may be claimed": Case(
        f"{FIT} DynamicResources", lambda w: on.node(w, "n1", **{GPU: 1}), {"p": {"requests": {"cpu": "5", GPU: "1"}}},
        more_memory, "",
    ),
    "more memory, and no device": Case(
        f"{FIT} DynamicResources", lambda w: on.node(w, "n1"), {"p": {"requests": {GPU: "1"}}}, more_memory, "",
        opened=OLD_WAYS,
    ),
    "more memory, and a device that a class stands for": Case(
        f"{FIT} NodeAffinity DynamicResources", together(beside({}), lambda w: on.device_class(w, "gpus", GPU)),
        {"p": {**ONE_GPU, **on.on_nodes("group", "b")}}, more_memory, "p",
    ),
    "a class for the device comes": Case(
        FIT, lambda w: on.node(w, "n1"), {"p": ONE_GPU, "q": ONE_OTHER}, lambda w: on.device_class(w, "gpus", GPU), "p",
    ),
    "a class is made to stand for the device": Case(
        FIT, together(lambda w: on.node(w, "n1"), lambda w: on.device_class(w, "gpus")), {"p": ONE_GPU, "q": ONE_OTHER},
        lambda w: on.patch(w, f"{on.DEVICES}/deviceclasses/gpus", spec={"extendedResourceName": GPU}), "p",
    ),
}  # fmt: skip

ABC = (("p", "node"), ("q", "service"), ("r", "other"))
NEAR = {
    "a node away from who is avoided": Case(
        "InterPodAffinity", together(nodes(("n1", {"node": "n1"})), placed("x", {"anti": ""}, **on.away("anti", "node"))),
        {"p": {"labels": {"anti": ""}, **on.away("anti", "node")}}, lambda w: on.node(w, "n2", {"node": "n2"}), "p",
    ),
    "who is avoided loses the label": Case(
        "InterPodAffinity", together(nodes(("n1", {"node": "n1"})), placed("x", {"a": "", "b": ""})),
        {"p": {"labels": {"a": ""}, **on.away("a", "node")}, "q": {"labels": {"b": ""}, **on.away("b", "node")}},
        lambda w: w.change_pod("x", labels={"a": None}), "p",
    ),
    "who is avoided goes": Case(
        "InterPodAffinity", together(nodes(("n1", {"node": "n1"})), placed("x", {"a": ""}), placed("y", {"b": ""})),
        {"p": {"labels": {"a": ""}, **on.away("a", "node")}, "q": {"labels": {"b": ""}, **on.away("b", "node")}},
        lambda w: w.delete_pod("x", grace=0), "p",
    ),
    "who avoids the pod goes": Case(
        "InterPodAffinity",
        together(nodes(("n1", {"node": "n1"})), placed("x", **on.away("a", "node")), placed("y", **on.away("b", "node"))),
        {"p": {"labels": {"a": ""}}, "q": {"labels": {"b": ""}}}, lambda w: w.delete_pod("x", grace=0), "p",
    ),
    "a pod starts to match the affinity": Case(
        "InterPodAffinity", together(nodes(("n1", {"node": "n1"})), placed("x")),
        {"p": on.near("a", "node"), "q": on.near("b", "node")}, lambda w: w.change_pod("x", labels={"a": ""}), "p",
    ),
    "a node with the topology key of near": Case(
        "InterPodAffinity", nodes(("n1", {"other": "x"})), {"p": on.near("a", "zone"), "q": on.near("b", "region")},
        lambda w: on.node(w, "n2", {"zone": "z"}), "p",
    ),
    "a node gets the topology key of near": Case(
        "InterPodAffinity NodeAffinity", together(
            nodes(("n1", {"region": "one"}), ("n2", {"region": "two", "group": "b"})), placed("x", {"a": ""}),
        ), {
            "p": {"labels": {"a": ""}, **on.near("a", "node")}, "q": {"labels": {"a": ""}, **on.near("a", "other")},
            "r": {"affinity": {**on.near("a", "region")["affinity"], **on.on_nodes("group", "b")["affinity"]}},
        }, lambda w: on.label(w, "n1", node="n1", region="two"), "p r",
    ),
    "a node loses the topology key of away": Case(
        "InterPodAffinity", together(
            nodes(("n1", {"node": "n1", "service": "a", "other": "n1"})), placed("x", {"a": ""})
        ), {name: {"labels": {"a": ""}, **on.away("a", key)} for name, key in ABC},
        lambda w: on.label(w, "n1", node=None, service="b", region="x"), "p q",
    ),
    "a node with some topology keys of away": Case(
        "InterPodAffinity", together(nodes(("n1", {"zone": "n1", "node": "n1"})), placed("x", {"a": ""})),
        {"p": on.away("a", "zone"), "q": on.away("a", "node")}, lambda w: on.node(w, "n2", {"zone": "n1"}), "p q",
    ),
}  # fmt: skip

PORTS = {
    "who holds the port goes": Case(
        "NodePorts", together(lambda w: on.node(w, "n1"), placed("x", **on.port(8080)), placed("y", **on.port(8081))),
        {"p": on.port(8080), "q": on.port(8081)}, lambda w: w.delete_pod("x", grace=0), "p",
    ),
    "a node where the port is free": Case(
        "NodePorts", together(lambda w: on.node(w, "n1"), placed("x", **on.port(8080))), {"p": on.port(8080)},
        lambda w: on.node(w, "n2"), "p",
    ),
}  # fmt: skip


def spreads(key, topology, domains=None):
    more = {} if domains is None else {"minDomains": domains}
    return {"labels": {key: ""}, **on.spread(key, topology, **more)}


PAIR = {"p": spreads("a", "node", 3), "q": spreads("b", "node", 3)}
BOTH = together(nodes(("n1", {"node": "n1"})), placed("x", {"a": ""}), placed("y", {"b": ""}))
TWO_KEYS = nodes(("n1", {"node": "n1"}), ("n2", {"zone": "z"}))
BY_KEY = {"p": spreads("a", "node", 3), "q": spreads("a", "zone", 3)}

SPREADING = {
    "one that counts is placed": Case("PodTopologySpread", BOTH, PAIR, placed("z", {"a": ""}), "p"),
    "one that counted counts no more": Case(
        "PodTopologySpread", BOTH, PAIR, lambda w: w.change_pod("x", labels={"a": None, "c": ""}), "p",
    ),
    "one that counted goes": Case("PodTopologySpread", BOTH, PAIR, lambda w: w.delete_pod("x", grace=0), "p"),
    "a node of the topology comes": Case(
        "PodTopologySpread", together(TWO_KEYS, placed("x", {"a": ""}), placed("y", {"a": ""}, "n2")),
        {"p": spreads("a", "node", 2), "q": spreads("a", "zone", 2)}, lambda w: on.node(w, "n3", {"node": "n1"}), "p",
    ),
    "a node changes its topology": Case(
        "PodTopologySpread", together(
            nodes(*((name, {"node": "x", "region": "x", "service": "a"}) for name in ("n1", "n2"))),
            *(placed(f"x{number}", {"a": ""}, "n2") for number in range(3)), placed("x", {"a": ""}),
        ), {key: spreads("a", key, 3) for key in ("node", "zone", "region", "other", "service")},
        lambda w: on.label(w, "n2", node=None, zone="x", service="b"), "node zone service",
    ),
    "a node of the topology goes": Case(
        "PodTopologySpread", together(TWO_KEYS, placed("x", {"a": ""}), placed("y", {"a": ""}, "n2")), BY_KEY,
        lambda w: on.drop(w, f"{on.NODES}/n2"), "q",
    ),
    "a node of the topology has another taint": Case(
        "PodTopologySpread", together(
            TWO_KEYS, lambda w: on.node(w, "n3", {"zone": "z"}, [NOT_READY]),
            placed("x", {"a": ""}), placed("y", {"a": ""}, "n2"),
        ), {**BY_KEY, "q": {**BY_KEY["q"], **on.tolerating("k")}}, lambda w: on.taint(w, "n3", on.no_schedule("k", "v")), "q",
    ),
}  # fmt: skip

FEATURE = "UserNamespacesHostNetworkSupport"
NEEDS_FEATURE = {"hostNetwork": True, "hostUsers": False}

FEATURES = {
    "a node declares the feature": Case(
        "NodeDeclaredFeatures", lambda w: on.node(w, "n1"), {"p": NEEDS_FEATURE},
        lambda w: on.patch(w, f"{on.NODES}/n1/status", status={"declaredFeatures": [FEATURE]}), "p",
    ),
    "a node changes otherwise": Case(
        "NodeDeclaredFeatures", lambda w: on.node(w, "n1"), {"p": NEEDS_FEATURE}, lambda w: on.label(w, "n1", foo="bar"), "",
    ),
    "the pod changes otherwise": Case(
        "NodeDeclaredFeatures", lambda w: on.node(w, "n1"), {"p": NEEDS_FEATURE},
        lambda w: w.change_pod("p", labels={"foo": "bar"}), "",
    ),
}  # fmt: skip

CASES = {**TAINTS, **NODE_AFFINITY, **RESOURCES, **NEAR, **PORTS, **SPREADING, **FEATURES}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_pods_that_an_event_wakes(case):
    play(case)
