"""``python -m benchmarks``: run workloads, list them, compare results."""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click

from benchmarks.authors import measure_forms
from benchmarks.carrying import measure_carried
from benchmarks.checking import CheckFailedError
from benchmarks.comparing import compare as compared
from benchmarks.contention import CONTENTION, measure_contention
from benchmarks.explaining import measure_explanations
from benchmarks.gangs import GANG_SHAPES, measure_gangs
from benchmarks.growth import measure_growth
from benchmarks.growth_axes import AXES
from benchmarks.live import LIVE
from benchmarks.live import measure as measure_live
from benchmarks.mechanisms import MECHANISMS
from benchmarks.million import million as measure_million
from benchmarks.mix_command import mix
from benchmarks.production_dump import write_production_dump
from benchmarks.program import help_text, library_import, reading, whole_run
from benchmarks.questions import CLUSTERS, measure_questions, question_names
from benchmarks.queues import measure_cycle, measure_month
from benchmarks.running import run as run_one
from benchmarks.shard_scheduler import SHARINGS
from benchmarks.shard_workloads import WORKLOADS as SHARD_WORKLOADS
from benchmarks.shards import Setting, play
from benchmarks.side_by_side_command import side_by_side
from benchmarks.simulations import SIMULATIONS
from benchmarks.single import first_of_class, preemption_attempt
from benchmarks.sweeps import measure_sweeps
from benchmarks.traces import TRACES, measure_trace
from benchmarks.watches import measure_watches
from benchmarks.what_ifs import measure_forks, measure_rich_what_ifs, measure_what_ifs
from benchmarks.workloads import WORKLOADS, Sizes
from benchmarks.writes import measure_writes
from benchmarks.yaml_reading import measure_yaml

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
    """Measure how fast Moorage schedules."""


main.add_command(mix)
main.add_command(side_by_side)


@main.command("list")
def list_workloads() -> None:
    """List the workloads and their default sizes."""
    for name, (make, sizes) in WORKLOADS.items():
        click.echo(f"{name:24} {sizes.nodes:6} nodes {sizes.init:6} init {sizes.pods:6} pods  {(make.__doc__ or '').strip()}")


@main.command()
@click.argument("names", nargs=-1)
@click.option("--nodes", type=int, help="Number of nodes; default: as listed.")
@click.option("--init", type=int, help="Number of pods placed before the measurement.")
@click.option("--pods", type=int, help="Number of measured pods.")
@click.option("--seed", default=0, help="Seed of the workload, the order and tie-breaking.")
@click.option("--check-every", default=100, help="Check every n-th decision against the full path.")
@click.option(
    "--without",
    multiple=True,
    type=click.Choice(list(MECHANISMS)),
    help="Switch off what makes decisions fast. May be repeated.",
)
@click.option("--json", "out", type=click.Path(path_type=Path), help="Append the results to a file, one JSON object per line.")
def run(
    names: tuple[str, ...], nodes: int | None, init: int | None, pods: int | None, seed: int, check_every: int,
    without: tuple[str, ...], out: Path | None,
) -> None:  # fmt: skip
    """Run the workloads NAMES, or all of them."""
    click.echo(f"{'workload':24} " + " ".join(f"{column:>18}" for column in _COLUMNS))
    failed = False
    for name in names or tuple(WORKLOADS):
        if name not in WORKLOADS:
            raise click.UsageError(f"unknown workload {name}; use one of {', '.join(WORKLOADS)}")
        usual = WORKLOADS[name][1]
        sizes = Sizes(
            usual.nodes if nodes is None else nodes, usual.init if init is None else init, usual.pods if pods is None else pods
        )
        try:
            result = _in_new_process(name, sizes, seed, check_every, without)
        except CheckFailedError as error:
            click.echo(f"{name:24} no result, the check failed: {error}", err=True)
            failed = True
            continue
        click.echo(f"{name:24} " + " ".join(f"{result[column]:>18}" for column in _COLUMNS))
        if out is not None:
            with out.open("a") as file:
                file.write(json.dumps(result) + "\n")
    sys.exit(1 if failed else 0)


@main.command()
@click.argument("names", nargs=-1)
@click.option("--pods", default=100_000, help="Number of pods in the file that is read and simulated.")
def once(names: tuple[str, ...], pods: int) -> None:
    """Measure single operations: a hard decision, program start, a whole run; NAMES, or all of them."""
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
            raise click.UsageError(f"unknown measurement {name}; use one of {', '.join(measured)}")
        click.echo(json.dumps(measured[name]()))


