"""Gates on the command line: ``--fail-on``, ``--strict``, ``--baseline`` and ``--across``, and the formats for pipelines."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from moorage import __version__
from moorage.api.core import Object
from moorage.basis.inputs.files import open_sources
from moorage.basis.inputs.object_lines import FileLine, ObjectKey, find_positions, line_of_field
from moorage.basis.inputs.simulated_kinds import KINDS
from moorage.basis.printable import counted
from moorage.errors import InputError
from moorage.interfaces.cli.cluster_files import STDIN, read_file
from moorage.laboratory.compare.changed_fields import changed_fields, field_at_fault
from moorage.laboratory.compare.input_digest import input_digest
from moorage.laboratory.compare.moved_pods import NodePlaces, moved_metrics, new_pending, new_pending_metric
from moorage.laboratory.compare.paired_metrics import compare_pairs, paired_metrics
from moorage.laboratory.compare.run_metrics import MeasureSetting, RunMeter
from moorage.laboratory.compare.typical_mix import typical_mix
from moorage.report import gate_outputs
from moorage.report.gates import MetricComparison, evaluate_all, parse_gate
from moorage.report.outcome import Run
from moorage.report.run_values import MeasuredRun, RunMeasures, UnplacedPod
from moorage.report.stored_runs import StoredReport, read_stored
from moorage.report.tables import headline
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_run import simulate_cluster
from moorage.simulator.kueue.batch_jobs import QueuedCluster
from moorage.simulator.pod_records import SimulatedAttempt
from moorage.simulator.simulate import Options, prepare
from moorage.simulator.simulation import SimulatedCluster
from moorage.simulator.trace import Trace, simulate_trace

#: The output formats for CI pipelines.
PIPELINE_OUTPUTS: Final = ("junit", "sarif", "github")
_BASELINE_LIMIT: Final = 1 << 30


def read_baseline(given: Mapping[str, Any], digest: Callable[[], str]) -> StoredReport | None:
    """Return the stored report of --baseline, None without it. ``digest`` computes the digest of the current input.

    Raises  InputError for a report of another input, unless ``--across`` is given
    """
    path = given["baseline"]
    if path is None:
        return None
    stored = read_stored(read_file(path, _BASELINE_LIMIT), path)
    if not given["across"] and stored.digest != digest():
        what = "was made from another input" if stored.digest else "does not say which input it was made from"
        raise InputError(f"{path}: the baseline {what}; give --across to compare with it anyway")
    return stored


# -- where things are ----------------------------------------------------------------------------------------------------


class ManifestLines:
    """The file and line of each object in the input files. Standard input and live clusters have none.

    ``change``  the cluster before and after the files, for the lines of the fields that they change
    """

    def __init__(self, paths: Sequence[str], recursive: bool, change: tuple[ClusterInput, ClusterInput] | None = None) -> None:
        files = [path for path in paths if path != STDIN]
        self._sources = list(open_sources(files, recursive=recursive))
        self._found: Mapping[ObjectKey, FileLine] = find_positions(self._sources)
        self._change = change

    def of_pod(self, pod: UnplacedPod) -> gate_outputs.SourceLine | None:
        """Return the place of a pod's manifest or, without one, of its workload's; None if neither is in a file.

        With a change, it is the line of the changed field that keeps the pod pending.
        """
        namespace, _, name = pod.pod.partition("/")
        kind, _, owner = pod.workload.partition("/")
        for key in (ObjectKey("Pod", namespace, name), ObjectKey(kind, namespace, owner)):
            found = self._found.get(key)
            if found is not None:
                return gate_outputs.SourceLine(found.file, self._line_of_change(key, found.file, pod.plugins) or found.line)
        return None

    def _line_of_change(self, key: ObjectKey, file: str, plugins: Sequence[str]) -> int | None:
        if self._change is None:
            return None
        before, after = (_object(one, key) for one in self._change)
        path = () if after is None else field_at_fault(changed_fields(before, after), plugins)
        source = next(one for one in self._sources if one.where == file)
        return line_of_field(source, key, path) if path else None

    def first(self) -> gate_outputs.SourceLine | None:
        """Return the file and line of the first object."""
        return next((gate_outputs.SourceLine(one.file, one.line) for one in self._found.values()), None)


def _object(given: ClusterInput, key: ObjectKey) -> Object | None:
    """Return an object of a built-in kind; None if it is not there."""
    slots = (kind.slot for kind in KINDS if kind.name == key.kind)
    objects: Iterable[Object] = (one for slot in slots for one in getattr(given, slot, ()))
    return next((one for one in objects if (one.metadata.namespace, one.name) == (key.namespace, key.name)), None)


def pending_findings(
    pending: Iterable[UnplacedPod], new: Iterable[UnplacedPod], lines: ManifestLines, *, compared: bool = True
) -> tuple[gate_outputs.PendingFinding, ...]:
    """Return the pending pods with the lines of their manifests, new ones first; those of a workload with one reason together.

    ``compared``: there is an earlier run.
    """
    names = {one.pod for one in new}
    groups: dict[tuple[str, ...], list[UnplacedPod]] = {}
    for one in pending:
        owner = (one.pod.partition("/")[0], one.workload) if one.workload else (one.pod,)
        groups.setdefault((*owner, one.message, str(one.pod in names)), []).append(one)
    found = [
        gate_outputs.PendingFinding(held[0], lines.of_pod(held[0]), held[0].pod in names, compared, len(held))
        for held in groups.values()
    ]
    return tuple(sorted(found, key=lambda one: not one.is_new))


# -- what pipelines read -------------------------------------------------------------------------------------------------


def print_gate_report(report: gate_outputs.GateReport, output: str) -> None:
    """Print a report as JUnit, SARIF or workflow commands; the latter also append to GitHub's step summary."""
    formats = {"junit": gate_outputs.as_junit, "sarif": gate_outputs.as_sarif, "github": gate_outputs.as_github}
    sys.stdout.write(formats[output](report))
    if output == "github":
        text = gate_outputs.github_summary(report)
        path = os.environ.get("GITHUB_STEP_SUMMARY")
        if not path:
            return
        with open(path, "ab") as file:
            if file.tell() + len(text.encode()) < gate_outputs.MOST_SUMMARY_BYTES:
                file.write(text.encode())


