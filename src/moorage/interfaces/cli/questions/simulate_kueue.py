"""``moorage simulate --kueue``: Jobs wait in Kueue's queues before the scheduler sees their pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from moorage.errors import InputError
from moorage.report.outcome import InputNote, Run
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_reader import read
from moorage.simulator.kueue.batch_jobs import KINDS, QueuedJobs, admit_jobs, has_queues

__all__ = ["kinds_of_queues", "queued", "with_queues"]


def kinds_of_queues(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the kinds of Kueue to read from the cluster."""
    return () if given["kueue"] == "off" else KINDS


def queued(given: Mapping[str, Any], cluster: ClusterInput) -> QueuedJobs | None:
    """Return the cluster after admission; None without queues.

    Raises  InputError if a file was named and has no ClusterQueue, UsageError for options that exclude each other
    """
    choice = given["kueue"]
    if choice == "off":
        return None
    documents = [one.document for one in cluster.custom if one.resource in KINDS]
    if choice != "auto":
        named = [one.document for one in read((choice,), False, custom=KINDS).custom]
        documents += named
        if not has_queues(named):
            raise InputError(f"{choice}: no ClusterQueue found; expected manifests of Kueue's kinds, v1beta1 or v1beta2")
    if not has_queues(documents):
        return None
    if given["autoscale"] or given["explains"]:
        if choice == "auto":
            return None
        raise click.UsageError("--kueue excludes --autoscale and --explain")
    return admit_jobs(cluster, documents)


def with_queues(run: Run, jobs: QueuedJobs, *, text: bool) -> tuple[Run, str]:
    """Return the run with a note for each workload that waits, or, with ``text``, tables of queues and workloads."""
    if not text:
        return replace(run, notes=(*run.notes, *(InputNote("Kueue", note) for note in jobs.notes()))), ""
    titles = {(key.partition("/")[0], title): key for key, title in jobs.jobs.items()}
    pending = Counter(titles.get((pod.namespace, pod.workload), "") for pod in run.in_state("Pending"))
    return run, jobs.table(pending)
