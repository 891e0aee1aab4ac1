"""Extenders on a living cluster, in virtual time: attempts wait for them, everything else goes on, and nothing is lost."""

import asyncio
import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from moorage.api.core import Pod
from moorage.core.extenders.consultation import HTTPExtender
from moorage.core.extenders.wire import ExtenderError
from moorage.testing.memory_cluster import MemoryCluster, Trouble
from moorage.testing.virtual_time import run_virtually
from tests.live.runtime.test_loop import binds, check_history, node, placed, pod, running

FILTER = (HTTPExtender(0, "http://e/", filter_verb="f", node_cache_capable=True),)
BINDER = HTTPExtender(0, "http://e/", bind_verb="bind")


class Scripted:
    """Answers after ``takes_s`` with what ``reply`` makes of the question, or raises it."""

    def __init__(self, reply, takes_s=0.0):
        self.reply, self.takes_s = reply, takes_s
        self.asked = []

    async def ask(self, question):
        body = json.loads(question.body)
        self.asked.append((asyncio.get_running_loop().time(), question.verb, body))
        await asyncio.sleep(self.takes_s)
        said = self.reply(body)
        if isinstance(said, Exception):
            raise said
        return json.dumps(said).encode()


def everything(body):
    return {"NodeNames": body["NodeNames"]}


def test_extender_calls_are_serial_while_binds_and_watches_continue():
    async def main():
        cluster = MemoryCluster([node("n1"), *(pod(f"p{at}") for at in range(2))])
        asker = Scripted(everything, takes_s=2)
        cluster.faults.append(Trouble("bind", None, hold_s=1.0, times=2))
        async with running(cluster, asked=FILTER, extenders=asker) as loop:
            await asyncio.sleep(1)
            cluster.put(node("n2"))
            await asyncio.sleep(1.5)
            first = [entry.at_s for entry in cluster.history if entry.verb == "bind"], len(asker.asked)
            await asyncio.sleep(10)
            return first, asker, cluster, loop

    first, asker, cluster, loop = run_virtually(main())
    assert first == ([], 2)  # the second pod is asked about while the first is being bound
    assert [body["NodeNames"] for _, _, body in asker.asked] == [["n1"], ["n1", "n2"]]
    assert [at for at, _, _ in asker.asked] == pytest.approx([0, 2], abs=0.1)
    assert [entry.at_s for entry in cluster.history if entry.verb == "bind"] == pytest.approx([3, 5], abs=0.1)
    assert loop.faults == 0


def test_extender_latency_counts_towards_the_attempt_duration():
    took = []

    class Measures:
        def attempted(self, decision, seconds):
            took.append(seconds)

        def __getattr__(self, name):
            return lambda *given: None

    async def main():
        cluster = MemoryCluster([node("n1"), pod("p1")])
        async with running(cluster, asked=FILTER, extenders=Scripted(everything, takes_s=2), measures=Measures()):
            await asyncio.sleep(5)

    run_virtually(main())
    assert took == pytest.approx([2], abs=0.1)


@pytest.mark.parametrize("error", [ExtenderError("connection refused"), KeyError("oops")], ids=["down", "a bug"])
def test_a_pod_is_retried_when_the_extender_recovers(error):
    async def main():
        cluster = MemoryCluster([node("n1"), pod("p1")])
        asker = Scripted(lambda body: error if len(asker.asked) < 3 else everything(body))
        async with running(cluster, asked=FILTER, extenders=asker):
            await asyncio.sleep(20)
            return cluster, len(asker.asked)

    cluster, times = run_virtually(main())
    assert (placed(cluster), times) == ({"p1": "n1"}, 3)
    texts = [note.text for note in cluster.notes if note.reason == "FailedScheduling"]
    assert texts[0] in {"connection refused", "KeyError: 'oops'"}


def test_shutdown_cancels_an_attempt_that_waits_for_an_extender():
    async def main():
        cluster = MemoryCluster([node("n1"), pod("p1")])
        async with running(cluster, asked=FILTER, extenders=Scripted(everything, takes_s=4)) as loop:
            await asyncio.sleep(1)
        return cluster, loop, asyncio.get_running_loop().time()

    cluster, loop, end = run_virtually(main())
    assert (placed(cluster), end) == ({"p1": ""}, 1)
    assert not loop.scheduler.waits_for_extenders
    assert loop.scheduler.queue.get("default/p1") is not None


# -- an extender that binds ---------------------------------------------------------------------------------------------------


def binding_to(cluster, answer=None):
    def bind(body):
        held = cluster.get(Pod, f"{body['PodNamespace']}/{body['PodName']}")
        cluster.put(replace(held, spec=replace(held.spec, node_name=body["Node"])), "bind")
        return {"Error": ""} if answer is None else answer

    return bind


