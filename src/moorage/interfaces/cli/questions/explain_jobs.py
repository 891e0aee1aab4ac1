"""``moorage explain workload/NAME``: why a job waits in Kueue's queues, and what would start it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from moorage.errors import InputError
from moorage.interfaces.cli.questions.question import Asked
from moorage.laboratory.explain.explain_workload import explain_workload, names_work
from moorage.report.workload_explanation import WorkloadExplanation
from moorage.simulator.kueue.batch_jobs import KINDS, has_queues, queued_cluster, read_queues
from moorage.simulator.kueue.integrations import PLACES

__all__ = ["explain_jobs", "kinds_of_jobs"]

_WORKLOADS: Final = frozenset({"workload", "wl"})
#: Kinds of which queues admit objects as a whole, in lower case and singular.
_JOBS: Final = frozenset({*_WORKLOADS, "job", "podgroup", *(name.partition(".")[0].removesuffix("s") for name in PLACES)})


def kinds_of_jobs(names: Iterable[str]) -> tuple[str, ...]:
    """Return the kinds to read because of the names of jobs; none if another object is named."""
    kinds = {name.partition("/")[0].lower() for name in names}
    return KINDS if kinds and kinds <= _JOBS else ()


def explain_jobs(given: Mapping[str, Any], asked: Asked) -> list[WorkloadExplanation] | None:
    """Return the explanations of the named jobs; None if no queue admits them, so that their pods are to be explained.

    Raises  InputError for a workload that is not there
    """
    cluster, names = asked.changed_input, given["pods"]
    documents = read_queues(cluster, None)
    if not has_queues(documents):
        if _WORKLOADS.isdisjoint(name.partition("/")[0].lower() for name in names):
            return None
        raise InputError("the input has no ClusterQueue of Kueue; add its manifests with -f")
    queued = queued_cluster(cluster, documents)
    numbers = [names_work(queued, name, given["namespace"]) for name in names]
    if missing := [name for name, number in zip(names, numbers, strict=True) if number is None]:
        if any(number is not None for number in numbers) or missing[0].partition("/")[0].lower() in _WORKLOADS:
            raise InputError(f"{missing[0]}: no queue has or had a job of this name; moorage simulate lists them")
        return None
    if given["output"] == "html":
        raise click.UsageError("workloads are explained as text, JSON or YAML")
    request = asked.request({"workloads": list(names)})
    return [
        explain_workload(
            queued, number, asked.changed_options, request, probes=min(given["probes"], 200),
            alternatives=given["alternatives"] + 2, budget=asked.budget,
        )
        for number in numbers
        if number is not None
    ]  # fmt: skip
