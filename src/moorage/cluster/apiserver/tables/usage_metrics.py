"""Metrics of pods and nodes in metrics-server's format. As no container runs, usage is declared instead of measured.

A running container uses what it requests. Annotations can set other amounts for all containers of a pod together:

    moorage.dev/usage-cpu       moorage.dev/usage-memory

They are divided in proportion to the containers' requests, or equally if there are none. Pod-level requests are divided
likewise if no container requests the resource. A node uses the sum of its pods. As with metrics-server, there are no metrics of
pods that are not running, of nodes that are not ready, and of pods on such nodes.

Source  metrics-server 0.8, pkg/api: pod.go, node.go
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from moorage.api import quantity
from moorage.api.documents.records import Record, is_condition_true, timestamp
from moorage.api.documents.served_kinds import MEASURED, Document, ServedKind, served
from moorage.api.documents.statuses import not_found
from moorage.api.quantity import QuantityError
from moorage.rules.store.list_selection import ALL, Selection
from moorage.rules.store.store import Store

_PREFIX: Final = "moorage.dev/usage-"
#: Averaging window of a metric; metrics-server samples every 15 seconds.
_WINDOW: Final = "15s"
_PODS: Final = served("pods")
_NODES: Final = served("nodes")
_NODE_METRICS, _POD_METRICS = MEASURED


class _Usage(NamedTuple):
    cpu_milli: int
    memory: int


def measure_all(store: Store, kind: ServedKind, selection: Selection) -> list[Record]:
    """Return the metrics of the selected pods or nodes that have any."""
    if kind is _POD_METRICS:
        ready = _ready_nodes(store)
        return [made for pod in store.all(_PODS, selection) if (made := _pod_metrics(pod.document(), ready, store.clock()))]
    used = _used_by_node(store)
    return [_node_metrics(node, used[node.name], store.clock()) for node in store.all(_NODES, selection) if node.name in used]


def measure(store: Store, kind: ServedKind, namespace: str, name: str) -> Record:
    """Return the metrics of a pod or a node.

    Raises  ApiError 404 if it does not exist or has none
    """
    subject = store.get(_PODS if kind is _POD_METRICS else _NODES, namespace, name)
    if kind is _POD_METRICS:
        if made := _pod_metrics(subject.document(), _ready_nodes(store), store.clock()):
            return made
        raise not_found("podmetrics", kind.group, f"{namespace}/{name}")
    used = _used_by_node(store)
    if name not in used:
        raise not_found("nodemetrics", kind.group, name)
    return _node_metrics(subject, used[name], store.clock())


# -- nodes -------------------------------------------------------------------------------------------------------------


def _ready_nodes(store: Store) -> frozenset[str]:
    """Return the names of the ready nodes."""
    statuses = ((node.name, node.document().get("status") or {}) for node in store.all(_NODES))
    return frozenset(name for name, status in statuses if is_condition_true(status, "Ready"))


def _used_by_node(store: Store) -> dict[str, _Usage]:
    """Return the usage of each ready node."""
    cpu_milli, memory = Counter[str](), Counter[str]()
    for record in store.all(_PODS, ALL):
        if node := record.fields["spec.nodeName"]:
            for _, used in used_by_containers(record.document()):
                cpu_milli[node] += used.cpu_milli
                memory[node] += used.memory
    return {name: _Usage(cpu_milli[name], memory[name]) for name in _ready_nodes(store)}


def _node_metrics(node: Record, used: _Usage, now: float) -> Record:
    document = {**_head(_NODE_METRICS, node.document(), now), "usage": amounts(*used)}
    return Record.of(_NODE_METRICS, document, 0)


# -- pods --------------------------------------------------------------------------------------------------------------


def _pod_metrics(pod: Document, ready: frozenset[str], now: float) -> Record | None:
    used = list(used_by_containers(pod)) if (pod.get("spec") or {}).get("nodeName") in ready else []
    if not used:
        return None
    containers = [{"name": name, "usage": amounts(*one)} for name, one in used]
    return Record.of(_POD_METRICS, {**_head(_POD_METRICS, pod, now), "containers": containers}, 0)


def used_by_containers(pod: Document) -> Iterator[tuple[str, _Usage]]:
    """Yield the running containers of a pod with their usage, sidecars last."""
    if (pod.get("status") or {}).get("phase") != "Running":
        return
    inits = _running(pod, "initContainers", "initContainerStatuses")
    sidecars = [one for one in inits if one.get("restartPolicy") == "Always"]
    running = [*_running(pod, "containers", "containerStatuses"), *sidecars]
    cpu_milli = _divided(pod, running, "cpu", quantity.milli_value)
    memory = _divided(pod, running, "memory", quantity.value)
    for container, cpu, held in zip(running, cpu_milli, memory, strict=True):
        yield container["name"], _Usage(cpu, held)


def _running(pod: Document, part: str, statuses: str) -> list[Document]:
    """Return the running containers; all of them if the pod's status has no container statuses."""
    reported = (pod.get("status") or {}).get(statuses)
    states = {one.get("name"): one.get("state") or {} for one in reported or ()}
    return [one for one in pod["spec"].get(part) or () if reported is None or "running" in states.get(one["name"], {})]


def _divided(pod: Document, containers: list[Document], resource: str, read: Any) -> list[int]:
    """Return each container's usage of a resource: its request, or its share of the amount declared for the pod."""
    requests = [_read(_requests(one), resource, read) or 0 for one in containers]
    total = _read((pod["metadata"].get("annotations") or {}), f"{_PREFIX}{resource}", read)
    if total is None and not any(requests):
        total = _read(_requests(pod["spec"]), resource, read)
    if total is None or not containers:
        return requests
    weights = requests if any(requests) else [1] * len(requests)
    shares = [total * weight // sum(weights) for weight in weights]
    shares[0] += total - sum(shares)
    return shares


def _requests(holder: Mapping[str, Any]) -> Mapping[str, Any]:
    return (holder.get("resources") or {}).get("requests") or {}


def _read(amounts: Mapping[str, Any], name: str, read: Any) -> int | None:
    """Return an amount, or None if it is absent or invalid."""
    try:
        amount: int = read(amounts[name])
    except (KeyError, QuantityError):
        return None
    return amount if amount >= 0 else None


# -- format ------------------------------------------------------------------------------------------------------------


def _head(kind: ServedKind, subject: Document, now: float) -> Document:
    metadata: Document = {"name": subject["metadata"]["name"], "creationTimestamp": timestamp(now)}
    for name in ("namespace", "labels"):
        if held := subject["metadata"].get(name):
            metadata[name] = held
    head: Document = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
    return {**head, "timestamp": timestamp(now), "window": _WINDOW}


def amounts(cpu_milli: int, memory: int) -> dict[str, str]:
    """Return amounts of CPU in millicores and memory in bytes, in metrics format."""
    kibibytes, rest = divmod(memory, 1024)
    return {
        "cpu": quantity.canonical(f"{cpu_milli}m"),
        "memory": str(memory) if rest else quantity.canonical(f"{kibibytes}Ki"),
    }
