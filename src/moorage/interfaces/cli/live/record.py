"""``moorage record``: record a cluster into a log, and compare the decisions of its scheduler with Moorage's."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from shlex import quote
from socket import socket
from typing import Any, Final

import click
import msgspec
from msgspec.structs import replace as with_fields

from moorage import __version__
from moorage.basis.change_recorder import ChangeRecorder, LogClock, ObjectEncoder
from moorage.basis.client.credentials import Endpoint
from moorage.basis.client.gathering_selector import gathering_loop
from moorage.basis.client.rest import Rest, user_agent
from moorage.basis.client.server_version import cluster_uid, server_version
from moorage.basis.inputs.simulated_kinds import list_parts
from moorage.basis.printable import counted, one_line
from moorage.basis.recording.log_reader import STARTED, STATE_KEPT_S, ClusterLog, moment_text, parse_seconds
from moorage.basis.recording.log_writer import LogLimits, LogWriter
from moorage.core.building.builder import complete_scheduler
from moorage.core.config.scheduler_document import Loaded
from moorage.core.engine.engine_state import EngineSettings
from moorage.core.queue import QueueTimes
from moorage.errors import InputError
from moorage.interfaces.cli import cluster_files
from moorage.interfaces.cli.given_back_memory import collect_seldom, giving_back_memory
from moorage.interfaces.cli.live.run_serving import Ending, live_release
from moorage.interfaces.cli.main import ERROR, OK, PENDING, CommandGroup
from moorage.interfaces.cli.option_tables import AUTO, described
from moorage.interfaces.cli.questions.dump import write_parts
from moorage.interfaces.cli.questions.redact import read_key
from moorage.interfaces.cli.terminal import Progress, say
from moorage.laboratory.cluster_objects import read_given
from moorage.laboratory.dump.live_dump import endpoint_of
from moorage.laboratory.recording.capsule import Capsule, cut_capsule, decide_alone
from moorage.laboratory.recording.redacted_log import RedactingEncoder
from moorage.laboratory.redact.redaction import redact
from moorage.live.recording.companion_watches import find_companions
from moorage.live.recording.decision_comparison import TOO_MANY, Match, Shadow
from moorage.live.recording.recorder_loop import BEHIND_S, RecorderLoop
from moorage.live.recording.status import count_on, metrics_app, read_status, write_status
from moorage.live.runtime.attempt_metrics import Observers
from moorage.live.server.klog import Klog, adopt_other_loggers
from moorage.live.server.listening import listen, serving
from moorage.report.style import cells, human, paragraph
from moorage.simulator.cluster_run import objects_of
from moorage.simulator.simulate import Options, kinds_named, load_options

#: What other commands that decide have options for.
_NO_OTHERS: Final = {"algorithm_provider": "", "max_disks": None, "extenders": "skip", "no_quota": True, "seed": 0}


# -- record cut --------------------------------------------------------------------------------------------------------


@described("record-cut", short_help="Cut the smallest input that repeats a decision.")
def cut(**given: Any) -> None:
    """Run ``moorage record cut``."""
    collect_seldom()
    options = cluster_files.simulation_options({**_NO_OTHERS, **given})
    from moorage.interfaces.cli.questions.explain import before_binding  # these are rarely needed here
    from moorage.laboratory.compare.run_inputs import unplaced

    key = given["pod_name"] if "/" in given["pod_name"] else f"default/{given['pod_name']}"
    with Progress(quiet=given["quiet"]) as progress:
        progress.say("reading the input …")
        paths = cluster_files.paths_of(before_binding({**given, "pods": (key,)}))
        cluster = cluster_files.read_cluster(
            paths, given["recursive"], kinds_named(options), cluster_files.rules_of(given), progress
        )
        options = cluster_files.emulating(options, given, cluster)
        pod = next((one for one in cluster.pods if one.key == key), None)
        if pod is None:
            raise InputError(f"pod {key} not found at {cluster.report.taken_at or 'that moment'}")
        found = cut_capsule(
            cluster, unplaced(pod) if pod.spec.node_name else pod, options, given["beside"],
            lambda made, left: progress.say(f"{counted(made, 'trial')}, {counted(left, 'object')} left …"),
        )  # fmt: skip
    documents = found.documents()
    name = found.pod.key
    if given["key_file"] is not None:
        documents, name = _redacted(found, read_key(given["key_file"], quiet=given["quiet"]), options)
    settings = {
        "pod": name, "seed": options.seed, "emulate": options.emulate, "featureGates": options.feature_gates,
        "config": "" if given["key_file"] else (options.config or b"").decode(errors="replace"),
    }  # fmt: skip
    record = found.record(cluster.report.taken_at, {name: value for name, value in settings.items() if value})
    if given["key_file"] is not None:
        record["capsule"].pop("outcome", None)
    write_parts(given["path"], list_parts(map(msgspec.json.encode, (record, *documents))))
    if not given["quiet"]:
        size = f"{counted(len(documents), 'object')} of {found.of_objects + 1:,}, {counted(found.trials, 'trial')}"
        say(f"{given['path'] or 'standard output'}: {size}", err=True)
        say(f"{found.pod.key} {found.outcome.sentence()}", err=True)


def _redacted(found: Capsule, key: bytes, options: Options) -> tuple[list[dict[str, Any]], str]:
    """Return the documents with tokens, and the token of the pod, whose decision must be the same one.

    Raises  InputError
    """
    made = redact([*found.objects, found.pod], key).objects
    read = read_given(made)
    pod = read.pods[-1]  # objects of a kind keep their order
    decision, _ = decide_alone([one for one in objects_of(read) if one is not pod], pod, options)
    if bool(decision.node) != bool(found.outcome.node) or (not decision.node and decision.rejected_by != found.outcome.plugins):
        raise InputError("without its names the capsule does not repeat the decision; leave --redact out")
    return made, pod.key


# -- record status -----------------------------------------------------------------------------------------------------

_VERDICTS: Final = {
    Match.SAME: "the same node, or the same reasons",
    Match.EQUAL_SCORE: "another node with an equal score",
    Match.SAMPLED: "the best of a possible sample of nodes",
    Match.REORDERED: "the same, with other changes counted earlier or later",
    Match.DIFFERENT: "different",
}


@described("record-status", short_help="Say what a log covers, and whether decisions agree.")
def status(directory: str, verify: bool, output: str) -> int:
    """Run ``moorage record status``."""
    found = _document(ClusterLog(directory), verify=verify)
    if output == "json":
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found)).decode() + "\n")
    else:
        sys.stdout.write("".join(_text(found)))
    recorder = found["recorder"] or {}
    damaged = any(not one["torn"] for one in found["faults"] or ())
    troubled = recorder.get("writeError") or recorder.get("behindSeconds", 0) >= BEHIND_S
    different = found["agreement"].get("share") not in {None, 1.0}
    return PENDING if damaged or troubled or different else OK


def _document(log: ClusterLog, *, verify: bool) -> dict[str, Any]:
    """Return what is known of a log as plain data."""
    first, last = log.span()
    state = log.state_at(last)
    marks = {what: mark.facts for what, mark in state.marks.items()}
    recorder = read_status(log.directory)
    if recorder is not None:
        silent_s = time.time() - recorder.get("at", 0) / 1e6
        recorder["running"] = silent_s < STATE_KEPT_S + max(0.0, -recorder.get("aheadSeconds", 0))
    return {
        "log": str(log.directory), "from": moment_text(first), "to": moment_text(last), "bytes": log.bytes_on_disk,
        "objects": len(state.objects), "started": marks.get(STARTED, {}), "recorder": recorder,
        "agreement": (recorder or {}).get("agreement") or marks.get("agreement", {}),
        "faults": [one._asdict() for one in log.faults()] if verify else None,
    }  # fmt: skip


def _line(text: str, indent: str = "  ") -> str:
    return paragraph(one_line(text), indent=indent, hanging=indent + "  ") + "\n"


def _text(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines for people."""
    started, recorder, faults = found["started"], found["recorder"], found["faults"]
    about = started.get("server") or ("a simulation" if started.get("simulated") else "a redacted cluster")
    yield _line(f"{found['log']}: {found['from']} to {found['to']}, {human('memory', found['bytes'])}B", indent="")
    yield _line(f"{counted(found['objects'], 'object')} at its end; {about}, decisions of {started.get('release', 'Moorage')}")
    if recorder is None:
        yield _line("there is no status of moorage record; moorage run --record writes none")
    else:
        yield from _running(recorder)
    yield from _agreement(found["agreement"])
    yield from _differences(found["log"], (recorder or {}).get("differences") or (), started.get("options", ""))
    if faults is not None:
        damaged = [one for one in faults if not one["torn"]]
        torn = len(faults) - len(damaged)
        yield f"\n{'No damage' if not damaged else counted(len(damaged), 'damaged place')}"
        yield f"; {counted(torn, 'file')} ended by a kill.\n" if torn else ".\n"
        yield from (_line(f"{one['file']}: byte {one['offset']}: {one['why']}") for one in damaged)


