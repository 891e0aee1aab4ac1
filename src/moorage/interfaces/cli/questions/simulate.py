"""``moorage simulate``: read a cluster and report where every pending pod is scheduled, and why."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import click

from moorage.api.core import Node
from moorage.api.gc_pause import frozen_after_pauses
from moorage.basis.recording.log_reader import ClusterLog, is_log, parse_moment
from moorage.core.cycle.decision import Decision
from moorage.interfaces.cli import cluster_files
from moorage.interfaces.cli.given_back_memory import collect_seldom, leave_memory_at_exit
from moorage.interfaces.cli.main import OK, PENDING
from moorage.interfaces.cli.option_tables import (
    described,
)
from moorage.interfaces.cli.questions.gate_options import PIPELINE_OUTPUTS
from moorage.interfaces.cli.questions.question_options import (
    narrowing_of,
    refuse_unmatched,
)
from moorage.interfaces.cli.questions.simulate_kueue import kinds_of_queues, queued, run_queued
from moorage.interfaces.cli.terminal import Progress, output_style, print_styled
from moorage.report.comparison import gates_text
from moorage.report.exports import as_open_metrics, as_trace
from moorage.report.narrowing import Narrowing
from moorage.report.node_scores import ScoreLog
from moorage.report.obstacles import EventLog
from moorage.report.outcome import Run
from moorage.report.run_document import as_yaml, json_pieces
from moorage.report.tables import render
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_run import simulate_cluster
from moorage.simulator.simulate import Options, kinds_named
from moorage.simulator.simulation import SimulatedAttempt

if TYPE_CHECKING:
    from moorage.interfaces.cli.questions.gate_options import SimulationGates
    from moorage.laboratory.recording.replay import LogEvents
    from moorage.report.explanation import Explanation
    from moorage.simulator.trace import Trace


@described("simulate")
def simulate(**given: Any) -> int:
    """Run ``moorage simulate``."""
    collect_seldom()
    took = _PluginTimes() if given["timing"] else None
    events = EventLog() if given["events"] else None
    narrowing = narrowing_of(given)
    measure = None if given["autoscale"] else _measure(given)
    is_live = events is not None and given["output"] in {"table", "wide"}  # events would be printed across the progress
    with Progress(quiet=given["quiet"] or is_live) as progress:
        progress.say("reading the input …")
        options = _options(given, took)
        extenders = cluster_files.asking(options) if given["extenders"] == "ask" else nullcontext(options)
        with extenders as options, nullcontext() if _asks_what_if(given) else frozen_after_pauses():
            counted = options
            if progress.is_watched:
                counted = replace(options, on_decision=partial(_count, progress), on_repeats=_pass_over)
            whole = _run(given, counted, progress, _on_attempt(events, narrowing, given["output"], progress.answers), measure)
    if took is not None:
        click.echo(took.table(), err=True)
    run = whole.run if measure is None else measure.judged(whole.run)
    if given["jobs_table"] or given["pods_table"]:
        from moorage.interfaces.cli.questions.run_tables import write_tables  # the laboratory is rarely needed here

        write_tables(given, run, whole.nodes)
    refuse_unmatched(narrowing, run)
    if measure is not None and given["output"] in PIPELINE_OUTPUTS:
        measure.print_report(run, render(run, wide=True))
    else:
        _print(run, given["output"], narrowing, events, options.scores)
        if whole.scaled and given["output"] in {"table", "wide"}:
            sys.stdout.write("\n" + whole.scaled)
    if whole.explanations is not None:
        from moorage.interfaces.cli.questions.explain import print_explanations

        sys.stdout.write("\n")
        print_explanations(whole.explanations, "wide" if given["output"] == "wide" else "text")
    if run.measures is not None and run.measures.gates:
        return OK if all(gate.passed for gate in run.measures.gates) else PENDING
    return PENDING if run.in_state("Pending") or run.refused or whole.waits else OK


def _measure(given: dict[str, Any]) -> SimulationGates | None:
    """Return the measurements of the run; None if the options need only the outcome of each pod."""
    wanted = given["output"] in {"json", "yaml", *PIPELINE_OUTPUTS}
    if not wanted and not any(given[name] for name in ("gates", "strict", "baseline", "across")):
        return None
    from moorage.interfaces.cli.questions.gate_options import SimulationGates  # the laboratory is rarely needed here

    return SimulationGates(given)


def _options(given: dict[str, Any], took: _PluginTimes | None) -> Options:
    return replace(
        cluster_files.simulation_options(given),
        scores=ScoreLog(given["scored"]) if given["scored"] else None,
        clock=None if took is None else time.perf_counter,
        timer=took,
    )


class _Simulated(NamedTuple):
    """A run; with --explain an explanation of each pending pod, and tables of the autoscaler's actions or of queues.

    ``waits``  whether a workload waits for quota
    ``nodes``  the nodes of the input
    """

    run: Run
    explanations: list[Explanation] | None = None
    scaled: str = ""
    waits: bool = False
    nodes: tuple[Node, ...] = ()


_OnAttempt = Callable[[SimulatedAttempt], None] | None


def _simulated(
    given: dict[str, Any], cluster: ClusterInput, options: Options, on_attempt: _OnAttempt, measure: SimulationGates | None
) -> _Simulated:
    if not given["explains"]:
        return _Simulated(_run_cluster(cluster, options, on_attempt, measure))
    from moorage.laboratory.explain.explain_run import simulate_and_explain

    if measure is None:
        return _Simulated(*simulate_and_explain(cluster, options, on_attempt=on_attempt))
    return _Simulated(measure.run(cluster, options, on_attempt), simulate_and_explain(cluster, options)[1])


def _run_cluster(
    cluster: ClusterInput, options: Options, on_attempt: _OnAttempt, measure: SimulationGates | None
) -> Run:  # fmt: skip
    if measure is not None:
        return measure.run(cluster, options, on_attempt)
    return simulate_cluster(cluster, options, on_attempt=on_attempt)[1]


def _run(
    given: dict[str, Any], options: Options, progress: Progress, on_attempt: _OnAttempt, measure: SimulationGates | None
) -> _Simulated:  # fmt: skip
    if given["since"] is not None:
        if sum(map(is_log, given["paths"])) != 1:
            raise click.UsageError("--from needs one log of moorage record: -f LOG")
        given["moment"] = given["since"]
    if _asks_what_if(given):
        kinds_of_queues(given)
        return _run_changed(given, options, progress, on_attempt, measure)
    if given["trace"] is None:
        kinds = (*kinds_named(options), *kinds_of_queues(given))
        if given["autoscale"]:
            from moorage.interfaces.cli.questions.simulate_autoscaled import kinds_of  # rarely needed

            kinds += kinds_of(given["autoscale"])
        cluster = cluster_files.read_cluster(
            cluster_files.paths_of(given), given["recursive"], kinds, cluster_files.rules_of(given), progress
        )
        if not given["allow_unknown"]:
            cluster_files.refuse_nothing_to_place(cluster)
        leave_memory_at_exit()
        if given["since"] is not None:
            return _replayed(given, cluster, cluster_files.emulating(options, given, cluster), on_attempt)
        if given["autoscale"]:
            return _autoscaled(given, cluster, cluster_files.emulating(options, given, cluster), on_attempt)
        text = given["output"] in {"table", "wide"}
        if (jobs := queued(given, cluster)) is not None:
            return _queued(run_queued(jobs, cluster_files.emulating(options, given, cluster), on_attempt, measure, text=text))
        found = _simulated(given, cluster, cluster_files.emulating(options, given, cluster), on_attempt, measure)
        return found._replace(nodes=cluster.nodes)
    return _run_trace(given, options, on_attempt, measure)


def _queued(run: Run) -> _Simulated:
    """Return a run with queues; text has tables instead of a note for each workload that waits."""
    assert run.queues is not None
    return _Simulated(run, scaled=run.queues.text(), waits=bool(run.queues.waiting()))


def _replayed(given: dict[str, Any], cluster: ClusterInput, options: Options, on_attempt: _OnAttempt) -> _Simulated:
    """Replay a part of a log."""
    from moorage.laboratory.recording.replay import LogEvents, replay

    log = ClusterLog(next(path for path in given["paths"] if is_log(path)))
    start, end = (parse_moment(given[name] or "", *log.span()) for name in ("since", "until_moment"))
    recorded = any(kind.endswith(".kueue.x-k8s.io") for kind, _ in log.state_at(start).objects)
    if not recorded and queued(given, cluster) is not None:  # pods come as the queues of the recorded cluster let them
        raise click.UsageError(
            "queues of Kueue beside a log take no part in a replay: pods come when they came in the log; "
            "replay without them: --kueue off"
        )
    if given["autoscale"]:
        return _autoscaled(given, cluster, options, on_attempt, LogEvents(log, start, end, cluster, options))
    return _Simulated(replay(log, start, end, cluster, options, on_attempt))


def _run_trace(
    given: dict[str, Any], options: Options, on_attempt: _OnAttempt, measure: SimulationGates | None
) -> _Simulated:  # fmt: skip
    from moorage.simulator.trace import simulate_trace, with_gangs
    from moorage.simulator.traces.formats import is_function, read_trace

    if not given["pods"] and not is_function(given["trace"]):
        raise click.UsageError(f"--trace {given['trace']} needs --pods FILE")
    trace = read_trace(given["trace"], given["pods"], given["nodes"])
    if given["pods_apart"]:
        trace = trace.with_pods_apart()
    if not trace.nodes:
        raise click.UsageError(f"--trace {given['trace']} has no nodes in its files: give --nodes FILE")
    lasting = trace.with_lifetimes(None) if given["stay"] else trace
    if given["autoscale"]:
        lasting, options, about = with_gangs(lasting, options)
        return _autoscaled(given, replace(lasting, notes=(*about, *lasting.notes)), options, on_attempt)
    kinds_of_queues(given)
    text = given["output"] in {"table", "wide"}
    if (jobs := queued(given, ClusterInput(nodes=trace.nodes), lasting)) is not None:
        return _queued(run_queued(jobs, options, on_attempt, measure, text=text))
    simulated = simulate_trace if measure is None else measure.run_trace
    return _Simulated(simulated(trace, options, stay=given["stay"], on_attempt=on_attempt), nodes=trace.nodes)


def _autoscaled(
    given: dict[str, Any], read: ClusterInput | Trace, options: Options, on_attempt: _OnAttempt, events: LogEvents | None = None
) -> _Simulated:  # fmt: skip
    from moorage.interfaces.cli.questions.simulate_autoscaled import (
        AutoscalerOptions,
        simulate_autoscaled,  # imports the laboratory, which is rarely needed here
    )

    asked = AutoscalerOptions(
        given["autoscale"], given["expander"], given["expander_priorities"], given["instance_types"],
        given["spot_interruptions"], given["provision_seconds"], given["record"], given["karpenter_gates"],
        given["node_templates"],
    )  # fmt: skip
    text = given["output"] in {"table", "wide"}
    run, scaled = simulate_autoscaled(read, options, asked, given["until"], on_attempt, events, text=text)
    return _Simulated(run, scaled=scaled)


#: Options that read a live cluster or change the input.
_WHAT_IF = ("live", "context", "kubeconfig", "edits", "cordoned", "removed", "added", "scaled", "replacements")


def _asks_what_if(given: dict[str, Any]) -> bool:
    return any(given[name] for name in _WHAT_IF)


def _run_changed(
    given: dict[str, Any], options: Options, progress: Progress, on_attempt: _OnAttempt, measure: SimulationGates | None
) -> _Simulated:  # fmt: skip
    """Simulate a live or changed cluster. A changed cluster is also simulated without the changes."""
    from moorage.interfaces.cli.questions.question import asked_of  # imports the laboratory, which is rarely needed here

    asked = asked_of(given, options, progress)
    whole = _simulated(given, asked.changed_input, asked.changed_options, on_attempt, measure)
    if not asked.what_if:
        return whole
    quiet = replace(asked.options, scores=None, clock=None, timer=None)
    before = _run_cluster(asked.given, quiet, None, measure)
    return whole._replace(run=replace(whole.run, changes=asked.what_if.texts(), before=before))


def _count(progress: Progress, decision: Decision) -> None:
    progress.count(placed=decision.node is not None)


def _pass_over(count: int) -> None:
    """Show nothing of pods that fail as before."""


def _on_attempt(events: EventLog | None, narrowing: Narrowing, output: str, answers: TextIO) -> _OnAttempt:
    if events is None:
        return None
    prints = output in {"table", "wide"}

    def note(attempt: SimulatedAttempt) -> None:
        decision, pod = attempt.decision, attempt.decision.pod
        if narrowing.keeps(pod.namespace, pod.name, pod.labels):
            line = events.note(attempt.time_s, attempt.number, decision)
            if prints:
                answers.write(line + "\n")

    return note


def _print(run: Run, output: str, narrowing: Narrowing, events: EventLog | None, scores: ScoreLog | None) -> None:
    if output in {"table", "wide"}:
        print_styled("\n" if events is not None else "")
        print_styled(render(run, wide=output == "wide", style=output_style(), narrowing=narrowing))
        if run.measures is not None and run.measures.gates:
            sys.stdout.write("\n" + gates_text(run.measures))
        if scores is not None:
            sys.stdout.write("\n" + scores.as_text())
    elif output == "trace":
        sys.stdout.write(as_trace(run))
    elif output == "openmetrics":
        sys.stdout.write(as_open_metrics(run))
    elif output == "json":
        sys.stdout.writelines(json_pieces(run, events, scores, listed=narrowing.narrowed(run)))
    else:
        sys.stdout.write(as_yaml(run, events, scores, listed=narrowing.narrowed(run)))


class _PluginTimes:
    """Adds up the time that each plugin takes at each extension point."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], list[float]] = {}

    def __call__(self, point: str, plugin: str, seconds: float) -> None:
        entry = self._calls.setdefault((point, plugin), [0, 0.0])
        entry[0] += 1
        entry[1] += seconds

    def table(self) -> str:
        from moorage.report.style import columns

        rows = [
            [point, plugin, str(int(count)), f"{1000 * total:.1f}ms", f"{1e6 * total / count:.1f}µs"]
            for (point, plugin), (count, total) in sorted(self._calls.items(), key=lambda item: -item[1][1])
        ]
        return columns(["POINT", "PLUGIN", "CALLS", "TOTAL", "EACH"], rows, right=(2, 3, 4))
