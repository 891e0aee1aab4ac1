"""The past that a log has: its own time, the pods that came and went in it, and the nodes of each moment."""

import random

import msgspec
import pytest

from moorage.api.core import Pod
from moorage.api.decode import decode
from moorage.basis.recording.log_reader import log_of
from moorage.errors import InputError
from moorage.interfaces.web.history import timeline_document
from moorage.interfaces.web.mirror import Header, View, snapshot_document
from moorage.interfaces.web.recorded_past import RecordedPast
from tests.live.recording.scripted_log import START_S, Script, a_node, a_pod, write_log

BETWEEN = {"creationTimestamp": "2026-11-24T14:05:00Z"}
BOUND = {
    "phase": "Running",
    "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-24T14:05:10Z"}],
}
HEADER = Header(release="1.36", id="", at="", live=False, writable=False, user="")


def document(past, span=None):
    return timeline_document(past.rows(), past.span[1], View(), span)


def test_the_time_is_that_of_the_log_with_the_pods_that_went(tmp_path):
    past = RecordedPast(*log_of(str(write_log(tmp_path))))
    found = document(past)
    assert (found["began"], found["now"]) == (past.span[0], past.span[1]) == (START_S, pytest.approx(START_S + 60, abs=0.001))
    lanes = found["lanes"]
    lives = {pod: (state, node) for pod, state, node in zip(lanes["pod"], lanes["state"], lanes["node"], strict=True)}
    assert lives == {"default/big": ("pending", None), "default/web": ("bound", "n1"), "default/old": ("gone", "n1")}
    assert lanes["gone"][lanes["pod"].index("default/old")] == pytest.approx(START_S + 50, abs=0.001)
    assert lanes["bound"][lanes["pod"].index("default/web")] == pytest.approx(START_S + 20, abs=0.001)
    assert [one["result"] for one in lanes["attempts"][lanes["pod"].index("default/big")]] == ["unschedulable"]


def test_a_moment_has_the_nodes_of_that_time(tmp_path):
    past = RecordedPast(*log_of(str(write_log(tmp_path))))
    states = {second: past.state(START_S + second) for second in (-9, 15, 55, 99)}
    assert {second: sorted(state.nodes) for second, state in states.items()} == {
        -9: ["n1", "n2"], 15: ["n1", "n2"], 55: ["n1", "n2"], 99: ["n1", "n2", "n3"],
    }  # fmt: skip
    assert {second: sorted(state.pods) for second, state in states.items()} == {
        -9: ["default/old"], 15: ["default/old", "default/web"],
        55: ["default/big", "default/web"], 99: ["default/big", "default/web"],
    }  # fmt: skip


def test_a_moment_before_the_end_is_the_end_of_its_past(tmp_path):
    past = RecordedPast(*log_of(f"{write_log(tmp_path)}@14:00:25"))
    found = document(past)
    assert (found["now"], sorted(found["lanes"]["pod"])) == (START_S + 25, ["default/old", "default/web"])
    assert sorted(past.state(START_S + 60).nodes) == ["n1", "n2"]


def random_log(directory, chance):
    """Write a log of two recorders, between which no changes are recorded."""
    alive, nodes, number = {}, {}, 0
    for began in (0.0, 400.0):
        script = Script(directory)
        script.now_s = began
        for name in list(alive)[::3]:
            del alive[name]
        nodes["n0"] = a_node("n0", str(chance.choice((4, 8))))
        if began:  # it came and was bound while no recorder ran
            alive["between"] = decode(
                {**msgspec.to_builtins(a_pod("between", node="n0", meta=BETWEEN)), "status": BOUND}, Pod, "test"
            )
        script.start(*nodes.values(), *alive.values())
        for step in range(120):
            second, number = began + 1.0 + step * chance.uniform(1.0, 2.0), number + 1
            second = max(second, script.now_s)
            if chance.random() < 0.2:
                name = f"n{chance.randrange(4)}"
                if name in nodes and name != "n0":
                    script.gone(second, nodes.pop(name))
                else:
                    nodes[name] = a_node(name, str(chance.choice((2, 4, 8))), version=str(number + 1))
                    script.seen(second, nodes[name])
            elif alive and chance.random() < 0.4:
                script.gone(second, alive.pop(chance.choice(list(alive))))
            else:
                name = f"p{number}"
                made = {"creationTimestamp": f"2026-11-24T14:{int(second) // 60:02}:{int(second) % 60:02}Z"}
                alive[name] = a_pod(name, meta=made)
                script.seen(second, alive[name])
                if chance.random() < 0.8:
                    alive[name] = a_pod(name, node="n0", version="2", meta=made)
                    script.seen(second + chance.random(), alive[name])
        script.close()
    return log_of(str(directory))


@pytest.mark.parametrize("seed", range(2))
def test_each_moment_is_as_the_charts_say(seed, tmp_path):
    past = RecordedPast(*random_log(tmp_path, random.Random(seed)))
    samples = document(past, (past.span[0], past.span[0] + 599.0))["samples"]  # one for each whole second
    checked = 0
    for index in range(3, 599, 7):
        found = snapshot_document(past.state(samples["at"][index]), HEADER, View())
        if any(abs(samples["at"][index] - START_S - second) < 1 for second in (0, 400)):
            continue
        assert sum(node is None or node < 0 for node in found["pods"]["node"]) == samples["pending"][index], index
        offered = sum(found["nodes"]["allocatable"]["pods"])
        used = sum(node >= 0 for node in found["pods"]["node"])
        assert samples["utilisation"]["pods"][index] == pytest.approx(used / offered, abs=1e-4)
        checked += 1
    assert checked > 50


def test_a_damaged_log_is_an_error(tmp_path):
    log, last = log_of(str(write_log(tmp_path)))
    path = log.changes[-1][1]
    path.write_bytes(path.read_bytes()[:-9] + b"\xff" + path.read_bytes()[-8:])
    with pytest.raises(InputError, match="damaged"):
        RecordedPast(log, last).rows()
