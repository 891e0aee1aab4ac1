"""Pods of recordings, which hold whole objects: code shared by the readers of recordings."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from moorage.api import core
from moorage.api.decode import decode
from moorage.api.defaults import default_node, default_pod
from moorage.api.documents.object_fields import stable_uid
from moorage.api.kinds import Kind
from moorage.api.meta import ObjectMeta, ResourceList
from moorage.api.names import check_label_value
from moorage.api.packing import pack
from moorage.basis.inputs.cleaned_objects import find_kind
from moorage.basis.inputs.files import InputFile
from moorage.errors import InputError
from moorage.simulator.cluster_reader import WORKLOAD_SLOTS, ReadRules, read_sources
from moorage.simulator.pod_creation import create_missing_pods
from moorage.simulator.trace import GPU_MILLI, WHOLE_GPU, PodTemplate, plain_name
from moorage.simulator.trace_builder import TraceBuilder
from moorage.simulator.traces.streams import TraceRow, table_rows
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


# -- tasks -------------------------------------------------------------------------------------------------------------
# Tasks and machines of tables as pods and nodes: code shared by the readers of tables.

#: Node label: the model of its GPUs.
GPU_MODEL: Final = "alibabacloud.com/gpu-card-model"
ZONE: Final = "topology.kubernetes.io/zone"
#: The maximum number of pods per node. Traces have none; this is the kubelet's default.
MAX_PODS: Final = 110
_NOT_IN_LABEL: Final = re.compile(r"[^A-Za-z0-9_.-]+")


@lru_cache(4096)
def label_value(text: str) -> str:
    """Return a text as a valid label value."""
    found = _NOT_IN_LABEL.sub("-", text).strip("-_.")[:63].strip("-_.")
    return "" if check_label_value(found) else found


def machine(
    name: str, cpu_milli: int, memory: int | str, *, gpus: int = 0, shared: bool = False, model: str = "", zone: str = "",
    max_pods: int = MAX_PODS,
) -> core.Node:  # fmt: skip
    """Return a node; ``memory`` is a quantity or a number of bytes.

    ``shared``: its GPUs are thousandths, as pods of the trace request parts of them.
    """
    amounts: ResourceList = {"cpu": f"{cpu_milli}m", "memory": str(memory), "pods": str(max_pods)}
    if gpus:
        amounts[GPU_MILLI if shared else WHOLE_GPU] = str(gpus * 1000 if shared else gpus)
    labels = {"kubernetes.io/hostname": name} | ({GPU_MODEL: label_value(model)} if model else {})
    labels |= {ZONE: label_value(zone)} if zone else {}
    return core.Node(
        metadata=ObjectMeta(name=name, uid=stable_uid("Node", "", name), labels=labels),
        status=core.NodeStatus(capacity=amounts, allocatable=amounts),
    )


def machines_in(path: str, columns: Sequence[str], read: Callable[[TraceRow], core.Node | None]) -> list[core.Node]:
    """Return the nodes of a table that may have a header, of each name the first; ``read`` returns None for a row without."""
    found: dict[str, core.Node] = {}
    for node in map(read, table_rows(path, columns, header=None)):
        if node is not None:
            found.setdefault(node.name, node)
    return list(found.values())


def copies_in(row: TraceRow, column: str, most: int) -> int:
    """Return how many pods a row stands for; 1 for an empty cell.

    Raises  InputError for a number that is out of bounds
    """
    count = row.integer(column) if row.text(column) else 1
    if not 0 <= count <= most:
        raise row.fault(column, f"expected 0 to {most}")
    return count


class TaskTable:
    """Adds the tasks of a table to a trace."""

    def __init__(self) -> None:
        self.builder = TraceBuilder()
        #: Specs by requests; shared by the templates of pods with and without labels.
        self._specs: dict[Hashable, core.PodSpec] = {}

    def add(
        self, name: str, time_s: float, duration_s: float | None, cpu_milli: int, memory_bytes: int, *, gpus: int = 0,
        gpu_milli: int = 0, priority: int | None = None, models: Sequence[str] = (), labels: Sequence[tuple[str, str]] = (),
        job: str = "", gang: bool = False,
    ) -> int:  # fmt: skip
        """Add a task and return its row. Tasks of a ``gang`` start together.

        ``gpus`` are whole devices, ``gpu_milli`` thousandths.
        """
        key = (cpu_milli, memory_bytes, gpus, gpu_milli, priority, tuple(models))
        spec = self._specs.get(key)
        if spec is None:
            spec = self._specs[key] = task_spec(*key)
        own = tuple([name for name, _ in labels])
        shape = self.builder.shape((id(spec), own), lambda: PodTemplate(spec, own=own))
        return self.builder.add(
            plain_name(name), shape, time_s, duration_s, [label_value(text) for _, text in labels], job=job, gang=gang
        )


def task_spec(
    cpu_milli: int, memory: int | str, gpus: int, gpu_milli: int, priority: int | None, models: tuple[str, ...]
) -> core.PodSpec:  # fmt: skip
    """Return the spec of a task that requests whole GPUs or thousandths, of one of these models if any are named."""
    requests: ResourceList = {"cpu": f"{cpu_milli}m", "memory": str(memory)}
    devices: ResourceList = {}
    if gpus:
        devices = {WHOLE_GPU: str(gpus)}
    elif gpu_milli:
        devices = {GPU_MILLI: str(gpu_milli)}
    container = core.Container(
        name="task", resources=core.ResourceRequirements(requests={**requests, **devices}, limits=devices)
    )
    affinity = _on_models(models) if models else None
    return core.PodSpec(containers=(container,), restart_policy="Never", priority=priority, affinity=affinity)


def _on_models(models: Sequence[str]) -> core.Affinity:
    accepted = core.NodeSelectorRequirement(key=GPU_MODEL, operator="In", values=tuple(map(label_value, models)))
    required = core.NodeSelector(node_selector_terms=(core.NodeSelectorTerm(match_expressions=(accepted,)),))
    return core.Affinity(node_affinity=core.NodeAffinity(required_during_scheduling_ignored_during_execution=required))
