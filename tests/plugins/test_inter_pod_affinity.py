"""Test required affinity and anti-affinity: rejected nodes, simulated pod removal, and the events that wake a pod."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from moorage.api.core import Namespace
from moorage.api.feature_gates import FeatureGates
from moorage.api.meta import ObjectMeta
from moorage.framework.events import Action, Resource
from moorage.framework.verdicts import Code, Skip, Status
from moorage.plugins.inter_pod_affinity import InterPodAffinity, InterPodAffinityArgs
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_queries import refusals, wakes

NAME = "InterPodAffinity"
FAR = Status(Code.UNRESOLVABLE, NAME, ("node(s) didn't match pod affinity rules",))
CLOSE = Status(Code.UNSCHEDULABLE, NAME, ("node(s) didn't match pod anti-affinity rules",))
UNWELCOME = Status(Code.UNSCHEDULABLE, NAME, ("node(s) didn't satisfy existing pods anti-affinity rules",))
WEB, DB = {"matchLabels": {"app": "web"}}, {"matchLabels": {"app": "db"}}
FRONT = {"app": "web", "tier": "front"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def term(selector=WEB, key="zone", **more):
    return {"topologyKey": key, "labelSelector": selector, **more}


def affine(name="new", near=(), apart=(), app="web", **more):
    stanzas = {"podAffinity": {REQUIRED: list(near)}, "podAntiAffinity": {REQUIRED: list(apart)}}
    return a_pod(name, {"app": app} if isinstance(app, str) else app, affinity=stanzas, **more)


def node(name, zone=None, **labels):
    return a_node(name, {"host": name, **({"zone": zone} if zone else {}), **labels})


def a_namespace(name, **labels):
    return Namespace(metadata=ObjectMeta(name=name, labels=labels))


def attached(snapshot):
    plugin = InterPodAffinity()
    plugin.attach(SimpleNamespace(gates=FeatureGates(), snapshot=snapshot))
    return plugin


NODES = (node("a1", "a"), node("a2", "a"), node("b1", "b"), node("x"))
WEB_ON_A1, DB_ON_A1, DB_ON_B1 = {"a1": [affine("w")]}, {"a1": [affine("d", app="db")]}, {"b1": [affine("d", app="db")]}

# the pod; placed pods; nodes rejected for affinity, for the pod's anti-affinity, for that of placed pods
CASES = {
    "nothing asked": (affine(), WEB_ON_A1, "", "", ""),
    "near": (affine(near=[term(DB)]), DB_ON_A1, "b1 x", "", ""),
    "near, on one host": (affine(near=[term(DB, "host")]), DB_ON_A1, "a2 b1 x", "", ""),
    "near a pod that does not exist": (affine(near=[term(DB)]), {}, "a1 a2 b1 x", "", ""),
    "near its own labels, as the first pod": (affine(near=[term()]), {}, "x", "", ""),
    "near its own labels, not as the first pod": (affine(near=[term()]), WEB_ON_A1, "b1 x", "", ""),
    "as the first pod while matching pods have no domain": (affine(near=[term()]), {"x": [affine("w")]}, "x", "", ""),
    "the first pod still needs every topology label": (affine(near=[term(), term(key="rack")]), {}, "a1 a2 b1 x", "", ""),
    "near one pod that matches all terms": (
        affine(near=[term(WEB), term({"matchLabels": {"tier": "front"}}, "host")]),
        {"a1": [affine("w")], "a2": [affine("f", app={"tier": "front"})], "b1": [affine("wf", app=FRONT)]},
        "a1 a2 x", "", "",
    ),
    "near in each topology, by different pods": (
        affine(near=[term(DB), term(DB, "rack")]), {"a1": [affine("d", app="db")]}, "a1 a2 b1 x", "", "",
    ),
    "apart": (affine(apart=[term(DB)]), DB_ON_A1, "", "a1 a2", ""),
    "apart, on one host": (affine(apart=[term(DB, "host")]), DB_ON_A1, "", "a1", ""),
    "apart from two kinds of pods": (
        affine(apart=[term(DB, "host"), term(WEB)]), {**DB_ON_B1, **WEB_ON_A1}, "", "a1 a2 b1", "",
    ),
    "nodes without the topology label pass": (affine(apart=[term(DB)]), {"x": [affine("d", app="db")]}, "", "", ""),
    "placed pods want it apart": (affine(), {"a1": [affine("d", apart=[term()], app="db")]}, "", "", "a1 a2"),
    "placed pods want other pods apart": (affine(), {"a1": [affine("d", apart=[term(DB)], app="db")]}, "", "", ""),
    "placed pods want it apart, on one host": (
        affine(), {"a1": [affine("d", apart=[term(key="host")], app="db")]}, "", "", "a1",
    ),
    "the first reason in upstream's order": (
        affine(near=[term(DB)], apart=[term({"matchLabels": {"app": "cache"}}, "host")]),
        {"a1": [affine("d", app="db"), affine("c", app="cache")], "a2": [affine("m", apart=[term(key="host")], app="mail")],
         "b1": [affine("c2", app="cache"), affine("m2", apart=[term(key="host")], app="mail")]},
        "b1 x", "a1", "a2",
    ),
    "a terminating pod still counts": (
        affine(apart=[term(DB)]), {"a1": [affine("d", app="db", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})]},
        "", "a1 a2", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("pod", "placed", "far", "close", "unwelcome"), CASES.values(), ids=CASES)
def test_rejects(pod, placed, far, close, unwelcome):
    wanted = {name: status for names, status in ((far, FAR), (close, CLOSE), (unwelcome, UNWELCOME)) for name in names.split()}
    assert refusals(InterPodAffinity(), pod, a_cluster(NODES, placed).snapshot) == wanted


LIST, SHOP, OTHER = (
    {"namespaces": ["shop"]},
    {"namespaceSelector": {"matchLabels": {"team": "shop"}}},
    {"namespaceSelector": {}},
)
UNLABELLED = {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}}
NAMESPACES = {  # namespaces of a term of a pod in "default"; namespaces it selects; namespaces of pods whose term selects it
    "the pod's own": ({}, "default", "default"),
    "by name": (LIST, "shop", "shop"),
    "by label": (SHOP, "shop shop-test", "shop shop-test"),
    "by name or label": ({"namespaces": ["default"], **SHOP}, "default shop shop-test", "default shop shop-test"),
    "all": (OTHER, "default shop shop-test bank unheard-of", "default shop shop-test bank unheard-of"),
    # For a placed pod, exactly those without the label. For an incoming pod, as in kube-scheduler 1.36, all of them.
    "those without a label": (UNLABELLED, "default shop shop-test bank unheard-of", "default unheard-of"),
}


@pytest.mark.parametrize(("where", "meant", "met"), NAMESPACES.values(), ids=NAMESPACES)
def test_namespaces(where, meant, met):
    for namespace in ["default", "shop", "shop-test", "bank", "unheard-of"]:
        placed = affine("placed", app="db", namespace=namespace)
        cluster = a_cluster(NODES, {"a1": [placed]})
        incoming = affine("incoming", namespace=namespace)
        selfish = a_cluster(NODES, {"a1": [affine("selfish", apart=[term(**where)], app="db")]})
        for one in (a_namespace("default"), a_namespace("bank", team="bank"), *(
            a_namespace(name, team="shop") for name in ("shop", "shop-test")
        )):  # fmt: skip
            cluster.set_namespace(one)
            selfish.set_namespace(one)
        found = refusals(InterPodAffinity(), affine(apart=[term(DB, **where)]), cluster.snapshot)
        assert found == (dict.fromkeys(["a1", "a2"], CLOSE) if namespace in meant.split() else {})
        found = refusals(InterPodAffinity(), incoming, selfish.snapshot)
        assert found == (dict.fromkeys(["a1", "a2"], UNWELCOME) if namespace in met.split() else {})


def test_pods_that_no_term_concerns_are_skipped():
    plugin = InterPodAffinity()
    snapshot = a_cluster(NODES, {"a1": [affine("d", apart=[term(DB)])], "x": [affine("y", apart=[term(key="zone")])]}).snapshot
    assert isinstance(plugin.pre_filter(affine(), snapshot), Skip)
    assert not isinstance(plugin.pre_filter(affine(app="db"), snapshot), Skip)
    assert not isinstance(plugin.pre_filter(affine(near=[term()]), snapshot), Skip)


def test_a_pod_with_an_invalid_term_is_rejected():
    broken = affine(near=[term({"matchExpressions": [{"key": "app", "operator": "Like"}]})])
    reason = 'parsing pod: requiredAffinityTerms: "Like" is not a valid label selector operator'
    assert refusals(InterPodAffinity(), broken, a_cluster(NODES[:1]).snapshot) == {
        "a1": Status(Code.UNRESOLVABLE, NAME, (reason,))
    }


def test_placed_pods_with_an_invalid_term_have_no_terms():
    broken = affine("broken", apart=[term({"matchExpressions": [{"key": "app", "operator": "Like"}]})])
    assert refusals(InterPodAffinity(), affine(), a_cluster(NODES, {"a1": [broken]}).snapshot) == {}


@pytest.mark.parametrize(("weight", "good"), [(0, True), (100, True), (-1, False), (101, False)])
def test_arguments(weight, good):
    found = InterPodAffinityArgs(hard_pod_affinity_weight=weight).faults("args", FeatureGates())
    said = [f"args.hardPodAffinityWeight: Invalid value: {weight}: not in valid range [0, 100]"]
    assert [str(fault) for fault in found] == ([] if good else said)


# -- a reference implementation -------------------------------------------------------------------------------------------

LABELS = [{}, {"app": "web"}, {"app": "db"}, {"app": "web", "tier": "front"}]
TEAMS = {"default": {"team": "a"}, "shop": {"team": "b"}, "bank": {}}


def selects(selector, labels):
    if selector is None:
        return False
    for one in selector.get("matchExpressions", []):
        if one["operator"] == "In" and labels.get(one["key"]) not in one["values"]:
            return False
        if one["operator"] == "NotIn" and labels.get(one["key"]) in one["values"]:
            return False
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def term_matches(term, holder, pod):
    """Return whether a term of ``holder`` matches ``pod``."""
    over = term.get("namespaceSelector")
    named = term.get("namespaces") or ([holder.namespace] if over is None else [])
    return (pod.namespace in named or selects(over, TEAMS[pod.namespace])) and selects(term["labelSelector"], pod.labels)


def terms_of(pod, kind):
    """Return a generated pod's terms as they were given."""
    return WRITTEN[pod.uid][kind]


