"""The openb traces: Alibaba's GPU cluster of 2023 (cluster-trace-gpu-v2023), as nodes and pods.

A line of the node list is a machine: ``sn, cpu_milli, memory_mib, gpu, model``. A line of the pod list is a task: its requests,
and in the longer layout the times at which it was created, placed and deleted. A task may request a share of one GPU.

kube-scheduler's own plugins count resources per node, not per device. So GPUs become one extended resource, thousandths of a
GPU, summed over the node: a task that requests 460 thousandths of one device fits on a node where two devices have that much
free together. Real placements on shared devices fragment; these do not. With ``whole_gpus`` every share counts as a whole
device, as with a plain device plugin. Real clusters lie between the two.

A machine's model is a node label; the models that a task accepts are required node affinity. The class of service becomes a
label, which the scheduler ignores.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from moorage.api import core
from moorage.api.names import check_dns1123_subdomain, check_label_value
from moorage.errors import InputError
from moorage.simulator.trace import PodTemplate, Trace
from moorage.simulator.trace_builder import TraceBuilder
from moorage.simulator.traces.streams import ExactRow, Source, exact_rows
from moorage.simulator.traces.task_tables import MAX_PODS, machine, task_spec

#: Pod label: its class of service.
QOS: Final = "alibabacloud.com/qosClass"

_NODE_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_SHORT: Final = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_LONG: Final = (*_SHORT, "gpu_spec", "qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time")


def read_openb(nodes: Source, pods: Source, *, whole_gpus: bool = False, max_pods: int = MAX_PODS) -> Trace:
    """Return the trace of a node list and a pod list, from files that may be compressed, given by path or content.

    Raises  InputError, naming file and line, for lines that do not match the layouts
    """
    machines = tuple(_read_nodes(nodes, whole_gpus, max_pods))
    return _read_pods(pods, whole_gpus).finish(machines)


def read_openb_pair(pods: str, nodes: str | None = None) -> Trace:
    """Return the trace, for the registry of formats.

    Raises  InputError
    """
    if nodes is None:
        raise InputError("openb: needs the file of nodes")
    return read_openb(nodes, pods)


def _read_nodes(source: Source, whole_gpus: bool, max_pods: int) -> Iterator[core.Node]:
    seen: dict[str, str] = {}
    for row in exact_rows(source, [_NODE_COLUMNS]):
        name = _name(row, "sn", seen)
        model = _label(row, "model", row.text("model")) if row.text("model") else ""
        yield machine(
            name, row.integer("cpu_milli"), f"{row.integer('memory_mib')}Mi", gpus=row.integer("gpu"), shared=not whole_gpus,
            model=model, max_pods=max_pods,
        )  # fmt: skip


# -- pods ---------------------------------------------------------------------------------------------------------------


def _read_pods(source: Source, whole_gpus: bool) -> TraceBuilder:
    seen: dict[str, str] = {}
    builder = TraceBuilder()
    for row in exact_rows(source, [_SHORT, _LONG]):
        name = _name(row, "name", seen)
        long = row.has("qos")
        models = _models(row) if long else ()
        asked = (row.integer("cpu_milli"), row.integer("memory_mib"), _gpu_milli(row), row.integer("num_gpu"), models)
        qos = _label(row, "qos", row.text("qos")) if long and row.text("qos") else ""
        shape = builder.shape((asked, qos), partial(_template, asked, qos, whole_gpus))
        if long:
            builder.add(name, shape, row.number("creation_time"), _duration_s(row))
        else:
            builder.add(name, shape, 0.0)
    return builder


def _template(asked: tuple[int, int, int, int, tuple[str, ...]], qos: str, whole_gpus: bool) -> PodTemplate:
    cpu_milli, memory_mib, share, gpus, models = asked
    devices = (gpus, 0) if whole_gpus else (0, gpus * share)
    return PodTemplate(task_spec(cpu_milli, f"{memory_mib}Mi", *devices, None, models), {QOS: qos} if qos else {})


def _gpu_milli(row: ExactRow) -> int:
    """Return the share of each GPU that a task requests; 0 for tasks without GPUs."""
    devices, share = row.integer("num_gpu"), row.integer("gpu_milli")
    if share > 1000:
        raise row.fault("gpu_milli", "expected at most 1000, a whole GPU")
    if bool(devices) != bool(share):
        raise row.fault("gpu_milli", f"expected {'some' if devices else 'none'} with num_gpu {devices}")
    return share


def _models(row: ExactRow) -> tuple[str, ...]:
    listed = row.text("gpu_spec")
    return tuple(_label(row, "gpu_spec", model) for model in listed.split("|")) if listed else ()


def _duration_s(row: ExactRow) -> float | None:
    """Return how long a task ran; if it was never placed, how long it existed; None if it was never deleted."""
    created, removed = row.number("creation_time"), row.optional("deletion_time")
    placed = row.optional("scheduled_time")
    if placed is not None and placed < created:
        raise row.fault("scheduled_time", "expected no less than creation_time")
    if removed is None:
        return None
    begun = created if placed is None else placed
    if removed < begun:
        raise row.fault("deletion_time", "expected no less than creation_time and scheduled_time")
    return removed - begun


# -- names --------------------------------------------------------------------------------------------------------------


def _name(row: ExactRow, column: str, seen: dict[str, str]) -> str:
    name = row.text(column)
    if check_dns1123_subdomain(name):
        raise row.fault(column, "expected a name of lower-case letters, digits, '-' and '.'")
    if name in seen:
        raise row.fault(column, f"expected a name of its own, this is that of {seen[name]}")
    seen[name] = row.where
    return name


def _label(row: ExactRow, column: str, text: str) -> str:
    if not text or check_label_value(text):
        raise row.fault(column, "expected what a label can hold")
    return text
