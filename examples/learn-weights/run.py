"""Learn the weights of Score plugins on a part of a trace, and measure them on a part that the search never saw.

The nodes run pods that need much cpu, pods that need much memory, and now and then a large pod, which has to wait until a node
has half of its cpu free. The reward is minus the mean wait. The default profile spreads pods, so few nodes have that room.
"""

import random
from statistics import mean, stdev

from moorage.laboratory.dynamics import HOUR
from moorage.laboratory.learning import DEFAULT_PLUGINS, WeightsEnv, cross_entropy_search
from moorage.simulator.trace import Arrival
from moorage.testing.builders import a_node, a_pod

NODES = [a_node(f"node-{at}", allocatable={"cpu": "16", "memory": "64Gi", "pods": "110"}) for at in range(5)]
KINDS = {"cpu": ("2", "2Gi", 0.55), "memory": ("500m", "9Gi", 0.35), "large": ("8", "24Gi", 0.10)}
HOURS, PER_HOUR, LIFETIME_H = 3, 40, 0.8
PLUGINS = ("NodeResourcesFit", "NodeResourcesBalancedAllocation")


def part(number):
    """Return three hours of the trace."""
    chance, now, arrivals = random.Random(number), 0.0, []
    while (now := now + chance.expovariate(PER_HOUR) * HOUR) < HOURS * HOUR:
        kind = chance.choices(list(KINDS), [weight for _, _, weight in KINDS.values()])[0]
        cpu, memory, _ = KINDS[kind]
        container = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
        pod = a_pod(f"{kind}-{number}-{len(arrivals)}", containers=[container]).pod
        arrivals.append(Arrival(now, pod, chance.expovariate(1 / LIFETIME_H) * HOUR))
    return arrivals


def rewards(weights, parts):
    """Return the reward of each part of the trace with these weights."""
    found = []
    for arrivals in parts:
        env = WeightsEnv(NODES, arrivals, PLUGINS)
        env.reset(seed=0)
        found.append(env.step([weight / 10 for weight in weights])[1])
    return found


training, held_out = [part(number) for number in range(2)], [part(number) for number in range(100, 112)]
default = tuple(float(DEFAULT_PLUGINS[name]) for name in PLUGINS)
result = cross_entropy_search(
    lambda weights: mean(rewards(weights, training)), (0, 0), (10, 10), rounds=2, population=6, elite=2, start=default, seed=1
)
print(f"{result.evaluations} evaluations; the best weights on the training part:")
for name, weight in zip(PLUGINS, result.best, strict=True):
    print(f"  {name:32} {weight:4.1f}")
print(f"mean wait on the training part: default {-mean(rewards(default, training)):.2f} min, learned {-result.value:.2f} min")

before, after = rewards(default, held_out), rewards(result.best, held_out)
gains = [late - early for early, late in zip(before, after, strict=True)]
print(f"mean wait on the held-out part: default {-mean(before):.2f} min, learned {-mean(after):.2f} min")
margin = 2.2 * stdev(gains) / len(gains) ** 0.5  # 95 %, Student's t with 11 degrees of freedom
print(
    f"the difference in {len(gains)} pairs: {mean(gains):.2f} ± {margin:.2f} min, better in {sum(gain > 0 for gain in gains)}"
)
