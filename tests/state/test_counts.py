"""Counts that move by one with each pod must be what a recount of all pods would give, whatever happened in between."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.meta import LabelSelector, LabelSelectorRequirement
from moorage.api.selectors import EVERYTHING, NOTHING, compile_label_selector, selector_from_map
from moorage.state.cluster import ClusterState
from moorage.state.columns import RowSpace
from moorage.state.counts import MatchTerm, PodCounts, PodMatcher
from moorage.state.labels import LabelColumns
from moorage.testing.builders import a_cluster, a_node, a_pod

LABELS = [{}, {"app": "web"}, {"app": "db"}, {"app": "web", "tier": "front"}, {"tier": "front"}]
NAMESPACES = {"red": {"team": "a"}, "blue": {"team": "b"}, "grey": {}}


def selector(*asked):
    expressions = tuple(LabelSelectorRequirement(key=k, operator=op, values=tuple(vs)) for k, op, *vs in asked)
    return compile_label_selector(LabelSelector(match_expressions=expressions))


SELECTORS = [
    EVERYTHING,
    NOTHING,
    selector(("app", "In", "web")),
    selector(("app", "In", "web", "db")),
    selector(("app", "In", "web", "db"), ("tier", "In", "front")),
    selector(("app", "NotIn", "web")),
    selector(("app", "Exists"), ("tier", "DoesNotExist")),
]

terms = st.builds(
    MatchTerm,
    st.sampled_from([None, frozenset(), frozenset(["red"]), frozenset(["red", "blue"])]),
    st.sampled_from(SELECTORS),
)
matchers = st.builds(PodMatcher, st.lists(terms, max_size=2).map(tuple), st.booleans())


TEAMLESS = {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}


def affinity_term(namespaces, namespace_selector, label_selector):
    term = {"topologyKey": "zone"}
    if namespaces:
        term["namespaces"] = namespaces
    if namespace_selector is not None:
        term["namespaceSelector"] = namespace_selector
    if label_selector is not None:
        term["labelSelector"] = label_selector
    return term


affinity_terms = st.builds(
    affinity_term,
    st.sampled_from([[], ["red"], ["red", "grey"]]),
    st.sampled_from(
        [
            None,
            {},
            {"matchLabels": {"team": "a"}},
            {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]},
            {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
        ]
    ),
    st.sampled_from(
        [
            None,
            {},
            {"matchLabels": {"app": "web"}},
            {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]},
            {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
        ]
    ),
)
pods = st.builds(
    lambda namespace, labels, leaving, anti: a_pod(
        labels=labels,
        namespace=namespace,
        metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"} if leaving else {},
        affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": anti}} if anti else None,
    ),
    st.sampled_from(list(NAMESPACES)),
    st.sampled_from(LABELS),
    st.booleans(),
    st.lists(affinity_terms, max_size=2),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("place"), st.integers(0, 7), st.integers(0, 3), pods),
        st.tuples(st.just("delete"), st.integers(0, 7)),
        st.tuples(st.just("node comes"), st.integers(0, 3), st.sampled_from([{}, {"zone": "a"}, {"zone": "b", "rack": ""}])),
        st.tuples(st.just("node goes"), st.integers(0, 3)),
        st.tuples(st.just("ask"), matchers),
    ),
    max_size=25,
)


def carry_out(cluster, history):
    """Apply each step; pods are known by the number of their UID, nodes by theirs."""
    for step in history:
        match step:
            case ("place", number, node, pod):
                pod.uid = str(number)
                cluster.place(pod, f"n{node}")
            case ("delete", number):
                cluster.remove_pod(str(number))
            case ("node comes", node, labels):
                cluster.set_node(a_node(f"n{node}", labels))
            case ("node goes", node):
                cluster.remove_node(f"n{node}")
            case ("ask", matcher):
                cluster.table.pod_counts.of(matcher)
                cluster.table.pod_counts.by_domain(matcher, "zone")


def copied(pod):
    return type(pod)(pod.pod)


def recounted(cluster, key, selects):
    """The number of selected pods for each value of a label, pod by pod; values without any left out."""
    found = Counter()
    for node, on_row in zip(cluster.table.nodes, cluster.table.pods, strict=True):
        if key in node.labels:
            found[node.labels[key]] += sum(selects(pod) for pod in on_row.values())
    return +found


def by_value(cluster, key, per_domain):
    return +Counter(dict(zip(cluster.table.labels.column(key).values, per_domain.tolist(), strict=True)))


@given(steps, st.lists(matchers, min_size=1, max_size=4), st.booleans())
@settings(max_examples=75, deadline=None)
def test_counts_equal_a_recount(history, asked, from_the_start):
    cluster = ClusterState()
    if from_the_start:  # otherwise from the first matcher on
        cluster.table.counted = PodCounts(cluster.table.space, cluster.table.labels, capacity=3)
    carry_out(cluster, history)
    counts = cluster.table.pod_counts
    for matcher in asked * 2:
        recount = [sum(matcher.matches(pod) for pod in on_row.values()) for on_row in cluster.table.pods]
        assert counts.rows_with(matcher).tolist() == [number > 0 for number in recount]
        assert counts.of(matcher).tolist() == recount
        for key in ("zone", "rack"):
            assert by_value(cluster, key, counts.by_domain(matcher, key)) == recounted(cluster, key, matcher.matches)
        assert len(counts) <= 3 or not from_the_start


@given(steps, pods)
@settings(max_examples=75, deadline=None)
def test_held_terms_equal_a_scan_of_all_pods(history, asker):
    cluster = ClusterState()
    carry_out(cluster, history)
    labels = NAMESPACES[asker.namespace]
    held_by = [pod.required_anti_affinity for on_row in cluster.table.pods for pod in on_row.values()]
    selecting = {term for terms in held_by for term in terms if term.matches(asker, labels)}
    found = list(cluster.table.required_anti_affinity.selecting(asker, labels))
    assert {held.term for held, _ in found} == selecting
    assert len(found) == len(selecting)
    for held, holders in found:
        term = held.term
        recount = recounted(cluster, "zone", lambda pod, term=term: pod.required_anti_affinity.count(term))
        assert by_value(cluster, "zone", holders) == recount


@given(steps)
@settings(max_examples=50, deadline=None)
def test_label_columns_know_which_values_nodes_have(history):
    cluster = ClusterState()
    for step in ([], history[: len(history) // 2], history[len(history) // 2 :]):
        carry_out(cluster, step)
        for key in ("zone", "rack"):
            column = cluster.table.labels.column(key)
            held = {node.labels.get(key) for node in cluster.table.nodes}
            assert {value for value, is_held in zip(column.values, column.held.tolist(), strict=True) if is_held} == held
            domains = {value for value, is_held in zip(column.values, column.domains.tolist(), strict=True) if is_held}
            assert domains == held - {None}
            assert column.is_everywhere is (None not in held)
            assert column.domain_count == len(held - {None})


@given(steps)
@settings(max_examples=50, deadline=None)
def test_no_counts_remain_after_all_pods_are_deleted(history):
    cluster = ClusterState()
    carry_out(cluster, history)
    for number in range(8):
        cluster.remove_pod(str(number))
    counts = cluster.table.pod_counts
    assert not counts._classes
    assert not counts._classes_at
    assert not len(cluster.table.required_anti_affinity)
    assert not cluster.table.required_anti_affinity._filed._filed


def test_the_least_recently_used_matcher_is_dropped():
    counts = PodCounts(RowSpace(), LabelColumns(RowSpace()), capacity=2)
    web, db, front = (PodMatcher((MatchTerm(None, selector_from_map(labels)),)) for labels in LABELS[1:4])
    for matcher in (web, db, web, front):
        counts.of(matcher)
    assert list(counts._matchers) == [web, front]


def test_a_what_if_leaves_the_counts_as_they_were():
    web = a_pod("web", {"app": "web"})
    cluster = a_cluster([a_node("n0"), a_node("n1")], {"n1": [web]})
    matcher = PodMatcher((MatchTerm(frozenset(["default"]), selector_from_map({"app": "web"})),))
    view = cluster.snapshot.nodes
    with cluster.what_if(1) as table:
        table.remove_pod(1, web)
        assert view.pods_matching(matcher).tolist() == [0, 0]
        table.add_pod(1, a_pod("other", {"app": "web", "tier": "front"}))
        table.add_pod(1, a_pod("another", {"app": "web", "tier": "back"}))
        assert view.pods_matching(matcher).tolist() == [0, 2]
    assert view.pods_matching(matcher).tolist() == [0, 1]


@pytest.mark.parametrize("live_only", [True, False])
def test_terminating_pods_are_excluded_on_request(live_only):
    leaving = a_pod("web", {"app": "web"}, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    cluster = a_cluster([a_node("n0")], {"n0": [leaving]})
    everything = PodMatcher((MatchTerm(None, EVERYTHING),), live_only)
    assert cluster.snapshot.nodes.pods_matching(everything).tolist() == [0 if live_only else 1]
    assert everything.matches(copied(leaving)) is not live_only
