"""The overview: figures by hand, sums of parts, and counts that other questions give as well."""

from __future__ import annotations

import csv
import io

import pytest

import moorage
from moorage.laboratory.compare.measured_run import measure_run
from moorage.laboratory.compare.run_frames import frames_of_run
from moorage.laboratory.compare.run_inputs import input_of_runs
from moorage.laboratory.overview import OverviewSetting, overview_of
from moorage.report.answer import AnswerRequest
from moorage.report.overview import overview_csv
from moorage.testing.builders import a_node, a_pod

ASKED = AnswerRequest(release="1.36")


def asking(name, cpu, **spec):
    return a_pod(name, containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **spec).pod


@pytest.fixture(scope="module")
def demo():
    return moorage.Cluster.read("examples/demo")


@pytest.fixture(scope="module")
def found(demo):
    return overview_of(demo, ASKED)


def test_two_nodes_by_hand():
    nodes = [a_node(f"n{at}", allocatable={"cpu": "4", "memory": "4Gi", "pods": 10}) for at in range(2)]
    held = [asking(f"p{at}", "1500m", nodeName=f"n{at}") for at in range(2)]
    found = overview_of(moorage.Cluster.from_objects(nodes, held, asking("large", "3")), ASKED)
    assert found.summary == "1 pod is pending; 2 of 2 nodes take pods: cpu 37.5%, memory 0.0% used."
    (cause,) = found.pending
    assert (cause.pods, dict(cause.plugins)) == (("default/large",), {"NodeResourcesFit": 2})
    small, large = found.mix
    assert (small.pods, small.arithmetic, small.engine, small.fragmentation) == (2, 2, 2, 1 - 2 / 3)
    assert (large.arithmetic, large.engine, large.fragmentation) == (0, 0, 1.0)
    cpu = found.whole.resources[0]
    assert (cpu.allocatable, cpu.requested, cpu.free, cpu.stranded) == (8000, 3000, 5000, 0)
    assert cpu.fragmented == pytest.approx((2 / 3 * 2000 + 1 / 3 * 5000) / 5000)


def test_parts_add_up(found):
    for parts in (found.groups, found.zones):
        assert sum(part.nodes for part in parts) == found.whole.nodes
        assert sum(part.pods for part in parts) == found.whole.pods
        for at, resource in enumerate(found.whole.resources):
            held = [one for part in parts for one in part.resources if one.resource == resource.resource]
            assert sum(one.requested for one in held) == resource.requested
            assert sum(one.stranded * one.free for one in held) == pytest.approx(resource.stranded * resource.free), at
        for at, shape in enumerate(found.mix):
            assert sum(part.headroom[at] for part in parts) == shape.arithmetic


def test_the_engine_counts_as_a_capacity_does(demo, found):
    shape = found.mix[0]
    assert shape.engine == demo.capacity(demo.pod(shape.example), gains=False).instances


def test_figures_are_those_of_a_comparison(demo, found):
    measured = measure_run(input_of_runs(demo), demo.options).metrics
    for one in found.whole.resources:
        assert measured[f"utilisation.{one.resource}"] == one.utilisation
        assert measured[f"balance.{one.resource}"] == one.sigma
        assert measured[f"jain.{one.resource}"] == one.jain
    assert measured["pending"] == found.pending_pods


def test_the_cluster_stays_as_it_is(demo, found):
    before = demo.digest()
    assert overview_of(demo, ASKED, OverviewSetting(by_engine=0)).whole == found.whole
    assert demo.digest() == before


def test_all_nodes_count_if_asked(demo, found):
    every = overview_of(demo, ASKED, OverviewSetting(all_nodes=True, by_engine=0))
    assert (found.whole.counted, every.whole.counted, found.cordoned) == (7, 8, 1)


def test_csv_has_a_row_for_each_resource_and_place(found):
    rows = list(csv.DictReader(io.StringIO(overview_csv(found))))
    places = (found.whole, *found.groups, *found.zones)
    assert len(rows) == sum(len(place.resources) for place in places)
    assert (rows[0]["scope"], rows[0]["resource"], float(rows[0]["utilisation"])) == (
        "all",
        "cpu",
        found.whole.resources[0].utilisation,
    )


def test_frames_of_a_run(demo):
    _, run = moorage.simulate_cluster(demo.input(), demo.options)
    frames = frames_of_run(input_of_runs(demo), demo.options)
    assert len(frames["attempts"]) == run.attempts
    assert set(frames["verdicts"]["pod"]) == {"default/search-2", "default/warehouse"}
    chosen = {row["pod"]: row["node"] for row in frames["scores"] if row["chosen"]}
    placed = {f"{pod.namespace}/{pod.name}": pod.node for pod in run.in_state("Placed")}
    assert chosen.items() <= placed.items()
    assert len(chosen) == len(placed)


def test_an_empty_cluster_has_an_overview():
    found = overview_of(moorage.Cluster.from_objects(), ASKED)
    assert found.summary == "No pod is pending; no node takes pods."
    assert found.text()


def test_pods_on_nodes_that_are_gone_come_first():
    silent = [{"type": "Ready", "status": "Unknown"}]
    amounts = {"cpu": "4", "memory": "4Gi", "pods": "10"}
    nodes = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": amounts, **status}}
        for name, status in (("n1", {"conditions": silent}), ("n2", {}))
    ]
    held = [asking(f"p{at}", "1", nodeName="n1") for at in range(2)]
    found = overview_of(moorage.Cluster.from_objects(nodes, held), ASKED)
    assert found.summary == (
        "1 of 2 nodes unreachable (n1) · 2 pods · no pod is pending; 1 of 2 nodes take pods: cpu 0.0%, memory 0.0% used."
    )
    assert found.to_dict()["answer"]["pods"] == {"placed": 2, "pending": 0, "onNotReady": 2}


def test_a_zone_that_is_down_is_named_with_its_time():
    since = {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-11-28T18:08:00Z"}

    def a_node(name, zone, conditions=()):
        labels = {"topology.kubernetes.io/zone": zone}
        status = {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "10"}, "conditions": list(conditions)}
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}

    nodes = [a_node("a1", "a"), a_node("b1", "b", [since]), a_node("b2", "b", [since | {"lastTransitionTime": None}])]
    found = overview_of(moorage.Cluster.from_objects(nodes, [asking("p", "1", nodeName="b1")]), ASKED)
    assert found.summary.startswith(
        "2 of 3 nodes unreachable (all of b) since 2026-11-28T18:08:00Z · 1 pod · no pod is pending;"
    )
    part = overview_of(moorage.Cluster.from_objects([*nodes, a_node("b3", "b")]), ASKED)
    assert part.summary.startswith("2 of 4 nodes unreachable (in b) since 2026-11-28T18:08:00Z · no pod is pending;")
    silent = overview_of(moorage.Cluster.from_objects([a_node("b1", "b", [since | {"status": "False"}])]), ASKED)
    assert silent.summary == "1 of 1 node not ready (b1) since 2026-11-28T18:08:00Z · no pod is pending; no node takes pods."
