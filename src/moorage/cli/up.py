"""``moorage up``: a cluster in one process, for kubectl and anything else that speaks to one."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from copy import deepcopy
from pathlib import Path
from shlex import quote
from typing import Any

import click

from moorage.api.durations import parse_duration
from moorage.apiserver.access.certificate_authority import make_authority
from moorage.apiserver.access.listen_addresses import Address, address_of
from moorage.apiserver.fields.managed_fields import FieldManager
from moorage.apiserver.http.store_setup import open_store
from moorage.apiserver.storage.store import Store
from moorage.cli.legacy_options import policy_of
from moorage.cli.main import ERROR, OK
from moorage.cli.memory import collect_seldom
from moorage.cli.patience import told_if_slow
from moorage.cli.release_options import TakesFilesAndFlags, emulate_option, max_disks_option, old_flag_options
from moorage.cli.store_loader import fill, lost_pods
from moorage.cli.terminal import say
from moorage.cli.up_scheduler import WantedScheduler
from moorage.client.extenders import ExtenderClient
from moorage.controllers.all_controllers import all_controllers, chosen
from moorage.controllers.machinery.kind_names import CONFIG_MAPS, NODES, STORAGE_CLASSES
from moorage.controllers.nodes.hollow_nodes import STANDARD_CLASS, NodeShape, make_nodes
from moorage.controllers.nodes.kubelets import KUBELET
from moorage.errors import InputError
from moorage.framework.features import FeatureGates
from moorage.private_files import expanded, home_folder
from moorage.server.embedded import Embedded, Ready
from moorage.simulator.wording import counted

__all__ = ["up"]


class _Duration(click.ParamType[float]):
    """A duration as Go writes it, or a number of seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        try:
            return float(value) if str(value).isdecimal() else parse_duration(str(value)) / 1e9
        except (InputError, ValueError) as error:
            self.fail(str(error), param, ctx)


