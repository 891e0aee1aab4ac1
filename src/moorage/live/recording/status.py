"""The state of a recorder for others: a file beside the log, and metrics."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from moorage.basis.files import put_file
from moorage.basis.recording.log_reader import ClusterLog, is_log, moment_text
from moorage.errors import ConfigError, InputError
from moorage.live.recording.decision_comparison import reasons_in
from moorage.live.recording.recorder_loop import RecorderLoop

STATUS_FILE: Final = "status.json"
#: How many reasons of pending pods have a series of their own.
_MOST_CAUSES: Final = 20


def status_of(loop: RecorderLoop) -> dict[str, Any]:
    """Return the state as plain data."""
    recorder, shadow = loop.recorder, loop.shadow
    return {
        "pid": os.getpid(), "about": dict(loop.about),
        "at": recorder.clock.last, "aheadSeconds": round(recorder.clock.ahead_s, 3),
        "started": recorder.has_started, "listing": loop.not_synced, "objects": len(recorder),
        "records": dict(recorder.counts), "facts": loop.facts, "faults": shadow.faults,
        "behindSeconds": round(loop.behind_s, 1), "waiting": len(loop.inbox), "writeError": loop.write_error,
        "agreement": shadow.agreement.facts(), "differences": list(map(recorder.encoder.facts, shadow.agreement.differences)),
        "pending": shadow.pending, **recorder.encoder.facts({"causes": causes(shadow.messages())}),
    }  # fmt: skip


def read_status(directory: Path) -> dict[str, Any] | None:
    """Return the last state that a recorder of this log wrote; None if there is none that can be read."""
    try:
        return msgspec.json.decode((directory / STATUS_FILE).read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError):
        return None


def agreement_of(directory: Path) -> dict[str, Any]:
    """Return how far the decisions that a log has agree with Moorage's, and the last differences; for pages."""
    found = read_status(directory)
    if found is None:  # the log itself has a mark from time to time
        log = ClusterLog(directory)
        mark = log.state_at(log.span()[1]).marks.get("agreement")
        found = {} if mark is None else {"agreement": mark.facts}
    differences = [{**one, "at": moment_text(one["at"])} for one in found.get("differences", ())]
    options = found.get("about", {}).get("options", "")
    return {"log": str(directory), "agreement": found.get("agreement", {}), "differences": differences, "options": options}


def count_on(loop: RecorderLoop) -> None:
    """Let the agreement go on from that of the last recorder of the log, if it compared with the same server and release.

    Raises  InputError if the log is that of another cluster
    """
    directory = loop.recorder.writer.directory
    before = read_status(directory) or {}
    about, now = before.get("about"), loop.about
    if about is not None and about.get("cluster") and now.get("cluster") not in {None, "", about["cluster"]}:
        raise InputError(f"{directory}: the log is that of another cluster, {about['server']}; give each its own directory")
    if about is not None and all(about.get(name) == now.get(name) for name in ("server", "release", "redacted")):
        differences = () if now.get("redacted") else before.get("differences", ())  # tokens are not made of tokens
        loop.shadow.agreement.go_on(before.get("agreement", {}), differences)


def write_status(loop: RecorderLoop) -> None:
    """Write the file as a whole; a disk that is full leaves the last one."""
    try:
        put_file(loop.recorder.writer.directory / STATUS_FILE, msgspec.json.format(msgspec.json.encode(status_of(loop))))
    except (OSError, ConfigError) as error:
        loop.write_error = str(error)


def causes(messages: Iterable[str]) -> dict[str, int]:
    """Return how many pods have each reason, the most frequent first; rare ones are counted together."""
    found: Counter[str] = Counter()
    for message in messages:
        found.update({re.sub("^[0-9]+ ", "", one) for one in reasons_in(message)[1:]})
    most = found.most_common(_MOST_CAUSES)
    rest = found.total() - sum(count for _, count in most)
    return {**dict(most), **({"other": rest} if rest else {})}


class _Metrics(Collector):
    def __init__(self, loop: RecorderLoop) -> None:
        self._loop = loop

    def collect(self) -> Iterable[Metric]:
        loop = self._loop
        recorder, agreement = loop.recorder, loop.shadow.agreement
        directory: Path = recorder.writer.directory
        gauges = {
            "objects": ("Objects that the recorder follows.", len(recorder)),
            "pending_pods": ("Pods that wait for a node from the scheduler.", loop.shadow.pending),
            "behind_seconds": ("Age of the oldest change that is not recorded, at most.", loop.behind_s),
            "waiting_changes": ("Changes that are not recorded yet.", len(loop.inbox)),
            "unlisted_kinds": ("Kinds that are not listed yet.", len(loop.not_synced)),
            "write_failing": ("1 while the log cannot be written.", int(bool(loop.write_error))),
            "clock_ahead_seconds": ("By how much times of the log are ahead of the time of day.", recorder.clock.ahead_s),
            "log_bytes": ("Size of the log.", ClusterLog(directory).bytes_on_disk if is_log(directory) else 0),
        }
        if (share := agreement.share) is not None:
            gauges["agreement_ratio"] = "Share of compared decisions that agree.", share
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"moorage_record_{name}", text, value=value)
        compared = {("binding", verdict): count for verdict, count in agreement.bindings.items()}
        compared |= {("failure", verdict): count for verdict, count in agreement.failures.items()}
        yield _family("comparisons", "Compared decisions.", compared, "decision", "verdict")
        yield _family("differences_by_plugin", "Differences, by a plugin that made them.", agreement.plugins, "plugin")
        yield _family("uncompared", "Decisions that were not compared.", agreement.uncompared, "reason")
        yield _family("records", "Records written.", recorder.counts, "sort")
        yield _family("written_bytes", "Bytes written to the log.", {(): recorder.writer.written_bytes})
        pending = causes(loop.shadow.messages())
        yield _family("pending_by_cause", "Pending pods, by reason.", pending, "cause", kind=GaugeMetricFamily)


def _family(name: str, text: str, values: Mapping[Any, float], *labels: str, kind: Any = CounterMetricFamily) -> Metric:
    """Return a metric with the values of a label, or of several as tuples."""
    family: Metric = kind(f"moorage_record_{name}", text, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric((key,) if isinstance(key, str) else key, value)  # type: ignore[attr-defined]
    return family


def metrics_app(loop: RecorderLoop) -> web.Application:
    """Return an application that serves ``/metrics``, ``/healthz`` and ``/readyz`` to reads."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Metrics(loop))

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/metrics":
            return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})
        trouble = "" if loop.recorder.has_started else f"not listed yet: {', '.join(loop.not_synced)}"
        trouble = "" if request.path == "/healthz" else trouble or loop.write_error
        return web.Response(text=f"{trouble or 'ok'}\n", status=503 if trouble else 200)

    app = web.Application(client_max_size=1024)
    app.add_routes([web.get(path, answer) for path in ("/metrics", "/healthz", "/readyz")])
    return app
