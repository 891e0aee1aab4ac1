"""Events: one for what happens once, a series for what happens again, and never a wait for either."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from moorage.api.names import check_dns1123_subdomain
from moorage.errors import ClusterError
from moorage.live.runtime.event_recorder import NOTE_LIMIT, Recorder, shortened
from moorage.live.runtime.ports import EventNote
from moorage.testing.builders import a_pod
from moorage.testing.memory_cluster import MemoryCluster, Trouble
from moorage.testing.virtual_time import run_virtually

POD = a_pod("p").pod


def note(text="no room", pod=POD, reason="FailedScheduling", **more):
    return EventNote(pod, "Warning", reason, "Scheduling", text, reporter="default-scheduler", **more)


@asynccontextmanager
async def recording(cluster):
    clock = asyncio.get_running_loop().time
    reports = []
    recorder = Recorder(cluster, clock, lambda: f"{clock():.0f}", reports.append)
    recorder.reports = reports
    task = asyncio.create_task(recorder.run())
    try:
        yield recorder
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def tell(*steps, faults=()):
    """Run notes and pauses (numbers, in seconds); return the cluster and the recorder."""

    async def main():
        cluster = MemoryCluster()
        cluster.faults += faults
        async with recording(cluster) as recorder:
            for step in steps:
                if isinstance(step, EventNote):
                    recorder.note(step)
                else:
                    await asyncio.sleep(step)
        return cluster, recorder

    return run_virtually(main())


def written(cluster):
    return [(event.note.text, event.count, event.at, event.last) for event in cluster.events.values()]


def test_a_single_occurrence_is_a_plain_event():
    cluster, _ = tell(note(), 1)
    assert written(cluster) == [("no room", 1, "0", "")]
    assert cluster.requests["record"] == 1


def test_a_repeated_occurrence_becomes_a_series_under_the_same_name():
    cluster, _ = tell(note(), 10, note(), 1)
    assert written(cluster) == [("no room", 2, "0", "10")]
    assert cluster.requests["record"] == 2


def test_further_occurrences_are_counted_and_written_when_the_series_ends():
    cluster, _ = tell(note(), *[10, note()] * 5, 1)
    assert written(cluster)[0][1] == 2
    cluster, _ = tell(note(), *[10, note()] * 5, 800)
    assert written(cluster) == [("no room", 6, "0", "50")]
    assert cluster.requests["record"] == 3


def test_a_long_series_is_refreshed_every_half_hour():
    cluster, _ = tell(note(), *[100, note()] * 20)
    assert written(cluster)[0][1] == 18
    assert cluster.requests["record"] == 3


def test_after_six_idle_minutes_a_new_event_is_created():
    cluster, _ = tell(note(), 800, note(), 1)
    assert [count for _, count, _, _ in written(cluster)] == [1, 1]


OTHERS = {
    "another pod": note(pod=a_pod("q").pod),
    "a later version of the pod": note(pod=replace(POD, metadata=replace(POD.metadata, resource_version="7"))),
    "another reason": note(reason="Scheduled"),
    "about another pod as well": note(related=a_pod("q").pod),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_different_subject_reason_or_action_is_another_event(other):
    cluster, _ = tell(note(), other, 1)
    assert [event.count for event in cluster.events.values()] == [1, 1]


def test_a_different_note_is_the_same_event():
    cluster, _ = tell(note("1 node"), note("2 nodes"), 1)
    assert [(text, count) for text, count, _, _ in written(cluster)] == [("1 node", 2)]


def flushed(*notes, faults=()):
    """Tell of these, flush at once for a second, and return the cluster and how long that took."""

    async def main():
        cluster = MemoryCluster(latency_s=0.1)
        cluster.faults += faults
        async with recording(cluster) as recorder:
            for one in notes:
                recorder.note(one)
            begin = asyncio.get_running_loop().time()
            await recorder.flush(1.0)
            return cluster, asyncio.get_running_loop().time() - begin

    return run_virtually(main())


def test_shutdown_writes_queued_events_and_final_counts():
    cluster, took = flushed(*[note()] * 5, note(reason="Other"))
    assert sorted((event.note.reason, event.count) for event in cluster.events.values()) == [
        ("FailedScheduling", 5), ("Other", 1),
    ]  # fmt: skip
    assert took < 0.5


@pytest.mark.parametrize("trouble", [Trouble("record", times=99), Trouble("record", None, hold_s=30.0, times=99)])
def test_shutdown_does_not_wait_for_events_that_cannot_be_written(trouble):
    _, took = flushed(note(), note(reason="Other"), faults=[trouble])
    assert took == pytest.approx(1.0, abs=0.02)


def test_events_beyond_the_buffer_are_dropped_and_counted_without_waiting():
    pod = a_pod("p").pod
    notes = [note(pod=replace(pod, metadata=replace(pod.metadata, uid=str(i)))) for i in range(10_200)]
    cluster, recorder = tell(*notes, 100)
    assert recorder.dropped == 200
    assert len(cluster.events) == 10_000


def test_a_dropped_event_is_new_on_its_next_occurrence():
    pod = a_pod("p").pod
    notes = [note(pod=replace(pod, metadata=replace(pod.metadata, uid=str(i)))) for i in range(10_001)]
    cluster, _ = tell(*notes, 100, notes[-1], 1)
    assert len(cluster.events) == 10_001


def test_an_event_is_retried_while_the_server_is_unavailable():
    cluster, recorder = tell(note(), 45, faults=[Trouble("record", ClusterError("down", 503), times=3)])
    assert len(cluster.events) == 1
    assert (recorder.dropped, recorder.reports) == (0, [])


def test_an_event_is_dropped_after_twelve_tries():
    cluster, recorder = tell(note(), 200, faults=[Trouble("record", ClusterError("down", 503), times=50)])
    assert cluster.requests["record"] == 12
    assert recorder.dropped == 1
    assert "down" in recorder.reports[0]


def test_an_event_that_the_server_rejects_is_not_retried():
    cluster, recorder = tell(note(), 60, faults=[Trouble("record", ClusterError("forbidden", 403))])
    assert (cluster.requests["record"], recorder.dropped) == (1, 1)


def test_an_event_that_already_exists_counts_as_written():
    _, recorder = tell(note(), 60, faults=[Trouble("record", ClusterError("exists", 409))])
    assert (recorder.dropped, recorder.reports) == (0, [])


TEXTS = {  # text, its length in bytes once shortened
    "a short one": ("x" * 1024, 1024),
    "a long one": ("x" * 1025, NOTE_LIMIT),
    "a long one of two bytes a letter": ("é" * 600, NOTE_LIMIT),
    "a long one cut within a letter": ("x" + "é" * 600, NOTE_LIMIT - 1),
}


@pytest.mark.parametrize(("text", "size"), TEXTS.values(), ids=TEXTS)
def test_event_texts_are_cut_to_the_api_limits_in_bytes(text, size):
    short = shortened(text)
    assert len(short.encode()) == size
    assert short == text or short.endswith(" ...")


@pytest.mark.parametrize("length", [1, 236, 237, 253])
def test_events_of_pods_with_long_names_have_valid_names(length):
    pods = [a_pod(f"{'x' * (length - 1)}{mark}").pod for mark in "ab"]
    cluster, _ = tell(*(note(pod=pod) for pod in pods), 1)
    names = [event.name for event in cluster.events.values()]
    assert len(set(names)) == 2
    assert all(check_dns1123_subdomain(name) == [] for name in names)
    named = {pod.name for pod in pods} == {name.rpartition(".")[0] for name in names}
    assert named is (length <= 236)


# -- core/v1 -----------------------------------------------------------------------------------------------------------


def tell_core(*steps):
    """Run notes and pauses with Events of core/v1; return what was sent, in order."""

    async def main():
        cluster, sent = MemoryCluster(), []
        record = cluster.record

        async def recorded(event):
            sent.append((event.name, event.note.text, event.count, event.at, event.last, event.core))
            await record(event)

        cluster.record, cluster.record_soon = recorded, lambda events, done: False
        async with recording(cluster) as recorder:
            recorder.use_core_events()
            for step in steps:
                if isinstance(step, EventNote):
                    recorder.note(step)
                else:
                    await asyncio.sleep(step)
        return sent

    return run_virtually(main())


def test_a_core_event_that_occurs_again_raises_the_count_of_the_first():
    sent = tell_core(note(), 10, note("other"), 10, note(), 1000, note(), 1)
    names = [name for name, *_ in sent]
    assert names[0] == names[2] == names[3] != names[1]
    assert [(text, count, at, last) for _, text, count, at, last, _ in sent] == [
        ("no room", 1, "0", "0"), ("other", 1, "10", "10"), ("no room", 2, "0", "20"), ("no room", 3, "0", "1020"),
    ]  # fmt: skip
    assert all(core for *_, core in sent)


def test_from_the_tenth_text_on_core_events_are_combined():
    sent = tell_core(*[step for at in range(12) for step in (note(f"text {at}"), 1)], 601, note("text 12"), 1)
    texts = [(text, count) for _, text, count, *_ in sent]
    assert texts[:9] == [(f"text {at}", 1) for at in range(9)]
    assert texts[9:12] == [(f"(combined from similar events): text {at}", at - 8) for at in range(9, 12)]
    assert len({name for name, *_ in sent[9:12]}) == 1
    assert texts[12:] == [("text 12", 1)], "after ten quiet minutes texts are counted afresh"


def test_an_object_gets_25_core_events_and_then_one_in_five_minutes():
    many = [step for _ in range(40) for step in (note(), 1)]
    sent = tell_core(*many, 600, note(), 1, note(pod=a_pod("q").pod), 1)
    assert [count for _, _, count, *_ in sent] == [*range(1, 26), 41, 1]
