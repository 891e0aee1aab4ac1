"""``moorage deschedule`` and ``moorage rightsize``: what moving pods and changing requests gains."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from moorage.api.durations import DurationError, duration_seconds
from moorage.basis.inputs.usage import read_usage
from moorage.interfaces.cli.cluster_files import CONFIG_LIMIT, read_file
from moorage.interfaces.cli.option_tables import described
from moorage.interfaces.cli.questions.drain import dump_time_s
from moorage.interfaces.cli.questions.question import exit_status, open_question, print_answer
from moorage.interfaces.cli.terminal import Progress
from moorage.laboratory.deschedule.deschedule_question import DescheduleOptions, deschedule_report, read_pod_reports
from moorage.laboratory.plan.node_types import read_types
from moorage.laboratory.rightsize.rightsize_question import RightsizeOptions, rightsize_report
from moorage.simulator.descheduler.policy import read_descheduler_policy

# -- deschedule --------------------------------------------------------------------------------------------------------

#: Plugins that read what a dump says of containers.
_READ_CONTAINERS: Final = frozenset({"PodLifeTime", "RemoveFailedPods", "RemovePodsHavingTooManyRestarts"})


@described("deschedule")
def deschedule(**given: Any) -> int:
    """Run ``moorage deschedule``."""
    try:
        interval_s = duration_seconds(given["interval"])
    except DurationError as error:
        raise click.UsageError(f"--interval: {error}") from None
    if interval_s <= 0:
        raise click.UsageError(f"--interval: {given['interval']} is not above 0")
    policy = read_descheduler_policy(read_file(given["policy_file"], CONFIG_LIMIT), given["policy_file"])
    usage = read_usage(given["usage_files"]) if given["usage_files"] else None
    with Progress.of(given) as progress, open_question(given, progress) as asked:
        by_containers = any(not _READ_CONTAINERS.isdisjoint(profile.enabled("deschedule")) for profile in policy.profiles)
        reports = read_pod_reports(asked.files, recursive=given["recursive"]) if by_containers else {}
        now_s = dump_time_s(asked)
        options = DescheduleOptions(now_s, given["cycles"], interval_s, reports=reports, usage=usage)
        question = asked.request({"deschedule": given["policy_file"], "cycles": given["cycles"], "interval": given["interval"]})
        progress.say("descheduling …")
        found = asked.answered(lambda cluster: deschedule_report(cluster, question, policy, options, asked.budget))
    print_answer(found, given, asked)
    return exit_status(found)


@described("rightsize")
def rightsize(**given: Any) -> int:
    """Run ``moorage rightsize``."""
    usage = read_usage(given["usage_files"], given["percentile"])
    types = tuple(read_types(Path(given["types"]))) if given["types"] else ()
    options = RightsizeOptions(usage, given["headroom"] / 100, types, given["unit"])
    with Progress.of(given) as progress, open_question(given, progress) as asked:
        question = asked.request({
            "rightsize": list(given["usage_files"]), "headroom": given["headroom"], "percentile": given["percentile"],
            "types": [one.name for one in types],
        })  # fmt: skip
        progress.say("changing requests …")
        found = asked.answered(lambda cluster: rightsize_report(cluster, question, options, asked.budget))
    print_answer(found, given, asked)
    return exit_status(found)
