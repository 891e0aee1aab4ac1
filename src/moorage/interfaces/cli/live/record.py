"""``moorage record``: record a cluster into a log, and compare the decisions of its scheduler with Moorage's."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from ipaddress import ip_address
from socket import socket
from typing import Any, Final

import click
from msgspec.structs import replace as with_fields

from moorage import __version__
from moorage.basis.recording.log_writer import LogLimits, LogWriter
from moorage.core.building.loading import ConfigSource, load_source
from moorage.core.config.scheduler_document import Loaded
from moorage.framework.registry import load
from moorage.interfaces.cli.bounded_files import CONFIG_LIMIT, read_file
from moorage.interfaces.cli.command_help import CommandGroup
from moorage.interfaces.cli.live.record_cut import cut
from moorage.interfaces.cli.live.record_status import status
from moorage.interfaces.cli.live.run_connection import live_release
from moorage.interfaces.cli.live.scheduler_factory import build_scheduler
from moorage.interfaces.cli.main import ERROR, OK
from moorage.interfaces.cli.questions.redact import read_key
from moorage.interfaces.cli.release_options import AUTO, emulated_cluster_option
from moorage.interfaces.cli.terminal import collect_seldom
from moorage.laboratory.recording.redacted_log import RedactingEncoder
from moorage.laboratory.redact.live_dump import endpoint_of
from moorage.live.client.endpoint import Endpoint
from moorage.live.client.listwatch import gathering_loop
from moorage.live.client.resources import server_version
from moorage.live.client.rest import Rest, user_agent
from moorage.live.recording.recorder import ChangeRecorder, Encoder, LogClock, ObjectEncoder
from moorage.live.recording.shadow import Shadow
from moorage.live.recording.status import count_on, metrics_app, write_status
from moorage.live.recording.watching import Watching
from moorage.live.runtime.observer import Observers
from moorage.live.server.certificates import listen, serving
from moorage.live.server.klog import Klog, adopt_other_loggers

__all__ = ["record"]

EPILOG = """Examples:

\b
    moorage record --to log/
    moorage record status log/
    moorage record cut --pod shop/web-0 --at 14:03 -f log/ -o case.json.gz

