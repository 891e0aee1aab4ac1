"""Dump the scheduler's cache to the log, and compare it with the objects of the watches (SIGUSR2).

A mismatch that lasts is a bug, in Moorage or in the cluster; one that disappears was an event not yet processed.

Source  kube-scheduler, backend/cache/debugger
"""

from __future__ import annotations

from collections.abc import Iterable

from moorage.api.core import ENDED_PHASES, Node, Pod
from moorage.core.engine.scheduler import Scheduler
from moorage.core.queue.queued_pod import QueuePlace
from moorage.live.runtime.attempt_metrics import Log
from moorage.state.view import NodeInfo, PodInfo


def compare(scheduler: Scheduler, nodes: Iterable[Node], pods: Iterable[Pod], log: Log) -> bool:
    """Log the nodes and pods that are only in the cache or only in the watches. Return whether both agree.

    Terminated pods, and pending pods of other schedulers, are ignored.
    """
    log.info(3, "Cache comparer started")
    missed_nodes, redundant_nodes = _differ({node.name for node in nodes}, set(scheduler.cluster.snapshot.table.row_of))
    if missed_nodes or redundant_nodes:
        log.info(0, "Cache mismatch", missedNodes=missed_nodes, redundantNodes=redundant_nodes)
    actual = {pod.uid for pod in pods if _is_ours(scheduler, pod)}
    cached = {*scheduler.cluster.uids} | {line.pod.uid for line in scheduler.queue.pending()}
    missed_pods, redundant_pods = _differ(actual, cached)
    if missed_pods or redundant_pods:
        log.info(0, "Cache mismatch", missedPods=missed_pods, redundantPods=redundant_pods)
    log.info(3, "Cache comparer finished")
    return not (missed_nodes or redundant_nodes or missed_pods or redundant_pods)


def _is_ours(scheduler: Scheduler, pod: Pod) -> bool:
    ended = pod.status.phase in ENDED_PHASES
    return not ended and bool(pod.spec.node_name or pod.spec.scheduler_name in scheduler.profiles)


def _differ(actual: set[str], cached: set[str]) -> tuple[list[str], list[str]]:
    return sorted(actual - cached), sorted(cached - actual)


def dump(scheduler: Scheduler, log: Log) -> None:
    """Log every node with its pods, and every pending pod."""
    table = scheduler.cluster.snapshot.table
    nodes = "\n\n".join(_node(scheduler, NodeInfo(table, row)) for row in range(len(table)))
    log.info(0, "Dump of cached NodeInfo", nodes=nodes)
    pending = [line for line in scheduler.queue.pending() if line.place is not QueuePlace.IN_FLIGHT]
    counts = scheduler.queue.counts()
    summary = "; ".join(
        f"{word}:{sum(counts[place] for place in places)}"
        for word, places in (
            ("activeQ", (QueuePlace.ACTIVE,)),
            ("backoffQ", (QueuePlace.BACKOFF,)),
            ("unschedulablePods", (QueuePlace.UNSCHEDULABLE, QueuePlace.GATED)),
        )
    )
    log.info(0, "Dump of scheduling queue", summary=summary, pods="".join(_pod(line.pod) for line in pending))


def _node(scheduler: Scheduler, node: NodeInfo) -> str:
    resources = sorted({*node.node.status.allocatable, "cpu", "memory"} - {"pods"})
    requested = ", ".join(f"{name}: {node.requested(name)}" for name in resources)
    allocatable = ", ".join(f"{name}: {node.allocatable(name)}" for name in resources)
    pods = node.pods
    lines = [
        f"Node name: {node.name}",
        f"Requested Resources: {requested}",
        f"Allocatable Resources: {allocatable}",
        f"Scheduled Pods(number: {len(pods)}):",
    ]
    text = "\n".join(lines) + "\n" + "".join(map(_pod, pods))
    nominated = scheduler.queue.nominated.get(node.name, ())
    if nominated:
        text += f"Nominated Pods(number: {len(nominated)}):\n" + "".join(map(_pod, nominated))
    return text


def _pod(pod: PodInfo) -> str:
    status = pod.status
    named = f"name: {pod.name}, namespace: {pod.namespace}, uid: {pod.uid}"
    return f"{named}, phase: {status.phase}, nominated node: {status.nominated_node_name}\n"