def _running(recorder: Mapping[str, Any]) -> Iterator[str]:
    what = "recording" if recorder["running"] else "the recorder does not run"
    if recorder["running"] and recorder.get("behindSeconds", 0) >= BEHIND_S:
        what = f"BEHIND by {recorder['behindSeconds']:.0f} s, {counted(recorder['waiting'], 'change')} to take"
    yield _line(f"CANNOT WRITE: {recorder['writeError']}" if recorder.get("writeError") else what)
    if (ahead := recorder.get("aheadSeconds") or 0) > 1:
        yield _line(f"times are {ahead:.0f} s ahead of the time of day, which was set back")
    if recorder.get("pending"):
        yield _line(f"{counted(recorder['pending'], 'pod')} pending")
        yield from (f"    {many:>6}  {one_line(cause)}\n" for cause, many in list((recorder.get("causes") or {}).items())[:5])


def _agreement(agreement: Mapping[str, Any]) -> Iterator[str]:
    share = agreement.get("share")
    if share is None:
        yield "\nNo decision was compared yet.\n"
        return
    percent = "100 %" if share == 1 else f"{min(share * 100, 99.99):.2f} %"  # never 100 % for less than all
    many = agreement.get("uncompared", {}).get(TOO_MANY, 0)
    known = f", {many:,} of them by estimate" if many else ""
    yield f"\nMoorage agrees with {percent} of {counted(agreement.get('compared', 0) + many, 'decision')}{known}:\n"
    rows = [("BINDINGS", "FAILURES", "MOORAGE CHOOSES")]
    for verdict, text in _VERDICTS.items():
        both = [agreement.get(what, {}).get(verdict.value, 0) for what in ("bindings", "failures")]
        rows += [(f"{both[0]:,}", f"{both[1]:,}", text)] if any(both) else []
    yield cells(rows, (10, 10, 56)) + "\n"
    if plugins := agreement.get("plugins"):
        yield "Differences by plugin: " + ", ".join(f"{name} {count:,}" for name, count in sorted(plugins.items())) + ".\n"
    if uncompared := agreement.get("uncompared"):
        reasons = "; ".join(f"{count:,}: {why}" for why, count in sorted(uncompared.items()))
        yield _line(f"Not compared: {reasons}.", indent="")


