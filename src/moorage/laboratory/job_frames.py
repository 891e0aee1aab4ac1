"""Tables of the pods and the jobs of a run as frames and files, and a model of what nodes and GPUs draw."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Struct

from moorage.api.core import Node
from moorage.basis.packages import how_to_add
from moorage.errors import InputError
from moorage.laboratory.frames import ColumnFrame, frame_of
from moorage.report.job_tables import JobTableRow, PodPower, PodTableRow, TableSetting, gpus_of, job_rows, pod_rows
from moorage.report.outcome import PodOutcome, Run

_NO_SETTING: Final = TableSetting()


def pods_frame(run: Run, setting: TableSetting = _NO_SETTING) -> ColumnFrame:
    """Return a row for each pod of a run; the columns are the fields of ``PodTableRow``."""
    return _frame(PodTableRow, pod_rows(run, setting))


def jobs_frame(run: Run, setting: TableSetting = _NO_SETTING) -> ColumnFrame:
    """Return a row for each job of a run; the columns are the fields of ``JobTableRow``."""
    return _frame(JobTableRow, job_rows(run, setting))


def _frame(kind: type[Struct], rows: Sequence[Struct]) -> ColumnFrame:
    names = kind.__struct_fields__
    return frame_of(names, [_numbers(getattr(row, name) for name in names) for row in rows])


def _numbers(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return values with NaN for those that are not there, so that columns stay numbers."""
    return tuple([float("nan") if value is None else value for value in values])


def write_frame(frame: ColumnFrame, path: str | os.PathLike[str]) -> None:
    """Write a frame to a file: CSV, or Parquet if the name ends so.

    Raises  InputError for another ending, and for Parquet without pyarrow
    """
    name = os.fspath(path)
    if name.endswith(".csv"):
        frame.to_csv(name)
    elif name.endswith(".parquet"):
        try:
            arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
        except ImportError:
            raise InputError(f"Parquet needs pyarrow: {how_to_add('pyarrow')}, or write a .csv") from None
        parquet.write_table(arrow.table(frame.columns()), name)
    else:
        raise InputError(f"{name}: a table is a .csv or a .parquet file")


# -- power -----------------------------------------------------------------------------------------------------------------

_GPU_LABELS: Final = ("alibabacloud.com/gpu-card-model", "nvidia.com/gpu.product")


@dataclass(frozen=True)
class PowerModel:
    """What pods draw beyond an idle node: so many watts for each core and each GPU that they request.

    ``gpu_w``   by the model of a node's GPUs; ``other_gpu_w``: of models that it does not name
    """

    core_w: float = 0.0
    gpu_w: Mapping[str, float] = field(default_factory=dict)
    other_gpu_w: float = 0.0

    def on(self, nodes: Iterable[Node]) -> PodPower:
        """Return the power of pods on these nodes."""
        of_node = {node.name: self.gpu_w.get(_model(node), self.other_gpu_w) for node in nodes}

        def watts(pod: PodOutcome, node: str) -> float:
            cores = pod.requests.get("cpu", 0) / 1000
            return self.core_w * cores + of_node.get(node, self.other_gpu_w) * gpus_of(pod)

        return watts


def _model(node: Node) -> str:
    return next((node.labels[label] for label in _GPU_LABELS if label in node.labels), "")


def read_power(tree: Any, where: str) -> PowerModel:
    """Return a model from a mapping: ``core`` and ``gpu`` in watts, and ``gpus``, by model.

    Raises  InputError
    """
    known = {"core", "gpu", "gpus"}
    if not isinstance(tree, dict) or not tree or set(tree) - known:
        raise InputError(f"{where}: expected watts by name: core, gpu, and gpus with a number for each model")
    gpus = tree.get("gpus") or {}
    numbers = [("core", tree.get("core", 0)), ("gpu", tree.get("gpu", 0))]
    numbers += list(gpus.items()) if isinstance(gpus, dict) else [("gpus", gpus)]
    for name, value in numbers:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            raise InputError(f"{where}: {name}: expected watts, a number of at least 0, found {value!r}")
    of_models = {str(name): float(watts) for name, watts in gpus.items()}
    return PowerModel(float(tree.get("core", 0)), of_models, float(tree.get("gpu", 0)))
