"""``moorage sweep``: simulate every point of a grid, keep the results, and summarise them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from moorage.errors import InputError
from moorage.interfaces.cli.cluster_files import simulation_options
from moorage.interfaces.cli.given_back_memory import collect_seldom
from moorage.interfaces.cli.main import ERROR, INTERRUPTED, OK, UNDECIDED
from moorage.interfaces.cli.option_tables import described
from moorage.interfaces.cli.questions.question import budget_of, ended_by_interrupt, open_question, print_document
from moorage.interfaces.cli.terminal import Progress, output_style, print_styled, say
from moorage.laboratory.job_frames import write_frame
from moorage.laboratory.sweeps.cluster_grid import read_grid
from moorage.laboratory.sweeps.jobs import dask_executor
from moorage.laboratory.sweeps.results import SweepResult, baseline_of, sweep_document, sweep_text
from moorage.laboratory.sweeps.store import open_store
from moorage.laboratory.sweeps.sweep import SweepPlan, run_sweep
from moorage.report.style import lines_of

#: About how many bytes of a cluster's file are one node or pod.
_BYTES = 6_000


@described("sweep")
def sweep(**given: Any) -> int:
    """Run ``moorage sweep``."""
    collect_seldom()
    began_s = time.monotonic()
    with Progress.of(given) as progress, ExitStack() as block:
        defaults = _defaults(given, progress, block)
        if given["plot_directory"] is not None:
            _check_plots()
        progress.say("reading the grid …")
        found = read_grid(given["grid"], defaults)
        limit = given["time_limit"]  # a sweep is no question that someone waits for: it ends when its runs are made
        budget = budget_of({**given, "time_limit": 0 if limit is None else limit}, found.size // _BYTES, began_s)
        block.enter_context(ended_by_interrupt(budget, progress))
        against = given["against"] or found.against
        baseline_of(found.grid, against)
        plan = SweepPlan(found.grid, found.function, given["metrics"] or found.metrics, against)
        executor = block.enter_context(dask_executor(given["dask"])) if given["dask"] else None
        result = run_sweep(
            plan, open_store(given["store"]), executor, processes=given["processes"], retries=given["retries"],
            on_run=_counter(progress), budget=budget,
        )  # fmt: skip
    if given["csv_file"] is not None:
        result.runs.to_csv(given["csv_file"])
    if given["table_file"] is not None:
        write_frame(result.series, given["table_file"])
    if given["plot_directory"] is not None:
        _draw(result, given["plot_directory"])
    if given["output"] == "text":
        style = output_style(ascii_only=given["ascii_only"])
        with lines_of(style.width if style.fits else None):
            print_styled(style.finished(sweep_text(result)))
    else:
        print_document(sweep_document(result), given["output"])
    if result.stopped is not None:
        return INTERRUPTED if budget.is_interrupted else UNDECIDED
    return ERROR if result.failed else OK


def _defaults(given: dict[str, Any], progress: Progress, block: ExitStack) -> dict[str, Any]:
    """Return the fields of the grid that the options give: the cluster with its changes, and how it is scheduled."""
    options, fields = simulation_options(given), dict[str, Any]()
    if given["paths"] or given["live"]:
        asked = block.enter_context(open_question(given, progress))
        options, fields["clusters"] = asked.changed_options, {"input": asked.cluster}
    if options.config is not None:
        fields["configs"] = {Path(options.where).name: options.config}
    if options.emulate is not None:
        fields["releases"] = [options.emulate]
    if options.seed:
        fields["seeds"] = [options.seed]
    said = {"plugins": list(options.plugins), "featureGates": options.feature_gates}
    fields |= {name: value for name, value in said.items() if value}
    return fields | ({"extenders": "skip"} if given["extenders"] else {}) | ({} if options.quota else {"quota": False})


def _counter(progress: Progress) -> Callable[[int, int, int], None]:
    begun, first = time.monotonic(), list[int]()

    def show(there: int, of: int, failed: int) -> None:
        first.append(there) if not first else None
        made = there - first[0] + 1
        left_s = (of - there - failed) * (time.monotonic() - begun) / made
        lost = f", {failed} failed" if failed else ""
        progress.say(f"run {there} of {of}{lost}, about {left_s:,.0f} s left …")

    return show


def _check_plots() -> None:
    """Find out before the runs whether they can be drawn.

    Raises  InputError if matplotlib is not installed
    """
    from moorage.interfaces.plots.drawing import new_figure  # imports matplotlib, which is rarely needed

    new_figure()


def _draw(result: SweepResult, directory: str) -> None:
    from moorage.interfaces.plots import plot_sweep  # imports matplotlib, which is rarely needed

    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    for metric in result.metrics:
        try:
            plot_sweep(result, metric).savefig(folder / f"{metric.replace('/', '-')}.svg")
        except InputError as error:
            say(f"note: no plot of {error}", err=True)