def _differences(log: str, differences: Sequence[Mapping[str, Any]], options: str) -> Iterator[str]:
    """Yield the last differences, and the command that cuts the last one out of the log."""
    if not differences:
        return
    yield "\nLast differences:\n"
    for one in differences[-5:]:
        why = f" ({', '.join(one['plugins'])})" if one.get("plugins") else ""
        where = f"{one.get('node') or 'pending'}, Moorage {one.get('ours') or 'pending'}{why}"
        yield _line(f"{moment_text(one['at'])} {one['pod']}: {where}")
    last = differences[-1]
    beside = f" --beside {last['node']}" if last.get("node") else ""
    yield f"Repeat one:\n  moorage record cut -f {log} --pod {last['pod']} \\\n"
    yield f"    --at {moment_text(last['at'])}{beside} \\\n   {options} -o case.json.gz\n"


_SIZE: Final = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([MG])i?B?", re.ASCII)
#: Requests of a recorder are lists and watches only.
_QPS, _BURST = 20.0, 40


@described("record", CommandGroup, invoke_without_command=True)
@click.pass_context
def record(ctx: click.Context, /, **given: Any) -> int:
    """Run ``moorage record``."""
    if ctx.invoked_subcommand is not None:
        return OK
    if given["directory"] is None:
        raise click.UsageError("give a directory for the log: moorage record --to DIR")
    limits = _limits(given["kept"])
    opened = None if given["address"] is None else _listening(given["address"])
    log = Klog(verbosity=given["verbosity"])
    endpoint = endpoint_of(given["kubeconfig"], given["context"])
    if given["emulate"] == AUTO or (given["emulate"] is None and given["config"] is None):
        given["emulate"] = live_release(endpoint, log.warning).name
    adopt_other_loggers(log)
    collect_seldom()
    with asyncio.Runner(loop_factory=gathering_loop) as runner:
        return runner.run(_recorded(given, endpoint, log, opened, limits))


