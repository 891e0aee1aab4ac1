"""Two groups of three on a cluster for five pods: one group runs, and the other releases its nodes."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from group_permit import GROUP, SIZE, GroupPermit

from moorage.simulator.simulate import Options, simulate
from moorage.testing.builders import a_node, a_pod
from moorage.testing.plugin_checks import check_plugin

CONFIG = b"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      enabled: [{name: GroupPermit}]
"""


def member(group, at):
    return a_pod(
        f"{group}-{at}", {GROUP: group, SIZE: "3"}, containers=[{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    ).pod


nodes = [a_node(f"n{at}", allocatable={"cpu": at + 2, "memory": "4Gi", "pods": 10}) for at in range(2)]
pods = [member("red", at) for at in range(3)] + [member("blue", at) for at in range(3)]

check_plugin(GroupPermit())
run = simulate([*nodes, *pods], Options(config=CONFIG, plugins=(GroupPermit,)))
for outcome in run.pods:
    print(f"{outcome.name:7} {outcome.state:8} {outcome.node}".rstrip())
offered, used = run.totals()["cpu"]
print(f"{used // 1000} of {offered // 1000} CPUs in use")
