"""Which nodes cluster-autoscaler considers for removal, and its drain rules: which pods move, go with the node, or keep it.

The rules judge a pod in the order of ``RULES``, and the first that has an opinion decides. A pod that no rule has an opinion
about moves. Reasons and messages are cluster-autoscaler's own.

Source  cluster-autoscaler at 87d9c45c02^, simulator/drain.go, simulator/drainability/rules, utils/drain/drain.go,
        core/scaledown/eligibility/eligibility.go, simulator/utilization/info.go, simulator/cluster.go (names of reasons)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from moorage.api.core import Node, Pod
from moorage.api.documents.object_fields import seconds
from moorage.api.pod_requests import amount, pod_requests
from moorage.api.workloads import PodDisruptionBudget
from moorage.core.preemption.disruption_budgets import covers
from moorage.simulator.autoscalers.cluster_autoscaler.flags import AutoscalerFlags
from moorage.simulator.owners import controller_kind, controller_of, is_mirror

#: The taint of a node that is being deleted.
DELETED: Final = "ToBeDeletedByClusterAutoscaler"
_KEPT: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
_SAFE: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_SAFE_VOLUMES: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
_DAEMON: Final = "cluster-autoscaler.kubernetes.io/daemonset-pod"
#: The resource of GPUs, and the provider's label of nodes with GPUs.
_GPU: Final = "nvidia.com/gpu"
_GPU_LABEL: Final = "cloud.google.com/gke-accelerator"
_DELETION_S: Final = 300.0
#: Seconds after its grace period for which a terminating pod still counts.
_LONG_TERMINATING_S: Final = 30.0
_REPLICATED: Final = frozenset({"ReplicationController", "Job", "ReplicaSet", "StatefulSet"})
#: The workloads with a number of replicas that can be too small.
_SCALED: Final = frozenset({"ReplicationController", "ReplicaSet"})
_TITLES: Final = {
    "ReplicationController": "replication controller", "ReplicaSet": "replication controller", "DaemonSet": "daemonset",
    "Job": "job", "StatefulSet": "statefulset",
}  # fmt: skip
#: Returns the replicas of a controller by kind, namespace and name: a number, None if it sets none, or "absent".
Replicas: TypeAlias = Callable[[str, str, str], int | Literal["absent"] | None]
DrainOutcome: TypeAlias = Literal["undefined", "drain", "skip", "wait", "block"]


class DrainStatus(Struct, frozen=True):
    """What a rule says of a pod; ``reason`` and ``text`` if it blocks."""

    outcome: DrainOutcome = "undefined"
    reason: str = ""
    text: str = ""


@dataclass(frozen=True)
class DrainContext:
    """What the rules read in addition to the pod. Without ``replicas``, all controllers are taken to exist."""

    now_s: float = 0.0
    budgets: Sequence[PodDisruptionBudget] = ()
    replicas: Replicas | None = None
    flags: AutoscalerFlags = field(default_factory=AutoscalerFlags)


@dataclass(frozen=True)
class MovesOfPods:
    """What happens to a node's pods: ``pods`` move, ``daemons`` go with the node, ``waiting`` are left to complete.

    ``blocking``  the first pod that keeps the node, with its status; the pods after it were not judged
    """

    pods: tuple[Pod, ...] = ()
    daemons: tuple[Pod, ...] = ()
    waiting: tuple[Pod, ...] = ()
    blocking: tuple[Pod, DrainStatus] | None = None


def is_daemon_pod(pod: Pod) -> bool:
    """Return True for a pod of a DaemonSet, or one that an annotation declares to be like such."""
    return controller_kind(pod) == "DaemonSet" or pod.metadata.annotations.get(_DAEMON) == "true"


def is_long_terminating(pod: Pod, now_s: float) -> bool:
    """Return True for a pod that should have been gone for more than 30 s."""
    if pod.metadata.deletion_timestamp is None:
        return False
    grace = pod.spec.termination_grace_period_seconds
    return seconds(pod.metadata.deletion_timestamp) + (30 if grace is None else grace) + _LONG_TERMINATING_S < now_s


_Rule: TypeAlias = Callable[[Pod, DrainContext], DrainStatus]
_UNDEFINED: Final = DrainStatus()


def pods_to_move(pods: Iterable[Pod], context: DrainContext) -> MovesOfPods:
    """Return what happens to the pods of a node that is removed, up to the first that keeps it."""
    moves: dict[str, list[Pod]] = {"drain": [], "daemon": [], "wait": []}
    blocking = None
    for pod in pods:
        found = (rule(pod, context) for rule in RULES.values())
        status = next((status for status in found if status.outcome != "undefined"), _UNDEFINED)
        if status.outcome == "block":
            blocking = pod, status
            break
        if status.outcome != "skip":
            moves["wait" if status.outcome == "wait" else "daemon" if is_daemon_pod(pod) else "drain"].append(pod)
    return MovesOfPods(tuple(moves["drain"]), tuple(moves["daemon"]), tuple(moves["wait"]), blocking)


def _replica_count(pod: Pod, context: DrainContext) -> DrainStatus:
    owner, flags = controller_of(pod.metadata), context.flags
    if (
        not flags.skip_nodes_with_custom_controller_pods
        or owner is None or context.replicas is None or owner.kind not in _TITLES
        or (owner.kind in {"DaemonSet", "StatefulSet"} and not owner.api_version.startswith("apps/"))
    ):  # fmt: skip
        return _UNDEFINED
    found, title = context.replicas(owner.kind, pod.namespace, owner.name), _TITLES[owner.kind]
    if found == "absent":
        present = "present" if owner.kind == "DaemonSet" else "available"
        return DrainStatus("block", "ControllerNotFound", f"{title} for {pod.key} is not {present}")
    if found is not None and owner.kind in _SCALED and found < flags.min_replica_count:
        text = f"{title} for {pod.key} has too few replicas spec: {found} min: {flags.min_replica_count}"
        return DrainStatus("block", "MinReplicasReached", text)
    return _UNDEFINED


def _system(pod: Pod, context: DrainContext) -> DrainStatus:
    flags, born = context.flags, pod.metadata.creation_timestamp
    covered = any(covers(budget, pod) for budget in context.budgets)
    if not flags.skip_nodes_with_system_pods or pod.namespace != "kube-system" or covered:
        return _UNDEFINED
    if born is not None and context.now_s > seconds(born) + flags.blocking_system_pod_distruption_timeout:
        return DrainStatus("drain")
    text = f"non-daemonset, non-mirrored, non-pdb-assigned kube-system pod present: {pod.name}"
    return DrainStatus("block", "UnmovableKubeSystemPod", text)


def _is_local(pod: Pod, context: DrainContext) -> bool:
    allowed = pod.metadata.annotations.get(_SAFE_VOLUMES, "").split(",")
    return context.flags.skip_nodes_with_local_storage and any(
        one.host_path is not None or (one.empty_dir is not None and one.empty_dir.get("medium") != "Memory")
        for one in pod.spec.volumes if one.name not in allowed
    )  # fmt: skip


def _rule(outcome: DrainOutcome, holds: Callable[[Pod, DrainContext], bool], reason: str = "", text: str = "") -> _Rule:
    """Return a rule that has one opinion, if something holds. ``text``: with the pod's key or name."""

    def judge(pod: Pod, context: DrainContext) -> DrainStatus:
        said = text.format(key=pod.key, name=pod.name)
        return DrainStatus(outcome, reason, said) if holds(pod, context) else _UNDEFINED

    return judge


