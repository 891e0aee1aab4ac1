"""The simulated kubelets of all nodes: nodes send heartbeats, and bound pods start, run and end as they declare.

One controller serves every Node object, so that an applied Node has a kubelet at once. To simulate the failure of
a node, annotate it with ``moorage.dev/down: "true"``: its heartbeats and the updates of its pods stop while it is set.

With many nodes, heartbeats are less frequent and leases longer, so that heartbeats take only a fraction of the CPU.

Source  kubernetes, pkg/kubelet: kubelet_node_status.go, nodestatus; component-helpers, apimachinery/lease/controller.go
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from moorage.api.core import ENDED_PHASES, Node, Pod
from moorage.api.decode import decode
from moorage.api.documents import object_fields as k8s
from moorage.api.documents.served_kinds import Document
from moorage.api.node_selectors import find_untolerated
from moorage.api.pod_requests import amount, is_counted, pod_requests
from moorage.api.releases import CURRENT
from moorage.cluster.controllers.nodes.pod_lifecycle import Life, ends_at, life_of, next_status, stopped
from moorage.plugins import node_affinity, node_ports
from moorage.rules.workloads.object_index import ObjectChange, ObjectIndex
from moorage.rules.workloads.steps import Create, DeleteStep, EventStep, Later, SetStatus, Step, Update
from moorage.state.node_matching import required_node_affinity
from moorage.state.pod_info import HostPort, PodInfo

# Admission of pods by a kubelet: it checks them itself, because a pod may name its node without a scheduler.
#
# A rejected pod gets the phase ``Failed``, with kubelet's reason and message. A request for a resource that the node does not
# list is no reason to reject: it may come from elsewhere (devices of claims). Kubelets here do not preempt for critical pods.
#
# Source  kubernetes, pkg/kubelet/lifecycle/predicate.go; pkg/scheduler/eventhandlers.go, AdmissionCheck

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
        admitted = (one for one in on_node if k8s.status_of(one).get("startTime") and k8s.phase_of(one) not in ENDED_PHASES)
        others = [self._of(one) for one in admitted if k8s.uid_of(one) != k8s.uid_of(pod)]
        return next(_rejections(read, requests, host, others), None)

    def _of(self, pod: Document, read: Pod | None = None) -> _Requests:
        uid, generation = k8s.uid_of(pod), pod["metadata"].get("generation")
        held = self._requests.get(uid)
        if held is None or held.generation != generation:
            found = read or decode(pod, Pod, "")
            ports = frozenset(PodInfo(found).host_ports)
            held = self._requests[uid] = _Requests(generation, dict(pod_requests(found).requests), ports)
        return held


def _rejections(pod: Pod, asked: _Requests, node: Node, others: list[_Requests]) -> Iterator[tuple[str, str]]:
    yield from _shortages(asked, node, others)
    clashes = any(wanted.clashes(held) for wanted in asked.ports for other in others for held in other.ports)
    is_tainted = find_untolerated(node.spec.taints, pod.spec.tolerations, {"NoExecute"}) is not None
    for fails, predicate, why in (
        (not required_node_affinity(PodInfo(pod)).matches(node), "NodeAffinity", node_affinity.REASON),
        (clashes, "NodePorts", node_ports.REASON), (is_tainted, "TaintToleration", _TAINTED),
    ):  # fmt: skip
        if fails:
            yield predicate, f"Predicate {predicate} failed: {why}"


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


KUBELET: Final = "kubelet"
DOWN: Final = "moorage.dev/down"
LEASE_NAMESPACE: Final = "kube-node-lease"
#: Seconds between two heartbeats of a node, and the maximum number of heartbeats per second for all nodes.
_BEAT_S: Final = 10.0
_BEATS: Final = 20.0
#: Seconds after which a node updates its status even if nothing changed.
_REPORT_S: Final = 300.0
_POD_RANGE: Final = int(ipaddress.IPv4Address("10.128.0.0"))
_POD_ADDRESSES: Final = (1 << 23) - 2
_TROUBLES: Final = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


def lease_seconds(nodes: int) -> int:
    """Return the duration of a node's lease: four heartbeats."""
    return int(4 * max(_BEAT_S, nodes / _BEATS))


