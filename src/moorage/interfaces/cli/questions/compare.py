"""``moorage compare``: is one configuration, release or cluster better than another?"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple

import click
from msgspec.structs import replace as with_values

from moorage import __version__
from moorage.errors import ConfigError, InputError
from moorage.interfaces.cli.cluster_files import (
    CONFIG_LIMIT,
    STDIN,
    asking,
    read_cluster,
    read_file,
    rules_of,
    simulation_options,
)
from moorage.interfaces.cli.option_tables import described
from moorage.interfaces.cli.questions import gate_options
from moorage.interfaces.cli.questions.compare_autoscalers import (
    autoscaler_kinds,
    compares_autoscalers,
    scaling_answer,
)
from moorage.interfaces.cli.questions.question import (
    Asked,
    budget_of,
    ended_by_interrupt,
    exit_status,
    open_question,
    print_answer,
)
from moorage.interfaces.cli.questions.question_options import executor_of
from moorage.interfaces.cli.questions.run_tables import read_prices
from moorage.interfaces.cli.terminal import Progress
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.compare.moved_pods import new_pending
from moorage.laboratory.comparison import CompareSetting, Comparison, load_side
from moorage.laboratory.comparison import compare as compare_runs
from moorage.report.answer import AnswerRequest
from moorage.report.gate_outputs import GateReport, SourceLine
from moorage.report.stored_runs import StoredReport
from moorage.simulator.job_kinds import KINDS
from moorage.simulator.kueue.batch_jobs import QueuedCluster, queued_cluster, read_queues
from moorage.simulator.simulate import Options, kinds_named, load_options


@described("compare")
def compare(**given: Any) -> int:
    """Run ``moorage compare``."""
    if given["trace"]:
        return _compare_on_trace(given)
    kinds = KINDS if given["a_kueue"] or given["b_kueue"] else ()
    if compares_autoscalers(given):
        with Progress.of(given) as progress, open_question(given, progress, autoscaler_kinds(given)) as asked:
            scaled = scaling_answer(given, asked)
        print_answer(scaled, given, asked)
        return exit_status(scaled)
    with Progress.of(given) as progress, open_question(_reading(given), progress, kinds) as asked, ExitStack() as block:
        baseline = gate_options.read_baseline(given, lambda: str(asked.request({}).digest))
        sides = _sides(given, asked, baseline, block)
        setting = CompareSetting(
            replace_all=given["replace_all"], all_nodes=given["all_nodes"], prices=read_prices(given["prices"]),
            gates=given["gates"], strict=given["strict"], names=sides.names, timing=given["timing"],
            queues=_queues(given, sides),
        )  # fmt: skip
        found = compare_runs(
            sides.cluster, sides.a, sides.b, _seeds(given, asked, baseline), other=sides.other,
            baseline=() if baseline is None else baseline.runs, setting=setting,
            request=_request(given, asked, sides, baseline), executor=executor_of(given, block),
            on_run=lambda done, of: progress.say(f"run {done} of {of} …"), budget=asked.budget,
        )  # fmt: skip
    if given["output"] in gate_options.PIPELINE_OUTPUTS:
        gate_options.print_gate_report(_report(found, given), given["output"])
    else:
        print_answer(found, given, asked)
    return exit_status(found)


def _compare_on_trace(given: Mapping[str, Any]) -> int:
    """Compare two configurations or releases on the pods of a trace."""
    from moorage.simulator.traces.formats import is_function, read_trace

    began_s = time.monotonic()
    if not given["pods"] and not is_function(given["trace"]):
        raise click.UsageError(f"--trace {given['trace']} needs --pods FILE")
    if not any(given[name] for name in ("a_config", "a_release", "b_config", "b_release")):
        raise click.UsageError("nothing to compare with: give --b or --b-release")
    with Progress.of(given) as progress, ExitStack() as block:
        progress.say("reading the trace …")
        trace = read_trace(given["trace"], given["pods"], given["nodes"])
        if not trace.nodes:
            raise click.UsageError(f"--trace {given['trace']} has no nodes in its files: give --nodes FILE")
        trace = trace.with_pods_apart() if given["pods_apart"] else trace
        budget = budget_of(given, len(trace.nodes) + len(trace), began_s)
        block.enter_context(ended_by_interrupt(budget, progress))
        base = simulation_options(given)
        found = compare_runs(
            trace, _options(given, base, given["a_config"], given["a_release"], block),
            _options(given, base, given["b_config"], given["b_release"], block),
            [base.seed + at for at in range(given["seeds"])],
            setting=CompareSetting(
                all_nodes=given["all_nodes"], prices=read_prices(given["prices"]), gates=given["gates"], strict=given["strict"],
                timing=given["timing"],
            ),
            executor=executor_of(given, block), on_run=lambda done, of: progress.say(f"run {done} of {of} …"), budget=budget,
        )  # fmt: skip
    if given["output"] in gate_options.PIPELINE_OUTPUTS:
        gate_options.print_gate_report(_report(found, given), given["output"])
    else:
        print_answer(found, given)
    return exit_status(found)


def _reading(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters for reading the input, with the release of a side whose rules accept the configuration."""
    if given["emulate"] is not None:
        return dict(given)
    sides = [{**given, "emulate": release} for release in (given["b_release"], given["a_release"]) if release is not None]
    return next((one for one in sides if given["config"] in (None, STDIN) or _accepts(one)), dict(given))


