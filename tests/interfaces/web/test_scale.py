"""The web interface of 5,000 nodes and 50,000 pods with a thousand changes a second for a minute, in a browser.

    MOORAGE_LONG_TESTS=1 pytest -s tests/interfaces/web/test_scale.py

prints what docs/reference/web-ui.md says. Times are CPU time: on a busy machine the clock says little.
"""

import asyncio
import threading
import time

import pytest

from moorage.api.core import Pod
from moorage.core.engine.facts import Seen
from moorage.interfaces.web.change_stream import Hub
from moorage.interfaces.web.report_server import _application, _Reader
from moorage.interfaces.web.site import Sessions, Site
from moorage.laboratory.explain.placement_report import score_columns, verdict_columns
from moorage.live.server.listening import listen, serving
from tests.interfaces.web.test_change_stream import LONG, Objects, a_node, a_pod
from tests.live.server.test_on_embedded_server import a_scheduler

pytestmark = [pytest.mark.slow, LONG]

NODES, PODS, SECONDS = 5000, 50_000, 60


def objects():
    nodes = [a_node(f"node-{at:05}") for at in range(NODES)]
    return nodes, [a_pod(f"pod-{at:05}-abcde", node=f"node-{at % NODES:05}") for at in range(PODS)]


class Server(threading.Thread):
    """Serves objects that change, with an event loop of its own."""

    def __init__(self):
        super().__init__(daemon=True)
        self.ready, self.done, self.link, self.used = threading.Event(), threading.Event(), "", 0.0

    def run(self):
        asyncio.run(self.serve())

    async def serve(self):
        self.source, self.loop, self.stop = Objects(*objects()), asyncio.get_running_loop(), asyncio.Event()
        sessions = Sessions()
        site = Site(Hub(self.source), sessions)
        async with serving(_application(site), listen("127.0.0.1", 0), None) as port:
            self.link = f"http://127.0.0.1:{port}/ui/#token={sessions.make_token(_Reader())}"
            self.ready.set()
            await self.stop.wait()
            site.end()

    async def change(self):
        """Make a thousand changes a second, then one that can be seen."""
        began, cpu = time.monotonic(), time.thread_time()
        for tenth in range(10 * SECONDS):
            for number in range(100):
                at = (tenth * 100 + number) % PODS
                self.source.put(a_pod(f"pod-{at:05}-abcde", node=f"node-{(at + tenth) % NODES:05}", cpu=f"{tenth + 1}m"))
            await asyncio.sleep(max(0.0, began + (tenth + 1) / 10 - time.monotonic()))
        self.used = time.thread_time() - cpu
        self.source.put(a_pod("the-last", why="0/5000 nodes are available"))
        self.done.set()


def test_a_minute_of_a_thousand_changes_a_second(visit, capsys):
    server = Server()
    server.start()
    server.ready.wait(60)
    said = []
    with visit.page("about:blank") as page:
        probe = page.context.new_cdp_session(page)
        probe.send("Performance.enable", {"timeDomain": "threadTicks"})

        def used(name="TaskDuration"):
            return {one["name"]: one["value"] for one in probe.send("Performance.getMetrics")["metrics"]}[name]

        page.goto(server.link)
        page.get_by_role("listbox").wait_for()
        first = used()
        page.get_by_text("live", exact=True).wait_for()
        before = used()
        asyncio.run_coroutine_threadsafe(server.change(), server.loop)
        server.done.wait(SECONDS * 3)
        ended = time.monotonic()
        page.get_by_role("link", name="the-last").wait_for()
        late, busy = time.monotonic() - ended, (used() - before) / SECONDS
        said.append(f"first map {first:.2f} s; changes: page {busy:.2f} s of CPU a second, server {server.used / SECONDS:.2f}")
        said.append(f"the last change is on screen {late:.2f} s after the minute")
        page.get_by_role("link", name="Time").click()
        page.get_by_role("heading", name="1 pod pending").wait_for()
        asyncio.run_coroutine_threadsafe(server.change(), server.loop)
        before = used()
        page.wait_for_timeout(10_000)
        charts = (used() - before) / 10
        probe.send("HeapProfiler.collectGarbage")
        heap = used("JSHeapUsedSize")
        said.append(f"Time page under the same load: {charts:.2f} s of CPU a second; memory {heap / 1e6:.0f} MB")
    server.loop.call_soon_threadsafe(server.stop.set)
    with capsys.disabled():
        print("", *said, sep="\n")
    assert first < 1.5
    assert busy < 0.5
    assert charts < 0.5
    assert late < 5  # a frame and the wait of a busy machine; the page is not behind by more
    assert heap < 300e6


def test_the_columns_of_a_pod_take_less_than_a_tenth_of_a_second(capsys):
    scheduler, said = a_scheduler(), []
    nodes, pods = objects()
    for one in (*nodes, *pods):
        scheduler.observe(Seen(one), 0.0)
    for columns in (verdict_columns, score_columns):
        took = []
        for number in range(5):
            pod: Pod = a_pod(f"asked-{number}", cpu="9")
            began = time.thread_time()
            columns(scheduler, scheduler.profiles, pod)
            took.append(time.thread_time() - began)
        said.append(f"{columns.__name__}: {1000 * min(took):.0f} ms, the first {1000 * took[0]:.0f} ms")
        assert min(took) < 0.1
    with capsys.disabled():
        print("", *said, sep="\n")