def reference_reasons(pod, nodes, placed):
    """Return the reason for each rejected node, by name."""
    everyone = [(n, p) for n in nodes for p in placed.get(n.name, [])]
    near, apart = terms_of(pod, "near"), terms_of(pod, "apart")
    wanted = [(n, p) for n, p in everyone if near and all(term_matches(t, pod, p) for t in near)]
    anywhere = any(t["topologyKey"] in n.labels for n, _ in wanted for t in near)
    alone = not anywhere and all(term_matches(t, pod, pod) for t in near)

    def together(n, m, key):
        return key in n.labels and n.labels[key] == m.labels.get(key)

    refused = {}
    for n in nodes:
        labelled = all(t["topologyKey"] in n.labels for t in near)
        met = all(any(together(n, m, t["topologyKey"]) for m, _ in wanted) for t in near)
        if not met and not (alone and labelled):
            refused[n.name] = FAR
        elif any(term_matches(t, pod, p) and together(n, m, t["topologyKey"]) for t in apart for m, p in everyone):
            refused[n.name] = CLOSE
        elif any(
            term_matches(t, p, pod) and together(n, m, t["topologyKey"]) for m, p in everyone for t in terms_of(p, "apart")
        ):
            refused[n.name] = UNWELCOME
    return refused


NOT_FRONT = {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["front"]}]}
terms = st.builds(
    lambda selector, key, where: term(selector, key, **where),
    st.sampled_from(
        [WEB, WEB, DB, None, {}, {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["front"]}]}]
    ),
    st.sampled_from(["zone", "zone", "host", "rack"]),
    st.sampled_from([{}, {}, LIST, OTHER, {"namespaceSelector": {"matchLabels": {"team": "a"}}, "namespaces": ["bank"]}]),
)
WRITTEN = {}


