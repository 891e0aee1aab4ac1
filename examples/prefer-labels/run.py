"""Score zone b higher than zone a, and see where pods are placed."""

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from prefer_labels import PreferLabels, PreferLabelsArgs

from moorage.errors import ConfigError
from moorage.simulator.simulate import Options, simulate
from moorage.testing.builders import a_node, a_pod
from moorage.testing.plugin_checks import check_plugin

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    score:
      enabled: [{name: PreferLabels, weight: 10}]
  pluginConfig:
  - name: PreferLabels
    args:
      key: topology.kubernetes.io/zone
      points: {a: 10, b: %d}
"""

nodes = [
    a_node(f"{zone}{at}", {"topology.kubernetes.io/zone": zone}, allocatable={"cpu": "4", "memory": "8Gi", "pods": 4})
    for zone in "abc"
    for at in range(2)
]
pods = [a_pod(f"web-{at}", containers=[{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]).pod for at in range(12)]

check_plugin(PreferLabels(PreferLabelsArgs(points={"a": 10, "b": 90})))
run = simulate([*nodes, *pods], Options(config=(CONFIG % 90).encode(), plugins=(PreferLabels,)))
zones = Counter(outcome.node[0] for outcome in run.pods)
print(", ".join(f"zone {zone}: {zones[zone]} pods" for zone in sorted(zones)))

try:
    simulate(nodes, Options(config=(CONFIG % 900).encode(), plugins=(PreferLabels,)))
except ConfigError as error:
    print(error.faults[0])
