"""The drain rules of cluster-autoscaler: which pods of a node move, which go with it, and which keep it.

The rules judge a pod in the order of ``RULES``, and the first that has an opinion decides. A pod that no rule has an opinion
about moves. Reasons and messages are cluster-autoscaler's own.

Source  cluster-autoscaler at 87d9c45c02^, simulator/drain.go, simulator/drainability/rules, utils/drain/drain.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from msgspec import Struct

from moorage.api.core import Pod
from moorage.api.selectors import SelectorError, compile_label_selector
from moorage.api.workloads import PodDisruptionBudget
from moorage.simulator.owners import controller_of, is_mirror

__all__ = [
    "RULES", "DrainContext", "DrainOptions", "DrainStatus", "MovesOfPods", "drain_status", "is_daemon_pod",
    "is_long_terminating", "pods_to_move",
]  # fmt: skip

_SAFE: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_SAFE_VOLUMES: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
_DAEMON: Final = "cluster-autoscaler.kubernetes.io/daemonset-pod"
_REPLICATED: Final = frozenset({"ReplicationController", "Job", "ReplicaSet", "StatefulSet"})
#: Seconds after its grace period for which a terminating pod still counts.
_LONG_TERMINATING_S: Final = 30.0
#: The workloads with a number of replicas that can be too small.
_SCALED: Final = frozenset({"ReplicationController", "ReplicaSet"})
_TITLES: Final = {
    "ReplicationController": "replication controller", "ReplicaSet": "replication controller", "DaemonSet": "daemonset",
    "Job": "job", "StatefulSet": "statefulset",
}  # fmt: skip

DrainOutcome = Literal["undefined", "drain", "skip", "wait", "block"]


class DrainOptions(Struct, frozen=True, kw_only=True):
    """Flags of cluster-autoscaler, with its defaults.

    ``skip_system_pods``        --skip-nodes-with-system-pods
    ``skip_local_storage``      --skip-nodes-with-local-storage
    ``skip_custom_controllers`` --skip-nodes-with-custom-controller-pods
    ``min_replicas``            --min-replica-count
    ``system_pod_timeout_s``    --blocking-system-pod-distruption-timeout
    """

    skip_system_pods: bool = True
    skip_local_storage: bool = True
    skip_custom_controllers: bool = True
    min_replicas: int = 0
    system_pod_timeout_s: float = 3600.0


class DrainStatus(Struct, frozen=True):
    """What a rule says of a pod; ``reason`` and ``text`` if it blocks."""

    outcome: DrainOutcome = "undefined"
    reason: str = ""
    text: str = ""


_UNDEFINED: Final = DrainStatus()


@dataclass(frozen=True)
class DrainContext:
    """What the rules read in addition to the pod.

    ``replicas``  the replicas of a controller by kind, namespace and name: a number, None if it sets none, or "absent"; without
                  it, all controllers are taken to exist
    """

    now_s: float = 0.0
    budgets: Sequence[PodDisruptionBudget] = ()
    replicas: Callable[[str, str, str], int | Literal["absent"] | None] | None = None

    def matching(self, pod: Pod) -> Iterator[PodDisruptionBudget]:
        """Yield the budgets of a pod's namespace that select it. A budget with a faulty selector selects none."""
        for budget in self.budgets:
            if budget.namespace == pod.namespace:
                try:
                    if compile_label_selector(budget.spec.selector).matches(pod.metadata.labels):
                        yield budget
                except SelectorError:
                    continue


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
    owner = controller_of(pod.metadata)
    return (owner is not None and owner.kind == "DaemonSet") or pod.metadata.annotations.get(_DAEMON) == "true"


def is_long_terminating(pod: Pod, now_s: float) -> bool:
    """Return True for a pod that should have been gone for more than 30 s."""
    if pod.metadata.deletion_timestamp is None:
        return False
    grace = pod.spec.termination_grace_period_seconds
    return _seconds(pod.metadata.deletion_timestamp) + (30 if grace is None else grace) + _LONG_TERMINATING_S < now_s


def pods_to_move(pods: Iterable[Pod], options: DrainOptions, context: DrainContext) -> MovesOfPods:
    """Return what happens to the pods of a node that is removed, up to the first that keeps it."""
    moves: dict[str, list[Pod]] = {"drain": [], "daemon": [], "wait": []}
    blocking = None
    for pod in pods:
        status = drain_status(pod, options, context)
        if status.outcome == "block":
            blocking = pod, status
            break
        if status.outcome != "skip":
            moves["wait" if status.outcome == "wait" else "daemon" if is_daemon_pod(pod) else "drain"].append(pod)
    return MovesOfPods(tuple(moves["drain"]), tuple(moves["daemon"]), tuple(moves["wait"]), blocking)


def drain_status(pod: Pod, options: DrainOptions, context: DrainContext) -> DrainStatus:
    """Return what the first rule with an opinion says of a pod."""
    found = (rule(pod, options, context) for rule in RULES.values())
    return next((status for status in found if status.outcome != "undefined"), _UNDEFINED)


