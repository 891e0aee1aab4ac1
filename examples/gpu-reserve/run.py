"""Schedule three pods on two nodes with GpuReserve and the default plugins."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from gpu_reserve import GpuReserve

from moorage.simulator.simulate import Options, simulate
from moorage.testing.builders import a_node, a_pod
from moorage.testing.plugin_checks import check_plugin

CONFIG = b"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      enabled: [{name: GpuReserve}]
"""

cluster = [
    a_node("cpu-1", allocatable={"cpu": "2", "memory": "8Gi", "pods": 10}),
    a_node("gpu-1", allocatable={"cpu": "32", "memory": "64Gi", "pods": 10, "nvidia.com/gpu": 4}),
]


def pod(name, **requests):
    return a_pod(name, containers=[{"name": "c", "resources": {"requests": requests}}]).pod


pods = [pod("web", cpu="1"), pod("train", cpu="8", **{"nvidia.com/gpu": "1"}), pod("batch", cpu="4")]

check_plugin(GpuReserve())
run = simulate([*cluster, *pods], Options(config=CONFIG, plugins=(GpuReserve,)))
for outcome in run.pods:
    print(f"{outcome.name:6} {outcome.node or outcome.message}")
