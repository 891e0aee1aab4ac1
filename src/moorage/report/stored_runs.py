"""Runs read back from stored reports, to compare with: of ``moorage simulate -o json`` or ``moorage compare -o json``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from moorage.api.reading.manifests import read_documents
from moorage.errors import InputError
from moorage.report.run_document import API_VERSION
from moorage.report.run_values import MeasuredRun, UnplacedPod

_PLACED: Final = frozenset({"Placed", "Finished"})


class StoredReport(Struct, frozen=True):
    """The contents of a stored report: the digest of its input ("" if it has none), and its runs by seed.

    For a comparison, these are the runs of B.
    """

    where: str
    digest: str
    runs: tuple[MeasuredRun, ...]


def read_stored(data: bytes, where: str) -> StoredReport:
    """Read a report in JSON or YAML.

    Raises  InputError for a document that is no report of a simulation or a comparison
    """
    documents = [one.data for one in read_documents(data, where)]
    report = documents[0] if len(documents) == 1 else None
    if not isinstance(report, dict) or report.get("apiVersion") != API_VERSION:
        raise InputError(f"{where}: expected a report of moorage simulate -o json or moorage compare -o json")
    kind = report.get("kind")
    try:
        if kind == "SimulationReport":
            runs: tuple[MeasuredRun, ...] = (_simulation(report),)
        elif kind == "Comparison":
            runs = tuple(_run(one) for one in report["answer"]["runs"]["b"])
        else:
            raise InputError(f"{where}: a baseline is a SimulationReport or a Comparison, not {kind}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{where}: this {kind} is not complete: {type(error).__name__} {error}") from None
    if not runs:
        raise InputError(f"{where}: this {kind} has no runs")
    return StoredReport(where, str((report.get("input") or {}).get("digest", "")), runs)


def _run(one: Mapping[str, Any]) -> MeasuredRun:
    return MeasuredRun(
        seed=int(one["seed"]),
        release=str(one["release"]),
        metrics=_metrics(one["metrics"]),
        pending=tuple(
            UnplacedPod(str(pod["pod"]), str(pod.get("workload", "")), str(pod.get("message", ""))) for pod in one["pending"]
        ),
        placements={str(pod): str(node) for pod, node in one["placements"].items()} if "placements" in one else None,
    )


def _metrics(found: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): math.inf if value is None else float(value) for name, value in found.items()}


def _simulation(report: Mapping[str, Any]) -> MeasuredRun:
    pods = report["pods"]
    pending = [pod for pod in pods if pod["state"] == "Pending"]
    return MeasuredRun(
        seed=int(report["seed"]),
        release=str(report["release"]),
        metrics={"pending": float(len(pending)), **_metrics(report.get("metrics") or {})},
        pending=tuple(
            UnplacedPod(_key(pod), str(pod.get("workload", "")), str(pod.get("message", ""))) for pod in pending
        ),
        placements={_key(pod): str(pod.get("node", "")) if pod["state"] in _PLACED else "" for pod in pods},
    )  # fmt: skip


def _key(pod: Mapping[str, Any]) -> str:
    return f"{pod['namespace']}/{pod['name']}"
