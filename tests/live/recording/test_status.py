"""A recorder that starts again in its log counts on, so the agreement is that of the whole log."""

from contextlib import closing
from random import Random

import pytest

from moorage.basis.change_recorder import ChangeRecorder, LogClock, ObjectEncoder
from moorage.basis.recording.log_writer import LogWriter
from moorage.errors import InputError
from moorage.live.recording.decision_comparison import ComparedDecision, Match, Shadow
from moorage.live.recording.recorder_loop import RecorderLoop
from moorage.live.recording.status import agreement_of, causes, count_on, read_status, write_status
from tests.live.server.test_on_embedded_server import a_scheduler

ABOUT = {"server": "https://here", "release": "1.36", "redacted": False}


def recording(directory, **about):
    recorder = ChangeRecorder(LogWriter(directory), LogClock(lambda: 10**18, Random(1).random), ObjectEncoder())
    return RecorderLoop(recorder, Shadow(a_scheduler(), {}), None, {**ABOUT, **about})


@pytest.mark.parametrize(
    ("about", "compared", "differences"),
    [({}, 3, 1), ({"version": "1.36.3"}, 3, 1), ({"release": "1.35"}, 0, 0), ({"server": "https://there"}, 0, 0)],
)
def test_agreement_goes_on_after_a_restart(tmp_path, about, compared, differences):
    with closing(recording(tmp_path)) as first:
        agreement = first.shadow.agreement
        agreement.count(ComparedDecision("a", "1", Match.SAME, "n1", "n1"), 1)
        agreement.count(ComparedDecision("b", "2", Match.DIFFERENT, "n1", "n2", plugins=("NodeResourcesFit",)), 2)
        agreement.count(ComparedDecision("c", "3", Match.SAME, message="no"), 3)
        agreement.uncompared["was bound before"] += 1
        write_status(first)
    shown = agreement_of(tmp_path)
    assert (shown["agreement"]["compared"], [one["at"] for one in shown["differences"]]) == (3, ["1970-01-01T00:00:00.000002Z"])
    with closing(recording(tmp_path, **about)) as second:
        count_on(second)
        found = second.shadow.agreement
        assert (found.compared, len(found.differences)) == (compared, differences)
        assert not compared or found.facts() == agreement.facts()


def test_causes_are_reasons_without_their_counts():
    found = causes(
        [
            "0/3 nodes are available: 2 Insufficient cpu, 1 node(s) had untolerated taint(s).",
            "0/3 nodes are available: pod has no claim.",
        ]
    )
    assert found == {"Insufficient cpu": 1, "node(s) had untolerated taint(s)": 1, "pod has no claim": 1}


def test_agreement_is_that_of_the_log_where_no_recorder_left_a_status(tmp_path):
    with closing(recording(tmp_path)) as first:
        first.recorder.start({})
        first.shadow.agreement.count(ComparedDecision("a", "1", Match.SAME, "n1", "n1"), 1)
    assert agreement_of(tmp_path)["agreement"] == first.shadow.agreement.facts()


@pytest.mark.parametrize(
    ("before", "now", "is_other"), [("u1", "u2", True), ("u1", "u1", False), ("u1", "", False), ("", "u2", False)]
)
def test_the_log_of_another_cluster_is_refused(tmp_path, before, now, is_other):
    with closing(recording(tmp_path, cluster=before)) as first:
        write_status(first)
    with closing(recording(tmp_path, cluster=now)) as second:
        if is_other:
            with pytest.raises(
                InputError, match="the log is that of another cluster, https://here; give each its own directory"
            ):
                count_on(second)
        else:
            count_on(second)


def test_a_redacted_recorder_leaves_old_differences_out(tmp_path):
    with closing(recording(tmp_path, redacted=True)) as first:
        first.shadow.agreement.count(ComparedDecision("b", "2", Match.DIFFERENT, "n1", "n2"), 2)
        write_status(first)
    with closing(recording(tmp_path, redacted=True)) as second:
        count_on(second)
        assert (second.shadow.agreement.compared, len(second.shadow.agreement.differences)) == (1, 0)


@pytest.mark.parametrize("text", [None, "", "{", "[1]", '{"about": null}'])
def test_a_status_that_cannot_be_read_counts_from_nothing(tmp_path, text):
    with closing(recording(tmp_path)) as loop:
        if text is not None:
            (tmp_path / "status.json").write_text(text)
        count_on(loop)
        assert loop.shadow.agreement.compared == 0
        assert read_status(tmp_path) in (None, {"about": None})
