"""``moorage run --record``: what the scheduler's watches deliver is written in order, and a full disk stops nothing."""

import asyncio

import pytest

from moorage.basis.recording.log_reader import ClusterLog
from moorage.core.engine.facts import Gone, Seen
from moorage.live.recording import recorder_loop as beside_run
from moorage.live.recording.recorder_loop import RunRecording
from moorage.live.runtime.attempt_metrics import SILENT
from moorage.live.runtime.inbox import Inbox
from tests.live.recording.scripted_log import a_node, a_pod


class Told:
    def __init__(self):
        self.lines = []

    def error(self, error, message, **facts):
        self.lines.append(message)

    def __getattr__(self, name):
        return getattr(SILENT, name)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(beside_run, "FLUSH_S", 0.002)


async def until(holds):
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.001)


def test_facts_are_recorded_and_passed_on(tmp_path):
    async def main():
        inbox, recording = Inbox(), RunRecording(str(tmp_path), SILENT)
        source = inbox.source("nodes")
        sink = recording.beside(source)
        missing = ["nodes"]
        task = asyncio.create_task(recording.run(lambda: missing, {"server": "here"}))
        sink.begin()
        await sink.put(Seen(a_node("n1")))
        sink.end()
        await asyncio.sleep(0.01)
        assert not recording.recorder.has_started
        missing.clear()
        await until(lambda: recording.recorder.has_started)
        await sink.put_all([Seen(a_pod("web")), Seen(a_pod("web", node="n1", version="2")), Gone(a_node("n1"))])
        task.cancel()
        recording.close()
        return [getattr(fact, "obj", fact) for fact in inbox.take(99)]

    assert len(asyncio.run(main())) == 5
    log = ClusterLog(tmp_path)
    state = log.state_at(log.span()[1])
    assert [key for _, key in state.objects] == ["default/web"]
    assert b'"nodeName":"n1"' in state.objects["Pod", "default/web"][1]


def test_a_log_that_cannot_be_written_is_reported_once_and_tried_again(tmp_path):
    async def main():
        told = Told()
        recording = RunRecording(str(tmp_path), told)
        task = asyncio.create_task(recording.run(list, {}))
        await until(lambda: recording.recorder.has_started)
        real, broken = recording.recorder.writer.flush, []

        def flush():
            broken.append(1)
            raise OSError(28, "No space left on device")

        recording.recorder.writer.flush = flush
        recording.recorder.observe(Seen(a_node("n1")))
        await until(lambda: len(broken) > 2)
        recording.recorder.writer.flush = real
        await until(lambda: not recording.write_error)
        task.cancel()
        recording.close()
        return told.lines

    assert asyncio.run(main()) == ["the log cannot be written; trying again"]
    log = ClusterLog(tmp_path)
    assert ("Node", "n1") in log.state_at(log.span()[1]).objects
