"""Learn the weights of three Score plugins on one half of a published trace, and measure them on the other half.

    python examples/learn-openb/run.py --traces FOLDER [--nodes 40] [--rounds 4] [--population 8] [--episodes 12]

The folder has Alibaba's cluster-trace-gpu-v2023 (openb_node_list_gpu_node.csv, openb_pod_list_default.csv). Without it, a small
example beside this file runs, which is made up and has the same form.

An episode draws pods of one half of the list until they request 110 % of the GPUs of some nodes; none ends. The reward is the
share of the GPUs that is allocated at the end. The trace's own times are left out: if its pods end, there is no contention.
"""

import argparse
import random
from pathlib import Path
from statistics import mean, stdev

import numpy as np
from msgspec.structs import replace

import moorage
from moorage.framework.points import Reusable, Reuse, Scope, ScorePlugin
from moorage.laboratory.learning import DEFAULT_PLUGINS, WeightsEnv, cross_entropy_search
from moorage.simulator.trace import Arrival

HERE = Path(__file__).parent
GPU = "alibabacloud.com/gpu-milli"
LOAD = 1.1
#: The 97.5 % quantile of Student's t with 11 degrees of freedom, for 12 pairs.
STUDENT = 2.201


class PackGpus(ScorePlugin, Reusable):
    """Prefers nodes whose GPUs are in use, and nodes without GPUs over those whose GPUs are not."""

    name = "PackGpus"
    reuse = Reuse(Scope.USAGE, signature=lambda pod: {})

    def score(self, pod, nodes):
        offered = nodes.allocatable(GPU)
        return np.where(offered > 0, 100 * nodes.requested(GPU) // np.maximum(offered, 1), 100).clip(0, 100)


PLUGINS = ("NodeResourcesFit", "NodeResourcesBalancedAllocation", PackGpus.name)
DEFAULT = tuple(float(DEFAULT_PLUGINS.get(name, 0.0)) for name in PLUGINS)


def milli(pod):
    return int(pod.spec.containers[0].resources.requests.get(GPU, 0))


class Episodes:
    """Episodes from a half of a list of pods, on some of the nodes."""

    def __init__(self, nodes, pods):
        self.nodes, self.pods = nodes, pods
        self.capacity = sum(int(node.status.allocatable.get(GPU, 0)) for node in nodes)

    def arrivals(self, seed):
        chance, requested, found = random.Random(seed), 0, []
        while requested < LOAD * self.capacity:
            pod = chance.choice(self.pods)
            requested += milli(pod)
            name = f"p{len(found)}"
            found.append(Arrival(float(len(found)), replace(pod, metadata=replace(pod.metadata, name=name, uid=name))))
        return found

    def allocated(self, weights, seed):
        """Return the percentage of the GPUs that is allocated after an episode with these weights."""
        env = WeightsEnv(self.nodes, self.arrivals(seed), PLUGINS, reward=self._reward, plugins=(PackGpus,))
        env.reset(seed=0)
        return 100 * env.step([weight / 10 for weight in weights])[1]

    def _reward(self, simulation):
        return sum(milli(pod) for pod in simulation.engine.pods.values() if pod.spec.node_name) / self.capacity


def halves(folder, nodes):
    """Return the episodes for training, and those held out."""
    trace = moorage.read_trace("openb", folder / "openb_pod_list_default.csv", folder / "openb_node_list_gpu_node.csv")
    chance = random.Random(1)
    chosen = chance.sample(list(trace.nodes), min(nodes, len(trace.nodes)))
    pods = [arrival.pod for arrival in trace.arrivals]
    chance.shuffle(pods)
    middle = len(pods) // 2
    return Episodes(chosen, pods[:middle]), Episodes(chosen, pods[middle:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=HERE / "small", help="the folder of the lists")
    parser.add_argument("--nodes", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--population", type=int, default=6)
    parser.add_argument("--episodes", type=int, default=3, help="for each evaluation of the search")
    given = parser.parse_args()
    training, held_out = halves(given.traces, given.nodes)

    def value_of(weights):
        return mean(training.allocated(weights, seed) for seed in range(given.episodes))

    found = cross_entropy_search(
        value_of, (0, 0, 0), (5, 5, 5), rounds=given.rounds, population=given.population, elite=max(2, given.population // 3),
        start=DEFAULT, seed=1,
    )  # fmt: skip
    print(f"{found.evaluations} evaluations on the training half; default weights and the best that were found:")
    for name, before, after in zip(PLUGINS, DEFAULT, found.best, strict=True):
        print(f"  {name:32} {before:4.1f} {after:5.1f}")
    for title, weights in (("default", DEFAULT), ("learned", found.best)):
        print(f"GPUs allocated on the training half, {title}: {value_of(weights):.2f} %")
    pairs = [[held_out.allocated(weights, seed) for weights in (DEFAULT, found.best)] for seed in range(100, 112)]
    gains = [after - before for before, after in pairs]
    print(f"GPUs allocated on the held-out half: default {mean(one for one, _ in pairs):.2f} %,"
          f" learned {mean(one for _, one in pairs):.2f} %")  # fmt: skip
    margin = STUDENT * stdev(gains) / len(gains) ** 0.5
    print(
        f"difference in {len(gains)} pairs: {mean(gains):+.2f} ± {margin:.2f} points, better in {sum(one > 0 for one in gains)}"
    )


if __name__ == "__main__":
    main()
