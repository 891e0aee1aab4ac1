"""What the descheduler sees of a cluster, and the few rules by which it judges whether a pod fits on a node.

These rules are fewer than kube-scheduler's: no volumes, no affinity to pods, no spread. Pods that it evicts because they fit
elsewhere may come back to their node or stay pending.

Source  descheduler 0.36, pkg/descheduler/node/node.go, pkg/descheduler/pod/pods.go, pkg/utils
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, cmp_to_key
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from moorage.api.core import ENDED_PHASES, Node, Pod, Taint
from moorage.api.node_selectors import find_untolerated, required_nodes
from moorage.api.pod_requests import RequestOptions, amount, pod_requests
from moorage.api.selectors import parse_selector
from moorage.rules.admission.quota_usage import qos_class
from moorage.state.affinity_terms import AffinityTerm
from moorage.state.node_matching import required_node_affinity
from moorage.state.pod_info import PodInfo

T = TypeVar("T")
_encode = msgspec.msgpack.Encoder().encode
#: The effects of taints that keep a pod from a node.
HARD: Final = frozenset({"NoSchedule", "NoExecute"})
NO_EVICTION: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
_FROM_SPEC: Final = RequestOptions(use_status=False, pod_level_status=False)
#: Go sorts up to so many elements by insertion, so that the order of equal ones is known.
_INSERTED: Final = 12


class _Report(Struct, frozen=True, rename="camel"):
    reason: str = ""
    exit_code: int = 0


class _State(Struct, frozen=True):
    waiting: _Report | None = None
    terminated: _Report | None = None


class ContainerReport(Struct, frozen=True, rename="camel"):
    """What the kubelet says of a container that only the descheduler reads."""

    restart_count: int = 0
    state: _State = _State()


class PodReport(Struct, frozen=True, rename="camel"):
    """The part of a pod's status that only the descheduler reads."""

    reason: str = ""
    container_statuses: tuple[ContainerReport, ...] = ()
    init_container_statuses: tuple[ContainerReport, ...] = ()
    ephemeral_container_statuses: tuple[ContainerReport, ...] = ()


@dataclass
class Scene:
    """A cluster at the beginning of a descheduling cycle.

    ``nodes``          all nodes; ``pods``: all pods
    ``reports``        statuses of pods by UID, where the input has them
    ``is_covered``     whether a disruption budget covers a pod
    ``storage_class``  the class of a claim by namespace and name; "" if it is not known
    ``born_s``         when a pod was created or started, in Unix seconds, by UID, if that is not in the pod
    ``node_usage``     used amounts by node, ``pod_usage`` by ``namespace/name``; ``node_share`` the result of the policy's
                       Prometheus query, from 0 to 1
    """

    nodes: Sequence[Node]
    pods: Sequence[Pod]
    now_s: float = 0.0
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    priority_classes: Mapping[str, int] = field(default_factory=dict)
    reports: Mapping[str, PodReport] = field(default_factory=dict)
    is_covered: Callable[[Pod], bool] = lambda _: False
    storage_class: Callable[[str, str], str] = lambda *_: ""
    born_s: Mapping[str, float] = field(default_factory=dict)
    node_usage: Mapping[str, Mapping[str, int]] | None = None
    pod_usage: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    node_share: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        self._used: dict[str, dict[str, int]] = {}
        self._open: dict[bytes, frozenset[str]] = {}
        self._open_of: dict[int, frozenset[str]] = {}

    @cached_property
    def by_node(self) -> dict[str, list[Pod]]:
        found: dict[str, list[Pod]] = {}
        for pod in self.pods:
            if pod.spec.node_name:
                found.setdefault(pod.spec.node_name, []).append(pod)
        return found

    @cached_property
    def replicas(self) -> Counter[str]:
        """The number of pods by UID of an owner."""
        return Counter(owner.uid for pod in self.pods for owner in pod.metadata.owner_references)

    def running(self, node: str) -> list[Pod]:
        """Return the pods of a node that have not finished."""
        return [pod for pod in self.by_node.get(node, ()) if pod.status.phase not in ENDED_PHASES]

    def ready_nodes(self, selector: str = "") -> list[Node]:
        """Return the nodes of a label selector that are ready or say nothing about it."""
        wanted = parse_selector(selector)
        return [node for node in self.nodes if node.is_ready and wanted.matches(node.metadata.labels)]

    def report(self, pod: Pod) -> PodReport:
        return self.reports.get(pod.metadata.uid, PodReport())

    def age_s(self, pod: Pod, since: str | None) -> float | None:
        """Return the seconds since a timestamp of a pod; None if it has none."""
        born = self.born_s.get(pod.metadata.uid)
        if born is None and since is None:
            return None
        return self.now_s - (datetime.fromisoformat(since or "").timestamp() if born is None else born)

    def used(self, node: str) -> dict[str, int]:
        """Return the requests of a node's pods that have not finished, and their number."""
        if node not in self._used:
            pods = self.running(node)
            found = Counter({"pods": len(pods)})
            for pod in pods:
                found.update(requested(pod))
            self._used[node] = found
        return self._used[node]

    def fits(self, pod: Pod, node: Node) -> bool:
        """Return True if the descheduler believes that a pod fits on a node (NodeFit)."""
        return node.name in self._open_to(pod) and self._takes(pod, node)

    def fits_elsewhere(self, pod: Pod, nodes: Iterable[Node]) -> bool:
        """Return True if a pod fits on one of these nodes other than its own."""
        names, own = self._open_to(pod), pod.spec.node_name
        return any(node.name in names and node.name != own and self._takes(pod, node) for node in nodes)

    def _takes(self, pod: Pod, node: Node) -> bool:
        return not self._is_avoided(pod, node) and (pod.spec.node_name == node.name or self._has_room(pod, node))

    def _open_to(self, pod: Pod) -> frozenset[str]:
        """Return the schedulable nodes that a pod selects and whose taints it tolerates; copies of a pod share the answer."""
        found = self._open_of.get(id(pod))
        if found is None:
            key = _encode((pod.spec.node_selector, required_nodes(pod.spec), pod.spec.tolerations))
            if key not in self._open:
                self._open[key] = frozenset(
                    node.name for node in self.nodes
                    if not node.spec.unschedulable and selects(pod, node) and tolerates_all(pod, node.spec.taints, HARD)
                )  # fmt: skip
            found = self._open_of[id(pod)] = self._open[key]
        return found

    def _has_room(self, pod: Pod, node: Node) -> bool:
        offered, used = node.status.allocatable, self.used(node.name)
        if amount("pods", offered.get("pods", 0)) <= used["pods"]:
            return False
        asked = requested(pod).items()
        return all(need <= amount(name, offered.get(name, 0)) - used.get(name, 0) * (name in offered) for name, need in asked)

    def _is_avoided(self, pod: Pod, node: Node) -> bool:
        """Return True if the pod's own anti-affinity matches a pod of the node; the topology key must exist, no more."""
        return any(
            other.name != pod.name and other.namespace in term.namespaces and term.selector.matches(other.metadata.labels)
            for term in anti_affinity(pod) if term.topology_key in node.labels
            for other in self.running(node.name)
        )  # fmt: skip


