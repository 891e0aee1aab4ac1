"""Repeat the experiment of "Beware of Fragmentation": policies for shared GPUs on lists of pods of a real cluster.

    python examples/fgd/run.py --traces FOLDER --lists default,multigpu20 --policies FGD,BestFit --seeds 42-51 --csv FILE

The folder has the lists of Alibaba's cluster-trace-gpu-v2023 (openb_node_list_gpu_node.csv, openb_pod_list_default.csv, ...).
Without --traces, a small example beside this file runs. Rows of the CSV file: list, policy, seed, arrived, alloc, frag. arrived
is what pods requested so far, alloc what is in use and frag the fragment amount, all in percent of the cluster's GPUs; alloc
and frag are means over the pods that arrived within arrived +- 0.5.
"""

import argparse
import csv
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).parent))

from protocol import LISTS, POLICIES, Run, read_rows, read_tasks

NODES = "openb_node_list_gpu_node.csv"
#: The loads that the printed table shows.
SHOWN = (50, 80, 100, 120, 130)


def rows_of(traces, name, policy, seed):
    """Return the rows of one run: (arrived, alloc, frag) by percent."""
    nodes = read_rows(traces / NODES)
    capacity = 1000 * sum(int(row["gpu"]) for row in nodes)
    cells = defaultdict(list)
    for record in Run(nodes, read_tasks(traces / f"openb_pod_list_{name}.csv"), policy, seed).records():
        alloc, frag = (100 * value / capacity for value in (record.used, record.fragments))
        cells[round(100 * record.arrived / capacity)].append((round(alloc, 2), frag))
    return [
        (percent, round(mean(alloc for alloc, _ in cell), 2), round(mean(frag for _, frag in cell), 2))
        for percent, cell in sorted(cells.items())
    ]


def one(job):
    return job, rows_of(*job)


def seeds_of(text):
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=Path(__file__).parent / "small", help="the folder of the lists")
    parser.add_argument("--lists", default="default", help=f"separated by commas, or all: {', '.join(LISTS)}")
    parser.add_argument("--policies", default="all", help=f"separated by commas, or all: {', '.join(POLICIES)}")
    parser.add_argument("--seeds", type=seeds_of, default=range(42, 43), help="42, or 42-51")
    parser.add_argument("--csv", type=Path, help="where to write the rows")
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    lists = LISTS if given.lists == "all" else given.lists.split(",")
    policies = list(POLICIES) if given.policies == "all" else given.policies.split(",")
    if unknown := sorted({*lists} - {*LISTS}) + sorted({*policies} - {*POLICIES}):
        parser.error(f"unknown: {', '.join(unknown)}; lists: {', '.join(LISTS)}; policies: {', '.join(POLICIES)}")
    jobs = [(given.traces, name, policy, seed) for name in lists for policy in policies for seed in given.seeds]
    results = {}
    with ProcessPoolExecutor(given.processes) as pool:
        for job, rows in pool.map(one, jobs) if given.processes > 1 else map(one, jobs):
            results[job] = rows
            if sys.stderr.isatty():
                print(f"\r{len(results)} of {len(jobs)} runs", end="", file=sys.stderr)
    if given.csv:
        write(given.csv, results)
    show(results)


def write(path, results):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("list", "policy", "seed", "arrived", "alloc", "frag"))
        for (_, name, policy, seed), rows in results.items():
            writer.writerows((name, policy, seed, *row) for row in rows)


def show(results):
    """Print the means over seeds at some loads."""
    loads = [load for load in SHOWN if any(row[0] == load for rows in results.values() for row in rows)]
    print(f"{'list':12} {'policy':14}" + "".join(f"{f'{what} {load}%':>12}" for what in ("alloc", "frag") for load in loads))
    grouped = defaultdict(list)
    for (_, name, policy, _), rows in results.items():
        grouped[name, policy].append({row[0]: row[1:] for row in rows})
    for (name, policy), runs in grouped.items():
        cells = [
            f"{mean(run[load][i] for run in runs if load in run):>12.2f}" for i in (0, 1) for load in loads
        ]  # fmt: skip
        print(f"{name:12} {policy:14}" + "".join(cells))


if __name__ == "__main__":
    main()