@main.command()
@click.option("--pods", default=1_000_000, help="Number of pending pods.")
@click.option("--nodes", default=100_000, help="Number of nodes.")
@click.option("--apps", default=200, help="Number of Deployments that the pods belong to.")
@click.option("--shuffled", is_flag=True, help="Mix the pods of all apps; otherwise they follow each other.")
@click.option("--pending", is_flag=True, help="No node suits any pod.")
@click.option("-o", "--output", default="table", help="The format of the report.")
def million(pods: int, nodes: int, apps: int, shuffled: bool, pending: bool, output: str) -> None:
    """Measure time and memory of `moorage simulate` of a million pods, a minute of work with 3 GiB. Fails beyond a bound."""
    figures = measure_million(pods, nodes, apps, output, shuffled=shuffled, pending=pending)
    click.echo(json.dumps(figures))
    sys.exit(0 if figures["within"] else 1)


@main.command()
@click.argument("names", nargs=-1, type=click.Choice([*GANG_SHAPES]))
@click.option("--nodes", default=1000)
@click.option("--gangs", type=int, help="Number of gangs, instead of that of the shape.")
def gangs(names: tuple[str, ...], nodes: int, gangs: int | None) -> None:
    """Measure gangs as Kubernetes 1.37 schedules them: preempting, and in racks. Prints one JSON object per line."""
    for name in names or GANG_SHAPES:
        click.echo(json.dumps(measure_gangs(name, nodes, gangs)))


@main.command()
@click.option("--jobs", default=10_000, help="Number of jobs of the month.")
@click.option("--queues", default=200, help="Number of ClusterQueues, in cohorts of ten.")
@click.option("--nodes", default=1000, help="Number of nodes of 8 GPUs.")
@click.option("--load", default=0.9, help="What the jobs ask for on average, relative to all GPUs.")
@click.option("--fair", is_flag=True, help="With fair sharing.")
@click.option("--topology", is_flag=True, help="Gangs prefer to stand in one rack.")
def queues(jobs: int, queues: int, nodes: int, load: float, fair: bool, topology: bool) -> None:
    """Measure Kueue's queues: a month of jobs, and cycles of 1,000 waiting workloads. Prints one JSON object per line."""
    for preempt in (False, True):
        for fairly in (False, True):
            click.echo(json.dumps(measure_cycle(1000, queues, fair=fairly, preempt=preempt)))
    click.echo(json.dumps(measure_month(jobs, queues, nodes, load, fair=fair, topology=topology)))


@main.command()
@click.argument("names", nargs=-1)
def simulations(names: tuple[str, ...]) -> None:
    """Measure simulations NAMES, or all: a week of a cluster, a small one, steps of an environment. Fails beyond a bound."""
    unknown = [name for name in names if name not in SIMULATIONS]
    if unknown:
        raise click.UsageError(f"unknown simulation {unknown[0]}; use one of {', '.join(SIMULATIONS)}")
    beyond = False
    for name in names or tuple(SIMULATIONS):
        figures = SIMULATIONS[name]()
        click.echo(json.dumps(figures))
        beyond = beyond or not figures["within"]
    sys.exit(1 if beyond else 0)


@main.command()
@click.argument("names", nargs=-1)
@click.option("--rows", default=1_000_000, help="Number of pods.")
def traces(names: tuple[str, ...], rows: int) -> None:
    """Measure time and memory of reading traces NAMES, or all, of made-up pods. Prints one JSON object per line."""
    unknown = [name for name in names if name not in TRACES]
    if unknown:
        raise click.UsageError(f"unknown trace {unknown[0]}; use one of {', '.join(TRACES)}")
    for name in names or tuple(TRACES):
        click.echo(json.dumps(measure_trace(name, rows)))


@main.command()
@click.argument("names", nargs=-1)
def contention(names: tuple[str, ...]) -> None:
    """Measure weeks of jobs NAMES, or all, that wait for each other. Prints one JSON object per line."""
    unknown = [name for name in names if name not in CONTENTION]
    if unknown:
        raise click.UsageError(f"unknown week {unknown[0]}; use one of {', '.join(CONTENTION)}")
    for name in names or tuple(CONTENTION):
        click.echo(json.dumps(measure_contention(name)))


