"""``moorage run``: schedule the pods of a live cluster."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from moorage import __version__
from moorage.api.durations import parse_duration
from moorage.cli.emulating import max_disks_option
from moorage.cli.main import ERROR, OK
from moorage.cli.reading import CONFIG_LIMIT, read_file
from moorage.client.endpoint import Endpoint
from moorage.client.kubeconfig import Surroundings, in_cluster, read_kubeconfig
from moorage.client.rest import Rest, user_agent
from moorage.config.document import LeaderElection
from moorage.config.scheduler_document import Loaded
from moorage.cycle.cycle import Cycle
from moorage.engine.machine import Scheduler
from moorage.engine.profiles import build_resolved
from moorage.errors import ConfigError, InputError
from moorage.framework.registry import load
from moorage.runtime.leader import Timing
from moorage.server.live import LeaderSettings, Live
from moorage.simulator.simulate import Options, load_options

__all__ = ["run"]


class _GoDuration(click.ParamType[float]):
    """A duration as Go writes it, in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        try:
            return parse_duration(str(value)) / 1e9
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _spelled_as_go_does(name: str) -> str:
    return name.replace("_", "-")


@click.command(context_settings={"token_normalize_func": _spelled_as_go_does})
@click.option("--config", metavar="FILE", help="A KubeSchedulerConfiguration; without it, kube-scheduler's defaults.")
@click.option("--kubeconfig", metavar="FILE", help="How to reach the cluster; without it, KUBECONFIG or the pod's own account.")
@click.option("--master", default="", metavar="URL", help="The API server's address, in the place of the kubeconfig's.")
@click.option("--feature-gates", default="", metavar="NAME=BOOL,…", help="Feature gates, as kube-scheduler takes them.")
@max_disks_option(envvar="KUBE_MAX_PD_VOLS")
@click.option("--plugins", multiple=True, metavar="MODULE:CLASS", help="A plugin of your own, here or on the Python path.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed draws ties between equal nodes otherwise.")
@click.option("--kube-api-qps", type=float, default=50.0, show_default=True, help="Requests a second. Not with --config.")
@click.option("--kube-api-burst", type=int, default=100, show_default=True, help="Requests saved up. Not with --config.")
@click.option(
    "--pod-max-in-unschedulable-pods-duration", "max_unschedulable", type=_GoDuration(), default="5m", show_default=True,
    help="After so long, a pod that waits for an event is tried all the same.",
)  # fmt: skip
@click.option("--leader-elect", type=bool, is_flag=False, flag_value=True, default=None, help="Stand for a lease [true].")
@click.option("--leader-elect-lease-duration", "lease_duration", type=_GoDuration(), help="[default: 15s]")
@click.option("--leader-elect-renew-deadline", "renew_deadline", type=_GoDuration(), help="[default: 10s]")
@click.option("--leader-elect-retry-period", "retry_period", type=_GoDuration(), help="[default: 2s]")
@click.option("--leader-elect-resource-name", "resource_name", help="[default: kube-scheduler]")
@click.option("--leader-elect-resource-namespace", "resource_namespace", help="[default: kube-system]")
def run(**given: Any) -> int:
    """Schedule the pods of a live cluster.

    Takes kube-scheduler's flags of the same names; with --config, only those about leader election override the file. Exits
    with 0 after SIGTERM or SIGINT while standing for a lease, and with 1 when the lease was lost or something is wrong.
    """
    loaded = _load(given)
    leader = _leader(loaded, given)
    endpoint = _endpoint(given["kubeconfig"] or loaded.configuration.client_connection.kubeconfig, given["master"])
    scheduler = _scheduler(loaded, given)
    qps, burst = given["kube_api_qps"], given["kube_api_burst"]
    if given["config"]:
        connection = loaded.configuration.client_connection
        qps, burst = connection.qps, connection.burst
    return asyncio.run(_run(scheduler, endpoint, leader, float(qps), int(burst)))


# -- setting up ---------------------------------------------------------------------------------------------------------


