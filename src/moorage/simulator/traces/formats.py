"""The registry of trace formats, with the files that each reads. To add one, write its module and list it here."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moorage.api.core import Node
from moorage.errors import InputError
from moorage.simulator.cluster_reader import read
from moorage.simulator.trace import Trace

#: Files of nodes with these endings hold Kubernetes objects, whatever the format of the trace.
_MANIFESTS: Final = (".yaml", ".yml", ".yaml.gz", ".yml.gz")


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """A published form of a trace.

    ``reader``  ``module:function`` that takes the file of pods and the file of nodes, or None for it
    ``pods``    describes the file of pods, and ``nodes`` that of nodes; empty: the format has none
    """

    title: str
    reader: str
    pods: str
    nodes: str = ""
    needs_nodes: bool = False

    def read(self, pods: str, nodes: str | None) -> Trace:
        """Read the files."""
        module, _, name = self.reader.partition(":")
        function: Callable[[str, str | None], Trace] = getattr(importlib.import_module(module), name)
        return function(pods, nodes)


FORMATS: Final[Mapping[str, TraceFormat]] = {
    "openb": TraceFormat(
        "Alibaba 2023, GPU sharing", "moorage.simulator.traces.openb:read_openb_pair", "openb_pod_list_*.csv",
        "openb_node_list_*.csv",
        needs_nodes=True,
    ),
    "kube-scheduler-simulator": TraceFormat(
        "a recording of kube-scheduler-simulator",
        "moorage.simulator.traces.kwok:read_kube_scheduler_simulator", "the record file, JSON Lines",
    ),
    "simkube": TraceFormat("an exported trace of SimKube", "moorage.simulator.traces.simkube:read_simkube",
    "*.sktrace, MessagePack"),
    "kwok": TraceFormat("a snapshot or recording of KWOK", "moorage.simulator.traces.kwok:read_kwok", "the snapshot, YAML"),
    "borg-2019": TraceFormat(
        "Google's cluster-usage traces v3", "moorage.simulator.traces.borg_2019:read_borg_2019",
        "instance_events, JSON Lines or CSV",
        "machine_events, JSON Lines or CSV",
    ),
    "azure-2019": TraceFormat(
        "Azure's virtual machines of 2019 (V2)", "moorage.simulator.traces.azure:read_azure_2019", "vmtable.csv"
    ),
    "azure-2020": TraceFormat("Azure's trace for packing", "moorage.simulator.traces.azure:read_azure_2020", "the SQLite file"),
    "alibaba-2018": TraceFormat(
        "Alibaba's cluster trace v2018", "moorage.simulator.traces.alibaba:read_alibaba_2018", "batch_task.csv",
        "machine_meta.csv"
    ),
    "alibaba-2020": TraceFormat(
        "Alibaba's GPU trace v2020 (PAI)", "moorage.simulator.traces.alibaba:read_alibaba_2020", "pai_task_table.csv",
        "pai_machine_spec.csv",
    ),
    "philly": TraceFormat(
        "Microsoft's Philly clusters", "moorage.simulator.traces.philly:read_philly", "cluster_job_log, JSON",
        "cluster_machine_list, CSV"
    ),
    "helios": TraceFormat(
        "SenseTime's Helios clusters", "moorage.simulator.traces.helios:read_helios", "cluster_log.csv",
        "cluster_gpu_number.csv"
    ),
}  # fmt: skip


def read_trace(format_name: str, pods: str | os.PathLike[str], nodes: str | os.PathLike[str] | None = None) -> Trace:
    """Read a trace. ``nodes``: the format's own file, or manifests of nodes (YAML or a folder; JSON where it has no file).

    Raises  InputError for an unknown format and for files of another format
    """
    known = FORMATS.get(format_name)
    if known is None:
        raise InputError(f"{format_name}: no such format of traces; the formats are {', '.join(FORMATS)}")
    path = None if nodes is None else os.fspath(nodes)
    own = path is not None and (not known.nodes or path.lower().endswith(_MANIFESTS) or Path(path).is_dir())
    if known.needs_nodes and (path is None or own):
        where = format_name if path is None else f"{path}: {format_name}"
        raise InputError(f"{where}: needs the file of nodes: {known.nodes}")
    trace = known.read(os.fspath(pods), None if own else path)
    return trace.with_nodes(_manifests(path)) if own and path is not None else trace


def _manifests(path: str) -> tuple[Node, ...]:
    nodes = read([path]).nodes
    if not nodes:
        raise InputError(f"{path}: no node in these manifests")
    return nodes
