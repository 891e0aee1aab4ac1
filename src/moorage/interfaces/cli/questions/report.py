"""``moorage report``: an overview of a cluster: pending pods, how full it is and how evenly, and what still fits."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec.structs import replace as with_values

from moorage.errors import InputError
from moorage.interfaces.cli.cluster_files import is_kept, keeping_what_is_read
from moorage.interfaces.cli.live_reading import served_kinds
from moorage.interfaces.cli.option_tables import described
from moorage.interfaces.cli.questions.question import open_question, print_answer
from moorage.interfaces.cli.terminal import Progress
from moorage.laboratory.compare.run_frames import frames_of_run
from moorage.laboratory.compare.run_inputs import input_of_runs
from moorage.laboratory.overview import OverviewSetting, overview_of
from moorage.report.overview import overview_csv, overview_summary
from moorage.simulator.job_kinds import KINDS, QUEUE_KINDS
from moorage.simulator.kueue.batch_jobs import queued_cluster, read_queues


@described("report")
def report(**given: Any) -> int:
    """Run ``moorage report``."""
    setting = OverviewSetting(all_nodes=given["all_nodes"], by_engine=given["by_engine"])
    if given["serve"]:
        return _serve(given)
    with Progress.of(given) as progress, open_question(given, progress, _kinds(given)) as asked:
        setting = replace(setting, budget=asked.budget)
        progress.say("placing pods and counting what fits …")
        found = asked.answered(lambda cluster: overview_of(cluster, asked.request({"report": {}}), setting))
        if documents := read_queues(asked.changed_input, None):
            queues = queued_cluster(asked.changed_input, documents)
            played = queues.run(asked.cluster.options)[1] if given["play"] else None
            found = with_values(found, queues=queues.now() if played is None else queues.report(played.ended_s))
            found = with_values(found, summary=overview_summary(found))
        elif given["play"]:
            raise InputError("--play: the input has no ClusterQueue, so there is nothing to play")
        if given["csv_directory"] is not None:
            directory = given["csv_directory"]
            try:
                Path(directory).mkdir(parents=True, exist_ok=True)
                for name, frame in frames_of_run(input_of_runs(asked.cluster), asked.cluster.options).items():
                    frame.to_csv(Path(directory) / f"{name}.csv")
            except OSError as error:
                raise InputError(f"{directory}: {error.strerror or error}") from None
    if given["output"] == "csv":
        sys.stdout.write(overview_csv(found))
    else:
        print_answer(found, given, asked)
    return 0


def _kinds(given: dict[str, Any]) -> tuple[str, ...]:
    """Return the kinds to read because of queues. Of a live cluster with queues those that it serves."""
    if not given["live"] or is_kept():
        return KINDS
    served = served_kinds(given["kubeconfig"], given["context"], KINDS)
    return served if any(kind in QUEUE_KINDS for kind in served) else ()


def _serve(given: dict[str, Any]) -> int:
    """Place the pending pods and serve the cluster as it is then."""
    from moorage.interfaces.cli.questions.report_serving import inheriting, serve  # aiohttp is loaded only for this
    from moorage.interfaces.cli.questions.simulate_autoscaled import kinds_of

    kinds = () if given["live"] else (*KINDS, *kinds_of("karpenter"), *kinds_of("cluster-autoscaler"))

    with ExitStack() as block:
        block.enter_context(keeping_what_is_read())
        with Progress.of(given) as progress:
            cluster = block.enter_context(open_question(given, progress, kinds)).cluster
        answer = block.enter_context(inheriting())  # while no other thread runs
        with Progress.of(given) as progress:
            progress.say("placing pods …")
            cluster.run()
        serve(cluster, given, answer)
    return 0
