"""``moorage simulate --kueue``: jobs wait in Kueue's queues before the scheduler sees their pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import click

from moorage.errors import InputError
from moorage.interfaces.cli.questions.gate_options import SimulationGates
from moorage.report.outcome import InputNote, Run
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.job_kinds import KINDS
from moorage.simulator.kueue.batch_jobs import QueuedCluster, queued_cluster, read_queues
from moorage.simulator.kueue.integrations import works_of_trace
from moorage.simulator.pod_records import SimulatedAttempt
from moorage.simulator.simulate import Options
from moorage.simulator.trace import Trace

#: Options that a file of queues excludes.
_EXCLUDED: Final = {
    "autoscale": "--autoscale", "explains": "--explain (moorage explain workload/NAME says why a job waits)",
    "live": "--live", "edits": "--edit", "cordoned": "--cordon", "removed": "--remove", "added": "--add-node",
    "scaled": "--scale", "replacements": "--replace",
}  # fmt: skip


def kinds_of_queues(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the kinds to read from the cluster because of Kueue.

    Raises  UsageError for a file of queues together with what excludes it
    """
    for name, shown in _EXCLUDED.items() if given["kueue"] not in {"auto", "off"} else ():
        if given.get(name):
            raise click.UsageError(f"--kueue FILE excludes {shown}; change the files, and simulate them again")
    return () if given["kueue"] == "off" else KINDS


def queued(given: Mapping[str, Any], cluster: ClusterInput, trace: Trace | None = None) -> QueuedCluster | None:
    """Return the cluster with its queues; None without queues. The pods of a trace are works, too.

    Raises  InputError if a file was named and has no ClusterQueue
    """
    choice = given["kueue"]
    named = choice not in {"auto", "off"}
    if named and not read_queues(ClusterInput(), choice):
        raise InputError(f"{choice}: no ClusterQueue found; expected manifests of Kueue's kinds, v1beta1 or v1beta2")
    documents = read_queues(cluster, choice if named else None)
    if choice == "off" or not documents or given["autoscale"] or given["explains"]:
        return None
    more = None if trace is None else (lambda objects: works_of_trace(trace, objects, documents, seed=given["seed"]))
    return queued_cluster(cluster, documents, more)


def run_queued(
    jobs: QueuedCluster, options: Options, on_attempt: Callable[[SimulatedAttempt], None] | None,
    measure: SimulationGates | None, *, text: bool,
) -> Run:  # fmt: skip
    """Simulate a cluster with queues. The run has a report on them; without ``text`` also a note for each job that waits."""
    if measure is not None:
        run = measure.run(jobs.cluster, options, on_attempt, queues=jobs)
    else:
        _, run = jobs.run(options, on_attempt)
    report = jobs.report(run.ended_s)
    notes = () if text else tuple(InputNote("Kueue", note) for note in report.notes())
    return replace(run, queues=report, notes=(*run.notes, *notes))
