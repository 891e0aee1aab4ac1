"""Test NodeAffinity in 1.21: every node is filtered, also for pods that name theirs, and every pod is scored."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.framework.verdicts import Code, Status
from moorage.plugins.earlier.node_affinity import NodeAffinityV121
from moorage.testing.builders import a_cluster, a_node, a_pod
from moorage.testing.plugin_checks import check_plugin
from moorage.testing.plugin_queries import final_scores, refusals

NO = Status(Code.UNRESOLVABLE, "NodeAffinity", ("node(s) didn't match Pod's node affinity/selector",))
ENFORCED = Status(Code.UNRESOLVABLE, "NodeAffinity", ("node(s) didn't match scheduler-enforced node affinity",))
NODES = [
    a_node("a", {"disk": "ssd", "zone": "1"}),
    a_node("b", {"disk": "ssd", "zone": "2"}),
    a_node("c", {"disk": "hdd", "zone": "1"}),
    a_node("d", {}),
]


def has(key, *values):
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


def named(*names):
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]} for name in names]}


def affinity(*terms, preferred=()):
    found = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": w, "preference": term} for w, term in preferred]}
    if terms:
        found["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": list(terms)}
    return found


def wanting(*terms, preferred=(), **spec):
    return a_pod(affinity={"nodeAffinity": affinity(*terms, preferred=preferred)}, **spec)


REQUIRED = {  # pod → the nodes rejected
    "no affinity": (a_pod(), ""),
    "a label": (a_pod(nodeSelector={"disk": "ssd"}), "cd"),
    "a term and a label": (wanting(has("disk", "ssd"), nodeSelector={"zone": "2"}), "acd"),
    "either of two terms": (wanting(has("zone", "2"), has("disk", "hdd")), "ad"),
    "by name": (wanting(named("a")), "bcd"),
    "by the name of no node": (wanting(named("z")), "abcd"),
    "by contradictory names": (wanting(named("a", "b")), "abcd"),
    "preferences reject no node": (wanting(preferred=[(5, has("disk", "ssd"))]), ""),
}


@pytest.mark.parametrize(("pod", "refused"), REQUIRED.values(), ids=REQUIRED)
def test_each_node_is_filtered_by_itself(pod, refused):
    snapshot = a_cluster(NODES).snapshot
    assert NodeAffinityV121().pre_filter(pod, snapshot) is pod
    assert refusals(NodeAffinityV121(), pod, snapshot) == dict.fromkeys(refused, NO)


def test_a_profile_may_add_affinity():
    rule = NodeAffinityV121(msgspec.convert({"addedAffinity": affinity(has("disk", "ssd"))}, NodeAffinityV121.Args))
    found = refusals(rule, a_pod(nodeSelector={"zone": "1"}), a_cluster(NODES).snapshot)
    assert found == {"b": NO, "c": ENFORCED, "d": ENFORCED}, "what the profile asks is asked first"


SSD, FIRST = has("disk", "ssd"), has("zone", "1")
SCORES = {  # preferences, scores
    "none: every node scores 0": ([], [0, 0, 0, 0]),
    "one": ([(5, SSD)], [100, 100, 0, 0]),
    "two": ([(1, SSD), (2, FIRST)], [100, 33, 66, 0]),
    "of weight 0": ([(0, SSD)], [0, 0, 0, 0]),
    "no node matches": ([(7, has("disk", "tape"))], [0, 0, 0, 0]),
}


@pytest.mark.parametrize(("preferred", "scores"), SCORES.values(), ids=SCORES)
def test_scores(preferred, scores):
    assert list(final_scores(NodeAffinityV121(), wanting(preferred=preferred), a_cluster(NODES).snapshot).values()) == scores


LABELS = st.dictionaries(st.sampled_from(["disk", "zone"]), st.sampled_from("12"))


@settings(max_examples=30, deadline=None)
@given(LABELS, st.lists(st.tuples(st.integers(1, 100), st.sampled_from(["disk", "zone"]), st.sampled_from("12")), max_size=3),
       st.lists(LABELS, min_size=1, max_size=5))  # fmt: skip
def test_agrees_with_a_reference_implementation(selector, wishes, nodes):
    cluster = a_cluster([a_node(f"n{at}", labels) for at, labels in enumerate(nodes)])
    pod = wanting(preferred=[(weight, has(key, value)) for weight, key, value in wishes], nodeSelector=selector)
    refused = {f"n{at}" for at, labels in enumerate(nodes) if not selector.items() <= labels.items()}
    assert set(refusals(NodeAffinityV121(), pod, cluster.snapshot)) == refused
    sums = [sum(weight for weight, key, value in wishes if labels.get(key) == value) for labels in nodes]
    scores = [100 * one // max(sums) if max(sums) else 0 for one in sums]
    assert list(final_scores(NodeAffinityV121(), pod, cluster.snapshot).values()) == scores


def test_satisfies_the_plugin_contract():
    check_plugin(NodeAffinityV121())
