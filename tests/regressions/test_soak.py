"""S9: an hour of pods that come and go under faults leaves a scheduler no heavier than its first ten minutes did.

The suite runs 24 minutes; with MOORAGE_LONG_TESTS it is the hour.
"""

import asyncio
import os

import pytest

from moorage.api import pod_decoding
from tests.regressions.churning import churn
from tools.simtest import memory_weights
from tools.simtest.recording import MemoryRecord
from tools.simtest.stage import LOST, on_stage

MINUTES = 60 if os.environ.get("MOORAGE_LONG_TESTS") else 24


def weigh(stage):
    (member,) = stage.members
    store = stage.api.store  # its shelves are reached from the watches that a scheduler waits for
    beyond = (stage, stage.api, store, *store._kind_stores.values(), stage.network, stage.recording, stage.world, stage.mood)
    counts = {
        "tasks": memory_weights.tasks([*stage.world.tasks, asyncio.current_task()]),
        "objects": memory_weights.reachable(member.live, beyond),
    }
    for what, count in counts.items():
        stage.recording.add(MemoryRecord(stage.now, member.actor, what, count))
    return counts


async def soak(stage, minutes, *, every_s):
    stage.spoil("POST binding", error=LOST, after=True, share=0.1)
    stage.spoil("PATCH status", error=LOST, share=0.1)
    churning = asyncio.ensure_future(churn(stage, 60 * minutes + 1, every_s=every_s))
    found = []
    for minute in range(1, minutes + 1):
        await asyncio.sleep(60)
        stage.world.pod(f"huge-{minute}", cpu="1000")
        for link in stage.links() if minute % 4 == 0 else ():
            link.cut("expired" if minute % 8 else "connection reset")
        if minute >= minutes // 6:
            found.append(weigh(stage))
        stage.world.delete_pod(f"huge-{minute}", grace=0)
    await churning
    return found


@pytest.fixture(autouse=True)
def few_remembered_parts(monkeypatch):
    """The decoder remembers parts of so few pods that it remembers no more in the end than in the beginning."""
    monkeypatch.setattr(pod_decoding, "_MOST", 32)


@pytest.mark.slow
def test_memory_does_not_grow_over_an_hour():
    found = on_stage(lambda stage: soak(stage, MINUTES, every_s=4.0))
    assert len(found) == MINUTES - MINUTES // 6 + 1
    assert min(one["objects"] for one in found) > 1000


@pytest.mark.slow
def test_a_scheduler_that_leaks_events_is_detected(monkeypatch):
    from moorage.live.runtime.event_recorder import Recorder

    kept, note = [], Recorder.note

    def keeps(self, given):
        self.kept = kept
        kept.append([given, *range(300, 320)])
        note(self, given)

    monkeypatch.setattr(Recorder, "note", keeps)
    with pytest.raises(AssertionError, match="objects at first"):
        on_stage(lambda stage: soak(stage, 12, every_s=3.0))
