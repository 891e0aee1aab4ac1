"""Measure Kueue's queues: a month of jobs on GPUs in virtual time, and one cycle over many waiting workloads."""

from __future__ import annotations

import random
from collections.abc import Iterator
from time import process_time
from typing import Any, Final

from benchmarks.what_ifs import loop_us
from moorage.laboratory.cluster_objects import read_given
from moorage.simulator.cluster_run import simulate_cluster
from moorage.simulator.job_kinds import KINDS, QUEUE_KINDS
from moorage.simulator.kueue.batch_jobs import QueuedCluster, queued_cluster
from moorage.simulator.kueue.cycle import QueueAdmission
from moorage.simulator.kueue.objects import read_objects
from moorage.simulator.kueue.workloads import Workload, read_workload
from moorage.simulator.simulate import Options, prepare

__all__ = ["measure_cycle", "measure_month"]

_MONTH_S: Final = 30 * 86400
_GPUS: Final = 8
_API: Final = "kueue.x-k8s.io/v1beta2"
_GPU: Final = "nvidia.com/gpu"
#: Bounds in CPU seconds of the machine on which ``sum(range(1000))`` takes 9 µs.
_MONTH_BOUND_S: Final = 60.0
_CYCLE_BOUND_S: Final = 0.020
_LOOP_US: Final = 9.0
_RACK: Final = "example.com/rack"
_QUEUES_OF_A_COHORT: Final = 10
_PRIORITIES: Final = {"low": 0, "usual": 100, "high": 1000}


