"""Pods of recordings, which hold whole objects: code shared by the readers of recordings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from moorage.api import core
from moorage.api.decode import decode
from moorage.api.defaults import default_node, default_pod
from moorage.api.kinds import Kind
from moorage.api.packing import pack
from moorage.basis.inputs.files import InputFile
from moorage.basis.inputs.simulated_kinds import find_kind
from moorage.errors import InputError
from moorage.simulator.cluster_reader import WORKLOAD_SLOTS, ReadRules, read_sources
from moorage.simulator.pod_creation import create_missing_pods
from moorage.simulator.trace import PodTemplate
from moorage.simulator.trace_builder import TraceBuilder
from moorage.simulator.unknown_fields import Validation

_encode: Final = partial(pack, ordered=True)


class RecordedPods:
    """The pods and nodes of a recording, change by change. Times are seconds."""

    def __init__(self) -> None:
        self.builder = TraceBuilder()
        self.nodes: dict[str, core.Node] = {}
        self.late_nodes = 0
        #: ``namespace/name`` → row, of pods that exist now.
        self._rows: dict[str, int] = {}

    def see(self, data: Mapping[str, Any], where: str, time_s: float, *, first: bool = False) -> None:
        """Record the current state of an object. ``first``: the object exists from the start.

        Raises  InputError for an object that cannot be read
        """
        kind = data.get("kind")
        if kind == "Node":
            node = default_node(decode(data, core.Node, where))
            self.late_nodes += not first and node.name not in self.nodes
            self.nodes[node.name] = node
        elif kind == "Pod":
            self.see_pod(default_pod(decode(data, core.Pod, where)), time_s)

    def see_pod(self, pod: core.Pod, time_s: float) -> int:
        """Record the current state of a pod, and return its row. A pod in an ended phase ends now."""
        key = pod.key
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = self.builder.add(pod.name, self._shape(pod), time_s)
        if pod.status.phase in core.ENDED_PHASES:
            self._end(row, time_s)
        return row

    def row_of(self, namespace: str, name: str) -> int | None:
        """Return the row of a pod that exists now."""
        return self._rows.get(f"{namespace}/{name}")

    def gone(self, namespace: str, name: str, time_s: float) -> None:
        """Record that a pod was deleted; a later pod may have its name."""
        row = self._rows.pop(f"{namespace}/{name}", None)
        if row is not None:
            self._end(row, time_s)

    def _end(self, row: int, time_s: float) -> None:
        if not self.builder.has_end(row):
            self.builder.end(row, time_s - self.builder.time_of(row))

    def _shape(self, pod: core.Pod) -> int:
        """Return the number of the pod's template: its spec without a node, labels, annotations and namespace."""
        spec = replace(pod.spec, node_name="") if pod.spec.node_name else pod.spec
        meta = pod.metadata
        key = _encode((spec, meta.labels, meta.annotations, meta.namespace))
        return self.builder.shape(key, lambda: PodTemplate(spec, meta.labels, meta.annotations, meta.namespace))


_RULES = ReadRules(Validation("ignore"))


def pods_of_owner(obj: Mapping[str, Any], where: str) -> list[core.Pod] | None:
    """Return the pods that a controller would create for an object that has none; None for a kind without pods.

    Raises  InputError for an object that cannot be read
    """
    found = find_kind(str(obj.get("apiVersion", "")), str(obj.get("kind", "")))
    if not isinstance(found, Kind) or found.slot not in WORKLOAD_SLOTS:
        return None
    try:
        data = msgspec.json.encode(obj)
    except (TypeError, msgspec.MsgspecError) as error:
        raise InputError(f"{where}: {error}") from None
    cluster, _ = create_missing_pods(read_sources([InputFile(where, data)], rules=_RULES), quota=False)
    return list(cluster.pods)