All that is recorded, and what never is: moorage help record
"""
_AMOUNT: Final = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([smhd]|[MG]i?B?)", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
#: Requests of a recorder are lists and watches only.
_QPS, _BURST = 20.0, 40


@click.group(cls=CommandGroup, invoke_without_command=True, epilog=EPILOG)
@click.option("--to", "directory", metavar="DIR", help="The directory of the log; a log that is there is continued.")
@click.option("--context", metavar="NAME", help="The context of the kubeconfig.")
@click.option("--kubeconfig", metavar="FILE", help="The kubeconfig; by default the one that kubectl uses.")
@click.option("--config", metavar="FILE", help="The configuration of the cluster's scheduler.")
@emulated_cluster_option
@click.option("--feature-gates", default="", metavar="NAME=BOOL,…", help="Feature gates of the cluster's scheduler.")
@click.option("--plugins", multiple=True, metavar="MODULE:CLASS", help="A custom plugin. May be repeated.")
@click.option(
    "--keep", "kept", multiple=True, metavar="AMOUNT", default=("7d",), show_default=True,
    help="Delete what is older (7d, 12h) or beyond a size (20GiB). May be given for both; 0s and 0GiB: no limit.",
)  # fmt: skip
@click.option("--redact", "key_file", metavar="KEY", help="Write tokens in the place of names, made with the key in this file.")
@click.option(
    "--keep-annotation", "annotations", multiple=True, metavar="KEY",
    help="Also keep this annotation, which a custom plugin reads. May be repeated.",
)  # fmt: skip
@click.option("--listen", "address", metavar="ADDRESS:PORT", help="Serve /metrics, /healthz and /readyz here, over plain HTTP.")
@click.option("-v", "--verbosity", type=click.IntRange(0, 10), default=0, help="1: also log each difference.")
@click.pass_context
def record(ctx: click.Context, /, **given: Any) -> int:
    """Record a cluster into a log, and compare the decisions of its scheduler with Moorage's. Only read requests are made.

    The log is for -f of the other commands: -f LOG reads the cluster as it is at its end, -f LOG@TIME as it was at another
    moment. It has no secrets, config maps, environments or arguments. Exits with 0 after SIGTERM or Ctrl-C.
    """
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
    encoder: Encoder = ObjectEncoder(given["annotations"])
    if redacted:
        encoder = RedactingEncoder(read_key(given["key_file"], quiet=False))
    shadow = Shadow(build_scheduler(loaded, 0, float("inf")), {
        one.scheduler_name: one.percentage_of_nodes_to_score for one in loaded.profiles
    })  # fmt: skip
    async with AsyncExitStack() as stack:
        rest = await stack.enter_async_context(Rest(endpoint, qps=_QPS, burst=_BURST, agent=user_agent(__version__)))
        facts = {
            "server": "" if redacted else endpoint.server, "version": await server_version(rest.get), "moorage": __version__,
            "release": loaded.release, "redacted": redacted,
        }  # fmt: skip
        writer = LogWriter(given["directory"], limits)
        recorder = ChangeRecorder(writer, LogClock(time.time_ns, time.monotonic, writer.last_at), encoder)
        watching = Watching(recorder, shadow, rest, facts, observers=Observers(log.warning, log), on_status=write_status)
        count_on(watching)
        if opened is not None:
            port = await stack.enter_async_context(serving(metrics_app(watching), opened, None))
            log.info(0, "Serving metrics", address=f"{given['address'].rpartition(':')[0]}:{port}")
        log.info(0, "Listing", server=endpoint.server.partition("://")[2].rpartition("@")[2], emulating=loaded.release)
        return await _until_signal(watching, log)


def _loaded(given: dict[str, Any], log: Klog) -> Loaded:
    """Return the configuration, without extenders."""
    config = None if given["config"] is None else read_file(given["config"], CONFIG_LIMIT)
    plugins = tuple(load(name) for name in given["plugins"])
    where = given["config"] or "the default configuration"
    loaded = load_source(ConfigSource(config, where, given["emulate"], "", given["feature_gates"], plugins))
    if loaded.configuration.extenders:
        log.warning("extenders are not asked, so decisions that they change are shown as differences")
    return replace(loaded, configuration=with_fields(loaded.configuration, extenders=()))


async def _until_signal(watching: Watching, log: Klog) -> int:
    """Record until the first signal; the second ends the process at once."""
    running, loop = asyncio.ensure_future(watching.run()), asyncio.get_running_loop()

    def end() -> None:
        running.cancel()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, lambda: os._exit(ERROR))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    await asyncio.wait({running})
    watching.close()
    if running.cancelled():
        log.info(0, "Requested to terminate, exiting", records=sum(watching.recorder.counts.values()))
        return OK
    log.error(running.exception(), "ended")
    return ERROR


def _limits(texts: tuple[str, ...]) -> LogLimits:
    limits = LogLimits()
    for text in texts:
        found = _AMOUNT.fullmatch(text)
        if found is None:
            raise click.UsageError(f"--keep {text}: write an age as 7d, 12h or 30m, or a size as 500MiB or 20GiB")
        number, unit = float(found[1]), found[2]
        if unit in _SECONDS:
            limits = replace(limits, kept_s=number * _SECONDS[unit])
        else:
            limits = replace(limits, kept_bytes=round(number * (1 << (30 if unit[0] == "G" else 20))))
    return limits


def _listening(text: str) -> socket:
    host, _, port = text.rpartition(":")
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        raise click.UsageError(f"--listen {text}: write an IP address and a port, such as 127.0.0.1:9464") from None
    if not port.isdecimal() or int(port) > 65535:
        raise click.UsageError(f"--listen {text}: the port must be a number from 0 to 65535")
    return listen(host.strip("[]"), int(port))