def measure_month(
    jobs: int, queues: int, nodes: int, load: float, *, fair: bool = False, topology: bool = False, seed: int = 0
) -> dict[str, Any]:
    """Play a month of jobs that on average ask for ``load`` of all GPUs; return CPU seconds, and what happened."""
    rng = random.Random(seed)
    documents = [*_nodes(nodes), *_queue_objects(queues, nodes, fair=fair, topology=topology)]
    documents += _jobs(rng, jobs, queues, nodes, load, topology=topology)
    before = loop_us()
    began = process_time()
    queued = _read(documents)
    read_s = process_time() - began
    prepared = prepare(Options())
    queued.attach(prepared[0])
    _, run = simulate_cluster(queued.cluster, Options(), prepared=prepared, titles=queued.titles)
    report = queued.report(run.ended_s)
    took_s = process_time() - began
    speed = (before + loop_us()) / 2
    waits = sorted(one.reserved - one.arrived for one in report.workloads if one.reserved is not None)
    assert queued.timeline is not None
    return {
        "name": "month", "jobs": jobs, "queues": queues, "nodes": nodes, "load": load, "fair": fair, "topology": topology,
        "cpu_s": round(took_s, 1), "scaled_s": round(took_s * _LOOP_US / speed, 1), "bound_s": _MONTH_BOUND_S,
        "read_s": round(read_s, 1), "loop_us": speed, "pods": sum(one.pods for one in report.workloads),
        "cycles": queued.timeline.admission.cycles, "finished": sum(queue.finished for queue in report.queues),
        "evictions": sum(queue.evictions for queue in report.queues),
        "wait_p50_s": waits[len(waits) // 2], "wait_p90_s": waits[len(waits) * 9 // 10], "days": run.ended_s / 86400,
    }  # fmt: skip


def measure_cycle(pending: int, queues: int, *, fair: bool, preempt: bool = True, rounds: int = 5) -> dict[str, Any]:
    """Run one cycle over workloads that wait in full queues; return the best CPU time of some rounds."""
    best = float("inf")
    for _ in range(rounds):
        admission = _full_queues(pending, queues, fair=fair, preempt=preempt)
        began = process_time()
        result = admission.cycle(1e6)
        best = min(best, process_time() - began)
    speed = loop_us()
    return {
        "name": "cycle", "pending": pending, "queues": queues, "fair": fair, "preempt": preempt, "heads": result.heads,
        "admitted": len(result.admitted), "evicted": len(result.evicted), "cpu_ms": round(best * 1e3, 2),
        "scaled_ms": round(best * 1e3 * _LOOP_US / speed, 2), "bound_ms": _CYCLE_BOUND_S * 1e3, "loop_us": speed,
    }  # fmt: skip


def _read(documents: list[dict[str, Any]]) -> QueuedCluster:
    cluster = read_given(documents, custom=KINDS)
    return queued_cluster(cluster, [one.document for one in cluster.custom if one.resource in QUEUE_KINDS])


def _nodes(nodes: int) -> Iterator[dict[str, Any]]:
    for at in range(nodes):
        name = f"n{at}"
        labels = {"kubernetes.io/hostname": name, _RACK: f"r{at // 16}", "gpu": "a100"}
        amounts = {"cpu": "96", "memory": "1024Gi", "pods": "110", _GPU: str(_GPUS)}
        yield {
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": amounts},
        }  # fmt: skip


def _queue_objects(queues: int, nodes: int, *, fair: bool, topology: bool, preempt: bool = True) -> Iterator[dict[str, Any]]:
    """Yield queues in cohorts of ten below one root; each has an equal part of all nodes."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    flavor = {"topologyName": "racks", "nodeLabels": {"gpu": "a100"}} if topology else {}
    yield {"apiVersion": _API, "kind": "ResourceFlavor", "metadata": {"name": "a100"}, "spec": flavor}
    if topology:
        levels = [{"nodeLabel": _RACK}, {"nodeLabel": "kubernetes.io/hostname"}]
        yield {"apiVersion": _API, "kind": "Topology", "metadata": {"name": "racks"}, "spec": {"levels": levels}}
    if fair:
        config = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "metadata": {"name": "kueue"}}
        yield {**config, "fairSharing": {}}
    for name, value in _PRIORITIES.items():
        yield {"apiVersion": _API, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
    for at in range(-(-queues // _QUEUES_OF_A_COHORT)):
        yield {"apiVersion": _API, "kind": "Cohort", "metadata": {"name": f"c{at}"}, "spec": {"parentName": "root"}}
    amounts = {"cpu": f"{96 * nodes // queues}", "memory": f"{1024 * nodes // queues}Gi", _GPU: str(_GPUS * nodes // queues)}
    rules = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"} if preempt else {}
    for at in range(queues):
        name = f"q{at}"
        quotas = [{"name": resource, "nominalQuota": amount} for resource, amount in amounts.items()]
        group = {"coveredResources": list(amounts), "flavors": [{"name": "a100", "resources": quotas}]}
        spec: dict[str, Any] = {"namespaceSelector": {}, "resourceGroups": [group], "preemption": rules}
        spec["cohortName"] = f"c{at // _QUEUES_OF_A_COHORT}"
        yield {"apiVersion": _API, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}
        local = {"metadata": {"name": name, "namespace": "team"}, "spec": {"clusterQueue": name}}
        yield {"apiVersion": _API, "kind": "LocalQueue", **local}


def _jobs(rng: random.Random, jobs: int, queues: int, nodes: int, load: float, *, topology: bool) -> Iterator[dict[str, Any]]:
    """Yield jobs of one to 32 pods; some queues get many more of them than others."""
    shapes = []
    for _ in range(jobs):
        pods = rng.choice((1, 1, 1, 2, 2, 4, 8, 16, 32))
        shapes.append((pods, 8 if pods > 2 else rng.choice((1, 2, 4, 8)), rng.lognormvariate(0, 1.2)))
    asked = sum(pods * gpus * length for pods, gpus, length in shapes)
    unit_s = load * nodes * _GPUS * _MONTH_S / asked
    weights = [1 / (1 + at % 7) for at in range(queues)]
    for at, (pods, gpus, length) in enumerate(shapes):
        queue = rng.choices(range(queues), weights)[0]
        priority = rng.choices(tuple(_PRIORITIES), (7, 2, 1))[0]
        labels = {"kueue.x-k8s.io/queue-name": f"q{queue}", "kueue.x-k8s.io/priority-class": priority}
        notes = {
            "moorage.dev/duration": f"{max(60, round(length * unit_s))}s",
            "moorage.dev/arrival": f"{rng.randrange(_MONTH_S)}s",
        }
        meta = {"name": f"j{at}", "namespace": "team", "labels": labels, "annotations": notes}
        requests = {"cpu": str(12 * gpus), "memory": f"{100 * gpus}Gi", _GPU: str(gpus)}
        container = {"name": "main", "image": "train", "resources": {"requests": requests, "limits": {_GPU: str(gpus)}}}
        template: dict[str, Any] = {"spec": {"containers": [container], "restartPolicy": "Never"}}
        if topology and pods > 1:
            template["metadata"] = {"annotations": {"kueue.x-k8s.io/podset-preferred-topology": _RACK}}
        spec = {"parallelism": pods, "completions": pods, "template": template}
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def _full_queues(pending: int, queues: int, *, fair: bool, preempt: bool) -> QueueAdmission:
    """Return queues in which half of the workloads borrow, so that there is no quota left, and others wait."""
    nodes = queues * 2
    objects = read_objects(_queue_objects(queues, nodes, fair=fair, topology=False, preempt=preempt))
    admission = QueueAdmission(objects, fair=fair)
    for at in range(queues):
        for part in range(4 if at % 2 else 12):
            one = _workload(f"held-{at}-{part}", at, part, held=True)
            if at % 2 == 0 or part < 4:
                admission.hold(one)
    for at in range(pending):
        admission.add(_workload(f"new-{at}", at % queues, at, held=False), 1e6)
    return admission


def _workload(name: str, queue: int, number: int, *, held: bool) -> Workload:
    requests = {"cpu": "24", "memory": "256Gi", _GPU: "2"}
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}}
    data: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "team", "uid": name},
        "spec": {
            "queueName": f"q{queue}", "priority": number % 3 * 100,
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
    }  # fmt: skip
    if held:
        assigned = {"name": "main", "flavors": dict.fromkeys(requests, "a100"), "resourceUsage": requests, "count": 1}
        stamp = {"type": "QuotaReserved", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        data["status"] = {
            "admission": {"clusterQueue": f"q{queue}", "podSetAssignments": [assigned]}, "conditions": [stamp],
        }  # fmt: skip
    return read_workload(data, float(number))