_OnAttempt = Callable[[SimulatedAttempt], None]


class SimulationGates:
    """Runs simulations and measures them: the requested one, then, if the input is changed, the one before the changes."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        self._gates = [parse_gate(text) for text in given["gates"]]
        self._measured: list[MeasuredRun] = []
        self._digest = ""
        self._known: frozenset[str] = frozenset()
        self._places = NodePlaces({}, {})

    def run(
        self, cluster: ClusterInput, options: Options, on_attempt: _OnAttempt | None = None, queues: QueuedCluster | None = None
    ) -> Run:
        """Simulate a cluster; ``queues``: those that its jobs wait in."""
        meter = RunMeter()
        prepared = simulation, _ = prepare(options, on_attempt)
        simulation.on_result = meter.count
        if queues is not None:
            queues.attach(simulation)
        whole, run = simulate_cluster(cluster, options, prepared=prepared, titles=None if queues is None else queues.titles)
        setting = MeasureSetting(tuple(typical_mix(whole.pods)), not_created=run.not_created)
        self._keep(meter.measured(simulation, run, setting), simulation)
        self._digest, self._known = input_digest(cluster), _known_to_be_pending(cluster)
        return run

    def run_trace(self, trace: Trace, options: Options, *, stay: bool, on_attempt: _OnAttempt | None = None) -> Run:
        """Simulate a trace."""
        meter, ended = RunMeter(), list[SimulatedCluster]()
        run = simulate_trace(
            trace, options, stay=stay, on_attempt=on_attempt, on_result=meter.count, on_end=ended.append,
            on_repeats=meter.repeat if on_attempt is None else None,
        )  # fmt: skip
        setting = MeasureSetting(tuple(typical_mix(arrival.pod for arrival in trace.arrivals)))
        self._keep(meter.measured(ended[0], run, setting), ended[0])
        return run

    def _keep(self, measured: MeasuredRun, simulation: SimulatedCluster) -> None:
        self._measured.append(measured)
        places = NodePlaces.of(simulation.scheduler.cluster.table.nodes)
        self._places = NodePlaces({**self._places.groups, **places.groups}, {**self._places.zones, **places.zones})

    # -- gates -----------------------------------------------------------------------------------------------------------

    def judged(self, run: Run) -> Run:
        """Return the run with its measures and gates. It is compared with the stored run or else the run without the changes.

        Raises  InputError for a gate that cannot be evaluated, and for a baseline of another input
        """
        stored = read_baseline(self._given, lambda: self._digest)
        now, *others = self._measured
        before = others[0] if others else None
        if stored is not None and (before := next((run for run in stored.runs if run.seed == now.seed), None)) is None:
            seeds = ", ".join(str(run.seed) for run in stored.runs)
            raise InputError(f"{stored.where}: the baseline has no run with seed {now.seed}; give --seed with one of {seeds}")
        metrics = self._compared(before, now)
        gates = evaluate_all(self._gates, metrics, strict=self._given["strict"])
        new = self._new(now) if before is None else tuple(new_pending(before.pending, now.pending))
        against = "" if before is None else stored.where if stored is not None else "the run without the changes"
        return replace(run, measures=RunMeasures(self._digest, now, gates, new, against))

    def _compared(self, before: MeasuredRun | None, now: MeasuredRun) -> dict[str, MetricComparison]:
        of_a = () if before is None else (before,)
        metrics = paired_metrics(of_a, (now,))
        if before is None:
            metrics["newPending"] = compare_pairs("newPending", (0.0,), (float(len(self._new(now))),))
            return {**metrics, **{name: MetricComparison(name, 0.0) for name in ("moved", "moved%")}}
        metrics["newPending"] = new_pending_metric(of_a, (now,))
        if before.placements is not None and now.placements is not None:
            metrics |= moved_metrics([(before.placements, now.placements)], (), self._places)[1]
        return metrics

    def _new(self, now: MeasuredRun) -> tuple[UnplacedPod, ...]:
        """Return the pending pods that are not already marked as unschedulable in the input."""
        return tuple(one for one in now.pending if one.pod not in self._known)

    # -- output ----------------------------------------------------------------------------------------------------------

    def print_report(self, run: Run, details: str) -> None:
        """Print the report for CI pipelines."""
        assert run.measures is not None
        found = run.measures
        lines = ManifestLines(self._given["paths"], self._given["recursive"])
        config = self._given["config"]
        failed = sum(not gate.passed for gate in found.gates)
        report = gate_outputs.GateReport(
            command="simulate",
            summary=(f"{counted(failed, 'gate')} failed. " if failed else "") + headline(run),
            gates=found.gates,
            pending=pending_findings(found.run.pending, found.new_pending, lines, compared=bool(found.against)),
            where=lines.first() if config is None else gate_outputs.SourceLine(config),
            details=details,
            version=__version__,
        )
        print_gate_report(report, self._given["output"])


def _known_to_be_pending(cluster: ClusterInput) -> frozenset[str]:
    """Return the keys of the pods whose condition PodScheduled says that the cluster's scheduler could not place them."""
    found, waiting = ("PodScheduled", "False", "Unschedulable"), (pod for pod in cluster.pods if not pod.spec.node_name)
    there = ((pod.key, one) for pod in waiting for one in pod.status.conditions)
    return frozenset(key for key, one in there if (one.type, one.status, one.reason) == found)
