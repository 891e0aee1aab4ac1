"""A pod with everything that rules ask of it worked out once: requests, host ports, compiled affinity terms.

The scheduler hands ``PodInfo`` around where Kubernetes' documents say "pod"; it answers to the same names (``spec``,
``labels``, ``namespace`` …). Derived facts are computed when first asked for and kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from moorage.api.core import Pod, PodAffinityTerm, PodSpec, PodStatus, WeightedPodAffinityTerm
from moorage.api.meta import ObjectMeta
from moorage.api.selectors import Selector, compile_label_selector
from moorage.state.pod_requests import PodRequests, RequestOptions, is_plain, pod_requests

__all__ = ["AffinityTerm", "HostPort", "PodInfo", "WeightedTerm"]


class HostPort(NamedTuple):
    """A port claimed on the host. An empty address means all of them, written ``0.0.0.0``."""

    protocol: str
    ip: str
    port: int

    def clashes(self, held: HostPort) -> bool:
        """Return True when both cannot live on one node."""
        if self.protocol != held.protocol or self.port != held.port:
            return False
        return self.ip == held.ip or "0.0.0.0" in (self.ip, held.ip)  # noqa: S104 (an address to compare, not to bind)


class AffinityTerm(NamedTuple):
    """One pod (anti-)affinity term, compiled.

    A pod matches when its namespace is listed or the namespace selector takes its namespace's labels, and the selector
    takes its own labels. ``namespace_selector`` is None where the term has none.
    """

    namespaces: frozenset[str]
    namespace_selector: Selector | None
    selector: Selector
    topology_key: str

    def matches(self, pod: PodInfo, namespace_labels: Mapping[str, str]) -> bool:
        """Say whether the term selects ``pod``, whose namespace carries ``namespace_labels``."""
        if pod.namespace not in self.namespaces and (
            self.namespace_selector is None or not self.namespace_selector.matches(namespace_labels)
        ):
            return False
        return self.selector.matches(pod.labels)


class WeightedTerm(NamedTuple):
    weight: int
    term: AffinityTerm


class PodInfo:
    """A pod and what follows from it. Two infos are equal only if they are the same object; pods are told apart by UID."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.uid = pod.metadata.uid
        self.name = pod.metadata.name
        self.namespace = pod.metadata.namespace
        self.labels = pod.metadata.labels
        self.spec: PodSpec = pod.spec

    def __repr__(self) -> str:
        return f"PodInfo({self.key})"

    @property
    def metadata(self) -> ObjectMeta:
        return self.pod.metadata

    @property
    def status(self) -> PodStatus:
        return self.pod.status

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def priority(self) -> int:
        return self.spec.priority or 0

    @property
    def terminating(self) -> bool:
        return self.pod.metadata.deletion_timestamp is not None

    @cached_property
    def needs(self) -> PodRequests:
        """What the pod asks of a node; see ``PodRequests`` for units."""
        return pod_requests(self.pod)

    def needs_under(self, options: RequestOptions) -> PodRequests:
        """What the pod asks of a node where some parts of it do not count."""
        return self.needs if is_plain(self.pod) else pod_requests(self.pod, options)

    @property
    def requests(self) -> Mapping[str, int]:
        """Resource name to amount: cpu in millicores, memory and storage in bytes, others in counts."""
        return self.needs.requests

    @cached_property
    def host_ports(self) -> frozenset[HostPort]:
        """Host ports of containers and of sidecars (restartable init containers)."""
        spec = self.spec
        holders = [*spec.containers, *(c for c in spec.init_containers if c.restart_policy == "Always")]
        return frozenset(
            HostPort(port.protocol or "TCP", port.host_ip or "0.0.0.0", port.host_port)  # noqa: S104
            for container in holders
            for port in container.ports
            if port.host_port > 0
        )

    @cached_property
    def required_affinity(self) -> tuple[AffinityTerm, ...]:
        affinity = self.spec.affinity and self.spec.affinity.pod_affinity
        return self._terms(affinity.required_during_scheduling_ignored_during_execution) if affinity else ()

    @cached_property
    def required_anti_affinity(self) -> tuple[AffinityTerm, ...]:
        affinity = self.spec.affinity and self.spec.affinity.pod_anti_affinity
        return self._terms(affinity.required_during_scheduling_ignored_during_execution) if affinity else ()

    @cached_property
    def preferred_affinity(self) -> tuple[WeightedTerm, ...]:
        affinity = self.spec.affinity and self.spec.affinity.pod_affinity
        return self._weighted(affinity.preferred_during_scheduling_ignored_during_execution) if affinity else ()

    @cached_property
    def preferred_anti_affinity(self) -> tuple[WeightedTerm, ...]:
        affinity = self.spec.affinity and self.spec.affinity.pod_anti_affinity
        return self._weighted(affinity.preferred_during_scheduling_ignored_during_execution) if affinity else ()

    @property
    def has_affinity(self) -> bool:
        """True when the pod carries any pod affinity or anti-affinity stanza, even an empty one."""
        affinity = self.spec.affinity
        return affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)

    @cached_property
    def label_class(self) -> tuple[str, tuple[tuple[str, str], ...], bool]:
        """Namespace, sorted labels, terminating: all that selecting pods can depend on."""
        return self.namespace, tuple(sorted(self.labels.items())), self.terminating

    def _terms(self, terms: tuple[PodAffinityTerm, ...]) -> tuple[AffinityTerm, ...]:
        return tuple(compile_affinity_term(self.namespace, term) for term in terms)

    def _weighted(self, terms: tuple[WeightedPodAffinityTerm, ...]) -> tuple[WeightedTerm, ...]:
        return tuple(WeightedTerm(t.weight, compile_affinity_term(self.namespace, t.pod_affinity_term)) for t in terms)


def compile_affinity_term(pod_namespace: str, term: PodAffinityTerm) -> AffinityTerm:
    """Compile a term of a pod that lives in ``pod_namespace``: without any namespaces it means its own.

    Raises  InputError if a selector is malformed
    Source  kube-scheduler/framework/types.go, getNamespacesFromPodAffinityTerm and newAffinityTerm
    """
    names = frozenset(term.namespaces)
    if not names and term.namespace_selector is None:
        names = frozenset([pod_namespace])
    over = None if term.namespace_selector is None else compile_label_selector(term.namespace_selector)
    return AffinityTerm(names, over, compile_label_selector(term.label_selector), term.topology_key)
