"""The recorded score of each plugin for each node is exact, and the totals explain the pick."""

from __future__ import annotations

import pytest

from moorage.report.node_scores import ScoreLog
from moorage.simulator.simulate import Options
from moorage.simulator.simulate import simulate as run
from moorage.testing.builders import a_node, a_pod

ASKS = [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]


def placed(*pods, nodes=3, asked, seed=0):
    """Return the log of what was asked, after pods were placed on nodes of 4 to 4 * nodes CPUs."""
    log = ScoreLog(asked)
    offers = [a_node(f"n{at}", allocatable={"cpu": str(4 * (at + 1)), "memory": "64Gi", "pods": 10}) for at in range(nodes)]
    objects = [*offers, *(pod.pod for pod in pods)]
    return log, run(objects, Options(seed=seed, scores=log))


def a_pending(name, **spec):
    return a_pod(name, containers=ASKS, **spec)


def test_the_weighted_scores_add_up_and_the_highest_wins():
    log, report = placed(a_pending("a"), asked=["a"])
    (told,) = log.entries
    assert told.pod == "default/a"
    assert {node.name for node in told.nodes} == {"n0", "n1", "n2"}
    for node in told.nodes:
        assert node.total == sum(score.weighted for score in node.plugins)
        assert all(score.weighted == score.normalized * score.weight for score in node.plugins)
        assert all(0 <= score.normalized <= 100 for score in node.plugins)
    assert [node.total for node in told.nodes] == sorted((node.total for node in told.nodes), reverse=True)
    assert told.node == report.pods[0].node == told.best[0] == "n2"
    assert {"PodTopologySpread", "InterPodAffinity"} <= set(told.silent)


def test_recording_scores_changes_no_decision():
    pods = [a_pending(f"p{at}") for at in range(20)]
    _, with_scores = placed(*pods, asked=["p7"])
    offers = [a_node(f"n{at}", allocatable={"cpu": str(4 * (at + 1)), "memory": "64Gi", "pods": 10}) for at in range(3)]
    without = run([*offers, *(pod.pod for pod in pods)], Options())
    assert [pod.node for pod in with_scores.pods] == [pod.node for pod in without.pods]


@pytest.mark.parametrize("asked", ["a", "default/a"])
def test_only_selected_pods_have_scores(asked):
    log, _ = placed(a_pending("a"), a_pending("b"), asked=[asked, "gone"])
    assert [told.pod for told in log.entries] == ["default/a"]
    assert log.missing() == ["gone"]
    assert log.as_text().endswith("\ngone: no decision was made about such a pod\n")


def test_a_single_feasible_node_is_scored():
    log, _ = placed(a_pending("a"), nodes=1, asked=["a"])
    assert log.as_text().startswith("default/a: 1 of 1 nodes fit; n0 has the highest total\n")


def test_a_pod_without_a_feasible_node_has_a_reason():
    log, _ = placed(a_pending("a", nodeSelector={"disk": "ssd"}), nodes=1, asked=["a"])
    assert log.entries[-1].as_text().startswith("default/a: no node; 0/1 nodes are available: 1 node(s) didn't match")
    assert log.entries[-1].as_data()["node"] is None
    assert log.entries[-1].as_data()["message"].startswith("0/1 nodes")


def test_ties_are_reported():
    log = ScoreLog(["a"])
    nodes = [a_node(name, allocatable={"cpu": "4", "memory": "8Gi", "pods": 10}) for name in ("x", "y")]
    run([*nodes, a_pending("a").pod], Options(scores=log))
    (told,) = log.entries
    assert told.best == ("x", "y")
    assert told.as_text().splitlines()[0] == (
        f"default/a: 2 of 2 nodes fit; 2 share the highest total, and {told.node} is drawn from them"
    )


def test_the_text_shows_the_best_nodes_and_the_data_all():
    log, _ = placed(a_pending("a"), nodes=14, asked=["a"])
    (told,) = log.entries
    assert "… and 4 more nodes" in told.as_text().splitlines()
    assert told.as_text().splitlines()[2].startswith(told.best[0])
    assert len(told.as_data()["nodes"]) == 14