def drawn_pod(uid, labels, namespace, near, apart, place=""):
    pod = affine(uid, near, apart, app=labels, namespace=namespace, uid=uid, nodeName=place)
    WRITTEN[uid] = {"near": near, "apart": apart}
    return pod


namespaces = st.sampled_from(["default", "default", "shop", "bank"])
waiting_pods = st.builds(
    drawn_pod, st.just("new"), st.sampled_from(LABELS), namespaces, st.lists(terms, max_size=2), st.lists(terms, max_size=2)
)
node_lists = st.lists(
    st.tuples(st.sampled_from([None, "a", "b", "c"]), st.sampled_from([{}, {"rack": "r"}])), min_size=1, max_size=5
).map(lambda all_: [node(f"n{i}", zone, **rack) for i, (zone, rack) in enumerate(all_)])
wheres = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(LABELS), namespaces, st.lists(terms, max_size=1), st.lists(terms, max_size=2)),
    max_size=6,
)


def settle(nodes, where):
    """Build pods on nodes, by node name, from generated data."""
    placed = {}
    for i, (number, labels, namespace, near, apart) in enumerate(where):
        name = nodes[number % len(nodes)].name
        placed.setdefault(name, []).append(drawn_pod(f"p{i}", labels, namespace, near, apart, name))
    return placed