def _load(given: dict[str, Any]) -> Loaded:
    config = read_file(given["config"], CONFIG_LIMIT) if given["config"] else None
    options = Options(
        config,
        given["config"] or "the default configuration",
        feature_gates=given["feature_gates"],
        plugins=tuple(load(name) for name in given["plugins"]),
    )
    loaded = load_options(options)
    if loaded.configuration.extenders:
        raise InputError(f"{options.where}: extenders are configured, and `moorage run` cannot call any yet")
    return loaded


def _scheduler(loaded: Loaded, given: dict[str, Any]) -> Scheduler:
    configuration = loaded.configuration
    cycle = Cycle(seed=given["seed"], percentage_of_nodes_to_score=configuration.percentage_of_nodes_to_score or 0)
    scheduler = Scheduler(cycle, loaded.gates, given["max_disks"])
    built = build_resolved(loaded.profiles, loaded.registry, scheduler)
    if built.missing:
        raise InputError(f"these plugins are enabled and do not exist here: {', '.join(built.missing)}")
    scheduler.use(
        built.profiles,
        initial_backoff_s=float(configuration.pod_initial_backoff_seconds),
        max_backoff_s=float(configuration.pod_max_backoff_seconds),
        max_unschedulable_s=given["max_unschedulable"],
    )
    return scheduler


def _leader(loaded: Loaded, given: dict[str, Any]) -> LeaderSettings | None:
    """The file's leader election, each field overridden by its flag.

    Raises  ConfigError for durations that cannot work
    """
    asked: LeaderElection = loaded.configuration.leader_election

    def chosen(flag: str) -> Any:
        return given[flag] if given[flag] is not None else getattr(asked, flag)

    if not (asked.leader_elect if given["leader_elect"] is None else given["leader_elect"]):
        return None
    timing = Timing(chosen("lease_duration"), chosen("renew_deadline"), chosen("retry_period"))
    if faults := timing.faults():
        raise ConfigError("leader election cannot work with these durations:", faults)
    return LeaderSettings(chosen("resource_namespace"), chosen("resource_name"), timing)


def _endpoint(kubeconfig: str, master: str) -> Endpoint:
    around = Surroundings(os.environ, time.monotonic, lambda: datetime.now(UTC), warn=_report)
    listed = [Path(one) for one in os.environ.get("KUBECONFIG", "").split(os.pathsep) if one]
    if kubeconfig:
        endpoint = read_kubeconfig([Path(kubeconfig)], must_exist=True, warn=_report).endpoint(around)
    elif listed:
        endpoint = read_kubeconfig(listed, must_exist=False, warn=_report).endpoint(around)
    elif master:
        endpoint = Endpoint("")
    else:
        endpoint = in_cluster(around)
    if not master:
        return endpoint
    if not master.startswith(("http://", "https://")):
        raise InputError(f"--master {master}: an address starts with http:// or https://")
    return Endpoint(
        master.rstrip("/"), endpoint.credentials, endpoint.ca, endpoint.insecure, endpoint.server_name, endpoint.proxy,
        endpoint.headers, endpoint.namespace,
    )  # fmt: skip


# -- running ------------------------------------------------------------------------------------------------------------


async def _run(scheduler: Scheduler, endpoint: Endpoint, leader: LeaderSettings | None, qps: float, burst: int) -> int:
    async with Rest(endpoint, qps=qps, burst=burst, agent=user_agent(__version__)) as rest:
        identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        live = Live(
            scheduler, rest, identity=identity, wall=_wall, leader=leader, chance=random.Random(identity),  # noqa: S311
            report=_report, reporter=next(iter(scheduler.profiles)),
        )  # fmt: skip
        _report(f"scheduling for {', '.join(scheduler.profiles)} on {endpoint.server} as {identity}")
        running = asyncio.ensure_future(live.run())
        _end_on_signals(running)
        await asyncio.wait({running})
        if not running.cancelled():
            await running
        _report("ended")
    return OK if leader is not None else ERROR


def _end_on_signals(running: asyncio.Future[None]) -> None:
    """End well on the first signal, and at once on the second."""
    asked = False

    def end() -> None:
        nonlocal asked
        if asked:
            os._exit(ERROR)
        asked = True
        _report("ending: work under way is waited for")
        running.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end)


def _wall() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _report(line: str) -> None:
    sys.stderr.write(f"{_wall()} {line}\n")
    sys.stderr.flush()
