"""Tasks and machines of tables as pods and nodes: code shared by the readers of tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Final

from moorage.api import core
from moorage.api.documents.object_fields import stable_uid
from moorage.api.meta import ObjectMeta, ResourceList
from moorage.api.names import check_label_value
from moorage.simulator.trace import GPU_MILLI, WHOLE_GPU, PodTemplate, plain_name
from moorage.simulator.trace_builder import TraceBuilder
from moorage.simulator.traces.streams import TraceRow, table_rows

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