def clustered(nodes, placed):
    cluster = a_cluster(nodes, placed)
    for name, labels in TEAMS.items():
        cluster.set_namespace(a_namespace(name, **labels))
    return cluster


@settings(max_examples=50, deadline=None)
@given(node_lists, wheres, waiting_pods, st.data())
def test_agrees_with_a_reference_implementation(nodes, where, pod, data):
    placed = settle(nodes, where)
    snapshot = clustered(nodes, placed).snapshot
    said = reference_reasons(pod, nodes, placed)
    assert refusals(InterPodAffinity(), pod, snapshot) == said
    part = [n.name for n in nodes if data.draw(st.booleans())]
    view = snapshot.nodes.only(snapshot.nodes.named(part))
    assert refusals(InterPodAffinity(), pod, view) == {name: status for name, status in said.items() if name in part}


# -- simulated removal and addition ---------------------------------------------------------------------------------------


def judged(plugin, state, snapshot):
    """Return each row's reason under this state; no reasons if the plugin skipped the pod."""
    reasons = [None] * len(snapshot.table)
    for reject in () if isinstance(state, Skip) else plugin.filter(state, snapshot.nodes):
        for row in np.flatnonzero(reject.rows):
            assert reasons[row] is None
            reasons[row] = reject.reason
    return reasons


@settings(max_examples=50, deadline=None)
@given(node_lists, wheres, waiting_pods, st.integers(0, 4), wheres, st.data())
def test_add_and_remove_pod_equal_a_changed_cluster(nodes, where, pod, number, comers, data):
    placed = settle(nodes, where)
    cluster = clustered(nodes, placed)
    snapshot, plugin = cluster.snapshot, InterPodAffinity()
    row = number % len(nodes)
    before = state = plugin.pre_filter(pod, snapshot)
    assume(not isinstance(before, Skip))
    reasons_before = judged(plugin, before, snapshot)
    goers = data.draw(st.lists(st.sampled_from(placed.get(nodes[row].name) or [None]), unique=True))
    with cluster.what_if(row) as table:
        for other in filter(None, goers):
            table.remove_pod(row, other)
            state = plugin.remove_pod(state, pod, other, snapshot.nodes.one(row))
        for i, (_, labels, namespace, near, apart) in enumerate(comers[:3]):
            other = drawn_pod(f"comer{i}", labels, namespace, near, apart)
            table.add_pod(row, other)
            state = plugin.add_pod(state, pod, other, snapshot.nodes.one(row))
        assert judged(plugin, state, snapshot) == judged(plugin, plugin.pre_filter(pod, snapshot), snapshot)
        assert judged(plugin, before, snapshot) == reasons_before


# -- wakes ----------------------------------------------------------------------------------------------------------------

NEAR, APART, BOTH_APART = affine("near", near=[term()]), affine("apart", apart=[term()]), affine("b", apart=[term(), term(DB)])
PLACED, PLACED_DB = affine("w", nodeName="a1"), affine("w", app="db", nodeName="a1")
SELFISH = affine("s", apart=[term()], app="db", nodeName="a1")
FRESH = affine("plain")