record.add_command(status)
record.add_command(cut)


async def _recorded(given: dict[str, Any], endpoint: Endpoint, log: Klog, opened: socket | None, limits: LogLimits) -> int:
    """Record until a signal arrives."""
    redacted = given["key_file"] is not None
    loaded = _loaded(given, log)
    encoder = RedactingEncoder(read_key(given["key_file"], quiet=False)) if redacted else ObjectEncoder(given["annotations"])
    shadow = Shadow(complete_scheduler(loaded, 0, EngineSettings(QueueTimes(max_unschedulable_s=float("inf")))), {
        one.scheduler_name: one.percentage_of_nodes_to_score for one in loaded.profiles
    })  # fmt: skip
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(giving_back_memory())
        rest = await stack.enter_async_context(Rest(endpoint, qps=_QPS, burst=_BURST, agent=user_agent(__version__)))
        facts = {
            "server": "" if redacted else endpoint.server, "version": await server_version(rest.get), "moorage": __version__,
            "release": loaded.release, "redacted": redacted, "cluster": "" if redacted else await cluster_uid(rest.get),
            "options": "" if redacted else _options_of_scheduler(given),
        }  # fmt: skip
        writer = LogWriter(given["directory"], limits)
        recorder = ChangeRecorder(writer, LogClock(time.time_ns, time.monotonic, writer.last_at), encoder)
        companions = await find_companions(rest.get)
        if companions.forbidden:
            log.warning(f"not recorded, as it may not be read: {', '.join(companions.forbidden)}")
            facts["forbidden"] = list(companions.forbidden)
        loop = RecorderLoop(
            recorder, shadow, rest, facts, observers=Observers(log.warning, log), on_status=write_status, companions=companions
        )
        count_on(loop)
        if opened is not None:
            port = await stack.enter_async_context(serving(metrics_app(loop), opened, None))
            log.info(0, "Serving metrics", address=f"{given['address'].rpartition(':')[0]}:{port}")
        log.info(0, "Listing", server=endpoint.server.partition("://")[2].rpartition("@")[2], emulating=loaded.release)
        return await _until_signal(loop, log)


def _loaded(given: dict[str, Any], log: Klog) -> Loaded:
    """Return the configuration, without extenders."""
    loaded = load_options(cluster_files.simulation_options({**_NO_OTHERS, **given}))
    if loaded.configuration.extenders:
        log.warning("extenders are not asked, so decisions that they change are shown as differences")
    return replace(loaded, configuration=with_fields(loaded.configuration, extenders=()))


def _options_of_scheduler(given: Mapping[str, Any]) -> str:
    """Return the options with which other commands decide as this one does."""
    named = [(f"--{name.replace('_', '-')}", given[name]) for name in ("config", "emulate", "feature_gates")]
    named += [("--plugins", one) for one in given["plugins"]]
    return "".join(f" {name} {quote(value)}" for name, value in named if value)


async def _until_signal(loop: RecorderLoop, log: Klog) -> int:
    running = asyncio.ensure_future(loop.run())
    Ending(log, "Received a signal to terminate").listen(running)
    await asyncio.wait({running})
    loop.close()
    if running.cancelled():
        log.info(0, "Requested to terminate, exiting", records=sum(loop.recorder.counts.values()))
        return OK
    log.error(running.exception(), "ended")
    return ERROR


def _limits(texts: tuple[str, ...]) -> LogLimits:
    limits = LogLimits()
    for text in texts:
        if (age_s := parse_seconds(text)) is not None:
            limits = replace(limits, kept_s=age_s)
        elif found := _SIZE.fullmatch(text):
            limits = replace(limits, kept_bytes=round(float(found[1]) * (1 << (30 if found[2] == "G" else 20))))
        else:
            raise click.UsageError(f"--keep {text}: write an age as 7d, 12h or 30m, or a size as 500MiB or 20GiB")
    return limits


def _listening(text: str) -> socket:
    host, _, port = text.rpartition(":")
    try:
        return listen(host.strip("[]"), int(port), option="--listen")
    except (ValueError, OverflowError):
        raise click.UsageError(f"--listen {text}: write an IP address and a port, such as 127.0.0.1:9464") from None
