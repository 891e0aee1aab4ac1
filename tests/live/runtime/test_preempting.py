"""Preempting pods that are on their way to a node: what their plugins are at is broken off, what was sent is waited for."""

import asyncio
from dataclasses import replace

import pytest

from moorage.core.engine.facts import Seen
from moorage.errors import ClusterError
from moorage.framework.effects import Call, Delete, Until, Write
from moorage.testing.builders import a_node
from moorage.testing.memory_cluster import MemoryCluster, Trouble
from moorage.testing.virtual_time import run_virtually
from tests.live.runtime.test_loop import node, placed, pod, running

BY_PREEMPTION = "preempted by DefaultPreemption"
OF_PLUGIN = f'running PreBind plugin "Preparing": {BY_PREEMPTION}'


def now():
    return asyncio.get_running_loop().time()


class Preparing:
    """PreBind of ``low`` yields what it is given the first time; what happens to it is written down."""

    name = "Preparing"
    effects: tuple = ()
    undoing: tuple = ()
    log: list

    def reserve(self, state, pod, node):
        if pod.name == "low":
            self.log.append(("reserve", round(now(), 1)))

    def unreserve(self, state, pod, node):
        self.log.append(("unreserve", round(now(), 1)))
        return self.undoing

    def pre_bind(self, state, pod, node):
        first = sum(what == "reserve" for what, _ in self.log) == 1
        return self.effects if pod.name == "low" and first else ()


def preparing(*effects, undoing=()):
    return type("Preparing", (Preparing,), {"effects": effects, "undoing": undoing, "log": []})


async def preempted(plugin, *others, spoil=None, watch_s=20.0):
    """Let ``high`` preempt ``low`` in its second of preparing. Another node comes half a second later."""
    cluster = MemoryCluster([node("n1", cpu="1"), pod("low"), *others])
    cluster.faults += [spoil] if spoil is not None else []
    async with running(cluster, plugins=[plugin]) as loop:
        await asyncio.sleep(1)
        cluster.put(pod("high", priority=100))
        await asyncio.sleep(0.5)
        cluster.put(node("n2", cpu="1"))
        await asyncio.sleep(watch_s)
        assert not cluster.requests.get("delete_pod")
        assert not loop.reports
    return cluster


def bound_at(cluster, name):
    (at_s,) = [entry.at_s for entry in cluster.history if entry.verb == "bind" and entry.obj.name == name]
    return at_s


def told(cluster, name="low", reason="FailedScheduling"):
    return [note.text for note in cluster.notes if note.regarding.name == name and note.reason == reason]


def test_preemption_cancels_a_plugin_that_awaits_and_retries_the_pod():
    heard = []

    async def slow():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            heard.append(round(now(), 1))
            raise

    plugin = preparing(Call(slow, lambda: None), Call(slow, lambda: None))
    cluster = run_virtually(preempted(plugin))
    assert heard == [1.0]
    assert plugin.log == [("reserve", 0.0), ("unreserve", 1.0), ("reserve", 3.0)]
    assert placed(cluster) == {"low": "n2", "high": "n1"}
    assert bound_at(cluster, "low") < 3.1  # after its backoff, in whole seconds
    assert told(cluster) == [OF_PLUGIN]
    assert told(cluster, reason="Preempted") == ["Preempted by pod default/high on node n1 (in kube-scheduler memory)."]


def test_preemption_cancels_a_wait_for_an_external_condition():
    looks = []
    plugin = preparing(Until(lambda: looks.append(now()), 600.0, "binding volumes"))
    cluster = run_virtually(preempted(plugin))
    assert [round(at) for at in looks] == [0, 1]
    assert plugin.log[1][1] == 1.0
    assert told(cluster) == [OF_PLUGIN]
    assert placed(cluster) == {"low": "n2", "high": "n1"}


@pytest.mark.parametrize("error", [None, ClusterError("connection reset")], ids=["answered well", "its reply is lost"])
def test_a_sent_request_is_awaited_before_it_is_undone(error):
    """It may be carried out at any time until it is answered: what undoes it must not overtake it."""
    mark = a_node("mark")
    plugin = preparing(Write(mark), Call(lambda: asyncio.sleep(60), lambda: None), undoing=(Delete(mark),))
    spoil = Trouble("write", error, after=True, hold_s=5.0)
    cluster = run_virtually(preempted(plugin, spoil=spoil))
    of_mark = [(entry.verb, round(entry.at_s)) for entry in cluster.history if entry.obj.metadata.name == "mark"]
    assert of_mark == [("write", 5), ("remove", 5)]
    assert placed(cluster) == {"low": "n2", "high": "n1"}
    assert bound_at(cluster, "high") < 2.1  # it has the room at once
    assert told(cluster) == [OF_PLUGIN if error is None else 'running PreBind plugin "Preparing": connection reset']


