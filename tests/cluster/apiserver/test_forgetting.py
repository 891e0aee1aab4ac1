"""What is old goes: changes after five minutes, events after an hour, whatever the server's time of life."""

import asyncio
import random

import pytest

from moorage.api.documents.served_kinds import served
from moorage.cluster.apiserver.forgetting import EVERY_S, KEPT_S, forget_old
from moorage.rules.store.event_apis import EVENT_TTL_S
from moorage.rules.store.store import Store
from moorage.rules.store.watches import KEPT
from moorage.testing.virtual_time import run_virtually
from tools.soak.virtual import blocks

CONFIG, EVENTS = served("configmaps"), served("events")


async def written_each_second(minutes):
    """Return a store with a change each second, and an event each minute, and how many changes it held at each minute."""
    clock = asyncio.get_running_loop().time
    store = Store(lambda: 1e9 + clock(), random.Random(1), b"k")
    store.create(CONFIG, "default", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}})
    forgetting, held = asyncio.create_task(forget_old(store)), []
    for minute in range(minutes):
        event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": f"e{minute}"}, "reason": "R"}
        event["involvedObject"] = {"kind": "Pod", "namespace": "default", "name": "p"}
        store.create(EVENTS, "default", event)
        for second in range(60):
            store.change(CONFIG, "default", "web", lambda one, at=(minute, second): one.update(data={"at": str(at)}))
            await asyncio.sleep(1)
        held.append(len(store._kind_stores[CONFIG].history._changes))
    forgetting.cancel()
    return store, held


def test_changes_are_kept_for_five_minutes():
    _, held = run_virtually(written_each_second(12))
    assert held[4] >= KEPT_S - 1
    assert max(held) <= KEPT_S + 2 * EVERY_S
    assert held[-1] == held[-3]


@pytest.mark.slow
def test_events_are_kept_for_an_hour():
    store, _ = run_virtually(written_each_second(70))
    assert len([*store.all(EVENTS)]) <= EVENT_TTL_S / 60 + 2
    assert len(store._kind_stores[EVENTS].history._changes) <= KEPT


@pytest.mark.slow
def test_hours_of_pods_and_jobs_leave_nothing():
    """Changes, expired events, times that were parsed once, finished jobs: nothing of the hours before is alive."""
    alive = run_virtually(blocks(5, 1, 2))
    assert alive[-1] < alive[-2] + 300