@click.command(cls=TakesFilesAndFlags)
@click.option("--nodes", type=click.IntRange(min=0), help="How many nodes to make [10, or none with -f or --data].")
@click.option("--node-cpu", default="8", show_default=True, metavar="QUANTITY", help="CPUs of each of them.")
@click.option("--node-memory", default="32Gi", show_default=True, metavar="QUANTITY", help="Memory of each of them.")
@click.option("--node-pods", type=click.IntRange(min=0), default=110, show_default=True, help="How many pods each takes.")
@click.option("--zones", type=click.IntRange(min=0), default=3, show_default=True, help="Zones the nodes are spread over.")
@click.option(
    "-f", "--filename", "paths", multiple=True, metavar="PATH",
    help="Begin with the objects of a file, a directory or standard input (-): a dump or manifests. May be repeated.",
)  # fmt: skip
@click.option("-R", "--recursive", is_flag=True, help="Read directories with all that is below them.")
@click.option(
    "--data", type=click.Path(path_type=Path), metavar="FILE", help="Keep the cluster in this file, and go on with it."
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port to serve on [any that is free].")
@click.option(
    "--bind-address", "bind", default="127.0.0.1", show_default=True, metavar="ADDRESS",
    help="The address to serve on: one of this machine's, or 0.0.0.0 for all of them, lets other machines come.",
)  # fmt: skip
@click.option(
    "--tls-san", "names", multiple=True, metavar="NAME",
    help="Another name or address that clients reach it by; may be repeated.",
)  # fmt: skip
@click.option(
    "--home", type=click.Path(path_type=Path), metavar="DIR", envvar="MOORAGE_HOME", default=Path("~/.moorage"),
    show_default=True, help="Where the cluster's certificates and its kubeconfig are kept.",
)  # fmt: skip
@click.option("--kubeconfig", type=click.Path(path_type=Path), metavar="FILE", help="Where to write it [DIR/kubeconfig].")
@click.option(
    "--config", metavar="FILE", help="A KubeSchedulerConfiguration or a Policy; without it, kube-scheduler's defaults."
)
@emulate_option
@old_flag_options
@max_disks_option
@click.option("--feature-gates", default="", metavar="NAME=BOOL,…", help="Feature gates, of all parts of the cluster.")
@click.option(
    "--plugins", multiple=True, metavar="MODULE:CLASS",
    help="A plugin of your own, here or on the Python path. May be repeated.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed draws ties between equal nodes otherwise.")
@click.option("--no-scheduler", is_flag=True, help="Leave scheduling to another: kube-scheduler, or `moorage run`.")
@click.option(
    "--controllers", default="*", show_default=True, metavar="NAME,…",
    help="Which controllers to run, as kube-controller-manager takes it: * for all, -NAME for all but one.",
)  # fmt: skip
@click.option("--job-seconds", "job_s", type=_Duration(), default="5", show_default=True, help="How long pods of jobs run.")
@click.option(
    "--for", "lasts_s", type=_Duration(), metavar="DURATION", help="End so long after it is up; without it, on Ctrl-C."
)
def up(**given: Any) -> int:
    """Run a cluster here: API server, controllers, nodes that pretend, and a scheduler.

    Prints how to reach it once it can be used; kubectl and any other client do. No container is run: pods on the nodes start,
    run and end as their annotations say. Ends on Ctrl-C; with --data, the next start goes on where this one ended.
    """
    began = time.monotonic()
    with told_if_slow("loading the scheduler's configuration and plugins", _report):
        wanted = None if given["no_scheduler"] else WantedScheduler.read(given, _report)
        built = None if wanted is None or wanted.needs_cluster else wanted.build()
    home = expanded(given["home"])
    home_folder(home, _report)
    address = address_of(given["bind"], given["names"])
    authority = make_authority(home / "pki", address.names, _report)
    gates = FeatureGates.parse(given["feature_gates"]) if wanted is None else wanted.cluster_gates
    controllers = chosen(all_controllers(given["job_s"], gates), [one for one in given["controllers"].split(",") if one])
    with told_if_slow(f"reading {given['data']}" if given["data"] else "founding the cluster", _report):
        store = open_store(given["data"], clock=_steady_clock(), gates=gates, tell=_report)
    try:
        with told_if_slow(f"taking in {', '.join(given['paths']) or 'the nodes'}", _report):
            _fill(store, given)
        if wanted is not None and built is None:
            built = wanted.build(lambda namespace, name: _policy(store, namespace, name))
        scheduler, extenders = built or (None, ExtenderClient(()))
        cluster = Embedded(
            store,
            authority,
            given["kubeconfig"] or home / "kubeconfig",
            controllers,
            scheduler,
            given["port"],
            _report,
            lambda ready: _tell(ready, given, address, time.monotonic() - began),
            extenders,
            address,
        )
        collect_seldom()
        return asyncio.run(_run(cluster, given["lasts_s"]))
    finally:
        store.close()


# -- setting up ---------------------------------------------------------------------------------------------------------


def _policy(store: Store, namespace: str, name: str) -> bytes:
    """Return the Policy of a ConfigMap.

    Raises  InputError
    """
    found = store.find(CONFIG_MAPS, namespace, name)
    if found is None:
        raise InputError(f'couldn\'t get policy config map {namespace}/{name}: configmaps "{name}" not found')
    return policy_of(found.document().get("data"))


def _steady_clock() -> Any:
    """Return a clock that tells the time of day and never jumps."""
    offset = time.time() - time.monotonic()
    return lambda: offset + time.monotonic()


def _fill(store: Store, given: dict[str, Any]) -> None:
    """Put in what the files describe, and the nodes."""
    for remark in fill(store, given["paths"], recursive=given["recursive"], stdin=sys.stdin.buffer):
        _report(remark)
    count = given["nodes"]
    if count is None:
        count = 0 if given["paths"] or next(store.all(NODES), None) is not None else 10
    if not given["paths"] and next(store.all(STORAGE_CLASSES), None) is None:
        store.create(STORAGE_CLASSES, "", deepcopy(STANDARD_CLASS))
    shape = NodeShape(given["node_cpu"], given["node_memory"], given["node_pods"], given["zones"])
    for node in make_nodes(count, shape):
        if store.find(NODES, "", node["metadata"]["name"]) is None:
            store.create(NODES, "", node, manager=FieldManager(KUBELET, version=NODES.api_version))
    for remark in lost_pods(store):
        _report(remark)


# -- running ------------------------------------------------------------------------------------------------------------


async def _run(cluster: Embedded, lasts_s: float | None) -> int:
    running = asyncio.ensure_future(cluster.run())
    _end_on_signals(running)
    if lasts_s is not None:
        _end_after(lasts_s, cluster, running)
    await asyncio.wait({running})
    if not running.cancelled():
        await running
    return OK


def _end_after(lasts_s: float, cluster: Embedded, running: asyncio.Future[None]) -> None:
    """End so long after the cluster can be used: on a busy machine it would else be over before anybody was told of it."""
    tell = cluster.on_ready

    def told(ready: Ready) -> None:
        tell(ready)
        asyncio.get_running_loop().call_later(lasts_s, running.cancel)

    cluster.on_ready = told


def _end_on_signals(running: asyncio.Future[None]) -> None:
    """End well on the first signal, and at once on the second."""
    asked = False

    def end() -> None:
        nonlocal asked
        if asked:
            os._exit(ERROR)
        asked = True
        running.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end)


def _tell(ready: Ready, given: dict[str, Any], address: Address, took_s: float) -> None:
    scheduled = "no scheduler" if given["no_scheduler"] else "a scheduler"
    say(f"A cluster of {counted(ready.nodes, 'node')} with {scheduled} is up on {address.url(ready.port)} after {took_s:.1f}s.")
    if address.is_open:
        called = f" as {', '.join(address.names)}" if address.names else ""
        say(f"Other machines can reach it{called}; who has the kubeconfig administers it.")
    say("")
    say(f"  export KUBECONFIG={quote(str(ready.kubeconfig.absolute()))}")
    say("  kubectl get nodes")
    say("")
    say("Ctrl-C ends it." if given["data"] is None else f"Ctrl-C ends it; {given['data']} keeps it.")


def _report(line: str) -> None:
    say(line, err=True)
