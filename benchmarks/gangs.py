"""Measure gangs as Kubernetes 1.37 schedules them: gangs that preempt, and gangs that share racks, on a thousand nodes.

The shapes are those of upstream's benchmarks of group preemption: nodes that are full of small pods of low priority, singly or
in groups, and gangs of high priority that need many of them gone; and gangs on empty nodes: a few large ones, many small ones
(upstream's loads have 5,000 nodes), and as many in trees, two below each composite group.
"""

from __future__ import annotations

from time import process_time
from typing import Any, Final

from benchmarks.loop_time import loop_us
from moorage.laboratory.cluster_objects import read_given
from moorage.simulator.cluster_run import simulate_cluster
from moorage.simulator.pod_records import State
from moorage.simulator.simulate import Options, prepare

__all__ = ["GANG_SHAPES", "measure_gangs"]

_LOOP_US: Final = 9.0
_API: Final = "scheduling.k8s.io/v1beta1"
_GATES: Final = "GenericWorkload=true,TopologyAwareWorkloadScheduling=true"

#: Name → gangs, pods of each, milli-CPU of a pod, whether the nodes are full, disruptionMode of the groups there, racks.
GANG_SHAPES: Final[dict[str, tuple[int, int, int, bool, str, bool]]] = {
    "gangs-preempt-pods": (100, 10, 3000, True, "", False),
    "gangs-preempt-groups": (100, 10, 3000, True, "all", False),
    "large-gangs": (5, 200, 3000, False, "", False),
    "large-gangs-in-racks": (5, 100, 3000, False, "", True),
    "many-gangs": (1000, 3, 100, False, "", False),
    "huge-gangs": (3, 1000, 100, False, "", False),
    "many-trees": (1000, 3, 100, False, "", False),
    "huge-trees": (6, 500, 100, False, "", False),
}


def measure_gangs(name: str, nodes: int, gangs: int | None = None) -> dict[str, Any]:
    """Play one shape on so many nodes; return CPU seconds, also scaled, and how many pods were placed and evicted."""
    number, size, cpu_milli, full, mode, in_racks = GANG_SHAPES[name]
    number = gangs or number
    documents = [_node(at) for at in range(nodes)]
    if full:
        documents += [_small(at, beside, mode, nodes) for at in range(nodes) for beside in range(10)]
        documents += [_group(f"low-{at}", 10, 0, mode) for at in range(nodes if mode else 0)]
    trees = name.endswith("-trees")
    documents += [_tree(f"tree-{at}") for at in range(number // 2 if trees else 0)]
    for gang in range(number):
        above = f"tree-{gang // 2}" if trees else ""
        documents.append(_group(f"gang-{gang}", size, 1000, "", in_racks=in_racks, above=above))
        documents += [_pod(f"gang-{gang}-{at}", cpu_milli, 1000, f"gang-{gang}") for at in range(size)]
    before = loop_us()
    cluster = read_given(documents)
    options = Options(emulate="1.37", feature_gates=f"{_GATES},CompositePodGroup=true" if trees else _GATES)
    began = process_time()
    prepared = prepare(options)
    _, run = simulate_cluster(cluster, options, prepared=prepared)
    took_s = process_time() - began
    speed = (before + loop_us()) / 2
    placed = sum(bool(one.node) for one in run.pods if one.name.startswith("gang-"))
    return {
        "name": name, "nodes": nodes, "gangs": number, "pods": number * size, "placed": placed,
        "evicted": sum(one.state == State.PREEMPTED for one in run.pods), "cpu_s": round(took_s, 2),
        "scaled_s": round(took_s * _LOOP_US / speed, 2), "ms_a_gang": round(took_s * _LOOP_US / speed / number * 1e3, 1),
        "loop_us": round(speed, 1),
    }  # fmt: skip


def _node(at: int) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": f"n{at}", "rack": f"rack-{at // 100}"}
    resources = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"n{at}", "labels": labels},
        "status": {"allocatable": resources},
    }


def _small(at: int, beside: int, mode: str, nodes: int) -> dict[str, Any]:
    pod = _pod(f"low-{at}-{beside}", 400, 0, f"low-{(at + beside * 7) % nodes}" if mode else "")
    pod["spec"]["nodeName"] = f"n{at}"
    pod["status"] = {"phase": "Running", "startTime": f"2026-01-01T{at % 24:02}:{beside:02}:00Z"}
    return pod


def _pod(name: str, cpu_milli: int, priority: int, group: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": f"{cpu_milli}m", "memory": "500Mi"}}}
    spec: dict[str, Any] = {"priority": priority, "containers": [container], "terminationGracePeriodSeconds": 0}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def _tree(name: str) -> dict[str, Any]:
    reference = {"workloadName": "trees", "templateName": "tree"}
    spec = {"schedulingPolicy": {"gang": {"minGroupCount": 2}}, "priority": 1000, "workloadRef": reference}
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "scheduling.k8s.io/v1alpha3", "kind": "CompositePodGroup", "metadata": meta, "spec": spec}


def _group(name: str, least: int, priority: int, mode: str, *, in_racks: bool = False, above: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": least}}, "priority": priority}
    if mode:
        spec["disruptionMode"] = {mode: {}}
    if above:
        spec["parentCompositePodGroupName"] = above
    if in_racks:
        spec["schedulingConstraints"] = {"topology": [{"key": "rack"}]}
    return {"apiVersion": _API, "kind": "PodGroup", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
