"""Admission of pods by a kubelet: it checks them itself, because a pod may name its node without a scheduler.

A rejected pod gets the phase ``Failed``, with kubelet's reason and message. A request for a resource that the node does not
list is no reason to reject: it may come from elsewhere (devices of claims). Kubelets here do not preempt for critical pods.

Source  kubernetes, pkg/kubelet/lifecycle/predicate.go; pkg/scheduler/eventhandlers.go, AdmissionCheck
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from moorage.api.core import ENDED_PHASES, Node, Pod
from moorage.api.decode import decode
from moorage.api.node_selectors import compile_node_selector
from moorage.api.selectors import selector_from_map
from moorage.api.taints import find_untolerated
from moorage.apiserver.vocabulary.records import Document
from moorage.controllers.machinery.object_fields import phase_of, status_of, uid_of
from moorage.plugins import node_affinity, node_ports
from moorage.state.pod_info import HostPort, PodInfo
from moorage.state.pod_requests import amount, is_counted, pod_requests

__all__ = ["Admission"]

#: The message of the scheduler's plugin for taints, which kubelets share.
_TAINTED: Final = "node(s) had taints that the pod didn't tolerate"
_FIRST: Final = ("cpu", "memory", "ephemeral-storage")


class _Requests(NamedTuple):
    generation: object
    requests: dict[str, int]
    ports: frozenset[HostPort]


class Admission:
    """Judges pods as a kubelet does, and caches their requests until ``forget``."""

    def __init__(self) -> None:
        self._requests: dict[str, _Requests] = {}

    def forget(self, uid: str) -> None:
        self._requests.pop(uid, None)

    def rejection(self, pod: Document, node: Document, on_node: Iterable[Document]) -> tuple[str, str] | None:
        """Return kubelet's reason and message for rejecting a pod; None to admit it.

        ``on_node`` are the node's pods. Only those count that kubelet has admitted and that have not ended.
        """
        read, host = decode(pod, Pod, ""), decode(node, Node, "")
        requests = self._of(pod, read)
        others = [self._of(one) for one in on_node if _counts(one) and uid_of(one) != uid_of(pod)]
        return next(_rejections(read, requests, host, others), None)

    def _of(self, pod: Document, read: Pod | None = None) -> _Requests:
        uid, generation = uid_of(pod), pod["metadata"].get("generation")
        held = self._requests.get(uid)
        if held is None or held.generation != generation:
            found = read or decode(pod, Pod, "")
            ports = frozenset(PodInfo(found).host_ports)
            held = self._requests[uid] = _Requests(generation, dict(pod_requests(found).requests), ports)
        return held


def _counts(pod: Document) -> bool:
    return bool(status_of(pod).get("startTime")) and phase_of(pod) not in ENDED_PHASES


def _rejections(pod: Pod, asked: _Requests, node: Node, others: list[_Requests]) -> Iterator[tuple[str, str]]:
    yield from _shortages(asked, node, others)
    if not _affinity_matches(pod, node):
        yield _failed("NodeAffinity", node_affinity.REASON)
    if any(wanted.clashes(held) for wanted in asked.ports for other in others for held in other.ports):
        yield _failed("NodePorts", node_ports.REASON)
    if find_untolerated(node.spec.taints, pod.spec.tolerations, {"NoExecute"}) is not None:
        yield _failed("TaintToleration", _TAINTED)


def _failed(predicate: str, why: str) -> tuple[str, str]:
    return predicate, f"Predicate {predicate} failed: {why}"


def _shortages(asked: _Requests, node: Node, others: list[_Requests]) -> Iterator[tuple[str, str]]:
    """Yield a rejection for each resource of which the node has too little."""
    offered = {name: amount(name, quantity) for name, quantity in node.status.allocatable.items()}
    if len(others) + 1 > offered.get("pods", 0):
        yield _out_of("pods", 1, len(others), offered.get("pods", 0))
    more = [name for name in asked.requests if name not in _FIRST and name in offered and is_counted(name)]
    for name in (*_FIRST, *more):
        wanted = asked.requests.get(name, 0)
        if not wanted:
            continue
        used, has = sum(other.requests.get(name, 0) for other in others), offered.get(name, 0)
        if wanted > has - used:
            yield _out_of(name, wanted, used, has)


def _out_of(name: str, wanted: int, used: int, has: int) -> tuple[str, str]:
    text = f"Node didn't have enough resource: {name}, requested: {wanted}, used: {used}, capacity: {has}"
    return f"OutOf{name}", text


def _affinity_matches(pod: Pod, node: Node) -> bool:
    """Return True if the pod's node selector and required node affinity match the node."""
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if not selector_from_map(pod.spec.node_selector).matches(node.labels):
        return False
    return required is None or compile_node_selector(required).matches(node.labels, node.name)