async def tidies_up():
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        await asyncio.sleep(2)


async def breaks_down():
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        raise RuntimeError("no") from None


ENDS = {  # what a plugin does when it is cancelled; the message; when it is unreserved
    "it takes its time and ends well": (tidies_up, BY_PREEMPTION, 3.0),
    "it fails": (breaks_down, 'running PreBind plugin "Preparing": RuntimeError: no', 1.0),
}


@pytest.mark.parametrize(("run", "text", "at_s"), ENDS.values(), ids=ENDS)
def test_a_plugin_may_finish_despite_its_preemption(run, text, at_s):
    plugin = preparing(Call(run, lambda: None))
    cluster = run_virtually(preempted(plugin))
    assert told(cluster) == [text]
    assert plugin.log[1] == ("unreserve", at_s)
    assert bound_at(cluster, "high") < 2.1
    assert placed(cluster) == {"low": "n2", "high": "n1"}


def test_a_pod_preempted_before_prebind_never_starts_it():
    """Both are tried in one turn of the loop: what was asked for is not begun at all."""
    begun = []

    async def begins():
        begun.append(now())

    async def main():
        plugin = preparing(Call(begins, lambda: None))
        cluster = MemoryCluster([node("n1", cpu="1")], lag_s=0)
        async with running(cluster, plugins=[plugin]) as loop:
            await asyncio.sleep(1)
            step = loop.scheduler.step

            def step_and_tell(at):
                attempted = step(at)
                if attempted and len(plugin.log) == 1:
                    loop.scheduler.observe(Seen(cluster.put(pod("high", priority=100))), at)
                return attempted

            loop.scheduler.step = step_and_tell
            cluster.put(pod("low"))
            await asyncio.sleep(0.5)
        return plugin, cluster

    plugin, cluster = run_virtually(main())
    assert begun == []
    assert [what for what, _ in plugin.log] == ["reserve", "unreserve"]
    assert (placed(cluster), told(cluster)) == ({"low": "", "high": "n1"}, [OF_PLUGIN])


# -- several that want the same pod gone -----------------------------------------------------------------------------------


async def both_wanting(trouble, *, at_once=True):
    """Two that are more important, one after the other, want the place of one pod while its eviction is in flight."""
    cluster = MemoryCluster([node("n1", cpu="1"), pod("victim", nodeName="n1", terminationGracePeriodSeconds=5)])
    cluster.faults.append(trouble)
    async with running(cluster, gates={"SchedulerAsyncPreemption": at_once}) as loop:
        await asyncio.sleep(1)
        for name, priority in (("high", 100), ("higher", 200)):
            cluster.put(pod(name, priority=priority))
            await asyncio.sleep(1)
        await asyncio.sleep(60)
        assert not any(loop.scheduler.evicting_for(one.uid) for one in cluster.pods())
    return cluster


SLOW = {  # what is slow on the way: the mark or the DELETE itself
    "patch_status": Trouble("patch_status", None, hold_s=5.0, when=lambda it: it.name == "victim"),
    "delete_pod": Trouble("delete_pod", None, hold_s=5.0),
}


@pytest.mark.parametrize("at_once", [True, False], ids=["asynchronous", "in the attempt"])
@pytest.mark.parametrize("slow", SLOW.values(), ids=SLOW)
def test_a_victim_under_eviction_is_not_evicted_twice(slow, at_once):
    cluster = run_virtually(both_wanting(replace(slow), at_once=at_once))
    assert cluster.requests["delete_pod"] == 1
    assert placed(cluster) == {"high": "", "higher": "n1"}
    assert sum(event.count for event in cluster.events.values() if event.note.reason == "Preempted") == 2  # for each of them


def test_a_failed_eviction_fails_for_every_waiter():
    slow = Trouble("delete_pod", ClusterError("500", 500), hold_s=5.0)
    cluster = run_virtually(both_wanting(slow))
    assert cluster.requests["delete_pod"] == 2
    assert placed(cluster) == {"high": "", "higher": "n1"}


def test_an_already_deleted_victim_has_no_preemptor():
    slow = Trouble("delete_pod", ClusterError("gone", 404, "NotFound"), after=True, hold_s=5.0)
    cluster = run_virtually(both_wanting(slow))
    assert cluster.requests["delete_pod"] == 1
    assert not told(cluster, "victim", "Preempted")
    assert placed(cluster) == {"high": "", "higher": "n1"}
