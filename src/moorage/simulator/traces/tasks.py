"""Tasks and machines of tables as pods and nodes: code shared by the readers of tables."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Final

from moorage.api.core import (
    Affinity,
    Container,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    NodeStatus,
    PodSpec,
    ResourceRequirements,
)
from moorage.api.meta import ObjectMeta, ResourceList
from moorage.api.names import check_label_value
from moorage.cluster.controllers.machinery.object_fields import stable_uid
from moorage.simulator.trace import GPU_MILLI, WHOLE_GPU, PodTemplate
from moorage.simulator.trace_builder import TraceBuilder

__all__ = ["GPU_MODEL", "MAX_PODS", "ZONE", "TaskTable", "label_value", "machine", "plain_name"]

#: Node label: the model of its GPUs.
GPU_MODEL: Final = "alibabacloud.com/gpu-card-model"
ZONE: Final = "topology.kubernetes.io/zone"
#: The maximum number of pods per node. Traces have none; this is the kubelet's default.
MAX_PODS: Final = 110
_OTHER: Final = re.compile(r"[^a-z0-9]+")
_NOT_IN_LABEL: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_MOST_NAME: Final = 200


def plain_name(text: str, prefix: str = "task") -> str:
    """Return a name that an object can have: lower case, with dashes for all other characters."""
    found = _OTHER.sub("-", text.lower()).strip("-")[:_MOST_NAME].strip("-")
    return found or prefix


@lru_cache(4096)
def label_value(text: str) -> str:
    """Return a text as a valid label value."""
    found = _NOT_IN_LABEL.sub("-", text).strip("-_.")[:63].strip("-_.")
    return "" if check_label_value(found) else found


def machine(
    name: str, cpu_milli: int, memory_bytes: int, *, gpus: int = 0, shared: bool = False, model: str = "", zone: str = "",
    max_pods: int = MAX_PODS,
) -> Node:  # fmt: skip
    """Return a node. ``shared``: its GPUs are thousandths, as pods of the trace request parts of them."""
    amounts: ResourceList = {"cpu": f"{cpu_milli}m", "memory": str(memory_bytes), "pods": str(max_pods)}
    if gpus:
        amounts[GPU_MILLI if shared else WHOLE_GPU] = str(gpus * 1000 if shared else gpus)
    labels = {"kubernetes.io/hostname": name} | ({GPU_MODEL: label_value(model)} if model else {})
    labels |= {ZONE: label_value(zone)} if zone else {}
    return Node(
        metadata=ObjectMeta(name=name, uid=stable_uid("Node", "", name), labels=labels),
        status=NodeStatus(capacity=amounts, allocatable=amounts),
    )


class TaskTable:
    """Adds the tasks of a table to a trace."""

    def __init__(self) -> None:
        self.builder = TraceBuilder()
        #: Specs by requests; shared by the templates of pods with and without labels.
        self._specs: dict[Hashable, PodSpec] = {}

    def add(
        self, name: str, time_s: float, duration_s: float | None, cpu_milli: int, memory_bytes: int, *, gpus: int = 0,
        gpu_milli: int = 0, priority: int | None = None, models: Sequence[str] = (), labels: Sequence[tuple[str, str]] = (),
    ) -> int:  # fmt: skip
        """Add a task and return its row. ``gpus`` are whole devices, ``gpu_milli`` thousandths."""
        key = (cpu_milli, memory_bytes, gpus, gpu_milli, priority, tuple(models))
        spec = self._specs.get(key)
        if spec is None:
            spec = self._specs[key] = _spec(*key)
        own = tuple([name for name, _ in labels])
        shape = self.builder.shape((id(spec), own), lambda: PodTemplate(spec, own=own))
        return self.builder.add(plain_name(name), shape, time_s, duration_s, [label_value(text) for _, text in labels])


def _spec(
    cpu_milli: int, memory_bytes: int, gpus: int, gpu_milli: int, priority: int | None, models: tuple[str, ...]
) -> PodSpec:  # fmt: skip
    requests: ResourceList = {"cpu": f"{cpu_milli}m", "memory": str(memory_bytes)}
    devices: ResourceList = {}
    if gpus:
        devices = {WHOLE_GPU: str(gpus)}
    elif gpu_milli:
        devices = {GPU_MILLI: str(gpu_milli)}
    container = Container(name="task", resources=ResourceRequirements(requests={**requests, **devices}, limits=devices))
    affinity = _on_models(models) if models else None
    return PodSpec(containers=(container,), restart_policy="Never", priority=priority, affinity=affinity)


def _on_models(models: Sequence[str]) -> Affinity:
    accepted = NodeSelectorRequirement(key=GPU_MODEL, operator="In", values=tuple(map(label_value, models)))
    required = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(accepted,)),))
    return Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=required))
