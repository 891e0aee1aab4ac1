"""The entries of a report for pods that were not created."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from moorage.api.core import Pod
from moorage.report.outcome import QuotaAmount, RefusedPods
from moorage.simulator.owners import is_active
from moorage.simulator.pod_creation import NotCreated

__all__ = ["refused_outcomes"]


def refused_outcomes(
    refused: Iterable[NotCreated], pods: Iterable[Pod], workloads: Mapping[str, str]
) -> tuple[RefusedPods, ...]:  # fmt: skip
    """Return the pods that were refused, by workload and reason. ``pods`` are the pods that exist.

    ``workloads`` maps a pod's UID to its workload: ``Deployment/web``.
    """
    groups: dict[tuple[str, str, str, str], list[NotCreated]] = {}
    for one in refused:
        workload = workloads.get(one.pod.uid, "")
        key = (one.pod.namespace, workload or f"Pod/{one.pod.name}", one.refused.by, one.refused.quota)
        groups.setdefault(key, []).append(one)
    if not groups:
        return ()
    there = Counter((pod.namespace, workloads.get(pod.uid, "")) for pod in pods if is_active(pod))
    there.update((one.pod.namespace, workloads.get(one.pod.uid, "")) for held in groups.values() for one in held)
    return tuple(_outcome(held, workloads.get(held[0].pod.uid, ""), there) for held in groups.values())


def _outcome(held: list[NotCreated], workload: str, there: Mapping[tuple[str, str], int]) -> RefusedPods:
    first = held[0]
    return RefusedPods(
        namespace=first.pod.namespace,
        workload=workload,
        names=tuple(one.pod.name for one in held),
        wanted=there[first.pod.namespace, workload] if workload else 1,
        by=first.refused.by,
        quota=first.refused.quota,
        message=first.refused.message,
        amounts=tuple(QuotaAmount(a.resource, a.requested, a.used, a.hard) for a in first.refused.shortages),
        labels=first.pod.metadata.labels,
    )
