"""Whatever an extender does, the attempt ends in time with an error of bounded length, and other pods are scheduled."""

from __future__ import annotations

import asyncio
import io
import re
import tracemalloc
from contextlib import asynccontextmanager

import pytest

from moorage.core.config.configuration import Extender as Configured
from moorage.core.extenders.consultation import HTTPExtender
from moorage.errors import ClusterError
from moorage.live.runtime.extender_client import ExtenderClient
from moorage.live.server.klog import Klog
from moorage.testing.memory_cluster import MemoryCluster, Trouble
from tests.live.runtime.malicious_extender import ANSWERS, HARMLESS, MIB, REFUSED, serving
from tests.live.runtime.test_loop import node, pod, running

TIMEOUT_S = 0.5
#: For replies that come in time, on a busy machine, too.
LONG_TIMEOUT_S = 5.0
#: A busy machine may be slow; one that waits for the whole of what comes would be slower still.
SLACK_S = 8.0
#: A reply may have 16 MiB. What is made of it takes more, for a moment.
MOST_BYTES = 160 * MIB
ESCAPES = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


class Measures:
    """Keeps decisions, and how long each attempt took."""

    def __init__(self):
        self.attempts = {}

    def attempted(self, decision, seconds):
        self.attempts.setdefault(decision.pod.name, (decision, seconds))

    def __getattr__(self, name):
        return lambda *given: None


class Run:
    """A loop on a cluster of two nodes that asks the extender; what it wrote and what it held at most."""

    def __init__(self):
        self.cluster = MemoryCluster([node("n1", cpu="50"), node("n2", cpu="50")])
        self.measures, self.text, self.asked, self.peak = Measures(), io.StringIO(), [], 0

    @asynccontextmanager
    async def going_on(self, *, ignorable=False, answers=ANSWERS, timeout_s=TIMEOUT_S):
        async with serving(answers, self.asked) as url, ExtenderClient([Configured(url_prefix=url)], {}) as client:
            extender = HTTPExtender(
                0, url, filter_verb="filter", timeout_s=timeout_s, node_cache_capable=True, ignorable=ignorable
            )
            log = Klog(verbosity=5, stream=self.text)
            async with running(self.cluster, asked=(extender,), extenders=client, log=log, measures=self.measures) as loop:
                loop._report = log.warning
                yield loop

    async def placed(self, name):
        async with asyncio.timeout(SLACK_S):
            while not any(one.name == name and one.spec.node_name for one in self.cluster.pods()):
                await asyncio.sleep(0.01)

    async def tried(self, name):
        async with asyncio.timeout(SLACK_S):
            while name not in self.measures.attempts:
                await asyncio.sleep(0.01)
        return self.measures.attempts[name]

    @property
    def lines(self):
        return self.text.getvalue().splitlines()


def play(name, **options):
    """Let the extender misbehave for a pod; another pod must be placed afterwards."""
    run = Run()

    async def main():
        async with run.going_on(**options):
            run.cluster.put(pod("before"))
            await run.placed("before")
            tracemalloc.start(1)
            try:
                run.cluster.put(pod(name))
                await run.tried(name)
                run.peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            run.cluster.put(pod("after"))
            await run.placed("after")
            await asyncio.sleep(0.05)

    asyncio.run(main())
    return run


def check_what_was_written(run, name):
    """Nothing that was logged, or told to the API, is long or steers a terminal."""
    about = [line for line in run.lines if name in line or line.startswith(("E", "W"))]
    assert about
    for line in about:
        assert len(line.encode()) < 1024 + 256, line[:300]  # 1 KiB for the error, and what stands before and after it
        assert not ESCAPES.search(line)
        assert re.match(r"[IWE]\d{4} ", line), line[:300]
    assert "Traceback" not in run.text.getvalue()
    assert all(len(note.text) < 70_000 for note in run.cluster.notes)
    for one in run.cluster.pods():
        for condition in one.status.conditions:
            condition.message.encode()
            assert len(condition.message) <= 32_768


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ANSWERS if name not in REFUSED | HARMLESS])
def test_a_malicious_extender_reply_fails_the_attempt(name):
    run = play(name)
    decision, seconds = run.measures.attempts[name]
    assert seconds < TIMEOUT_S + SLACK_S / 2
    assert decision.error is not None
    assert len(decision.message.encode()) <= 1024
    assert run.peak < MOST_BYTES
    check_what_was_written(run, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["silent", "a-gibibyte", "an-evil-error", "a-long-error", "quotes", "millions-of-values"])
def test_a_malicious_ignorable_extender_only_costs_time(name):
    run = play(name, ignorable=True)
    decision, _ = run.measures.attempts[name]
    assert decision.node in {"n1", "n2"}
    assert len(decision.done_without) == 1
    check_what_was_written(run, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_node_messages_of_an_extender_are_bounded_and_escaped(name):
    run = play(name, timeout_s=LONG_TIMEOUT_S)
    decision, _ = run.measures.attempts[name]
    assert decision.error is None
    assert decision.rejected_by == ("Extender",) or name in {"no-nodes", "reasons-of-strangers"}
    assert len(decision.message) < 5000
    check_what_was_written(run, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", HARMLESS)
def test_an_unusual_but_unambiguous_reply_is_accepted(name):
    run = play(name, timeout_s=LONG_TIMEOUT_S)
    assert run.measures.attempts[name][0].node in {"n1", "n2"}
    assert "poison" not in run.text.getvalue()


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_bind_error_of_a_mebibyte_is_logged_in_one_kibibyte(style):
    cluster = MemoryCluster([node("n1"), pod("p")])
    said = "\x1b[31mno\n" + '"' * MIB
    cluster.faults.append(Trouble("bind", ClusterError(said, 400, "BadRequest"), times=1))
    text = io.StringIO()

    async def main():
        async with running(cluster, log=Klog(verbosity=5, stream=text, style=style)):
            async with asyncio.timeout(SLACK_S):
                while not any(condition.message for one in cluster.pods() for condition in one.status.conditions):
                    await asyncio.sleep(0.01)

    asyncio.run(main())
    lines = text.getvalue().splitlines()
    assert any("Error scheduling pod; retrying" in line for line in lines)
    assert max(len(line.encode()) for line in lines) < 1024 + 256
    assert not any(ESCAPES.search(line) for line in lines)
    (waiting,) = cluster.pods()
    assert len(waiting.status.conditions[0].message) <= 32_768
