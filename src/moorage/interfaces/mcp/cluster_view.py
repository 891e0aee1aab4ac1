"""Look up pods, nodes and other objects of a cluster for an agent, one a line or as a document."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from moorage.api.core import Node, Pod
from moorage.api.selectors import Selector, SelectorError, parse_selector
from moorage.errors import InputError
from moorage.laboratory.cluster import Cluster

#: How long a live cluster that was read is taken as current.
_FRESH_S: Final = 15.0


class ClusterView:
    """Looks objects up. ``read`` returns the cluster with its pending pods placed; with ``live``, it is called now and then."""

    def __init__(self, read: Callable[[], Cluster], *, live: bool) -> None:
        self._read, self._live = read, live
        self._cluster: Cluster | None = None
        self._read_at = 0.0
        self._reading = asyncio.Lock()

    async def find(self, kind: str, name: str, namespace: str, selector: str, *, only_pending: bool = False) -> list[str]:
        """Return a line for each pod or node that is asked for.

        Raises  InputError for a selector that cannot be parsed
        """
        try:
            wanted = parse_selector(selector)
        except SelectorError as error:
            raise InputError(f"selector: {error}") from None
        cluster = await self._current()
        if kind == "nodes":
            return list(_node_lines(cluster, name, wanted))
        return list(_pod_lines(cluster, name, namespace, wanted, only_pending=only_pending))

    async def document(self, ref: str) -> str:
        """Return an object as JSON, with the fields that scheduling reads.

        Raises  InputError if there is none
        """
        return json.dumps(msgspec.to_builtins((await self._current()).get(ref)), indent=1, ensure_ascii=False)

    async def _current(self) -> Cluster:
        async with self._reading:
            if self._cluster is None or (self._live and time.monotonic() - self._read_at > _FRESH_S):
                self._cluster = await asyncio.to_thread(self._read)
                self._read_at = time.monotonic()
            return self._cluster


def _is_called(name: str, wanted: str) -> bool:
    return fnmatchcase(name, wanted) if "*" in wanted else wanted in name


def _pod_lines(cluster: Cluster, name: str, namespace: str, selector: Selector, *, only_pending: bool) -> Iterator[str]:
    records = cluster.simulation.records
    for pod in (one for one in cluster.objects() if isinstance(one, Pod)):
        is_asked = _is_called(pod.name, name) and namespace in {"", pod.namespace} and selector.matches(pod.labels)
        if not is_asked or (only_pending and pod.spec.node_name):
            continue
        requests: dict[str, Any] = {}
        for one in pod.spec.containers:
            requests |= one.resources.requests
        record = records.get(pod.uid)
        why = "" if pod.spec.node_name or record is None else f" why={record.message!r}"
        yield f"{pod.key} node={pod.spec.node_name or '-'} priority={pod.spec.priority or 0} {_amounts(requests)}{why}"


def _node_lines(cluster: Cluster, name: str, selector: Selector) -> Iterator[str]:
    frame = cluster.nodes
    pods = dict(zip(frame["name"].tolist(), frame["pods"].tolist(), strict=True))
    for node in (one for one in cluster.objects() if isinstance(one, Node)):
        if not _is_called(node.name, name) or not selector.matches(node.labels):
            continue
        taints = ",".join(
            f"{one.key}={one.value}:{one.effect}" if one.value else f"{one.key}:{one.effect}" for one in node.spec.taints
        )
        cordoned = " cordoned" if node.spec.unschedulable else ""
        zone = node.labels.get("topology.kubernetes.io/zone", "-")
        yield (
            f"{node.name} zone={zone} pods={pods.get(node.name, 0)} {_amounts(node.status.allocatable)}{cordoned}"
            f"{f' taints={taints}' if taints else ''}"
        )


def _amounts(amounts: Any) -> str:
    return " ".join(f"{name}={value}" for name, value in amounts.items())
