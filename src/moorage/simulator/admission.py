"""Admission without an API server: set the fields that a stock API server sets on new objects, and find those it rejects.

Objects from a dump have a creation time and went through admission then; objects without one are new. A pod that would be
rejected for a missing object, such as a priority class, stays in the simulation, because usually it is the dump that is
incomplete, and the report says so. ``admit_strictly`` returns the rejections by limit ranges separately.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from moorage.api.admission import (
    Admitted,
    add_default_tolerations,
    apply_runtime_class,
    default_storage_class,
    limit_range_defaults,
    out_of_pods_bounds,
    resolve_priority,
    set_default_storage_class,
)
from moorage.api.core import LimitRange, Pod, PodSpec
from moorage.api.defaults import default_pod
from moorage.api.documents.statuses import invalid
from moorage.api.pod_groups import CompositePodGroup, PodGroup
from moorage.api.storage import PersistentVolumeClaim
from moorage.api.validation.pods import pod_faults
from moorage.basis.printable import counted, some
from moorage.simulator.cluster_input import ClusterInput

G = TypeVar("G", PodGroup, CompositePodGroup)
#: The fields that a priority class sets.
_OF_CLASS: Final = ("priority", "priority_class_name", "preemption_policy")


@dataclass(frozen=True, slots=True)
class Admittance:
    """A cluster after admission. ``refused``: UID of a new pod → its violations of limit ranges; ``cluster`` has these pods.

    ``invalid``: UID of a new pod → what is wrong with it since a limit range gave it its defaults.
    """

    cluster: ClusterInput
    refused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    invalid: Mapping[str, str] = field(default_factory=dict)


def admit(cluster: ClusterInput) -> ClusterInput:
    """Return the cluster with its new pods and unbound claims after admission, and with rejections in the report.

    Pods that share a spec still share it afterwards. Admitting twice has no further effect.
    """
    return admit_strictly(cluster, bounds=False).cluster


def admit_strictly(cluster: ClusterInput, *, bounds: bool = True) -> Admittance:
    """Admit a cluster. With ``bounds``, return violations of limit ranges in ``refused``; otherwise put them in the report."""
    admission = _Admission(cluster, bounds)
    pods = tuple(map(admission.pod, cluster.pods))
    groups = tuple(admission.group(group) for group in cluster.pod_groups)
    trees = tuple(admission.group(group) for group in cluster.composite_pod_groups)
    claims = tuple(_claim(claim, cluster) for claim in cluster.persistent_volume_claims)
    notes = (*cluster.report.notes, *admission.notes())
    report = with_fields(cluster.report, notes=notes)
    admitted = with_fields(
        cluster, pods=pods, pod_groups=groups, composite_pod_groups=trees, persistent_volume_claims=claims, report=report
    )
    return Admittance(admitted, admission.out_of_bounds, admission.invalid)


class _Admission:
    """Admits pods, each distinct spec of a namespace once."""

    def __init__(self, cluster: ClusterInput, bounds: bool) -> None:
        self._bounds = bounds
        #: New pods that limit ranges refuse, by UID.
        self.out_of_bounds: dict[str, tuple[str, ...]] = {}
        #: New pods that the defaults of limit ranges make invalid, by UID.
        self.invalid: dict[str, str] = {}
        self._priorities = {found.metadata.name: found for found in cluster.priority_classes}
        self._runtimes = {found.metadata.name: found for found in cluster.runtime_classes}
        self._limits: dict[str, list[LimitRange]] = {}
        for limit_range in cluster.limit_ranges:
            self._limits.setdefault(limit_range.metadata.namespace, []).append(limit_range)
        # The admitted spec is kept beside the outcome, so that its id is not reused.
        self._seen: dict[tuple[str, int], tuple[PodSpec, Admitted, tuple[str, ...], str]] = {}
        #: Spec of a pod from a dump that lacks a priority, by its id → that spec, and the spec with the priority.
        self._resolved: dict[int, tuple[PodSpec, PodSpec]] = {}
        #: Class and preemption policy of such a spec → the fields that it gets.
        self._given: dict[tuple[str, str | None], dict[str, Any]] = {}
        self._refused: dict[str, list[str]] = {}

    def pod(self, pod: Pod) -> Pod:
        if pod.metadata.creation_timestamp is not None:
            return self._with_priority(pod) if pod.spec.priority is None else pod
        key = (pod.namespace, id(pod.spec))
        if key not in self._seen:
            self._seen[key] = (pod.spec, *self._admitted(pod))
        _, admitted, out_of_bounds, wrong = self._seen[key]
        for refusal in admitted.refusals:
            self._refused.setdefault(refusal, []).append(pod.key)
        if wrong:  # the API server validates a pod before it holds it against the bounds
            self.invalid[pod.uid] = wrong
        elif out_of_bounds:
            self.out_of_bounds[pod.uid] = out_of_bounds
        spec = admitted.pod.spec
        return pod if spec is pod.spec else replace(pod, spec=spec)

    def _with_priority(self, pod: Pod) -> Pod:
        """Return a pod from a dump with the priority of its class, or of the default class."""
        known = self._resolved.get(id(pod.spec))
        if known is None:
            spec = pod.spec
            asked = (spec.priority_class_name, spec.preemption_policy)
            if (given := self._given.get(asked)) is None:
                found = resolve_priority(pod, self._priorities).pod.spec
                given = self._given[asked] = {name: getattr(found, name) for name in _OF_CLASS}
            known = self._resolved[id(spec)] = (spec, spec if given["priority"] is None else replace(spec, **given))
        return pod if known[0] is known[1] else Pod(metadata=pod.metadata, spec=known[1], status=pod.status)

    def _admitted(self, pod: Pod) -> tuple[Admitted, tuple[str, ...], str]:
        """Return a pod after admission; its violations of limit ranges, and what they made invalid, empty unless ``bounds``."""
        ranges = self._limits.get(pod.namespace, ())
        with_limits = limit_range_defaults(pod, ranges)
        beyond = out_of_pods_bounds(with_limits, ranges)
        with_priority = resolve_priority(with_limits, self._priorities)
        with_runtime = apply_runtime_class(add_default_tolerations(with_priority.pod), self._runtimes)
        refusals = (*with_priority.refusals, *with_runtime.refusals)
        wrong = "" if with_limits.spec is pod.spec else _made_wrong(pod, with_limits)
        if self._bounds:
            return Admitted(with_runtime.pod, refusals), beyond, wrong
        return Admitted(with_runtime.pod, (*filter(None, [wrong]), *beyond, *refusals)), (), ""

    def group(self, group: G) -> G:
        """Set a group's priority from its class or the default class, as for pods."""
        if group.spec.priority is not None:
            return group
        with_priority = resolve_priority(
            Pod(spec=PodSpec(priority_class_name=group.spec.priority_class_name)), self._priorities
        ).pod
        return replace(group, spec=replace(group.spec, priority=with_priority.spec.priority))

    def notes(self) -> list[str]:
        return [
            f"the API server would reject {counted(len(names), 'pod')} ({some(names)}), simulated anyway: {refusal}"
            for refusal, names in self._refused.items()
        ]


def _made_wrong(before: Pod, after: Pod) -> str:
    """Return what validation finds wrong with a pod since limit ranges changed it: a request above the default limit, say."""
    known = set(map(str, pod_faults(default_pod(before))))
    faults = [fault for fault in pod_faults(default_pod(after)) if str(fault) not in known]
    return str(invalid("Pod", "", before.name, faults)).partition(" is invalid: ")[2] if faults else ""


def _claim(claim: PersistentVolumeClaim, cluster: ClusterInput) -> PersistentVolumeClaim:
    """Set the default class on a claim that is unbound and names no class; a real cluster does so at any time."""
    if claim.spec.storage_class_name is not None or claim.spec.volume_name:
        return claim
    found = default_storage_class(cluster.storage_classes)
    return claim if found is None else set_default_storage_class(claim, (found,))
