"""Waiting pods that fail together: every outcome is that of a run in which each attempt is made."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import moorage
from moorage.api.core import Taint
from moorage.core.engine.facts import Gone, Seen
from moorage.simulator.outcome_collector import collect
from moorage.simulator.simulate import prepare
from moorage.simulator.trace import Trace, simulate_trace
from moorage.testing.builders import a_node

SHAPES = [("1", "1Gi"), ("2", "1Gi"), ("3", "6Gi"), ("4", "2Gi"), ("8", "3Gi")]


def pod(name, shape, priority, extra):
    cpu, memory = SHAPES[shape]
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}], "priority": priority}
    spec |= {"tolerations": [{"key": "k", "operator": "Exists"}]} if extra == "tolerates" else {}
    spec |= {"nodeSelector": {"kubernetes.io/hostname": "n0"}} if extra == "pinned" else {}
    if extra == "port":
        spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    if extra in {"apart", "spread"}:
        selector = {"matchLabels": {"app": extra}}
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
        spec |= {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    return {"metadata": {"name": name, "labels": {"app": extra}}, "spec": spec}


def node(name, cpu, *, tainted=False):
    found = a_node(name, allocatable={"cpu": str(cpu), "memory": "12Gi", "pods": 20})
    return (
        replace(found, spec=replace(found.spec, taints=(Taint(key="k", value="", effect="NoSchedule"),))) if tainted else found
    )


arrivals = st.lists(
    st.tuples(
        st.integers(0, 60), st.integers(0, len(SHAPES) - 1), st.integers(1, 90),
        st.sampled_from([0, 0, 0, 0, 0, 10]), st.sampled_from(["", "", "", "", "tolerates", "pinned", "port", "apart"]),
    ),
    min_size=5, max_size=60,
)  # fmt: skip
#: Times at which the second node is cordoned, freed or gone, and another one comes.
changes = st.lists(
    st.tuples(st.integers(1, 120), st.sampled_from(["cordon", "uncordon", "gone", "new", "relabel"])), max_size=3
)


def played(rows, at, *, together, priorities=True, options=None, quarter=False):
    """Play pods that arrive, run and end, on three nodes; return all that is known of the end, and how many were not tried."""
    nodes = [node("n0", 8), node("n1", 8), node("n2", 6, tainted=True)]
    scale = 0.25 if quarter else 1.0  # several pods arrive and end in one second of backoff
    trace = Trace.of(
        nodes,
        [
            (time_s * scale, pod(f"p{number}", shape, priority if priorities else 0, extra), duration * scale)
            for number, (time_s, shape, duration, priority, extra) in enumerate(rows)
        ],
    )
    simulation, _ = prepare(options or moorage.Options())
    simulation.fails_together = together
    counted = []
    simulation.on_repeats = counted.append
    simulation.load(trace.nodes)
    for arrival in trace.arrivals:
        simulation.at(arrival.time_s, Seen(arrival.pod))
        simulation.durations[arrival.pod.uid] = arrival.duration_s
    second = nodes[1]
    for time_s, what in at:
        if what == "new":
            simulation.at(time_s, Seen(node("n3", 8)))
        elif what == "gone":
            simulation.at(time_s, Gone(second))
        elif what == "relabel":
            meta = replace(second.metadata, labels={**second.metadata.labels, "zone": "z"})
            simulation.at(time_s, Seen(replace(second, metadata=meta)))
        else:
            simulation.at(time_s, Seen(replace(second, spec=replace(second.spec, unschedulable=what == "cordon"))))
    simulation.run()
    return collect(simulation, "1.37"), sum(counted)


@pytest.mark.slow
@settings(max_examples=60)
@given(arrivals, changes, st.booleans(), st.booleans())
def test_all_ends_as_if_each_attempt_were_made(rows, at, priorities, quarter):
    plain, none = played(rows, at, together=False, priorities=priorities, quarter=quarter)
    found, _ = played(rows, at, together=True, priorities=priorities, quarter=quarter)
    assert none == 0
    assert found == plain


def crowded(count=120):
    return [(at // 4, at % len(SHAPES), 20 + 7 * (at % 5), 0, "") for at in range(count)]


RELEASES = ["1.25", "1.31", "1.35", "1.37"]


@pytest.mark.parametrize("release", RELEASES)
def test_releases(release):
    options = moorage.Options(emulate=release)
    plain, _ = played(crowded(), [], together=False, options=options)
    found, saved = played(crowded(), [], together=True, options=options)
    assert found == plain
    assert plain.attempts > 2000
    if release not in {"1.25", "1.31"}:  # before 1.33, no pod is tried before its backoff is over
        assert saved > plain.attempts * 0.8


def test_a_callback_that_wants_each_decision_hears_each():
    heard = []
    trace = Trace.of([node("n0", 8)], [(float(at // 4), pod(f"p{at}", at % 3, 0, ""), 30.0) for at in range(40)])
    run = simulate_trace(trace, moorage.Options(), on_attempt=heard.append)
    assert len(heard) == run.attempts > 40


def test_pods_that_stay_pending_have_the_message_of_their_last_attempt():
    rows = [(0, 0, 10, 0, "") for _ in range(20)] + [(1, 4, 5, 0, "pinned"), (1, 3, 5, 0, "")]
    rows += [(2, 4, 1000, 0, "") for _ in range(6)]
    found, saved = played(rows, [(5, "gone")], together=True)
    plain, _ = played(rows, [(5, "gone")], together=False)
    assert saved > 0
    assert [(one.name, one.message) for one in found.pods] == [(one.name, one.message) for one in plain.pods]
