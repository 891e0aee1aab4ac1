"""Repeat a known result on waiting: Erlang's formula for the mean wait of customers of several servers.

Jobs arrive at random (Poisson), run for exponential times on a node with as many cores as there are servers, and wait in the
scheduler's queue while all are busy. Erlang (1917) says how long they wait on average; the table shows it beside the mean over
the seeds with its 95 % interval.

    python examples/waiting-line/run.py [SEEDS]
"""

import sys
from random import Random

import moorage
from moorage.report.certainty import t_interval
from moorage.simulator.trace import Trace, simulate_trace

JOBS, WARM_UP = 3000, 300
MEAN_S = 600.0


def erlang_wait(servers, load):
    """Return the mean wait: the chance that a job waits, times its mean wait if it does."""
    offered = servers * load
    blocked = 1.0
    for count in range(1, servers + 1):
        blocked = offered * blocked / (count + offered * blocked)
    waits = blocked / (1 - load * (1 - blocked))
    return waits * MEAN_S / (servers * (1 - load))


def trace(servers, load, seed):
    random = Random(f"{servers}/{load}/{seed}")
    size = {"cpu": str(servers), "memory": "8Gi", "pods": str(JOBS)}
    node = {"metadata": {"name": "node"}, "status": {"allocatable": size, "capacity": size}}
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    time_s, arrivals = 0.0, []
    for at in range(JOBS):
        time_s += random.expovariate(servers * load / MEAN_S)
        arrivals.append((time_s, {"metadata": {"name": f"job-{at}"}, "spec": spec}, random.expovariate(1 / MEAN_S)))
    return Trace.of([node], arrivals)


def mean_wait(servers, load, seed):
    run = simulate_trace(trace(servers, load, seed), moorage.Options(seed=seed))
    waits = [pod.placed_s - pod.arrived_s for pod in run.pods[WARM_UP:]]
    return sum(waits) / len(waits)


def main():
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print(f"{'servers':>7}{'load':>6}{'Erlang':>9}{'measured':>10}   95% interval, n={seeds}")
    for servers, load in ((4, 0.5), (4, 0.7), (16, 0.8)):
        waits = [mean_wait(servers, load, seed) for seed in range(seeds)]
        low, high = t_interval(waits)
        print(f"{servers:7}{load:6.0%}{erlang_wait(servers, load):8.1f}s{sum(waits) / seeds:9.1f}s   {low:.1f}s … {high:.1f}s")


if __name__ == "__main__":
    main()
