"""DefaultEvictor and the limits of a policy: which pods may be evicted, why others may not, and how many in one cycle.

Source  descheduler 0.36, pkg/framework/plugins/defaultevictor/defaultevictor.go, constraints.go, pkg/descheduler/evictions
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import chain
from typing import Final

from msgspec import Struct

from moorage.api.core import Node, Pod
from moorage.api.durations import duration_seconds
from moorage.api.selectors import compile_label_selector
from moorage.errors import InputError
from moorage.simulator.descheduler.policy import SYSTEM_CRITICAL, PluginArgs, protections
from moorage.simulator.descheduler.scene import NO_EVICTION, Scene
from moorage.simulator.owners import is_mirror, is_owned_by

_EVICT: Final = "descheduler.alpha.kubernetes.io/evict"
_SOURCE: Final = "kubernetes.io/config.source"


class EvictionOutcome(Enum):
    """``LIMITED``: the node's or the cycle's limit is reached; a namespace's limit is a failure of this pod alone."""

    EVICTED = "evicted"
    FAILED = "failed"
    LIMITED = "limited"


class AskedEviction(Struct, frozen=True):
    """An eviction that a plugin wanted. ``why``: the error's text, if a limit of the policy or the API server refused it."""

    pod: Pod
    profile: str
    plugin: str
    why: str = ""


class Evictor:
    """The evictions of one cycle. ``ask`` asks the API server: it returns "" if it allows the eviction, or its error.

    ``total``, ``per_node``, ``per_namespace``  the limits of the policy; None: no limit
    """

    def __init__(
        self, ask: Callable[[Pod], str], total: int | None = None, per_node: int | None = None, per_namespace: int | None = None
    ) -> None:
        self._ask, self._total, self._per_node, self._per_namespace = ask, total, per_node, per_namespace
        self._counts: Counter[tuple[str, str]] = Counter()
        self.evicted: list[AskedEviction] = []
        self.refused: list[AskedEviction] = []

    def evict(self, pod: Pod, profile: str, plugin: str) -> EvictionOutcome:
        node, space = ("node", pod.spec.node_name), ("namespace", pod.namespace)
        outcome = EvictionOutcome.FAILED
        if self._total is not None and len(self.evicted) >= self._total:
            why, outcome = "maximum number of evicted pods per a descheduling cycle reached", EvictionOutcome.LIMITED
        elif self._per_node is not None and self._counts[node] >= self._per_node:
            why, outcome = "maximum number of evicted pods per node reached", EvictionOutcome.LIMITED
        elif self._per_namespace is not None and self._counts[space] >= self._per_namespace:
            why = "maximum number of evicted pods per namespace reached"
        else:
            why = self._ask(pod)
        asked = AskedEviction(pod, profile, plugin, why)
        if why:
            self.refused.append(asked)
            return outcome
        self._counts.update((node, space))
        self.evicted.append(asked)
        return EvictionOutcome.EVICTED


