"""Ask what cordoning nodes changes: their pods stay, and pending pods of the input go to other nodes or stay pending."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from moorage.framework.changes import Change
from moorage.laboratory.drain.drain_question import check_nodes
from moorage.laboratory.trial.asked_cluster import AskedCluster
from moorage.laboratory.trial.history import Ran
from moorage.report.answer import AnswerRequest, Proof
from moorage.report.drain_report import DrainedNode, DrainedPod, DrainReport, cordon_summary


def cordon_report(cluster: AskedCluster, request: AnswerRequest, nodes: Sequence[str]) -> DrainReport:
    """Return what cordoning nodes changes. The cluster itself is unchanged.

    Raises  InputError for a node that is not there
    """
    check_nodes(cluster, nodes)
    staying = [pod for pod in cluster.simulation.pods_in_order() if pod.spec.node_name in set(nodes)]
    before, _ = _placed(cluster, ())
    after, why = _placed(cluster, nodes)
    pods = [DrainedPod(pod.key, "stays", pod.spec.node_name, origin=pod.spec.node_name) for pod in staying]
    pods += _elsewhere(before, after, why)
    pending = tuple(key for key, node in after.items() if not node and before.get(key))
    return DrainReport(
        request=request,
        summary=cordon_summary(nodes, pods, pending),
        proof=Proof("run", runs=2),
        possible=True,
        pods=tuple(pods),
        pending=pending,
        nodes=tuple(DrainedNode(name, False) for name in nodes),
    )


def _placed(cluster: AskedCluster, nodes: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the node of each pending pod of the input with these nodes cordoned, or why it stays pending."""
    with cluster.transaction():
        if nodes:
            cluster.apply(*(Change("node", "cordon", f"node/{name}", "unschedulable", None, True) for name in nodes))
        cluster._step(Ran(None))
        records = cluster.simulation.records.values()
        placed = {record.pod.key: record.node if record.placed_s is not None else "" for record in records}
        return placed, {record.pod.key: record.message for record in records}


def _elsewhere(before: Mapping[str, str], after: Mapping[str, str], why: Mapping[str, str]) -> Iterator[DrainedPod]:
    for key, node in after.items():
        was = before.get(key, "")
        if was and node and was != node:
            yield DrainedPod(key, "moves", node, at=0.0, origin=was)
        elif was and not node:
            yield DrainedPod(key, "pending", why=why[key] or None, origin=was)