WAKES = {  # the pod, resource, action, old, new, wakes?
    "a matching pod is added": (NEAR, Resource.ASSIGNED_POD, Action.ADD, None, PLACED, True),
    "a matching pod is added without a node": (NEAR, Resource.UNSCHEDULED_POD, Action.ADD, None, affine("w"), False),
    "a matching pod is added with a nominated node": (
        NEAR, Resource.UNSCHEDULED_POD, Action.ADD, None, affine("w", status={"nominatedNodeName": "n"}), True,
    ),
    "another pod is added": (NEAR, Resource.ASSIGNED_POD, Action.ADD, None, PLACED_DB, False),
    "a pod starts to match": (NEAR, Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL, PLACED_DB, PLACED, True),
    "the last other matching pod is deleted, so the pod may be the first": (
        NEAR, Resource.ASSIGNED_POD, Action.DELETE, PLACED, None, True,
    ),
    "a matching pod is deleted, and the pod does not match itself": (
        affine("n", near=[term()], app="db"), Resource.ASSIGNED_POD, Action.DELETE, PLACED, None, False,
    ),
    "apart: a matching pod is added": (APART, Resource.ASSIGNED_POD, Action.ADD, None, PLACED, False),
    "apart: a matching pod is deleted": (APART, Resource.ASSIGNED_POD, Action.DELETE, PLACED, None, True),
    "apart: a pod that matches one of two terms is deleted": (
        BOTH_APART, Resource.ASSIGNED_POD, Action.DELETE, PLACED, None, True,
    ),
    "apart: another pod is deleted": (APART, Resource.ASSIGNED_POD, Action.DELETE, PLACED_DB, None, False),
    "apart: a pod stops matching": (APART, Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL, PLACED, PLACED_DB, True),
    "apart: a pod starts to match": (APART, Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL, PLACED_DB, PLACED, False),
    "a pod whose anti-affinity matched it is deleted": (FRESH, Resource.ASSIGNED_POD, Action.DELETE, SELFISH, None, True),
    "a pod whose anti-affinity matched others is deleted": (
        affine("db", app="db"), Resource.ASSIGNED_POD, Action.DELETE, SELFISH, None, False,
    ),
    "its own labels change": (FRESH, Resource.UNSCHEDULED_POD, Action.UPDATE_POD_LABEL, FRESH, affine("plain", app="db"), True),
    "a node with the label is added": (NEAR, Resource.NODE, Action.ADD, None, node("n", "a"), True),
    "a node without the label is added": (NEAR, Resource.NODE, Action.ADD, None, node("n"), False),
    "apart: any node is added": (APART, Resource.NODE, Action.ADD, None, node("n"), True),
    "any node is added, where placed pods want it apart": (FRESH, Resource.NODE, Action.ADD, None, node("n"), True),
    "a node gets the label": (NEAR, Resource.NODE, Action.UPDATE_NODE_LABEL, node("n"), node("n", "a"), True),
    "a node changes zones": (NEAR, Resource.NODE, Action.UPDATE_NODE_LABEL, node("n", "a"), node("n", "b"), True),
    "a node gets another label": (NEAR, Resource.NODE, Action.UPDATE_NODE_LABEL, node("n", "a"), node("n", "a", x="y"), False),
    "apart: a node gets the label": (APART, Resource.NODE, Action.UPDATE_NODE_LABEL, node("n"), node("n", "a"), False),
    "apart: a node loses the label": (APART, Resource.NODE, Action.UPDATE_NODE_LABEL, node("n", "a"), node("n"), True),
    "apart: a node changes zones": (APART, Resource.NODE, Action.UPDATE_NODE_LABEL, node("n", "a"), node("n", "b"), True),
    "a node is deleted": (APART, Resource.NODE, Action.DELETE, node("n", "a"), None, False),
    "a node's taints change": (APART, Resource.NODE, Action.UPDATE_NODE_TAINT, node("n", "a"), node("n", "b"), False),
}  # fmt: skip


@pytest.mark.parametrize(("pod", "resource", "action", "old", "new", "woken"), WAKES.values(), ids=WAKES)
def test_wakes(pod, resource, action, old, new, woken):
    snapshot = a_cluster(NODES, {"a1": [PLACED_DB]}).snapshot
    assert wakes(attached(snapshot), pod, resource, action, old, new) is woken