def _accepts(given: Mapping[str, Any]) -> bool:
    try:
        load_options(simulation_options(given))
    except ConfigError:
        return False
    return True


# -- the sides -----------------------------------------------------------------------------------------------------------


class _Sides(NamedTuple):
    """The two sides: the cluster of A, the options of both, the cluster of B if it differs, and the names of both."""

    cluster: Cluster
    a: Options
    b: Options
    other: Cluster | None = None
    names: tuple[str, str] = ("", "")


def _sides(given: Mapping[str, Any], asked: Asked, baseline: StoredReport | None, block: ExitStack) -> _Sides:
    base = asked.changed_options
    a = _options(given, base, given["a_config"], given["a_release"], block)
    b = _options(given, base, given["b_config"], given["b_release"], block)
    named = [given[name] for name in ("a_config", "a_release", "b_config", "b_release", "b_paths")]
    if baseline is not None:
        return _Sides(asked.cluster, a, b, names=(f"stored in {baseline.where}", ""))
    files = given["a_kueue"], given["b_kueue"]
    if any(files) and not any(named):
        shown = [file or "the queues of the cluster" for file in files]
        return _Sides(asked.cluster, a, b, names=(shown[0], shown[1]))
    if not any(named):
        if asked.before is None:
            raise click.UsageError(
                "nothing to compare with: give --b, --b-release, --b-kueue, --b-filename, --baseline or a change such as --edit"
            )
        return _Sides(asked.before, asked.options, b, asked.cluster, ("the cluster as it is", "the cluster with the changes"))
    if not given["b_paths"]:
        return _Sides(asked.cluster, a, b)
    kinds = KINDS if any(files) else ()
    other = Cluster(read_cluster(given["b_paths"], given["recursive"], (*kinds_named(b), *kinds), rules_of(given)), b)
    return _Sides(asked.cluster, a, b, other, (", ".join(asked.files) or "the live cluster", ", ".join(given["b_paths"])))


def _options(
    given: Mapping[str, Any], base: Options, config: str | None, release: str | None, block: ExitStack
) -> Options:  # fmt: skip
    """Return the options of one side: those of the command, with the side's own configuration and release."""
    changed = base if given["emulate"] is not None else replace(base, emulate=None)
    if config is not None:
        changed = replace(changed, config=read_file(config, CONFIG_LIMIT), where=config)
    if release is not None:
        changed = replace(changed, emulate=release)
    if (config, release) != (None, None) and given["extenders"] == "ask":
        changed = block.enter_context(asking(changed))
    return changed


# -- how to compare ------------------------------------------------------------------------------------------------------


def _seeds(given: Mapping[str, Any], asked: Asked, baseline: StoredReport | None) -> list[int]:
    if baseline is not None:
        return [run.seed for run in baseline.runs]
    return [asked.options.seed + at for at in range(given["seeds"])]


def _queues(given: Mapping[str, Any], sides: _Sides) -> tuple[QueuedCluster, QueuedCluster] | None:
    """Return both sides with their queues; None without a file of queues.

    Raises  UsageError for what queues exclude, InputError for a side without queues
    """
    files = given["a_kueue"], given["b_kueue"]
    if not any(files):
        return None
    excluded = {"replace_all": "--replace-all", "baseline": "--baseline", "dask": "--dask"}
    named = [shown for name, shown in excluded.items() if given.get(name)] + ["--processes"] * (given["processes"] > 1)
    if named:
        raise click.UsageError(f"--a-kueue and --b-kueue exclude {', '.join(named)}")
    found = []
    for side, file, cluster in zip("AB", files, (sides.cluster, sides.other or sides.cluster), strict=True):
        if not (documents := read_queues(cluster.input(), file)):
            raise InputError(f"{file or f'the cluster of {side}'}: no ClusterQueue found; give --{side.lower()}-kueue FILE")
        found.append(queued_cluster(cluster.input(), documents))
    return found[0], found[1]


def _request(given: Mapping[str, Any], asked: Asked, sides: _Sides, baseline: StoredReport | None) -> AnswerRequest:
    question = {
        "compare": {
            "a": given["a_config"], "b": given["b_config"], "aRelease": given["a_release"], "bRelease": given["b_release"],
            "bFiles": list(given["b_paths"]), "aKueue": given["a_kueue"], "bKueue": given["b_kueue"],
            "replaceAll": given["replace_all"], "allNodes": given["all_nodes"],
            "failOn": list(given["gates"]), "strict": given["strict"], "baseline": given["baseline"],
        }
    }  # fmt: skip
    asked_for = asked.request({name: {k: v for k, v in part.items() if v} for name, part in question.items()})
    seeds = tuple(_seeds(given, asked, baseline))
    notes = tuple(note.text for note in sides.cluster.notes)
    return with_values(asked_for, release=load_side("B", sides.b).release, seeds=seeds, notes=notes)


def _report(found: Comparison, given: Mapping[str, Any]) -> GateReport:
    lines = gate_options.ManifestLines(given["paths"], given["recursive"])
    pending = found.runs[1][0].pending
    config = given["b_config"] or given["config"]
    return GateReport(
        command="compare",
        summary=found.summary,
        gates=found.gates,
        pending=gate_options.pending_findings(pending, new_pending(found.runs[0][0].pending, pending), lines),
        where=lines.first() if config is None else SourceLine(config),
        details=found.text(wide=True),
        version=__version__,
    )