@main.command("what-ifs")
@click.option("--nodes", default=1000, help="Number of nodes of the what-ifs; five times as many for forks and explanations.")
@click.option(
    "--pods", default=10_000, help="Number of placed pods of the what-ifs; five times as many for forks and explanations."
)
@click.option("--times", default=1000, help="Number of what-ifs of each kind.")
def what_ifs(nodes: int, pods: int, times: int) -> None:
    """Measure what-ifs, forks and explanations of `moorage.Cluster`. Prints one JSON object per line."""
    for measured in (
        measure_what_ifs(nodes, pods, times),
        measure_rich_what_ifs(nodes, pods, max(1, times // 10)),
        measure_forks(5 * nodes, 5 * pods),
        measure_explanations(5 * nodes, 5 * pods),
    ):
        for figures in measured:
            click.echo(json.dumps(figures))


@main.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--nodes", default=300, help="Number of nodes.")
@click.option("--pods", default=6000, help="Number of pods, of which 32 stay pending for a dozen reasons.")
@click.option("--seed", default=0, help="Seed of sizes and places.")
@click.option("--lean", is_flag=True, help="Leave out what scheduling does not read, which is most of the bytes.")
def dump(file: Path, nodes: int, pods: int, seed: int, lean: bool) -> None:
    """Write FILE, a dump as of a production cluster: 90 MB of JSON with what real clusters have."""
    write_production_dump(file, nodes, pods, seed, lean=lean)
    click.echo(f"wrote {file}: {file.stat().st_size / 1e6:.0f} MB")


@main.command()
@click.argument("names", nargs=-1)
@click.option(
    "--cluster", "clusters", type=click.Choice(list(CLUSTERS)), multiple=True, default=list(CLUSTERS), help="May be repeated."
)
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Write the dumps here, and use them again.")
@click.option("--json", "out", type=click.Path(path_type=Path), help="Append the results to a file, one JSON object per line.")
def questions(names: tuple[str, ...], clusters: tuple[str, ...], folder: Path | None, out: Path | None) -> None:
    """Measure the questions NAMES, or all, on the demo and on dumps as of production clusters. Fails beyond a bound."""
    unknown = [name for name in names if name not in question_names()]
    if unknown:
        raise click.UsageError(f"unknown question {unknown[0]}; use one of {', '.join(question_names())}")
    within = True
    with tempfile.TemporaryDirectory() as usual:
        for cluster in clusters:
            for figures in measure_questions(cluster, folder or Path(usual), names):
                click.echo(json.dumps(figures))
                within = within and figures["within"]
                if out is not None:
                    with out.open("a") as file:
                        file.write(json.dumps(figures) + "\n")
    sys.exit(0 if within else 1)


@main.command("yaml")
@click.option("--megabytes", default=37.0, help="Size of each file.")
def yaml_reading(megabytes: float) -> None:
    """Measure how long reading YAML takes."""
    for figures in measure_yaml(megabytes):
        click.echo(json.dumps(figures))


@main.command()
@click.option("--runs", default=400, help="Number of runs.")
def sweeps(runs: int) -> None:
    """Measure what a sweep costs beside its runs. Prints one JSON object per line."""
    for figures in measure_sweeps(runs):
        click.echo(json.dumps(figures))


@main.command()
@click.argument("names", nargs=-1)
@click.option("--small", is_flag=True, help="Use small sizes, as the tests do.")
@click.option("--times", default=3, help="Number of measured calls of each step; the best counts.")
@click.option("--json", "out", type=click.Path(path_type=Path), help="Append the results to a file, one JSON object per line.")
def growth(names: tuple[str, ...], small: bool, times: int, out: Path | None) -> None:
    """Measure how costs grow along the axes NAMES, or all of them. Fails if an exponent exceeds its limit."""
    unknown = [name for name in names if name not in AXES]
    if unknown:
        raise click.UsageError(f"unknown axis {unknown[0]}; use one of {', '.join(AXES)}")
    beyond = False
    for name in names or tuple(AXES):
        (figures,) = _growth_in_new_process(name, small, times)
        sizes, each, loops = (" ".join(f"{at:>9}" for at in figures[key]) for key in ("sizes", "us_each", "loop_us"))
        found = f"exponent {figures['exponent']:5} of {figures['limit']}{'' if figures['within'] else '  TOO HIGH'}"
        click.echo(f"{name:36} at {sizes}: {each} us each (loop {loops}) {found}")
        beyond = beyond or not figures["within"]
        if out is not None:
            with out.open("a") as file:
                file.write(json.dumps(figures) + "\n")
    sys.exit(1 if beyond else 0)


def _growth_in_new_process(name: str, small: bool, times: int) -> list[dict[str, Any]]:
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_growth_of, name, small, times).result()


def _growth_of(name: str, small: bool, times: int) -> list[dict[str, Any]]:
    return list(measure_growth([name], small=small, times=times))


@main.command()
@click.argument("names", nargs=-1)
@click.option("--nodes", type=int, help="Number of nodes; default: depends on the measurement.")
@click.option("--init", type=int, help="Number of pods that run before the measurement.")
@click.option("--pods", type=int, help="Number of measured pods; for soak, pods created per second.")
@click.option("--seconds", type=float, help="Duration of a soak.")
@click.option("--lease", multiple=True, metavar="FLAG", help="A leader election flag for failover. May be repeated.")
@click.option("--profile", type=click.Path(path_type=Path), help="Profile the scheduler in throughput to this file (cProfile).")
@click.option("--workload", type=click.Choice(list(WORKLOADS)), help="Workload of the pods for throughput and against.")
@click.option(
    "--peer",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True, path_type=Path),
    help="Path of a kube-scheduler to measure in the same run, for against.",
)
def live(names: tuple[str, ...], **given: Any) -> None:
    """Measure a live scheduler on the embedded API server: NAMES, or all measurements. Prints one JSON object per line.

    `against` needs --peer, and is skipped without it.
    """
    options = {option: value for option, value in given.items() if value not in (None, ())}
    broken = False
    if "against" in names and "peer" not in options:
        raise click.UsageError("against needs --peer, the path of another scheduler")
    for name in names or tuple(name for name in LIVE if name != "against" or "peer" in options):
        if name not in LIVE:
            raise click.UsageError(f"unknown measurement {name}; use one of {', '.join(LIVE)}")
        for figures in measure_live(name, **options):
            click.echo(json.dumps(figures))
            broken = broken or any(value for key, value in figures.items() if key.startswith(("broken", "peer_broken")))
    sys.exit(1 if broken else 0)