def _says(pod: Pod, value: str) -> bool:
    return pod.metadata.annotations.get(_SAFE) == value


#: The rules in their order.
RULES: Final[Mapping[str, _Rule]] = {
    "Mirror": _rule("skip", lambda pod, _: is_mirror(pod)),
    "LongTerminating": _rule("skip", lambda pod, context: is_long_terminating(pod, context.now_s)),
    "ReplicaCount": _replica_count,
    "DaemonSet": _rule("drain", lambda pod, _: is_daemon_pod(pod)),
    "SafeToEvict": _rule("drain", lambda pod, _: _says(pod, "true")),
    "Terminal": _rule(
        "drain", lambda pod, _: pod.status.phase == "Failed"
        or (pod.status.phase == "Succeeded" and pod.spec.restart_policy in {"Never", "OnFailure"}),
    ),
    "OnCompletion": _rule("wait", lambda pod, _: _says(pod, "on-completion")),
    "Replicated": _rule(
        "block", lambda pod, context: (owner := controller_of(pod.metadata)) is None
        or (owner.kind not in _REPLICATED and context.flags.skip_nodes_with_custom_controller_pods),
        "NotReplicated", "{key} is not replicated",
    ),
    "System": _system,
    "NotSafeToEvict": _rule(
        "block", lambda pod, _: _says(pod, "false"), "NotSafeToEvictAnnotation",
        "pod annotated as not safe to evict present: {name}",
    ),
    "LocalStorage": _rule("block", _is_local, "LocalStorageRequested", "pod with local storage present: {name}"),
    "PDB": _rule(
        "block", lambda pod, context: any(one.status.disruptions_allowed < 1 for one in context.budgets if covers(one, pod)),
        "NotEnoughPdb", "not enough pod disruption budget to move {key}",
    ),
}  # fmt: skip