def requested(pod: Pod) -> Mapping[str, int]:
    """Return a pod's requests by its spec, whatever the kubelet reports of a resize."""
    return pod_requests(pod, _FROM_SPEC).requests


def anti_affinity(pod: Pod) -> list[AffinityTerm]:
    """Return a pod's required anti-affinity terms. Namespace selectors have no effect."""
    own = frozenset((pod.namespace,))
    return [term._replace(namespaces=term.namespaces or own) for term in PodInfo(pod).required_anti_affinity]


def selects(pod: Pod, node: Node) -> bool:
    """Return True if a pod's node selector and required node affinity match a node."""
    return required_node_affinity(PodInfo(pod)).matches(node)


def tolerates_all(pod: Pod, taints: Iterable[Taint], effects: frozenset[str] | None = None) -> bool:
    """Return True if a pod tolerates all taints of these effects; None: of all."""
    return find_untolerated(taints, pod.spec.tolerations, effects, numeric=True) is None


# -- order -------------------------------------------------------------------------------------------------------------


def go_sorted(items: Iterable[T], less: Callable[[T, T], bool]) -> list[T]:
    """Return items in the order of Go's ``sort.Slice``. Of more than 12, equal ones keep their order, which Go leaves open."""
    found = list(items)
    if len(found) > _INSERTED:
        order: Callable[[T], Any] = cmp_to_key(lambda one, other: less(other, one) - less(one, other))
        return sorted(found, key=order)
    for end in range(1, len(found)):
        at = end
        while at > 0 and less(found[at], found[at - 1]):
            found[at], found[at - 1] = found[at - 1], found[at]
            at -= 1
    return found


def by_priority(pods: Iterable[Pod]) -> list[Pod]:
    """Return pods of low priority first; of equal priority best-effort, then burstable, then guaranteed ones."""
    held = list(pods)
    ranks = {
        id(pod): (pod.spec.priority is not None, pod.priority, _qos(pod), NO_EVICTION in pod.metadata.annotations)
        for pod in held
    }
    return go_sorted(held, lambda one, other: ranks[id(one)] <= ranks[id(other)])


def _qos(pod: Pod) -> int:
    """Return 0 for a best-effort pod, 1 for a burstable one, 2 for a guaranteed one, by its containers."""
    held = msgspec.to_builtins((*pod.spec.init_containers, *pod.spec.containers))
    return ("BestEffort", "Burstable", "Guaranteed").index(qos_class({"containers": held}))
