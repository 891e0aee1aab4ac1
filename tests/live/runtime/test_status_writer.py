"""What is said of a pod's attempts comes in order, and never after its bind."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from moorage.api.core import Pod, PodCondition
from moorage.api.releases import CURRENT, find_release
from moorage.core.engine.facts import Done, Phase, Work
from moorage.errors import ClusterError
from moorage.framework.effects import BindPod, Evict
from moorage.live.runtime.bind_verifier import Confirmer
from moorage.live.runtime.executor import EffectExecutor
from moorage.live.runtime.inbox import Inbox
from moorage.live.runtime.ports import Clocks, StatusChange
from moorage.live.runtime.status_writer import StatusWriter, in_seconds
from moorage.testing.builders import a_pod
from moorage.testing.memory_cluster import MemoryCluster, Trouble
from moorage.testing.virtual_time import run_virtually

NOW = "2026-11-21T11:23:49.996110Z"


def said(message):
    return StatusChange(PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message=message))


@asynccontextmanager
async def telling(cluster, release=CURRENT):
    clock = asyncio.get_running_loop().time
    teller = StatusWriter(cluster, clock, lambda: NOW, print, release)
    task = asyncio.create_task(teller.run())
    try:
        yield teller
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def carrier(cluster, inbox, teller):
    clock, view = asyncio.get_running_loop().time, Wanting()
    confirmer = Confirmer(cluster, inbox, clock, view, print)
    return EffectExecutor(cluster, inbox, teller, Clocks(clock, lambda: NOW), view, confirmer, may_act=lambda now: True)


class Wanting:
    """A scheduler that wants all of its work."""

    @property
    def cluster(self):
        return self

    def is_wanted(self, ticket):
        return True

    def is_assumed(self, uid):
        return True


def verbs(cluster):
    return [entry.verb for entry in cluster.history if entry.verb in {"bind", "patch_status"}]


def test_a_bind_waits_for_the_status_write_in_progress_and_drops_queued_ones():
    async def main():
        one = a_pod("p")
        cluster = MemoryCluster([one.pod])
        cluster.faults.append(Trouble("patch_status", None, hold_s=3))
        async with telling(cluster) as teller:
            teller.change(one.pod, said("not yet"))
            await asyncio.sleep(1)
            teller.change(one.pod, said("still not"))
            carrier(cluster, Inbox(), teller).start(Work(1, Phase.BIND, one, "n1", (BindPod(one, "n1"),)))
            await asyncio.sleep(10)
        return cluster

    cluster = run_virtually(main())
    assert verbs(cluster) == ["patch_status", "bind"]
    (condition,) = cluster.get(Pod, "default/p").status.conditions
    assert condition.message == "not yet"


def test_status_writes_of_one_pod_keep_their_order():
    async def main():
        one, other = a_pod("p"), a_pod("q")
        cluster = MemoryCluster([one.pod, other.pod])
        cluster.faults.append(Trouble("patch_status", None, hold_s=3))
        async with telling(cluster) as teller:
            teller.change(one.pod, said("first"))
            await asyncio.sleep(1)
            teller.change(one.pod, said("second"))
            teller.change(other.pod, said("by itself"))
            await asyncio.sleep(10)
        return [entry.obj for entry in cluster.history if entry.verb == "patch_status"]

    written = run_virtually(main())
    assert [pod.status.conditions[0].message for pod in written] == ["by itself", "first", "second"]


def test_victim_events_have_no_related_pod_and_conditions_whole_seconds():
    async def main():
        victim, high = a_pod("low", nodeName="n1"), a_pod("high")
        cluster = MemoryCluster([victim.pod, high.pod])
        async with telling(cluster) as teller:
            work = Work(1, Phase.PREEMPT, high, "n1", (Evict(victim, high, "preempting"),))
            carrier(cluster, Inbox(), teller).start(work)
            await asyncio.sleep(1)
        return cluster

    cluster = run_virtually(main())
    (note,) = cluster.notes
    assert (note.reason, note.related) == ("Preempted", None)
    marked = next(entry.obj for entry in cluster.history if entry.verb == "patch_status")
    assert marked.status.conditions[0].last_transition_time == "2026-11-21T11:23:49Z"


def test_a_time_is_truncated_to_seconds():
    assert [in_seconds(NOW), in_seconds("2026-11-21T11:23:49Z")] == ["2026-11-21T11:23:49Z"] * 2


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ClusterError('POST /x: pods "p" is forbidden: no', 403, "Forbidden", said='pods "p" is forbidden: no'),
         'pods "p" is forbidden: no'),
        (ClusterError("POST /x: connection reset"), "bind default/p to n1: POST /x: connection reset; it is still on no node"),
    ],
    ids=["refused", "lost"],
)  # fmt: skip
def test_a_rejected_bind_is_reported_with_the_servers_message(error, told):
    async def main():
        one = a_pod("p")
        cluster, inbox = MemoryCluster([one.pod]), Inbox()
        cluster.faults.append(Trouble("bind", error))
        async with telling(cluster) as teller:
            carrier(cluster, inbox, teller).start(Work(1, Phase.BIND, one, "n1", (BindPod(one, "n1"),)))
            await asyncio.sleep(1)
        return [fact for fact in inbox.take(10) if isinstance(fact, Done)]

    assert run_virtually(main()) == [Done(1, told, 0)]


@pytest.mark.parametrize(
    ("version", "by"), [("1.21", "default/high"), ("1.28", "a pod"), ("1.29", "pod uid-high"), ("1.36", "pod uid-high")]
)
def test_the_event_of_an_evicted_pod_is_that_of_the_release(version, by):
    async def main():
        cluster = MemoryCluster([])
        async with telling(cluster, find_release(version)) as teller:
            teller.preempted(Evict(a_pod("low", nodeName="n1"), a_pod("high", uid="uid-high"), "for another"))
            await asyncio.sleep(1)
        return cluster

    (note,) = run_virtually(main()).notes
    assert note.text == f"Preempted by {by} on node n1"
