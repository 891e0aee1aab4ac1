"""Runs as Chrome trace events: slices that nest, arrows that bind to slices, counters that end as the run does."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

import moorage
from moorage.report.exports import as_trace, trace_events
from moorage.simulator.trace import simulate_trace
from moorage.simulator.traces.openb import read_openb

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def demo():
    return moorage.simulate_cluster(moorage.read([str(ROOT / "examples/demo")]), moorage.Options())[1]


@pytest.fixture(scope="module")
def traced():
    folder = ROOT / "examples/trace-openb"
    return simulate_trace(read_openb(str(folder / "nodes.csv"), str(folder / "pods.csv")), moorage.Options())


def kinds(run):
    found = defaultdict(list)
    for event in trace_events(run):
        found[event["ph"]].append(event)
    return found


@pytest.mark.parametrize("name", ["demo", "traced"])
def test_slices_of_a_lane_never_overlap(name, request):
    run = request.getfixturevalue(name)
    lanes = defaultdict(list)
    for event in kinds(run)["X"]:
        assert event["dur"] >= 0
        lanes[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for held in lanes.values():
        held.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(held))


def test_every_pod_is_on_its_node(demo):
    names = {event["pid"]: event["args"]["name"] for event in kinds(demo)["M"] if event["name"] == "process_name"}
    shown = {event["name"]: names[event["pid"]] for event in kinds(demo)["X"] if event["cat"] == "pod"}
    assert shown == {f"{pod.namespace}/{pod.name}": f"node {pod.node}" for pod in demo.pods if pod.node}


def test_an_arrow_leads_from_the_victim_to_its_preemptor(demo):
    found = kinds(demo)
    (start,), (end,) = found["s"], found["f"]
    assert start["id"] == end["id"]

    def holds(one, arrow):
        return (one["pid"], one["tid"]) == (arrow["pid"], arrow["tid"]) and 0 <= arrow["ts"] - one["ts"] < one["dur"]

    holders = [next(one["name"] for one in found["X"] if holds(one, arrow)) for arrow in (start, end)]
    assert holders == ["default/training-interruptible", "default/inference"]


@pytest.mark.parametrize("name", ["demo", "traced"])
def test_counters_end_as_the_run_does(name, request):
    run = request.getfixturevalue(name)
    last = {event["name"]: event for event in kinds(run)["C"]}
    assert last["pending"]["args"]["pods"] == len(run.in_state("Pending"))
    shares = {name: round(100 * asked / offered, 3) for name, (offered, asked) in run.totals().items() if offered}
    assert last["utilisation %"]["args"] == shares
    times = [event["ts"] for event in kinds(run)["C"]]
    assert times == sorted(times)


#: The fields of each phase in the Trace Event Format, which Perfetto reads, with their types.
NUMBER = (int, float)
COMMON = {"name": str, "ph": str, "pid": int}
FIELDS = {
    "X": {**COMMON, "cat": str, "tid": int, "ts": NUMBER, "dur": NUMBER, "args": dict},
    "C": {**COMMON, "ts": NUMBER, "args": dict},
    "M": {**COMMON, "args": dict},
    "s": {**COMMON, "cat": str, "tid": int, "ts": NUMBER, "id": int},
    "f": {**COMMON, "cat": str, "tid": int, "ts": NUMBER, "id": int, "bp": str},
}


@pytest.mark.parametrize("name", ["demo", "traced"])
def test_every_event_has_the_fields_of_the_trace_event_format(name, request):
    document = json.loads(as_trace(request.getfixturevalue(name)), parse_constant=pytest.fail)
    assert set(document) == {"traceEvents", "displayTimeUnit", "otherData"}
    for event in document["traceEvents"]:
        wanted = FIELDS[event["ph"]]
        assert set(event) == set(wanted)
        assert all(isinstance(event[field], kind) and not isinstance(event[field], bool) for field, kind in wanted.items())
        assert min(event.get("ts", 0), event.get("dur", 0)) >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, NUMBER) for value in event["args"].values())
    arrows = [sorted(event["ph"] for event in document["traceEvents"] if event.get("id") == number)
              for number in {event["id"] for event in document["traceEvents"] if "id" in event}]  # fmt: skip
    assert all(ends == ["f", "s"] for ends in arrows)


def test_the_document_is_json(demo):
    document = json.loads(as_trace(demo))
    assert document["displayTimeUnit"] == "ms"
    assert document["otherData"] == {"release": demo.release, "seed": 0, "endedSeconds": 30.0}