class Kubelets:
    """``job_s``: the run time of a job's pod without an annotation for it, in seconds; ``stop_s``: how long pods take to stop
    without one. ``version``: what they report.
    """

    name = KUBELET

    def __init__(self, job_s: float = 5.0, version: str = CURRENT.version, stop_s: float = 0.0) -> None:
        self._job_s, self._stop_s = job_s, stop_s
        self._info = {**_INFO, "kubeletVersion": version}
        #: UIDs of pods → their addresses; and the set of used addresses.
        self._addresses: dict[str, int] = {}
        self._taken: set[int] = set()
        self._admission = Admission()

    def keys(self, event: ObjectChange, world: ObjectIndex) -> Iterable[str]:
        found = event.latest
        if event.kind is k8s.PODS and event.new is None:
            self._taken.discard(self._addresses.pop(k8s.uid_of(found), 0))
            self._admission.forget(k8s.uid_of(found))
        elif event.kind is k8s.PODS and k8s.spec_of(found).get("nodeName"):
            yield f"pod:{k8s.key_of(found)}"
        elif event.kind is k8s.NODES:
            yield f"node:{k8s.name_of(found)}"
            if event.old is None or (event.new is not None and is_down(event.old) != is_down(event.new)):
                for pod in world.pods_on(k8s.name_of(found)):
                    yield f"pod:{k8s.key_of(pod)}"

    def reconcile(self, key: str, world: ObjectIndex, now: float) -> Iterator[Step]:
        what, _, name = key.partition(":")
        if what == "node":
            node = world.get(k8s.NODES, "", name)
            if node is not None and not is_down(node):
                status = _healthy_status(node, now, self._info)
                if status != k8s.status_of(node):
                    yield SetStatus(k8s.NODES, node, status)
                yield from self._renew(node, world, now)
            return
        pod = world.find(k8s.PODS, name)
        host = None if pod is None else world.get(k8s.NODES, "", k8s.spec_of(pod).get("nodeName", ""))
        if pod is not None and host is not None and not is_down(host):
            yield from self._live(pod, host, world, now)

    # -- pods -----------------------------------------------------------------------------------------------------------

    def _live(self, pod: Document, host: Document, world: ObjectIndex, now: float) -> Iterator[Step]:
        life = life_of(pod, self._job_s, self._stop_s)
        if k8s.is_ending(pod):
            yield from self._terminate(pod, life, now)
            return
        if not k8s.status_of(pod).get("startTime") and k8s.phase_of(pod) not in ENDED_PHASES:
            rejected = self._admission.rejection(pod, host, world.pods_on(k8s.name_of(host)))
            if rejected is not None:
                yield from _rejected(pod, *rejected, now)
                return
            if _waits_for_volumes(pod, world):
                yield Later(1.0)
                return
        status, again = next_status(pod, life, _address_of(host), self._address(pod), now)
        if status is not None:
            yield SetStatus(k8s.PODS, pod, status)
        if again is not None and again > now:
            yield Later(again - now)

    @staticmethod
    def _terminate(pod: Document, life: Life, now: float) -> Iterator[Step]:
        at = ends_at(pod, life)
        if now < at:
            yield Later(at - now)
            return
        if k8s.phase_of(pod) not in ENDED_PHASES and pod["metadata"].get("finalizers"):
            yield SetStatus(k8s.PODS, pod, stopped(pod, now))
        yield DeleteStep(k8s.PODS, pod, grace_s=0)

    def _address(self, pod: Document) -> str:
        """Return a unique address for a pod: the one that it has, or one derived from its UID."""
        uid = k8s.uid_of(pod)
        if uid not in self._addresses:
            held = k8s.status_of(pod).get("podIP")
            number = int(ipaddress.ip_address(held)) if held else self._free(uid)
            self._addresses[uid] = number
            self._taken.add(number)
        return str(ipaddress.ip_address(self._addresses[uid]))

    def _free(self, uid: str) -> int:
        first = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:8], "big") % _POD_ADDRESSES
        for step in range(_POD_ADDRESSES):
            number = _POD_RANGE + 1 + (first + step) % _POD_ADDRESSES
            if number not in self._taken:
                return number
        raise LookupError("there are more pods than addresses")

    # -- nodes ----------------------------------------------------------------------------------------------------------

    @staticmethod
    def _renew(node: Document, world: ObjectIndex, now: float) -> Iterator[Step]:
        lasts_s = lease_seconds(world.count(k8s.NODES))
        lease = world.get(k8s.LEASES, LEASE_NAMESPACE, k8s.name_of(node))
        renewed_at = datetime.datetime.fromtimestamp(now, tz=datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": k8s.name_of(node), "leaseDurationSeconds": lasts_s, "renewTime": renewed_at}
        if lease is None:
            owner = {name: value for name, value in k8s.reference_to(k8s.NODES, node).items() if not isinstance(value, bool)}
            metadata = {"name": k8s.name_of(node), "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
            made = {"apiVersion": k8s.LEASES.api_version, "kind": "Lease", "metadata": metadata, "spec": spec}
            yield Create(k8s.LEASES, made)
            # Spread the heartbeats of nodes that were created together.
            share = hashlib.sha256(k8s.name_of(node).encode()).digest()[0] / 256
            yield Later(lasts_s / 4 * share)
            return
        due = k8s.seconds(k8s.spec_of(lease).get("renewTime")) + lasts_s / 4
        if now < due - 0.001:
            yield Later(due - now)
            return
        renewed = k8s.copied(lease)
        renewed["spec"] = {**k8s.spec_of(lease), **spec}
        yield Update(k8s.LEASES, renewed)
        yield Later(lasts_s / 4)


def _rejected(pod: Document, reason: str, why: str, now: float) -> Iterator[Step]:
    """Yield the steps that reject a pod: none of its containers starts."""
    yield EventStep(k8s.PODS, pod, "Warning", reason, why)
    status = {**k8s.status_of(pod), "phase": "Failed", "reason": reason, "message": f"Pod was rejected: {why}"}
    yield SetStatus(k8s.PODS, pod, {**status, "startTime": k8s.stamp(now)})


def is_down(node: Document) -> bool:
    """Return True for a node whose annotation simulates a failure."""
    return k8s.annotations_of(node).get(DOWN) == "true"


def _address_of(node: Document) -> str:
    """Return a node's address, derived from its name where its status has none."""
    for one in k8s.status_of(node).get("addresses") or ():
        if one.get("type") == "InternalIP":
            return str(one["address"])
    number = int.from_bytes(hashlib.sha256(k8s.name_of(node).encode()).digest()[:8], "big") % ((1 << 20) - 2)
    return str(ipaddress.IPv4Address(int(ipaddress.IPv4Address("172.16.0.1")) + number))


def _healthy_status(node: Document, now: float, info: Document) -> Document:
    """Return the status of a healthy node. Existing fields, and transition times of unchanged conditions, are preserved."""
    status = k8s.status_of(node)
    capacity = status.get("capacity") or status.get("allocatable") or {}
    # The allocatable is the node's own, completed from its capacity, without devices missing from the capacity.
    held = {name: amount for name, amount in (status.get("allocatable") or {}).items() if name in capacity or "/" not in name}
    own = [{"type": "InternalIP", "address": _address_of(node)}, {"type": "Hostname", "address": k8s.name_of(node)}]
    made: dict[str, Any] = {**status, "capacity": capacity, "allocatable": {**capacity, **held}}
    made["addresses"] = status.get("addresses") or own
    if not (made.get("nodeInfo") or {}).get("kubeletVersion"):
        made["nodeInfo"] = info
    ready = k8s.condition_of(node, "Ready")
    stale = ready is None or ready.get("status") != "True" or now - k8s.seconds(ready.get("lastHeartbeatTime")) >= _REPORT_S
    if stale:
        conditions = status.get("conditions") or ()
        for name, reason, message in _TROUBLES:
            conditions = k8s.with_condition(conditions, name, "False", now, reason, message, lastHeartbeatTime=k8s.stamp(now))
        why, beat = "kubelet is posting ready status", k8s.stamp(now)
        made["conditions"] = k8s.with_condition(conditions, "Ready", "True", now, "KubeletReady", why, lastHeartbeatTime=beat)
    return made


#: What a node reports of itself, without its version.
_INFO: Final = {
    "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "moorage://0", "kernelVersion": "pretended",
    "kubeProxyVersion": "", "machineID": "", "operatingSystem": "linux",
    "osImage": "Moorage", "systemUUID": "",
}  # fmt: skip


def _waits_for_volumes(pod: Document, world: ObjectIndex) -> bool:
    """Return True while one of the pod's claims is not bound."""
    claims = (world.get(k8s.CLAIMS, k8s.namespace_of(pod), name) for name in k8s.claim_names(pod) if name)
    return any(claim is None or k8s.phase_of(claim) != "Bound" for claim in claims)