def _mirror(pod: Pod, options: DrainOptions, context: DrainContext) -> DrainStatus:
    del options, context
    return DrainStatus("skip") if is_mirror(pod) else _UNDEFINED


def _long_terminating(pod: Pod, options: DrainOptions, context: DrainContext) -> DrainStatus:
    del options
    return DrainStatus("skip") if is_long_terminating(pod, context.now_s) else _UNDEFINED


def _replica_count(pod: Pod, options: DrainOptions, context: DrainContext) -> DrainStatus:
    owner = controller_of(pod.metadata)
    if owner is None or context.replicas is None or not options.skip_custom_controllers or owner.kind not in _TITLES:
        return _UNDEFINED
    if owner.kind in {"DaemonSet", "StatefulSet"} and not owner.api_version.startswith("apps/"):
        return _UNDEFINED
    found, title = context.replicas(owner.kind, pod.namespace, owner.name), _TITLES[owner.kind]
    if found == "absent":
        present = "present" if owner.kind == "DaemonSet" else "available"
        return DrainStatus("block", "ControllerNotFound", f"{title} for {pod.key} is not {present}")
    if found is not None and owner.kind in _SCALED and found < options.min_replicas:
        text = f"{title} for {pod.key} has too few replicas spec: {found} min: {options.min_replicas}"
        return DrainStatus("block", "MinReplicasReached", text)
    return _UNDEFINED


def _daemon_set(pod: Pod, options: DrainOptions, context: DrainContext) -> DrainStatus:
    del options, context
    return DrainStatus("drain") if is_daemon_pod(pod) else _UNDEFINED


def _safe(pod: Pod, options: DrainOptions, context: DrainContext) -> DrainStatus:
    del options, context
    return DrainStatus("drain") if pod.metadata.annotations.get(_SAFE) == "true" else _UNDEFINED


def _terminal(pod: Pod, options: DrainOptions, context: DrainContext) -> DrainStatus:
    del options, context
    phase, policy = pod.status.phase, pod.spec.restart_policy
    ended = phase == "Failed" or (phase == "Succeeded" and policy in {"Never", "OnFailure"})
    return DrainStatus("drain") if ended else _UNDEFINED


def _on_completion(pod: Pod, options: DrainOptions, context: DrainContext) -> DrainStatus:
    del options, context
    return DrainStatus("wait") if pod.metadata.annotations.get(_SAFE) == "on-completion" else _UNDEFINED


def _replicated(pod: Pod, options: DrainOptions, context: DrainContext) -> DrainStatus:
    del context
    owner = controller_of(pod.metadata)
    if owner is not None and (owner.kind in _REPLICATED or not options.skip_custom_controllers):
        return _UNDEFINED
    return DrainStatus("block", "NotReplicated", f"{pod.key} is not replicated")


def _system(pod: Pod, options: DrainOptions, context: DrainContext) -> DrainStatus:
    if not options.skip_system_pods or pod.namespace != "kube-system" or any(context.matching(pod)):
        return _UNDEFINED
    born = pod.metadata.creation_timestamp
    if born is not None and context.now_s > _seconds(born) + options.system_pod_timeout_s:
        return DrainStatus("drain")
    text = f"non-daemonset, non-mirrored, non-pdb-assigned kube-system pod present: {pod.name}"
    return DrainStatus("block", "UnmovableKubeSystemPod", text)


def _not_safe(pod: Pod, options: DrainOptions, context: DrainContext) -> DrainStatus:
    del options, context
    if pod.metadata.annotations.get(_SAFE) != "false":
        return _UNDEFINED
    return DrainStatus("block", "NotSafeToEvictAnnotation", f"pod annotated as not safe to evict present: {pod.name}")


def _local_storage(pod: Pod, options: DrainOptions, context: DrainContext) -> DrainStatus:
    del context
    allowed = pod.metadata.annotations.get(_SAFE_VOLUMES, "").split(",")
    local = (
        one for one in pod.spec.volumes
        if one.host_path is not None or (one.empty_dir is not None and one.empty_dir.get("medium") != "Memory")
    )  # fmt: skip
    if not options.skip_local_storage or all(one.name in allowed for one in local):
        return _UNDEFINED
    return DrainStatus("block", "LocalStorageRequested", f"pod with local storage present: {pod.name}")


def _budget(pod: Pod, options: DrainOptions, context: DrainContext) -> DrainStatus:
    del options
    if all(budget.status.disruptions_allowed >= 1 for budget in context.matching(pod)):
        return _UNDEFINED
    return DrainStatus("block", "NotEnoughPdb", f"not enough pod disruption budget to move {pod.key}")


#: The rules in their order.
RULES: Final[Mapping[str, Callable[[Pod, DrainOptions, DrainContext], DrainStatus]]] = {
    "Mirror": _mirror, "LongTerminating": _long_terminating, "ReplicaCount": _replica_count, "DaemonSet": _daemon_set,
    "SafeToEvict": _safe, "Terminal": _terminal, "OnCompletion": _on_completion, "Replicated": _replicated, "System": _system,
    "NotSafeToEvict": _not_safe, "LocalStorage": _local_storage, "PDB": _budget,
}  # fmt: skip


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
