"""``python -m benchmarks``: run workloads, list them, compare results."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click

from benchmarks.checking import CheckFailedError
from benchmarks.comparing import compare as compared
from benchmarks.live import LIVE
from benchmarks.live import measure as measure_live
from benchmarks.program import help_text, library_import, reading, whole_run
from benchmarks.running import run as run_one
from benchmarks.single import first_of_class, preemption_attempt
from benchmarks.watches import measure_watches
from benchmarks.workloads import WORKLOADS, Sizes
from benchmarks.writes import measure_writes

__all__ = ["main"]

_COLUMNS = (
    "pods_per_s",
    "pods_per_s_samples",
    "p50_us",
    "p99_us",
    "growth",
    "cpu_s_per_1000",
    "peak_mib",
    "startup_s",
    "bound",
    "checked",
)


@click.group()
def main() -> None:
    """How fast Moorage decides."""


@main.command("list")
def list_workloads() -> None:
    """Name the workloads and their usual sizes."""
    for name, (make, sizes) in WORKLOADS.items():
        click.echo(f"{name:24} {sizes.nodes:6} nodes {sizes.init:6} init {sizes.pods:6} pods  {(make.__doc__ or '').strip()}")


@main.command()
@click.argument("names", nargs=-1)
@click.option("--nodes", type=int, help="Nodes; default: as listed.")
@click.option("--init", type=int, help="Pods placed before the measurement.")
@click.option("--pods", type=int, help="Pods measured.")
@click.option("--seed", default=0, help="Of the workload, the order and the ties.")
@click.option("--check-every", default=100, help="Check every n-th decision against the plain way.")
@click.option("--json", "out", type=click.Path(path_type=Path), help="Append the results to a file, one JSON object a line.")
def run(
    names: tuple[str, ...], nodes: int | None, init: int | None, pods: int | None, seed: int, check_every: int, out: Path | None
) -> None:
    """Run workloads by NAMES; all of them without a name."""
    click.echo(f"{'workload':24} " + " ".join(f"{column:>18}" for column in _COLUMNS))
    failed = False
    for name in names or tuple(WORKLOADS):
        if name not in WORKLOADS:
            raise click.UsageError(f"no workload is named {name}; one of {', '.join(WORKLOADS)}")
        usual = WORKLOADS[name][1]
        sizes = Sizes(
            usual.nodes if nodes is None else nodes, usual.init if init is None else init, usual.pods if pods is None else pods
        )
        try:
            result = _in_a_process_of_its_own(name, sizes, seed, check_every)
        except CheckFailedError as error:
            click.echo(f"{name:24} no number, the check failed: {error}", err=True)
            failed = True
            continue
        click.echo(f"{name:24} " + " ".join(f"{result[column]:>18}" for column in _COLUMNS))
        if out is not None:
            with out.open("a") as file:
                file.write(json.dumps(result) + "\n")
    sys.exit(1 if failed else 0)


@main.command()
@click.argument("names", nargs=-1)
@click.option("--pods", default=100_000, help="Pods of the file that is read and simulated.")
def once(names: tuple[str, ...], pods: int) -> None:
    """Measure what happens once: a hard decision, the start of the program, a whole run. All of them without NAMES."""
    measured: dict[str, Callable[[], dict[str, Any]]] = {
        "first-of-class": first_of_class,
        "preemption-attempt": preemption_attempt,
        "help": help_text,
        "library-import": library_import,
        "reading": lambda: reading(pods),
        "simulate": lambda: whole_run(pods),
        "simulate-in-turn": lambda: whole_run(pods, in_turn=True),
    }
    for name in names or tuple(measured):
        if name not in measured:
            raise click.UsageError(f"nothing is named {name}; one of {', '.join(measured)}")
        click.echo(json.dumps(measured[name]()))


@main.command()
@click.argument("names", nargs=-1)
@click.option("--nodes", type=int, help="Nodes; default: as usual.")
@click.option("--init", type=int, help="Pods that run before the measurement.")
@click.option("--pods", type=int, help="Pods measured; for soak, pods made each second.")
@click.option("--seconds", type=float, help="How long a soak lasts.")
@click.option("--lease", multiple=True, metavar="FLAG", help="A flag of `moorage run` about its lease, for failover.")
@click.option("--profile", type=click.Path(path_type=Path), help="Profile the scheduler in throughput to this file (cProfile).")
@click.option("--workload", type=click.Choice(list(WORKLOADS)), help="Whose pods throughput and against are measured with.")
@click.option(
    "--peer",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True, path_type=Path),
    help="A kube-scheduler, for against: measured in the same run.",
)
def live(names: tuple[str, ...], **given: Any) -> None:
    """Measure a live scheduler against the embedded API server: all measurements without NAMES. One JSON object a line.

    `against` needs --peer, and is left out without it.
    """
    asked = {option: value for option, value in given.items() if value not in (None, ())}
    broken = False
    if "against" in names and "peer" not in asked:
        raise click.UsageError("against compares with another scheduler: --peer has to name its program")
    for name in names or tuple(name for name in LIVE if name != "against" or "peer" in asked):
        if name not in LIVE:
            raise click.UsageError(f"nothing is named {name}; one of {', '.join(LIVE)}")
        for figures in measure_live(name, **asked):
            click.echo(json.dumps(figures))
            broken = broken or any(value for key, value in figures.items() if key.startswith(("broken", "peer_broken")))
    sys.exit(1 if broken else 0)


def _in_a_process_of_its_own(name: str, sizes: Sizes, seed: int, check_every: int) -> dict[str, Any]:
    """Run a workload where no other has been: what one leaves behind in memory slows the next, and is not its peak."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(run_one, name, sizes, seed, check_every).result()


