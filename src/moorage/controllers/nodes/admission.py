"""Whether a kubelet takes a pod: it looks for itself, since a pod may name its node without any scheduler having looked.

What is refused has ``Failed``, with a reason and words that tools look for. Who asks for something that a node has never heard
of is not refused for it: it may come from elsewhere (devices of claims). Kubelets do not make room for critical pods here.

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

#: The word of the scheduler's rule on taints, which kubelets share.
_TAINTED: Final = "node(s) had taints that the pod didn't tolerate"
_FIRST: Final = ("cpu", "memory", "ephemeral-storage")


class _Asks(NamedTuple):
    generation: object
    requests: dict[str, int]
    ports: frozenset[HostPort]


class Admission:
    """Remembers what pods ask for until it is told to forget them."""

    def __init__(self) -> None:
        self._asks: dict[str, _Asks] = {}

    def forget(self, uid: str) -> None:
        self._asks.pop(uid, None)

    def refusal(self, pod: Document, node: Document, on_node: Iterable[Document]) -> tuple[str, str] | None:
        """Return why a kubelet does not take a pod, as a reason and in words; None where it does.

        ``on_node`` are the node's pods, of which those count that were taken and have not ended.
        """
        read, host = decode(pod, Pod, ""), decode(node, Node, "")
        asks = self._of(pod, read)
        others = [self._of(one) for one in on_node if _counts(one) and uid_of(one) != uid_of(pod)]
        return next(_faults(read, asks, host, others), None)

    def _of(self, pod: Document, read: Pod | None = None) -> _Asks:
        uid, generation = uid_of(pod), pod["metadata"].get("generation")
        held = self._asks.get(uid)
        if held is None or held.generation != generation:
            found = read or decode(pod, Pod, "")
            ports = frozenset(PodInfo(found).host_ports)
            held = self._asks[uid] = _Asks(generation, dict(pod_requests(found).requests), ports)
        return held


def _counts(pod: Document) -> bool:
    return bool(status_of(pod).get("startTime")) and phase_of(pod) not in ENDED_PHASES


def _faults(pod: Pod, asks: _Asks, node: Node, others: list[_Asks]) -> Iterator[tuple[str, str]]:
    yield from _short(asks, node, others)
    if not _is_wanted(pod, node):
        yield _failed("NodeAffinity", node_affinity.REASON)
    if any(wanted.clashes(held) for wanted in asks.ports for other in others for held in other.ports):
        yield _failed("NodePorts", node_ports.REASON)
    if find_untolerated(node.spec.taints, pod.spec.tolerations, {"NoExecute"}) is not None:
        yield _failed("TaintToleration", _TAINTED)


def _failed(rule: str, why: str) -> tuple[str, str]:
    return rule, f"Predicate {rule} failed: {why}"


def _short(asks: _Asks, node: Node, others: list[_Asks]) -> Iterator[tuple[str, str]]:
    """Yield what the node has too little of."""
    offered = {name: amount(name, quantity) for name, quantity in node.status.allocatable.items()}
    if len(others) + 1 > offered.get("pods", 0):
        yield _out_of("pods", 1, len(others), offered.get("pods", 0))
    more = [name for name in asks.requests if name not in _FIRST and name in offered and is_counted(name)]
    for name in (*_FIRST, *more):
        wanted = asks.requests.get(name, 0)
        if not wanted:
            continue
        used, has = sum(other.requests.get(name, 0) for other in others), offered.get(name, 0)
        if wanted > has - used:
            yield _out_of(name, wanted, used, has)


def _out_of(name: str, wanted: int, used: int, has: int) -> tuple[str, str]:
    text = f"Node didn't have enough resource: {name}, requested: {wanted}, used: {used}, capacity: {has}"
    return f"OutOf{name}", text


def _is_wanted(pod: Pod, node: Node) -> bool:
    """Return True where the pod's selector and the affinity it requires let it be on the node."""
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if not selector_from_map(pod.spec.node_selector).matches(node.labels):
        return False
    return required is None or compile_node_selector(required).matches(node.labels, node.name)
