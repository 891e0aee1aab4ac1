"""Test how preferred pod affinity and anti-affinity add up in both directions, and how the sums are scaled to 0-100."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.core import Namespace
from moorage.api.meta import ObjectMeta
from moorage.plugins.affinity.affinity_counts import normalize_weights
from moorage.plugins.inter_pod_affinity import InterPodAffinity, InterPodAffinityArgs
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_queries import final_scores

WEB, DB = {"matchLabels": {"app": "web"}}, {"matchLabels": {"app": "db"}}
KINDS = ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution")


def term(selector=WEB, key="zone", **more):
    return {"topologyKey": key, "labelSelector": selector, **more}


def with_terms(name="new", near=(), apart=(), *, needs=(), app="web", **more):
    """Return a pod with preferred and required affinity terms."""
    weighed = [[{"weight": weight, "podAffinityTerm": one} for weight, one in terms] for terms in (near, apart)]
    stanzas = {"podAffinity": {KINDS[0]: list(needs), KINDS[1]: weighed[0]}, "podAntiAffinity": {KINDS[1]: weighed[1]}}
    return a_pod(name, {"app": app}, affinity=stanzas, **more)


def node(name, zone=None):
    return a_node(name, {"host": name, **({"zone": zone} if zone else {})})


def scoring(**args):
    return InterPodAffinity(InterPodAffinityArgs(**args))


NODES = (node("a1", "a"), node("b1", "b"), node("c1", "c"), node("x"))
PLAIN, DATABASE = with_terms("p"), with_terms("d", app="db")

# the pod; pods placed; arguments; scores
CASES = {
    "nothing preferred": (with_terms(), {"a1": [PLAIN]}, {}, None),
    "no pod to be near": (with_terms(near=[(5, term(DB))]), {"a1": [PLAIN]}, {}, None),
    "near": (with_terms(near=[(5, term(DB))]), {"a1": [DATABASE]}, {}, {"a1": 100, "b1": 0, "c1": 0, "x": 0}),
    "near, on nodes without the label": (with_terms(near=[(5, term(DB))]), {"x": [DATABASE]}, {}, None),
    "more pods weigh more": (
        with_terms(near=[(5, term(DB))]),
        {"a1": [DATABASE, with_terms("d2", app="db")], "b1": [with_terms("d3", app="db")]}, {},
        {"a1": 100, "b1": 50, "c1": 0, "x": 0},
    ),
    "apart": (with_terms(apart=[(5, term(DB))]), {"a1": [DATABASE]}, {}, {"a1": 0, "b1": 100, "c1": 100, "x": 100}),
    "affinity and anti-affinity cancel": (
        with_terms(near=[(6, term(DB))], apart=[(2, term(WEB))]), {"a1": [DATABASE], "b1": [PLAIN]}, {},
        {"a1": 100, "b1": 0, "c1": 25, "x": 25},
    ),
    "a sum of zero still gets scores": (
        with_terms(near=[(5, term(DB))], apart=[(5, term(DB))]), {"a1": [DATABASE]}, {}, {"a1": 0, "b1": 0, "c1": 0, "x": 0},
    ),
    "each term by itself": (
        with_terms(near=[(3, term(DB)), (1, term(WEB, "host"))]), {"a1": [DATABASE], "b1": [PLAIN]}, {},
        {"a1": 100, "b1": 33, "c1": 0, "x": 0},
    ),
    "placed pods prefer it near": (
        with_terms(), {"a1": [with_terms("d", near=[(5, term())])]}, {}, {"a1": 100, "b1": 0, "c1": 0, "x": 0},
    ),
    "placed pods prefer it apart": (
        with_terms(), {"a1": [with_terms("d", apart=[(5, term())])]}, {}, {"a1": 0, "b1": 100, "c1": 100, "x": 100},
    ),
    "placed pods require it near": (
        with_terms(), {"a1": [with_terms("d", needs=[term()])], "b1": [with_terms("e", near=[(4, term())])]}, {},
        {"a1": 25, "b1": 100, "c1": 0, "x": 0},
    ),
    "placed pods require it near, with a higher weight": (
        with_terms(), {"a1": [with_terms("d", needs=[term()])], "b1": [with_terms("e", near=[(4, term())])]},
        {"hard_pod_affinity_weight": 8}, {"a1": 100, "b1": 50, "c1": 0, "x": 0},
    ),
    "placed pods require it near, with weight zero": (
        with_terms(), {"a1": [with_terms("d", needs=[term()])]}, {"hard_pod_affinity_weight": 0}, None,
    ),
    "placed pods' preferences ignored for pods without any": (
        with_terms(), {"a1": [with_terms("d", near=[(5, term())])]}, {"ignore_preferred_terms_of_existing_pods": True}, None,
    ),
    "placed pods' preferences used for pods with some": (
        with_terms(near=[(1, term(DB))]), {"a1": [with_terms("d", near=[(5, term())])]},
        {"ignore_preferred_terms_of_existing_pods": True}, {"a1": 100, "b1": 0, "c1": 0, "x": 0},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("pod", "placed", "args", "scores"), CASES.values(), ids=CASES)
def test_scores(pod, placed, args, scores):
    assert final_scores(scoring(**args), pod, a_cluster(NODES, placed).snapshot) == scores


def test_the_lowest_and_highest_feasible_nodes_get_0_and_100():
    snapshot = a_cluster(NODES, {"a1": [DATABASE, with_terms("d2", app="db")], "b1": [with_terms("d3", app="db")]}).snapshot
    part = snapshot.nodes.only(snapshot.nodes.named(["b1", "c1"]))
    assert final_scores(scoring(), with_terms(near=[(5, term(DB))]), part) == {"b1": 100, "c1": 0}


def test_namespace_selectors():
    cluster = a_cluster(
        NODES, {"a1": [with_terms("d", app="db", namespace="shop")], "b1": [with_terms("d", app="db", namespace="bank")]}
    )
    for name in ("shop", "bank"):
        cluster.set_namespace(Namespace(metadata=ObjectMeta(name=name, labels={"team": name})))
    pod = with_terms(near=[(1, term(DB, namespaceSelector={"matchLabels": {"team": "shop"}}))])
    assert final_scores(scoring(), pod, cluster.snapshot) == {"a1": 100, "b1": 0, "c1": 0, "x": 0}
    wanted = with_terms("w", near=[(1, term(WEB, namespaceSelector={"matchLabels": {"team": "shop"}}))])
    cluster.place(wanted, "c1")
    assert final_scores(scoring(), with_terms(namespace="shop"), cluster.snapshot) == {"a1": 0, "b1": 0, "c1": 100, "x": 0}
    assert final_scores(scoring(), with_terms(namespace="bank"), cluster.snapshot) is None


STRETCHED = {
    "none": ([], []),
    "alike": ([7, 7], [0, 0]),
    "below zero": ([-10, 0, 30], [0, 25, 100]),
    "rounded down": ([0, 1, 3], [0, 33, 100]),
    # 29 / 100 * 100 is 28.999999999999996 in floating point, and upstream truncates it
    "floating point truncates": ([0, 29, 100], [0, 28, 100]),
}


@pytest.mark.parametrize(("raw", "stretched"), STRETCHED.values(), ids=STRETCHED)
def test_scaling(raw, stretched):
    assert normalize_weights(np.array(raw, dtype=np.int64)).tolist() == stretched


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-40, 90), min_size=2, max_size=30), st.sampled_from([1, 20, 60]))
def test_many_nodes_are_scaled_as_few(raw, times):
    """Sums of many nodes are scaled once each and looked up."""
    least, span = min(raw), max(raw) - min(raw)
    plain = [int(100.0 * (float(at - least) / float(span))) if span else 0 for at in raw]
    assert normalize_weights(np.array(raw * times, dtype=np.int64)).tolist() == plain * times


# -- a reference implementation -------------------------------------------------------------------------------------------


def selected(one, holder, pod):
    named = one.get("namespaces", [holder.namespace])
    return pod.namespace in named and one["labelSelector"]["matchLabels"].items() <= pod.labels.items()


def reference_scores(pod, nodes, placed, hard_weight):
    """Return raw scores by node name; None where no term matched any pod."""
    raw, met = dict.fromkeys((n.name for n in nodes), 0), False
    for m in nodes:
        for other in placed.get(m.name, []):
            weights = [(w, one) for sign in (0, 1) for w, one in signed(pod, sign) if selected(one, pod, other)]
            weights += [(w, one) for sign in (0, 1) for w, one in signed(other, sign) if selected(one, other, pod)]
            weights += [(hard_weight, one) for one in WRITTEN[other.uid][2] if hard_weight and selected(one, other, pod)]
            for weight, one in weights:
                key = one["topologyKey"]
                met |= key in m.labels
                for n in nodes:
                    if key in m.labels and n.labels.get(key) == m.labels[key]:
                        raw[n.name] += weight
    return raw if met else None


def signed(pod, which):
    return [(-weight if which else weight, one) for weight, one in WRITTEN[pod.uid][which]]


WRITTEN = {}
terms = st.builds(
    lambda selector, key, where: term(selector, key, **where),
    st.sampled_from([WEB, DB]), st.sampled_from(["zone", "host", "rack"]), st.sampled_from([{}, {"namespaces": ["shop"]}]),
)  # fmt: skip
weighted = st.lists(st.tuples(st.integers(1, 4), terms), max_size=2)


def drawn(uid, app, namespace, near, apart, needs):
    WRITTEN[uid] = (near, apart, needs)
    return with_terms(uid, near, apart, needs=needs, app=app, namespace=namespace, uid=uid)


pods = st.tuples(
    st.sampled_from(["web", "db"]), st.sampled_from(["default", "shop"]), weighted, weighted, st.lists(terms, max_size=1)
)


@settings(max_examples=50, deadline=None)
@given(
    pods, st.lists(st.sampled_from([None, "a", "b"]), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), pods), max_size=6), st.integers(0, 3),
)  # fmt: skip
def test_agrees_with_a_reference_implementation(incoming, zones, others, hard_weight):
    nodes = [node(f"n{i}", zone) for i, zone in enumerate(zones)]
    placed = {}
    for i, (number, other) in enumerate(others):
        placed.setdefault(nodes[number % len(nodes)].name, []).append(drawn(f"p{i}", *other))
    pod = drawn("new", *incoming)
    raw = reference_scores(pod, nodes, placed, hard_weight)
    found = final_scores(scoring(hard_pod_affinity_weight=hard_weight), pod, a_cluster(nodes, placed).snapshot)
    if raw is None:
        assert found is None
        return
    least, span = min(raw.values()), max(raw.values()) - min(raw.values())
    assert found == {name: int(100.0 * ((one - least) / span)) if span else 0 for name, one in raw.items()}
