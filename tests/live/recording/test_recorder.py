"""What the recorder writes: each change once, nothing that scheduling does not read, and times that never go back."""

import pytest

from moorage.basis.change_recorder import LogClock
from moorage.basis.recording.frames import Mark, Put, frames_in
from moorage.basis.recording.log_reader import ClusterLog
from moorage.basis.recording.log_writer import LogLimits
from moorage.laboratory.recording.redacted_log import RedactingEncoder
from tests.live.recording.scripted_log import START_S, Script, a_node, write_log


def bodies(directory):
    """Return all that is in a log, decompressed."""
    records = [
        record
        for path in (*directory.glob("*.changes"), *directory.glob("*.snapshot"))
        for frame in frames_in(path.read_bytes())
        for record in frame.records
    ]
    return b"\n".join(one.body if isinstance(one, Put) else repr(one).encode() for one in records)


def test_a_log_has_no_secrets(tmp_path):
    found = bodies(write_log(tmp_path))
    assert b'"name":"web"' in found
    for secret in (b"hunter2", b"PASSWORD", b"managedFields", b"--token"):
        assert secret not in found


def test_a_redacted_log_has_no_names(tmp_path):
    found = bodies(write_log(tmp_path / "log", RedactingEncoder(b"k" * 32)))
    assert b'"kind":"Node"' in found
    for name in (b'"web"', b'"n1"', b"default/big", b"hunter2", b"Insufficient", b'"old"'):
        assert name not in found
    log = ClusterLog(tmp_path / "log")
    state = log.state_at(log.span()[1])
    assert sorted(kind for kind, _ in state.objects) == ["Node", "Node", "Node", "Pod", "Pod"]
    nodes = {key for kind, key in state.objects if kind == "Node"}
    assert any(f'"nodeName":"{name}"'.encode() in body for _, body in state.objects.values() for name in nodes)


def test_only_changes_that_scheduling_reads_are_written_whole(tmp_path):
    script = Script(tmp_path)
    script.start(a_node("n1"))
    script.seen(1, a_node("n1", version="2"))
    script.seen(2, a_node("n1", version="2"))
    script.seen(3, a_node("n1", version="3", zone="a"))
    script.gone(4, a_node("n1"))
    script.gone(5, a_node("n1"))
    assert script.recorder.counts == {"put": 1, "touched": 1, "deleted": 1, "snapshots": 1}
    script.close()
    log = ClusterLog(tmp_path)
    versions = [log.state_at((START_S + second) * 1_000_000 + 9).objects.get(("Node", "n1"), ("",))[0] for second in range(5)]
    assert versions == ["1", "2", "2", "3", ""]


def test_a_snapshot_is_taken_in_steps_while_changes_go_on(tmp_path):
    script = Script(tmp_path)
    script.recorder.writer.limits = LogLimits(file_s=10.0)
    script.start(*(a_node(f"n{number}") for number in range(500)))
    script.seen(11, a_node("n1", version="2", zone="a"))
    steps = 1
    while script.recorder.turn():
        script.seen(11 + steps / 10, a_node(f"n{steps}", version="3", zone="b"))
        steps += 1
    script.close()
    assert steps > 2
    assert script.recorder.counts["snapshots"] == 2
    log = ClusterLog(tmp_path)
    assert len(log.snapshots) == 2
    whole = log.state_at(log.span()[1])
    log.snapshots.pop()
    log.snapshots = [one for one in log.snapshots if one[0] == 0]
    assert whole.objects == log.state_at(log.span()[1]).objects


def test_a_recorder_goes_on_in_the_same_log(tmp_path):
    write_log(tmp_path)
    script = Script(tmp_path)
    script.now_s = 3600.0
    script.start(a_node("n9"))
    script.close()
    log = ClusterLog(tmp_path)
    assert not log.faults()
    assert [key for _, key in log.state_at(log.span()[1]).objects] == ["n9"]
    assert len(log.state_at(log.span()[0] + 59_000_000).objects) == 4


CASES = {  # wall clock readings in seconds, one a second of the monotonic clock; times of the log; by how much it was set
    "steady": ([0, 1, 2, 3], [1, 2, 3], 0),
    "set forward": ([0, 1, 100, 101], [1, 100, 101], 98),
    "set back": ([0, 1, -50, -49], [1, 2, 3], -52),
    "set back and again": ([0, 1, -50, 3], [1, 2, 3], 0),
}


@pytest.mark.parametrize(("walls", "expected", "moved"), CASES.values(), ids=CASES)
def test_times_never_go_back(walls, expected, moved):
    walls, ticks = iter(walls), iter(range(9))
    clock = LogClock(lambda: (1000 + next(walls)) * 10**9, lambda: float(next(ticks)))
    times = [clock() / 1e6 - 1000 for _ in expected]
    assert times == pytest.approx(expected, abs=0.001)
    assert clock.set_by_s == pytest.approx(moved, abs=0.001)


def test_a_set_clock_is_in_the_log(tmp_path):
    script = Script(tmp_path)
    script.start(a_node("n1"))
    script.recorder.clock._now_ns = lambda: (START_S - 100) * 10**9
    script.seen(1, a_node("n2"))
    script.close()
    marks = [one for frame in frames_in(max(tmp_path.glob("*.changes")).read_bytes()) for one in frame.records]
    assert [(one.what, one.facts.get("setBySeconds")) for one in marks if isinstance(one, Mark)][-1] == ("clock", -101.0)
