"""Comparisons: equal sides do not differ, differences are those of separate runs, and gates and stored runs agree."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

import moorage
from moorage.errors import InputError
from moorage.laboratory.compare.moved_pods import NodePlaces, count_moves, new_pending
from moorage.laboratory.compare.run_inputs import input_of_runs, with_pods_to_place_again
from moorage.laboratory.compare.typical_mix import typical_mix
from moorage.laboratory.comparison import CompareSetting
from moorage.report.run_values import UnplacedPod
from moorage.report.stored_runs import read_stored
from moorage.testing.builders import a_node, a_pod

pytestmark = pytest.mark.slow
PACKED = moorage.Options(config=Path("examples/config/most-allocated.yaml").read_bytes(), where="packed.yaml")


@pytest.fixture(scope="module")
def demo():
    return moorage.Cluster.read("examples/demo")


@pytest.fixture(scope="module")
def packed(demo):
    gates = ("pending > +0", "nodesUsed < -0", "moved > 5%", "new-pending", "preemptions.victims > 0")
    return moorage.compare(demo, b=PACKED, seeds=range(5), setting=CompareSetting(gates=gates))


def asking(name, cpu, **spec):
    return a_pod(name, containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **spec).pod


def test_equal_sides_do_not_differ(demo):
    found = moorage.compare(demo, seeds=range(2), setting=CompareSetting(gates=("moved > 0", "attempts > +0")))
    assert {one.difference for one in found.metrics.values()} == {0}
    assert all(one.exact for one in found.metrics.values())
    assert (found.moved.pods, found.holds, found.summary) == (0, True, "B does the same as A. 2 gates passed.")


def test_the_demo_packed(packed):
    """Ten of 22 pods move, none of them by chance, and one node is free."""
    assert (packed.moved.pods, packed.moved.of, packed.moved.by_chance) == (10, 22, (0,) * 5)
    used = packed.metrics["nodesUsed"]
    assert (used.a, used.b, used.difference, used.exact, used.interval) == (7, 6, -1, True, None)
    assert [gate.passed for gate in packed.gates] == [True, False, False, True, False]
    assert packed.summary == "B frees 1 node. Gates failed: nodesUsed, moved, preemptions.victims."
    assert packed.proof.runs == 11
    assert packed.gate("wait.p99 > +10%").passed
    assert packed.frame["metric"][0] == "pending"


def test_metrics_are_those_of_separate_runs(demo, packed):
    _, run = moorage.simulate_cluster(demo.input(), PACKED)
    mine = packed.runs[1][0].metrics
    assert mine["pending"] == len(run.in_state("Pending"))
    assert mine["attempts"] == run.attempts
    ready = [node for node in run.nodes if node.name != "general-c2"]
    for name in ("cpu", "memory"):
        asked, offered = (sum(getattr(node, what)[name] for node in ready) for what in ("requested", "allocatable"))
        assert mine[f"utilisation.{name}"] == pytest.approx(asked / offered)
        shares = [node.requested[name] / node.allocatable[name] for node in ready]
        mean = sum(shares) / len(shares)
        sigma = math.sqrt(sum((share - mean) ** 2 for share in shares) / len(shares))
        assert mine[f"balance.{name}"] == pytest.approx(sigma)
    tried = run.in_state("Placed", "Pending")
    waits = sorted(math.inf if pod.placed_s is None else pod.placed_s - pod.arrived_s for pod in tried)
    assert [mine[f"wait.p{p}"] for p in (50, 90, 99)] == [waits[math.ceil(len(waits) * p / 100) - 1] for p in (50, 90, 99)]


def test_means_over_time_weigh_each_moment_by_its_length(demo, packed):
    """Until the preempted pod has left, 30 s after the start, it and not the preemptor is on the node."""
    _, run = moorage.simulate_cluster(demo.input(), PACKED)
    (gone,), (came,) = run.in_state("Preempted"), [pod for pod in run.in_state("Placed") if pod.placed_s]
    assert gone.ended_s == came.placed_s == run.ended_s == 30
    offered = sum(node.allocatable["cpu"] for node in run.nodes if node.name != "general-c2")
    mine = packed.runs[1][0].metrics
    before = mine["utilisation.cpu"] + (gone.requests["cpu"] - came.requests["cpu"]) / offered
    assert mine["utilisation.cpu.mean"] == pytest.approx(before)


def test_an_executor_gives_the_same_answer(demo):
    with ThreadPoolExecutor(2) as executor:
        there = moorage.compare(demo, b=PACKED, seeds=[3], executor=executor)
    here = moorage.compare(demo, b=PACKED, seeds=[3])
    assert there.to_dict() == here.to_dict()


def test_inputs_of_runs_can_be_pickled(demo):
    import pickle

    given = input_of_runs(demo)
    again = pickle.loads(pickle.dumps(given))
    assert again == given


def test_the_cluster_stays_as_it_is(demo):
    before = demo.digest()
    moorage.compare(demo, seeds=[3], setting=CompareSetting(replace_all=True))
    assert demo.digest() == before


def test_seeds_decide_ties_and_make_intervals():
    """One pod, two equal nodes: it moves in about half of the pairs, and so it does by chance."""
    nodes = [a_node(f"n{at}", allocatable={"cpu": "2", "memory": "4Gi", "pods": 10}) for at in range(2)]
    cluster = moorage.Cluster.from_objects(nodes, [asking(f"p{at}", "100m") for at in range(5)])
    found = moorage.compare(cluster, seeds=range(6))
    assert found.moved.pods == 0
    assert any(found.moved.by_chance)
    assert found.metrics["nodesUsed"].exact


def test_all_pods_again():
    held = [asking("b", "1", nodeName="n0"), asking("a", "1", nodeName="n0")]
    held = [
        msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, creation_timestamp=time))
        for pod, time in zip(held, ("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"), strict=True)
    ]
    nodes = [a_node(f"n{at}", allocatable={"cpu": "4", "memory": "4Gi", "pods": 10}) for at in range(2)]
    objects, taken, kept = with_pods_to_place_again([*nodes, *held, asking("new", "1")], ["default-scheduler"])
    assert [one.metadata.name for one in objects] == ["n0", "n1", "a", "b", "new"]
    assert (taken, kept) == (2, 0)
    spread = moorage.compare(
        moorage.Cluster.from_objects(nodes, held, asking("new", "1")), seeds=[0], setting=CompareSetting(replace_all=True)
    )
    assert spread.moved.of == 3
    assert spread.metrics["nodesUsed"].a == 2


def test_moves_by_hand():
    places = NodePlaces({"a": "g", "b": "g", "c": "h"}, {"a": "z1", "b": "z2", "c": "z2"})
    a = {"stays": "a", "within": "a", "beyond": "b", "lost": "a", "won": ""}
    b = {"stays": "a", "within": "b", "beyond": "c", "lost": "", "won": "c"}
    found = count_moves(a, b, places)
    assert (found.pods, found.of, found.within_group, found.to_another_group, found.to_another_zone) == (2, 5, 1, 1, 1)


def test_new_pending_counts_the_pods_of_a_workload():
    before = [UnplacedPod("d/web-1", "Deployment/web"), UnplacedPod("d/bare")]
    now = [UnplacedPod("d/web-9", "Deployment/web"), UnplacedPod("d/web-1", "Deployment/web"), UnplacedPod("d/other")]
    assert [one.pod for one in new_pending(before, now)] == ["d/web-9", "d/other"]
    renamed = [UnplacedPod("d/web-7", "Deployment/web"), UnplacedPod("d/bare")]
    assert new_pending(before, renamed) == []
    assert [one.pod for one in new_pending(before, [UnplacedPod("e/web-1", "Deployment/web")])] == ["e/web-1"]


def test_the_typical_mix_merges_what_is_rare():
    pods = [asking(f"s{at}", "1") for at in range(150)] + [asking(f"l{at}", f"{2 + at}") for at in range(2)]
    common, rare = typical_mix(pods)
    assert (common.requests, common.pods, rare.requests, rare.pods) == ({"cpu": 1000}, 150, {"cpu": 2500}, 2)
    assert common.weight + rare.weight == pytest.approx(1)


def test_releases_differ_in_their_notes(demo):
    found = moorage.compare(demo, a=moorage.Options(emulate="1.21"), b=moorage.Options(emulate="1.36"), seeds=[0])
    assert found.names == ("the default configuration, kube-scheduler 1.21", "the default configuration, kube-scheduler 1.36")
    assert found.metrics["pending"].a is not None


def test_stored_runs_compare_as_the_runs_do(packed, demo):
    stored = read_stored(json.dumps(packed.to_dict()).encode(), "report.json")
    assert stored.digest == packed.request.digest
    again = moorage.compare(demo, b=PACKED, baseline=stored.runs, setting=CompareSetting(gates=("new-pending",)))
    assert {one.difference for one in again.metrics.values()} == {0}
    assert (again.moved, again.proof.runs, again.holds) == (None, 5, True)


WRONG = {
    "no seed": ({"seeds": ()}, "no seed"),
    "no gate": ({"seeds": [0], "setting": CompareSetting(gates=("pending",))}, "is no gate"),
    "no metric": ({"seeds": [0], "setting": CompareSetting(gates=("pendin > 0",))}, "no metric pendin"),
}


@pytest.mark.parametrize(("given", "says"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_compared_is_refused(demo, given, says):
    with pytest.raises(InputError, match=says):
        moorage.compare(demo, **given)


REPORTS = {
    "no report": (b"[]", "expected a report"),
    "another kind": (b'{"apiVersion": "moorage.dev/v1", "kind": "Explanation"}', "not Explanation"),
    "not complete": (b'{"apiVersion": "moorage.dev/v1", "kind": "Comparison", "answer": {}}', "not complete"),
    "without runs": (
        b'{"apiVersion": "moorage.dev/v1", "kind": "Comparison", "answer": {"runs": {"b": []}}}', "has no runs",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("data", "says"), REPORTS.values(), ids=REPORTS)
def test_what_is_no_baseline_is_refused(data, says):
    with pytest.raises(InputError, match=says):
        read_stored(data, "report.json")