def test_wakes_by_the_labels_of_namespaces():
    cluster = clustered(NODES, {})
    pod = affine("n", near=[term(DB, namespaceSelector={"matchLabels": {"team": "b"}})])
    for namespace, woken in (("shop", True), ("bank", False)):
        comer = affine("d", app="db", namespace=namespace, nodeName="a1")
        assert wakes(attached(cluster.snapshot), pod, Resource.ASSIGNED_POD, Action.ADD, None, comer) is woken
        assert wakes(InterPodAffinity(), pod, Resource.ASSIGNED_POD, Action.ADD, None, comer), (
            "without a snapshot the hint wakes"
        )


def test_a_hint_without_a_snapshot_wakes():
    selfish = affine("s", apart=[term(namespaceSelector={"matchLabels": {"x": "y"}})], app="db", nodeName="a1")
    assert wakes(InterPodAffinity(), FRESH, Resource.ASSIGNED_POD, Action.DELETE, selfish, None)
    assert wakes(InterPodAffinity(), FRESH, Resource.NODE, Action.UPDATE_NODE_LABEL, node("n", "a"), node("n", "b"))


@st.composite
def events(draw, nodes, placed):
    """Generate (resource, action, old, new) for an existing object of the cluster or a new one."""
    pods = [pod for on_node in placed.values() for pod in on_node]
    kind = draw(st.sampled_from(["pod comes", "pod goes", "pod changes", "node comes", "relabelled"]))
    if kind == "pod comes":
        place = draw(st.sampled_from(nodes)).name
        return (
            Resource.ASSIGNED_POD,
            Action.ADD,
            None,
            drawn_pod("comer", draw(st.sampled_from(LABELS)), draw(namespaces), [], [], place),
        )
    if kind == "node comes":
        return Resource.NODE, Action.ADD, None, draw(node_lists)[0]
    if kind == "relabelled":
        old = draw(st.sampled_from(nodes))
        labels = draw(node_lists)[0].labels
        return Resource.NODE, Action.UPDATE_NODE_LABEL, old, a_node(old.name, {**labels, "host": old.name})
    assume(pods)
    old = draw(st.sampled_from(pods))
    if kind == "pod goes":
        return Resource.ASSIGNED_POD, Action.DELETE, old, None
    written = WRITTEN[old.uid]
    new = drawn_pod(
        old.uid, draw(st.sampled_from(LABELS)), old.namespace, written["near"], written["apart"], old.spec.node_name
    )
    return Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL, old, new


@settings(max_examples=50, deadline=None)
@given(node_lists, wheres, waiting_pods, st.data())
def test_every_change_that_lets_the_pod_fit_wakes_it(nodes, where, pod, data):
    placed = settle(nodes, where)
    cluster = clustered(nodes, placed)
    plugin = attached(cluster.snapshot)
    before = set(refusals(plugin, pod, cluster.snapshot))
    assume(before)
    event = resource, _, old, new = data.draw(events(nodes, placed))
    if resource is Resource.NODE and old is None:
        new = a_node("comer", {**new.labels, "host": "comer"})
        event = resource, Action.ADD, None, new
    open_before = set(cluster.table.row_of) - before
    if resource is Resource.NODE:
        cluster.set_node(new)
    elif new is None:
        cluster.remove_pod(old.uid)
    else:
        cluster.place(new, new.spec.node_name)
    opened = set(cluster.table.row_of) - set(refusals(plugin, pod, cluster.snapshot)) - open_before
    if opened:
        assert wakes(plugin, pod, *event)


# -- signature ------------------------------------------------------------------------------------------------------------

READ = {  # two pods that the plugin may treat differently
    "labels": (affine(), affine(app="db")),
    "namespace": (affine(), affine(namespace="other")),
    "affinity": (affine(near=[term()]), affine(near=[term(DB)])),
    "anti-affinity": (affine(apart=[term()]), affine(apart=[term(key="host")])),
}


@pytest.mark.parametrize(("one", "other"), READ.values(), ids=READ)
def test_the_signature_covers_what_the_plugin_reads(one, other):
    assert InterPodAffinity().reuse.signature(one) != InterPodAffinity().reuse.signature(other)
    assert {hash(value) for value in InterPodAffinity().reuse.signature(one).values()}
