"""Repeat the experiment of "Beware of Fragmentation": policies for shared GPUs on lists of pods of a real cluster.

    python examples/fgd/run.py --traces FOLDER --lists default,multigpu20 --policies FGD,BestFit --seeds 42-51 --csv FILE

The folder has the lists of Alibaba's cluster-trace-gpu-v2023 (openb_node_list_gpu_node.csv, openb_pod_list_default.csv, ...).
Without --traces, lists are read from shared/traces beside the project; without --lists, a small example runs.

Rows of the CSV file: list, policy, seed, arrived, alloc, frag, power. arrived is what pods requested so far, alloc what is in
use and frag the fragment amount, all in percent of the cluster's GPUs; power is in kilowatts. alloc, frag and power are means
over the pods that arrived within arrived +- 0.5.

moorage.sweep executes the runs, in processes or on a Dask cluster; with --store an interrupted experiment continues. --stored
prints the results in the store and executes no run.
"""

import argparse
import csv
import sys
import tempfile
from collections import defaultdict
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from statistics import mean, stdev

sys.path.insert(0, str(Path(__file__).parent))

from protocol import LISTS, POLICIES, REVISION, Run, list_file, read_rows, read_tasks

import moorage
from moorage.laboratory.sweeps.jobs import CallingThread, dask_executor, process_pool

HERE = Path(__file__).parent
NODES = "openb_node_list_gpu_node.csv"
#: Where the lists are if no folder is named.
BESIDE = HERE.parents[2] / "shared" / "traces"
#: The loads that the printed table shows.
SHOWN = (50, 80, 100, 120, 130)
#: The 97.5 % quantiles of Student's t for 2, 3, ... 10 values.
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)


class Experiment:
    """One run of the experiment, as a sweep calls it. ``digest`` stands for all lists of the folder and for the protocol."""

    def __init__(self, traces):
        self.traces = traces
        lists = [list_file(traces / f"openb_pod_list_{name}.csv") for name in LISTS]
        files = [path.read_bytes() for path in (traces / NODES, *lists) if path.exists()]
        self.digest = blake2b(b"".join((REVISION.encode(), *files)), digest_size=16).hexdigest()

    def __call__(self, *, pods, policy, seed):
        """Return the columns of one run, by percent of the cluster's GPUs that arrived."""
        nodes = read_rows(self.traces / NODES)
        capacity = 1000 * sum(int(row["gpu"]) for row in nodes)
        cells = defaultdict(list)
        for record in Run(nodes, read_tasks(self.traces / f"openb_pod_list_{pods}.csv"), policy, seed).records():
            alloc, frag = (100 * value / capacity for value in (record.used, record.fragments))
            cells[round(100 * record.arrived / capacity)].append((round(alloc, 2), frag, record.watts / 1000))
        return {
            "arrived": sorted(cells),
            "alloc": [round(mean(alloc for alloc, _, _ in cells[percent]), 2) for percent in sorted(cells)],
            "frag": [round(mean(frag for _, frag, _ in cells[percent]), 2) for percent in sorted(cells)],
            "power": [round(mean(power for _, _, power in cells[percent]), 3) for percent in sorted(cells)],
        }


class NoRuns(Executor):
    """An executor that runs nothing, so that a sweep returns only the runs in its store."""

    def submit(self, *given, **named):
        found = Future()
        found.set_exception(LookupError("the store does not have this run"))
        return found


