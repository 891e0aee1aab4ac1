"""Which nodes cluster-autoscaler considers for removal: their utilisation, and why it passes over the others.

Source  cluster-autoscaler at 87d9c45c02^, core/scaledown/eligibility/eligibility.go, simulator/utilization/info.go,
        simulator/cluster.go (names of reasons)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from moorage.api.core import Node, Pod
from moorage.simulator.autoscalers.cluster_autoscaler.drain_rules import is_daemon_pod, is_long_terminating
from moorage.simulator.owners import is_mirror
from moorage.state.pod_requests import amount, pod_requests

__all__ = ["ScaleDownFlags", "Utilisation", "unremovable_reason", "utilisation"]

_DELETED: Final = "ToBeDeletedByClusterAutoscaler"
_KEPT: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
_DELETION_S: Final = 300.0


class ScaleDownFlags(Struct, frozen=True, kw_only=True):
    """Flags of cluster-autoscaler, with its defaults.

    ``utilisation``, ``gpu_utilisation``  --scale-down-utilization-threshold, --scale-down-gpu-utilization-threshold
    ``ignore_daemons``, ``ignore_mirrors``  --ignore-daemonsets-utilization, --ignore-mirror-pods-utilization
    ``unready``                            --scale-down-unready-enabled
    ``gpu``                                the resource of GPUs; ``gpu_label``: the provider's label of nodes with GPUs
    """

    utilisation: float = 0.5
    gpu_utilisation: float = 0.5
    ignore_daemons: bool = False
    ignore_mirrors: bool = False
    unready: bool = True
    gpu: str = "nvidia.com/gpu"
    gpu_label: str = "cloud.google.com/gke-accelerator"


class Utilisation(Struct, frozen=True):
    """Requests over allocatable: of the GPU alone on a node with one, else the higher of cpu and memory."""

    resource: str
    share: float


def utilisation(node: Node, pods: Sequence[Pod], flags: ScaleDownFlags, now_s: float) -> Utilisation | None:
    """Return the utilisation of a node; None if it offers no cpu or no memory, so that it cannot be known."""
    if _has_gpu(node, flags):
        share = _share(node, pods, flags.gpu, flags, now_s)
        return Utilisation(flags.gpu, share or 0.0)  # GPUs that are not ready do not keep a node
    cpu, memory = (_share(node, pods, name, flags, now_s) for name in ("cpu", "memory"))
    if cpu is None or memory is None:
        return None
    return Utilisation("cpu", cpu) if cpu > memory else Utilisation("memory", memory)


def unremovable_reason(
    node: Node, pods: Sequence[Pod], flags: ScaleDownFlags, now_s: float, *, autoscaled: bool = True
) -> tuple[str, str]:
    """Return why a node is no candidate for removal, and cluster-autoscaler's sentence; ("", "") for a candidate."""
    if _is_being_deleted(node, now_s):
        return "CurrentlyBeingDeleted", "the node is currently being deleted"
    if node.metadata.annotations.get(_KEPT) == "true":
        return "ScaleDownDisabledAnnotation", "the node is marked as no scale down"
    if not autoscaled:
        return "NotAutoscaled", "the node is not autoscaled"
    used = utilisation(node, pods, flags, now_s)
    if used is None:
        return "UnexpectedError", f"Failed to calculate utilization for {node.name}"
    if not flags.unready and any(one.type == "Ready" and one.status != "True" for one in node.status.conditions):
        return "ScaleDownUnreadyDisabled", "scale-down of unready nodes is disabled"
    if used.share > (flags.gpu_utilisation if _has_gpu(node, flags) else flags.utilisation):
        percent = f"{used.share * 100:.6g}"
        text = f"{used.resource} requested ({percent}% of allocatable) is above the scale-down utilization threshold"
        return "NotUnderutilized", text
    return "", ""


def _has_gpu(node: Node, flags: ScaleDownFlags) -> bool:
    return flags.gpu_label in node.metadata.labels or amount(flags.gpu, node.status.allocatable.get(flags.gpu, 0)) > 0


def _is_being_deleted(node: Node, now_s: float) -> bool:
    """Return True for a node whose taint of deletion is not older than five minutes; after that, the deletion has failed."""
    values = [taint.value for taint in node.spec.taints if taint.key == _DELETED]
    return any(now_s - float(value if value.isdigit() else now_s) < _DELETION_S for value in values)


def _share(node: Node, pods: Iterable[Pod], resource: str, flags: ScaleDownFlags, now_s: float) -> float | None:
    offered = amount(resource, node.status.allocatable.get(resource, 0))
    if not offered:
        return None
    asked, apart = 0, 0
    for pod in pods:
        request = pod_requests(pod).requests.get(resource, 0)
        if (flags.ignore_daemons and is_daemon_pod(pod)) or (flags.ignore_mirrors and is_mirror(pod)):
            apart += request
        elif not is_long_terminating(pod, now_s):
            asked += request
    return asked / (offered - apart) if offered > apart else 0.0
