"""Test extenders in a simulation: one that accepts everything changes nothing, and scores of others are reported."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.report.node_scores import ScoreLog
from moorage.simulator.simulate import Options, simulate
from tests.core.engine.driving import HEAD, node, pod

VERBS = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "preemptVerb": "preempt", "weight": 2}
CONFIG = (HEAD + json.dumps({"extenders": [{"urlPrefix": "http://e/", "nodeCacheCapable": True, **VERBS}]})[1:-1]).encode()


def agrees(question):
    body = json.loads(question.body)
    if question.verb == "preempt":
        return json.dumps({"NodeNameToMetaVictims": body["NodeNameToMetaVictims"]}).encode()
    if question.verb == "filter":
        return json.dumps({"NodeNames": body["NodeNames"]}).encode()
    return json.dumps([{"Host": name, "Score": 0} for name in body["NodeNames"]]).encode()


clusters = st.tuples(
    st.lists(st.sampled_from(["1", "2", "4"]), min_size=1, max_size=5),
    st.lists(st.tuples(st.sampled_from(["500m", "1", "2", "3"]), st.integers(0, 2)), min_size=1, max_size=8),
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(clusters, st.integers(0, 3))
def test_an_extender_that_accepts_everything_changes_nothing(cluster, seed):
    nodes, pods = cluster
    objects = [node(f"n{at}", cpu) for at, cpu in enumerate(nodes)]
    objects += [pod(f"p{at}", cpu, priority=priority) for at, (cpu, priority) in enumerate(pods)]
    plain = simulate(objects, Options(seed=seed))
    asked = simulate(objects, Options(seed=seed, config=CONFIG, ask=agrees))
    assert asked.pods == plain.pods
    assert asked.nodes == plain.nodes


def test_an_extenders_scores_are_listed_with_the_others():
    def prefers_n1(question):
        return b'[{"Host": "n1", "Score": 7}]' if question.verb == "prioritize" else agrees(question)

    log = ScoreLog(["p"])
    simulate([node("n0"), node("n1"), pod("p")], Options(config=CONFIG, ask=prefers_n1, scores=log))
    (entry,) = log.entries
    assert entry.node == "n1"
    by_node = {one.name: {score.plugin: score for score in one.plugins} for one in entry.nodes}
    given_n1 = by_node["n1"]["Extender http://e/"]
    assert (given_n1.raw, given_n1.normalized, given_n1.weight, given_n1.weighted) == (7, 70, 2, 140)
    assert by_node["n0"]["Extender http://e/"].weighted == 0