def seeds_of(text):
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, help="the folder of the lists")
    parser.add_argument("--lists", help=f"separated by commas, or all: {', '.join(LISTS)}")
    parser.add_argument("--policies", default="all", help=f"separated by commas, or all: {', '.join(POLICIES)}")
    parser.add_argument("--seeds", type=seeds_of, default=range(42, 43), help="42, or 42-51")
    parser.add_argument("--csv", type=Path, help="where to write the rows")
    parser.add_argument("--store", type=Path, help="where to keep runs, so that an interrupted experiment goes on")
    parser.add_argument("--stored", action="store_true", help="show what the store has, and make no run")
    parser.add_argument("--plot", type=Path, help="a folder for the plots; needs moorage[plot]")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--dask", help="the address of a Dask scheduler, whose workers make the runs")
    given = parser.parse_args()
    if given.stored and not given.store:
        parser.error("--stored needs --store")
    traces = given.traces or (BESIDE if given.lists else HERE / "small")
    lists = LISTS if given.lists == "all" else (given.lists or "default").split(",")
    policies = list(POLICIES) if given.policies == "all" else given.policies.split(",")
    if unknown := sorted({*lists} - {*LISTS}) + sorted({*policies} - {*POLICIES}):
        parser.error(f"unknown: {', '.join(unknown)}; lists: {', '.join(LISTS)}; policies: {', '.join(POLICIES)}")
    if missing := [name for name in lists if not list_file(traces / f"openb_pod_list_{name}.csv").exists()]:
        parser.error(f"{traces} has no list {', '.join(missing)}; name the folder of the lists with --traces")
    grid = {"pods": lists, "policy": policies, "seed": given.seeds}
    with ExitStack() as block:
        store = given.store or block.enter_context(tempfile.TemporaryDirectory())
        experiment = Experiment(traces.absolute())
        found = moorage.sweep(grid, experiment, executor_of(given, block), store, on_run=progress)
    if given.stored and found.failed:
        print(f"{len(found.failed)} of {len(found.failed) + len(found.all)} runs are not in the store", file=sys.stderr)
    else:
        for failed in found.failed:
            print(f"{dict(failed.labels)}: {failed.message}", file=sys.stderr)
    if given.csv:
        write(given.csv, found)
    if given.plot:
        draw(given.plot, found, lists)
    show(found)
    return 1 if found.failed and not given.stored else 0


def executor_of(given, block):
    if given.stored:
        return NoRuns()
    if given.dask:
        return block.enter_context(dask_executor(given.dask))
    return CallingThread() if given.processes == 1 else block.enter_context(process_pool(given.processes))


def progress(there, of, failed):
    if sys.stderr.isatty():
        print(f"\r{there} of {of} runs", end="", file=sys.stderr)


def rows(run):
    """Return (arrived, alloc, frag, power) of a run."""
    return list(zip(*(run.series[name].tolist() for name in ("arrived", "alloc", "frag", "power")), strict=True))


def write(path, found):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("list", "policy", "seed", "arrived", "alloc", "frag", "power"))
        for run in found.all:
            writer.writerows((run.labels["pods"], run.labels["policy"], run.labels["seed"], *row) for row in rows(run))


def draw(folder, found, lists):
    from moorage.interfaces.plots import plot_curves

    folder.mkdir(parents=True, exist_ok=True)
    for name in lists:
        for what, told in {"alloc": "allocated", "frag": "fragment amount", "power": "power"}.items():
            figure = plot_curves(
                found.select(pods=name).series, "arrived", what, "policy", title=f"list {name}",
                xlabel="requested, % of the GPUs", ylabel=f"{told}, {'kW' if what == 'power' else '% of the GPUs'}",
            )  # fmt: skip
            figure.savefig(folder / f"{name}-{what}.svg")


def show(found):
    """Print means at some loads; over several seeds, with the half-width of their 95 % interval."""
    grouped = defaultdict(list)
    for run in found.all:
        grouped[run.labels["pods"], run.labels["policy"]].append({row[0]: row[1:] for row in rows(run)})
    loads = [load for load in SHOWN if any(load in run for runs in grouped.values() for run in runs)]
    width = 12 if all(len(runs) == 1 for runs in grouped.values()) else 15
    print(
        f"{'list':12} {'policy':14}{'seeds':>6}"
        + "".join(f"{f'{what} {load}%':>{width}}" for what in ("alloc", "frag", "power") for load in loads)
    )
    for (name, policy), runs in grouped.items():
        cells = [over_seeds([run[load][i] for run in runs if load in run]) for i in (0, 1, 2) for load in loads]
        print(f"{name:12} {policy:14}{len(runs):>6}" + "".join(f"{cell:>{width}}" for cell in cells))


def over_seeds(values):
    """Return a mean as text, with the half-width of its interval by Student's t."""
    if not values:
        return "-"
    if len(values) == 1:
        return f"{values[0]:.2f}"
    half = STUDENT[min(len(values), len(STUDENT) + 1) - 2] * stdev(values) / len(values) ** 0.5
    return f"{mean(values):.2f} ±{half:.2f}"


if __name__ == "__main__":
    sys.exit(main())