ANSWERS = {"well": None, "with an error": {"Error": "too slow"}, "and its reply is lost": ExtenderError("unexpected EOF")}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("ignorable", [True, False])
def test_a_bind_by_an_extender_stands_whatever_its_reply(answer, ignorable):
    async def main():
        cluster = MemoryCluster([node("n1"), pod("p1")], lag_s=60)
        asker = Scripted(binding_to(cluster, answer))
        async with running(cluster, asked=(replace(BINDER, ignorable=ignorable),), extenders=asker):
            await asyncio.sleep(30)
            return cluster, asker

    cluster, asker = run_virtually(main())
    assert (binds(cluster), len(asker.asked), cluster.requests.get("bind", 0)) == (["default/p1"], 1, 0)
    assert [note.reason for note in cluster.notes] == ["Scheduled"]


@pytest.mark.parametrize("ignorable", [True, False])
def test_a_pod_that_an_extender_fails_to_bind_is_bound_by_a_plugin_or_retried(ignorable):
    async def main():
        cluster = MemoryCluster([node("n1"), pod("p1")])
        asker = Scripted(lambda body: {"Error": "no"} if len(asker.asked) < 2 else binding_to(cluster)(body))
        async with running(cluster, asked=(replace(BINDER, ignorable=ignorable),), extenders=asker):
            await asyncio.sleep(30)
            return cluster, asker

    cluster, asker = run_virtually(main())
    assert placed(cluster) == {"p1": "n1"}
    assert (len(asker.asked), cluster.requests.get("bind", 0)) == ((1, 1) if ignorable else (2, 0))


def test_no_extender_bind_is_sent_after_the_deadline():
    async def main():
        cluster = MemoryCluster([node("n1")])
        asker = Scripted(binding_to(cluster))
        deadlines = iter([True])  # the attempt may still begin, and then the lease is gone
        async with running(cluster, asked=(BINDER,), extenders=asker, may_act=lambda now: next(deadlines, False) or now < 1):
            await asyncio.sleep(2)
            cluster.put(pod("p1"))
            await asyncio.sleep(30)
            return asker.asked

    assert run_virtually(main()) == []


# -- whatever they do ---------------------------------------------------------------------------------------------------------

WHIMS = ["well", "well", "down", "nonsense", "no node", "a stranger", "late", "an error of its own"]


class Whimsical:
    """Filters, prioritizes and binds well or badly, as the next of its moods has it; in the end always well."""

    def __init__(self, cluster, moods):
        self.cluster, self.moods = cluster, list(moods)

    async def ask(self, question):
        mood = self.moods.pop() if self.moods else "well"
        body = json.loads(question.body)
        if question.verb == "bind" and mood in {"no node", "a stranger"}:
            mood = "well"  # one that says it has bound, and has not, is believed, as by kube-scheduler
        if question.verb == "bind" and mood in {"well", "late", "nonsense"}:
            try:
                binding_to(self.cluster)(body)
            except AttributeError:  # the pod is gone
                mood = "an error of its own"
        if mood == "late":
            await asyncio.sleep(question.timeout_s)
            raise ExtenderError("context deadline exceeded")
        if mood == "down":
            raise ExtenderError("connection refused")
        return {"nonsense": b"<html>", "no node": b"{}", "an error of its own": b'{"Error": "no"}'}.get(mood) or json.dumps(
            {"NodeNames": [*body.get("NodeNames", []), *(["n99"] if mood == "a stranger" else [])]}
        ).encode()


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(WHIMS), max_size=12),
    st.booleans(),
    st.booleans(),
    st.lists(st.sampled_from(["1", "2"]), min_size=1, max_size=5),
    st.sampled_from([0.001, 0.01, 2.0]),
    st.sampled_from([0.001, 0.003, 0.3]),
)
def test_extender_faults_lose_no_pod_and_overcommit_no_node(moods, ignorable, binds_itself, sizes, lag_s, every_s):
    async def main():
        cluster = MemoryCluster([node(f"n{at}") for at in range(3)], lag_s=lag_s)
        verbs = {"filter_verb": "f", "prioritize_verb": "p", "bind_verb": "bind" if binds_itself else ""}
        extender = HTTPExtender(0, "http://e/", node_cache_capable=True, ignorable=ignorable, **verbs)
        async with running(cluster, asked=(extender,), extenders=Whimsical(cluster, moods)) as loop:
            for number, size in enumerate(sizes):
                cluster.put(pod(f"p{number}", cpu=size))
                await asyncio.sleep(every_s)
            cluster.remove(cluster.get(Pod, "default/p0"))
            await asyncio.sleep(len(moods) * 330 + 600)  # "no node" again and again: it is asked every five and a half minutes
            return cluster, loop

    cluster, loop = run_virtually(main())
    size_of = {f"default/p{number}": int(size) for number, size in enumerate(sizes)}
    check_history(cluster, lambda uid: size_of[uid])
    assert len(binds(cluster)) == len(set(binds(cluster)))
    used = Counter()
    for one in cluster.pods():
        used[one.spec.node_name] += size_of[one.uid]
        assert (loop.scheduler.cluster.node_of(one.uid) or "") == one.spec.node_name
    pending = [one for one in cluster.pods() if not one.spec.node_name]
    assert len(loop.scheduler.queue) == len(pending)
    assert [one.name for one in pending if size_of[one.uid] <= max(2 - used[f"n{at}"] for at in range(3))] == []