@main.command()
@click.option("--nodes", default=1000, show_default=True)
@click.option("--pods", default=2000, show_default=True)
@click.option("--rounds", default=3, show_default=True)
def plugins(nodes: int, pods: int, rounds: int) -> None:
    """Measure what each form of a custom plugin costs against none."""
    for figures in measure_forms(nodes, pods, rounds):
        click.echo(json.dumps(figures))


@main.command("against-kube")
@click.option(
    "--peer",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True, path_type=Path),
    required=True,
    help="Path of the kube-scheduler to measure.",
)
@click.option("--nodes", type=int, help="Number of nodes; default: 1,000, then 5,000.")
@click.option("--pods", type=int, help="Number of measured pods.")
@click.option("--workload", type=click.Choice(list(WORKLOADS)), help="Workload of the pods.")
@click.pass_context
def against_kube(context: click.Context, /, **given: Any) -> None:
    """Measure a kube-scheduler and Moorage in one run on equal clusters: the same as `live against`."""
    context.invoke(live, names=("against",), **given)


def _in_new_process(name: str, sizes: Sizes, seed: int, check_every: int, without: tuple[str, ...]) -> dict[str, Any]:
    """Run a workload in a new process: memory of an earlier one would slow it down and distort its peak."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(run_one, name, sizes, seed, check_every, without).result()


@main.command()
@click.option("--nodes", default=10_000, help="Number of nodes.")
@click.option("--pods-per-node", default=10, help="Number of placed pods on each.")
def carry(nodes: int, pods_per_node: int) -> None:
    """Measure what one process carries: memory of nodes and pods, CPU time of events and decisions beside them."""
    click.echo(json.dumps(measure_carried(nodes, pods_per_node)))


@main.command()
@click.option("--share", type=click.Choice(list(SHARINGS)), default="nodes", help="How the schedulers share the cluster.")
@click.option("--schedulers", type=int, multiple=True, default=[1, 4, 16], help="Number of schedulers. May be repeated.")
@click.option("--workload", type=click.Choice(list(SHARD_WORKLOADS)), multiple=True, default=["plain"], help="May be repeated.")
@click.option("--nodes", default=10_000, help="Number of nodes.")
@click.option("--pods", "most_pods", type=int, help="The most pods to create; default: depends on the workload.")
@click.option("--writes", "writes_per_s", default=20_000.0, help="Writes that the API server stores in a second.")
@click.option("--watch-ms", default=5.0, help="Delay of watches in milliseconds.")
@click.option("--created", "pods_per_s", default=0.0, help="Pods created in a second; 0: all exist at the start.")
@click.option("--refuses", is_flag=True, help="Let the store refuse a binding to a node without room.")
@click.option("--slower", default=1.0, help="Multiply what a scheduler's process spends.")
@click.option("--oracle", is_flag=True, help="Ask the oracle of simtest about every binding; for small clusters.")
@click.option("--seed", default=0, help="Seed of the workload.")
@click.option("--csv", "out", type=click.Path(path_type=Path), help="Append the results to a file.")
def shards(
    share: str, schedulers: tuple[int, ...], workload: tuple[str, ...], nodes: int, out: Path | None, **given: Any
) -> None:
    """Play several schedulers that share a cluster, in virtual time. Prints one JSON object per run."""
    for name in workload:
        for number in schedulers:
            figures = _played_in_new_process(Setting(share, number, name, nodes, **given))
            click.echo(json.dumps(figures))
            if out is not None:
                _append(out, figures)


def _append(out: Path, figures: dict[str, Any]) -> None:
    """Append a row to a CSV file, after its header if the file is new."""
    is_new = not out.exists()
    with out.open("a", newline="") as file:
        rows = csv.DictWriter(file, list(figures))
        if is_new:
            rows.writeheader()
        rows.writerow(figures)


def _played_in_new_process(setting: Setting) -> dict[str, Any]:
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(play, setting).result()


@main.command()
@click.option("--folder", type=click.Path(exists=True, path_type=Path), help="A folder on the disk to measure.")
@click.option("--count", default=4000, help="Number of pods created in each run.")
@click.option("--writers", default=[1, 8, 64], multiple=True, help="Number of concurrent writers. May be repeated.")
@click.option("--rounds", default=5, help="Number of runs of each kind, alternating.")
def writes(folder: Path | None, count: int, writers: tuple[int, ...], rounds: int) -> None:
    """Measure how many writes per second the API server's store accepts, in memory and in a file."""
    click.echo(f"{'writers':>8} {'memory/s':>10} {'file/s':>10} {'ratio':>6} {'memory/cpu s':>13} {'file/cpu s':>11}")
    for many in writers:
        memory, kept = measure_writes(folder, count, many, rounds)
        ratio = kept.per_s / memory.per_s
        shown = f"{many:8} {memory.per_s:10.0f} {kept.per_s:10.0f} {ratio:6.2f} {memory.per_cpu_s:13.0f} {kept.per_cpu_s:11.0f}"
        click.echo(shown)


@main.command()
@click.option("--resource", default="pods", type=click.Choice(["configmaps", "pods"]), help="Kind of the stored objects.")
@click.option("--count", default=50_000, help="Number of objects.")
@click.option("--size", default=1_000_000, help="Size of a ConfigMap, in bytes.")
@click.option("--watches", default=1_000, help="Number of watches.")
@click.option("--listed", is_flag=True, help="Request lists instead; the server serves 64 at a time to one user.")
@click.option("--plain", is_flag=True, help="Use plain HTTP.")
def watches(resource: str, count: int, size: int, watches: int, listed: bool, plain: bool) -> None:
    """Measure the API server's memory for watches and lists that the client does not read."""
    click.echo(json.dumps(measure_watches(resource, count, size, watches, plain=plain, listed=listed)))


@main.command()
@click.argument("before", type=click.Path(exists=True, path_type=Path))
@click.argument("after", type=click.Path(exists=True, path_type=Path))
def compare(before: Path, after: Path) -> None:
    """Print the ratios of two result files, and the spread of repeated runs."""
    old, new = ([json.loads(line) for line in path.read_text().splitlines()] for path in (before, after))
    for line in compared(old, new):
        click.echo(line)
