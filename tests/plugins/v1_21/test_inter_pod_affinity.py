"""Test InterPodAffinity in 1.21: two reasons for an affinity rejection, and every pod is filtered and scored."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.core import Namespace
from moorage.api.feature_gates import FeatureGates
from moorage.api.meta import ObjectMeta
from moorage.framework.verdicts import Code, Status
from moorage.plugins.earlier.inter_pod_affinity import InterPodAffinityArgsV121, InterPodAffinityV121
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import final_scores, refusals

BOTH = "node(s) didn't match pod affinity/anti-affinity rules"


def no(code, second):
    return Status(code, "InterPodAffinity", (BOTH, second))


FAR = no(Code.UNRESOLVABLE, "node(s) didn't match pod affinity rules")
CLOSE = no(Code.UNSCHEDULABLE, "node(s) didn't match pod anti-affinity rules")
UNWELCOME = no(Code.UNSCHEDULABLE, "node(s) didn't satisfy existing pods anti-affinity rules")
WEB, DB = {"matchLabels": {"app": "web"}}, {"matchLabels": {"app": "db"}}
REQUIRED, PREFERRED = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"


def term(selector=WEB, key="zone", **more):
    return {"topologyKey": key, "labelSelector": selector, **more}


def affine(name="new", near=(), apart=(), app="web", liked=(), disliked=(), **more):
    """Return a pod; ``liked`` and ``disliked`` are pairs of a weight and a term."""

    def stanza(required, preferred):
        return {REQUIRED: list(required), PREFERRED: [{"weight": w, "podAffinityTerm": t} for w, t in preferred]}

    stanzas = {"podAffinity": stanza(near, liked), "podAntiAffinity": stanza(apart, disliked)}
    return a_pod(name, {"app": app}, affinity=stanzas, **more)


def node(name, zone=None):
    return a_node(name, {"host": name, **({"zone": zone} if zone else {})})


NODES = (node("a1", "a"), node("a2", "a"), node("b1", "b"), node("x"))
DB_ON_A1 = {"a1": [affine("d", app="db")]}
# the pod; placed pods; nodes rejected for affinity, for the pod's anti-affinity, for that of placed pods
CASES = {
    "no affinity": (affine(), DB_ON_A1, "", "", ""),
    "near": (affine(near=[term(DB)]), DB_ON_A1, "b1 x", "", ""),
    "near, on one host": (affine(near=[term(DB, "host")]), DB_ON_A1, "a2 b1 x", "", ""),
    "near its own labels, as the first pod": (affine(near=[term()]), {}, "x", "", ""),
    "near a pod that does not exist": (affine(near=[term(DB)]), {}, "a1 a2 b1 x", "", ""),
    "apart": (affine(apart=[term(DB)]), DB_ON_A1, "", "a1 a2", ""),
    "placed pods want it apart": (affine(), {"a1": [affine("d", apart=[term()], app="db")]}, "", "", "a1 a2"),
    "each node's first reason": (
        affine(near=[term(DB)], apart=[term({"matchLabels": {"app": "cache"}}, "host")]),
        {"a1": [affine("d", app="db"), affine("c", app="cache")], "a2": [affine("m", apart=[term(key="host")], app="mail")]},
        "b1 x", "a1", "a2",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("pod", "placed", "far", "close", "unwelcome"), CASES.values(), ids=CASES)
def test_rejects_with_two_reasons(pod, placed, far, close, unwelcome):
    wanted = {name: status for names, status in ((far, FAR), (close, CLOSE), (unwelcome, UNWELCOME)) for name in names.split()}
    assert refusals(InterPodAffinityV121(), pod, a_cluster(NODES, placed).snapshot) == wanted


def test_a_pod_with_an_invalid_term_is_rejected():
    broken = affine(near=[term({"matchExpressions": [{"key": "app", "operator": "Like"}]})])
    found = refusals(InterPodAffinityV121(), broken, a_cluster(NODES[:1]).snapshot)
    assert found["a1"].code is Code.UNRESOLVABLE
    assert found["a1"].message.startswith("parsing pod: ")


BY_LABEL = {"namespaceSelector": {"matchLabels": {"team": "shop"}}}
UNLABELLED = {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}}
NAMESPACES = {  # the term's namespaces, the namespaces that it selects
    "the pod's own": ({}, "default"),
    "by name": ({"namespaces": ["shop"]}, "shop"),
    "by label": (BY_LABEL, "shop"),
    "by name or label": ({"namespaces": ["default"], **BY_LABEL}, "default shop"),
    "all": ({"namespaceSelector": {}}, "default shop bank"),
    "those without a label": (UNLABELLED, "default"),
}


@pytest.mark.parametrize(("where", "meant"), NAMESPACES.values(), ids=NAMESPACES)
@pytest.mark.parametrize("namespace", ["default", "shop", "bank"])
def test_namespaces(where, meant, namespace):
    cluster = a_cluster(NODES, {"a1": [affine("placed", app="db", namespace=namespace)]})
    for name, labels in (("default", {}), ("shop", {"team": "shop"}), ("bank", {"team": "bank"})):
        cluster.set_namespace(Namespace(metadata=ObjectMeta(name=name, labels=labels)))
    found = refusals(InterPodAffinityV121(), affine(apart=[term(DB, **where)]), cluster.snapshot)
    assert found == (dict.fromkeys(["a1", "a2"], CLOSE) if namespace in meant.split() else {})


# -- scores -------------------------------------------------------------------------------------------------------------

LIKES_WEB = affine("d", app="db", liked=[(7, term())])
SCORED = {  # the pod, placed pods, scores of a1, a2, b1 and x
    "no preference": (affine(), {"a1": [affine("w")]}, [0, 0, 0, 0]),
    "it likes": (affine(liked=[(5, term(DB))]), DB_ON_A1, [100, 100, 0, 0]),
    "it dislikes": (affine(disliked=[(5, term(DB))]), DB_ON_A1, [0, 0, 100, 100]),
    "a preference for a host as well": (affine(liked=[(5, term(DB)), (5, term(DB, "host"))]), DB_ON_A1, [100, 50, 0, 0]),
    "it is liked": (affine(), {"b1": [LIKES_WEB]}, [0, 0, 100, 0]),
    "it is disliked": (affine(), {"b1": [affine("d", app="db", disliked=[(7, term())])]}, [100, 100, 0, 100]),
    "it is required": (affine(), {"b1": [affine("d", app="db", near=[term()])]}, [0, 0, 100, 0]),
    "placed pods prefer it": (affine(app="mail"), {"b1": [LIKES_WEB]}, [0, 0, 0, 0]),
    "two of them count twice": (
        affine(liked=[(1, term(DB, "host"))]),
        {"a1": [affine("1", app="db"), affine("2", app="db")], "b1": [affine("3", app="db")]}, [100, 0, 50, 0],
    ),
    "scores are truncated": (
        affine(liked=[(1, term(DB, "host"))]),
        {"a1": [affine(str(at), app="db") for at in range(3)], "b1": [affine("4", app="db")]}, [100, 0, 33, 0],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("pod", "placed", "scores"), SCORED.values(), ids=SCORED)
def test_scores(pod, placed, scores):
    assert list(final_scores(InterPodAffinityV121(), pod, a_cluster(NODES, placed).snapshot).values()) == scores


@pytest.mark.parametrize(("weight", "scores"), [(0, [0, 0, 100, 0]), (1, [20, 20, 100, 0]), (10, [100, 100, 50, 0])])
def test_the_weight_of_required_affinity(weight, scores):
    rule = InterPodAffinityV121(InterPodAffinityArgsV121(hard_pod_affinity_weight=weight))
    placed = {"a1": [affine("d", app="db", near=[term()])], "b1": [affine("e", app="db", liked=[(5, term())])]}
    assert list(final_scores(rule, affine(), a_cluster(NODES, placed).snapshot).values()) == scores


@pytest.mark.parametrize(("weight", "good"), [(-1, False), (0, True), (100, True), (101, False)])
def test_the_weight_has_a_range(weight, good):
    args = InterPodAffinityArgsV121(hard_pod_affinity_weight=weight)
    faults = args.faults("args", FeatureGates(release="1.21"))
    assert [fault.field for fault in faults] == ([] if good else ["args.hardPodAffinityWeight"])


TERMS = st.lists(st.builds(term, st.sampled_from([WEB, DB]), st.sampled_from(["zone", "host"])), max_size=1)
WEIGHED = st.lists(st.tuples(st.integers(1, 9), st.builds(term, st.sampled_from([WEB, DB]), st.just("zone"))), max_size=1)
PODS = st.fixed_dictionaries(
    {"app": st.sampled_from(["web", "db"]), "apart": TERMS, "liked": WEIGHED, "disliked": WEIGHED, "near": TERMS}
)


def term_matches(one, other, here, there):
    """Return whether a term matches a pod of app ``other`` on node ``there``, for node ``here``."""
    key = one["topologyKey"]
    same = key in here.metadata.labels and here.metadata.labels[key] == there.metadata.labels.get(key)
    return same and one["labelSelector"]["matchLabels"]["app"] == other


@settings(max_examples=40, deadline=None)
@given(PODS, st.lists(st.tuples(PODS, st.integers(0, 3)), max_size=4))
def test_agrees_with_a_reference_implementation(asked, placed):
    pods = {n.metadata.name: [] for n in NODES}
    for at, (other, where) in enumerate(placed):
        pods[NODES[where].metadata.name].append(affine(f"p{at}", **other))
    snapshot = a_cluster(NODES, pods).snapshot
    pod = affine(**asked)
    refused = {}
    for here in NODES:
        others = [(other, NODES[where]) for other, where in placed]
        near = all(any(term_matches(t, other["app"], here, there) for other, there in others) for t in asked["near"])
        first = all(
            t["topologyKey"] in here.metadata.labels and t["labelSelector"]["matchLabels"]["app"] == asked["app"]
            for t in asked["near"]
        ) and not any(term_matches(t, other["app"], there, there) for t, (other, there) in product(asked["near"], others))
        if asked["near"] and not near and not first:
            refused[here.metadata.name] = FAR
        elif any(term_matches(t, other["app"], here, there) for t, (other, there) in product(asked["apart"], others)):
            refused[here.metadata.name] = CLOSE
        elif any(term_matches(t, asked["app"], here, there) for other, there in others for t in other["apart"]):
            refused[here.metadata.name] = UNWELCOME
    assert refusals(InterPodAffinityV121(), pod, snapshot) == refused
    raw = []
    for here in NODES:
        total = 0
        for other, there in ((other, NODES[where]) for other, where in placed):
            total += sum(w * term_matches(t, other["app"], here, there) for w, t in asked["liked"])
            total -= sum(w * term_matches(t, other["app"], here, there) for w, t in asked["disliked"])
            total += sum(term_matches(t, asked["app"], here, there) for t in other["near"])
            total += sum(w * term_matches(t, asked["app"], here, there) for w, t in other["liked"])
            total -= sum(w * term_matches(t, asked["app"], here, there) for w, t in other["disliked"])
        raw.append(total)
    span = max(raw) - min(raw)
    scores = [int(100.0 * ((one - min(raw)) / span)) if span else 0 for one in raw]
    assert list(final_scores(InterPodAffinityV121(), pod, snapshot).values()) == scores


def test_satisfies_the_plugin_contract():
    check_plugin(InterPodAffinityV121())