class DefaultEvictor:
    """The plugin DefaultEvictor of one profile, for one scene."""

    def __init__(self, args: PluginArgs, scene: Scene) -> None:
        self._args, self._scene = args, scene
        self._protects = protections(args)
        self._labels = compile_label_selector(args.label_selector) if args.label_selector is not None else None
        spaces = args.namespace_label_selector
        self._spaces = compile_label_selector(spaces) if spaces is not None else None
        self._threshold = _threshold(args, scene.priority_classes)
        pvc = args.pod_protections.config.pods_with_pvc if args.pod_protections.config is not None else None
        self._classes = frozenset(one.name for one in pvc.protected_storage_classes) if pvc is not None else frozenset()

    def filter(self, pod: Pod) -> bool:
        return not self.why_not(pod)

    def pre_eviction_filter(self, pod: Pod) -> bool:
        """Return False for a pod that fits on no other node (nodeFit), or whose namespace is not selected."""
        if self._args.node_fit and not self._scene.fits_elsewhere(pod, self._nodes):
            return False
        if self._spaces is None or self._spaces.is_empty:
            return True
        labels = self._scene.namespaces.get(pod.namespace)
        return labels is not None and self._spaces.matches(labels)

    def is_evictable(self, pod: Pod) -> bool:
        return self.filter(pod) and self.pre_eviction_filter(pod)

    @cached_property
    def _nodes(self) -> list[Node]:
        return self._scene.ready_nodes(self._args.node_selector)

    def why_not(self, pod: Pod) -> str:
        """Return the first reason why a pod is protected, in the descheduler's words; "" if it may be evicted."""
        if _EVICT in pod.metadata.annotations:
            return ""
        return next(chain(self._state(pod), self._protections(pod), self._arguments(pod)), "")

    def _state(self, pod: Pod) -> Iterator[str]:
        annotations = pod.metadata.annotations
        if self._args.no_eviction_policy == "Mandatory" and NO_EVICTION in annotations:
            yield f"pod has the annotation {NO_EVICTION}"
        if is_mirror(pod):
            yield "pod is a mirror pod"
        if annotations.get(_SOURCE, "api") != "api":
            yield "pod is a static pod"
        if pod.metadata.deletion_timestamp is not None:
            yield "pod is terminating"

    def _protections(self, pod: Pod) -> Iterator[str]:
        owners, volumes = pod.metadata.owner_references, pod.spec.volumes
        if "SystemCriticalPods" in self._protects and pod.priority >= SYSTEM_CRITICAL:
            yield "pod has system critical priority and is protected against eviction"
        if "SystemCriticalPods" in self._protects and pod.spec.priority is not None and pod.spec.priority >= self._threshold:
            yield "pod has higher priority than specified priority class threshold"
        if not owners and "FailedBarePods" in self._protects:
            yield "pod does not have any ownerRefs"
        elif not owners and pod.status.phase != "Failed":
            yield "pod does not have any ownerRefs and is not in failed phase"
        if "PodsWithLocalStorage" in self._protects and any(
            one.empty_dir is not None or one.host_path is not None for one in volumes
        ):
            yield "pod has local storage and is protected against eviction"
        if "DaemonSetPods" in self._protects and is_owned_by(pod, "DaemonSet"):
            yield "daemonset pods are protected against eviction"
        if "PodsWithPVC" in self._protects:
            yield from self._claims(pod)
        if "PodsWithoutPDB" in self._protects and not self._scene.is_covered(pod):
            yield "pod does not have a PodDisruptionBudget and is protected against eviction"
        if "PodsWithResourceClaims" in self._protects and pod.spec.resource_claims:
            yield "pod has ResourceClaims and descheduler is configured to protect ResourceClaims pods"

    def _arguments(self, pod: Pod) -> Iterator[str]:
        owners = pod.metadata.owner_references
        if self._labels is not None and not self._labels.matches(pod.metadata.labels):
            yield "pod labels do not match the labelSelector filter in the policy parameter"
        least, there = self._args.min_replicas, self._scene.replicas.get(owners[0].uid, 0) if owners else 0
        if least > 1 and len(owners) == 1 and there < least:
            yield f"owner has {there} replicas which is less than minReplicas of {least}"
        if self._args.min_pod_age is not None:
            age = self._scene.age_s(pod, pod.status.start_time)
            if age is None or age < duration_seconds(self._args.min_pod_age):
                yield f"pod age is not older than MinPodAge: {self._args.min_pod_age} seconds"

    def _claims(self, pod: Pod) -> Iterator[str]:
        for volume in pod.spec.volumes:
            claim = volume.persistent_volume_claim
            if claim is None:
                continue
            if not self._classes:
                yield "pod with PVC is protected against eviction"
                return
            name = self._scene.storage_class(pod.namespace, claim.claim_name)
            if not name:
                yield f'failed to resolve storage class for pod "{pod.namespace}/{claim.claim_name}"'
            elif name in self._classes:
                yield f'pod using protected storage class "{name}"'


def _threshold(args: PluginArgs, classes: Mapping[str, int]) -> int:
    given = args.priority_threshold
    if given is None or (given.value is None and not given.name):
        return SYSTEM_CRITICAL
    if given.value is None and given.name not in classes:
        raise InputError(f'DefaultEvictor: priorityThreshold.name: the input has no PriorityClass "{given.name}"')
    found = int(classes[given.name] if given.value is None else given.value)
    if found > SYSTEM_CRITICAL:
        raise InputError(f"DefaultEvictor: priority threshold can't be greater than {SYSTEM_CRITICAL}")
    return found


@dataclass
class PluginRun:
    """One plugin's view of a cycle."""

    scene: Scene
    judge: DefaultEvictor
    evictor: Evictor
    plugin: str
    profile: str = ""

    def evict(self, pod: Pod) -> EvictionOutcome:
        return self.evictor.evict(pod, self.profile, self.plugin)