@main.command()
@click.option("--folder", type=click.Path(exists=True, path_type=Path), help="On the disk that is meant.")
@click.option("--count", default=4000, help="Pods made in each run.")
@click.option("--writers", default=[1, 8, 64], multiple=True, help="Writers side by side; may be given several times.")
@click.option("--rounds", default=5, help="Runs of each kind, in turn.")
def writes(folder: Path | None, count: int, writers: tuple[int, ...], rounds: int) -> None:
    """Measure how many writes a second the API server's store takes, in memory and in a file."""
    click.echo(f"{'writers':>8} {'memory/s':>10} {'file/s':>10} {'ratio':>6} {'memory/cpu s':>13} {'file/cpu s':>11}")
    for many in writers:
        memory, kept = measure_writes(folder, count, many, rounds)
        ratio = kept.per_s / memory.per_s
        shown = f"{many:8} {memory.per_s:10.0f} {kept.per_s:10.0f} {ratio:6.2f} {memory.per_cpu_s:13.0f} {kept.per_cpu_s:11.0f}"
        click.echo(shown)


@main.command()
@click.option("--resource", default="pods", type=click.Choice(["configmaps", "pods"]), help="What the server is full of.")
@click.option("--count", default=50_000, help="How many of them.")
@click.option("--size", default=1_000_000, help="Of a config map, in bytes.")
@click.option("--watches", default=1_000, help="How many watches are opened.")
@click.option("--listed", is_flag=True, help="Ask for lists instead; 64 at a time are served to one user.")
@click.option("--plain", is_flag=True, help="Without TLS.")
def watches(resource: str, count: int, size: int, watches: int, listed: bool, plain: bool) -> None:
    """Measure the memory that the API server takes for watches and lists that are not read."""
    click.echo(json.dumps(measure_watches(resource, count, size, watches, plain=plain, listed=listed)))


@main.command()
@click.argument("before", type=click.Path(exists=True, path_type=Path))
@click.argument("after", type=click.Path(exists=True, path_type=Path))
def compare(before: Path, after: Path) -> None:
    """Print the ratios of two files of results, and how far repeats of each lie apart."""
    old, new = ([json.loads(line) for line in path.read_text().splitlines()] for path in (before, after))
    for line in compared(old, new):
        click.echo(line)