# -- eligibility -------------------------------------------------------------------------------------------------------


def utilisation(node: Node, pods: Sequence[Pod], flags: AutoscalerFlags, now_s: float) -> tuple[str, float] | None:
    """Return requests over allocatable, with the resource: of the GPU on a node with one, else the higher of cpu and memory.

    None if the node offers no cpu or no memory, so that it cannot be known
    """
    if _has_gpu(node):
        return _GPU, _share(node, pods, _GPU, flags, now_s) or 0.0  # GPUs that are not ready do not keep a node
    cpu, memory = (_share(node, pods, name, flags, now_s) for name in ("cpu", "memory"))
    if cpu is None or memory is None:
        return None
    return ("cpu", cpu) if cpu > memory else ("memory", memory)


def unremovable_reason(
    node: Node, pods: Sequence[Pod], flags: AutoscalerFlags, now_s: float, *, autoscaled: bool = True
) -> tuple[str, str]:
    """Return why a node is no candidate for removal, and cluster-autoscaler's sentence; ("", "") for a candidate."""
    # A taint of deletion that is older than five minutes says that the deletion has failed.
    begun = [taint.value for taint in node.spec.taints if taint.key == DELETED]
    if any(now_s - float(value if value.isdigit() else now_s) < _DELETION_S for value in begun):
        return "CurrentlyBeingDeleted", "the node is currently being deleted"
    if node.metadata.annotations.get(_KEPT) == "true":
        return "ScaleDownDisabledAnnotation", "the node is marked as no scale down"
    if not autoscaled:
        return "NotAutoscaled", "the node is not autoscaled"
    used = utilisation(node, pods, flags, now_s)
    if used is None:
        return "UnexpectedError", f"Failed to calculate utilization for {node.name}"
    if not flags.scale_down_unready_enabled and not node.is_ready:
        return "ScaleDownUnreadyDisabled", "scale-down of unready nodes is disabled"
    resource, share = used
    gpu = _has_gpu(node)
    if share > (flags.scale_down_gpu_utilization_threshold if gpu else flags.scale_down_utilization_threshold):
        text = f"{resource} requested ({share * 100:.6g}% of allocatable) is above the scale-down utilization threshold"
        return "NotUnderutilized", text
    return "", ""


def _has_gpu(node: Node) -> bool:
    return _GPU_LABEL in node.metadata.labels or amount(_GPU, node.status.allocatable.get(_GPU, 0)) > 0


def _share(node: Node, pods: Iterable[Pod], resource: str, flags: AutoscalerFlags, now_s: float) -> float | None:
    offered = amount(resource, node.status.allocatable.get(resource, 0))
    if not offered:
        return None
    asked, apart = 0, 0
    for pod in pods:
        request = pod_requests(pod).requests.get(resource, 0)
        is_daemon = flags.ignore_daemonsets_utilization and is_daemon_pod(pod)
        if is_daemon or (flags.ignore_mirror_pods_utilization and is_mirror(pod)):
            apart += request
        elif not is_long_terminating(pod, now_s):
            asked += request
    return asked / (offered - apart) if offered > apart else 0.0
