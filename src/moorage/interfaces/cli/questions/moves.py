"""``moorage deschedule`` and ``moorage rightsize``: what moving pods and changing requests gains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from moorage.api.durations import DurationError, duration_seconds
from moorage.basis.inputs.components import Component
from moorage.basis.inputs.usage import read_usage
from moorage.interfaces.cli.cluster_files import CONFIG_LIMIT, read_file
from moorage.interfaces.cli.option_tables import described
from moorage.interfaces.cli.questions.drain import dump_time_s
from moorage.interfaces.cli.questions.question import exit_status, open_question, print_answer
from moorage.interfaces.cli.terminal import Progress
from moorage.laboratory.deschedule.deschedule_question import DescheduleOptions, deschedule_report, read_pod_reports
from moorage.laboratory.plan.node_types import read_types
from moorage.laboratory.rightsize.rightsize_question import RightsizeOptions, rightsize_report
from moorage.simulator.descheduler.policy import policy_in, read_descheduler_policy

#: The kinds to read for a policy of the input, and the time from cycle to cycle if nothing gives one.
_CONFIG_MAPS: Final = ("configmaps.v1.",)
_INTERVAL_S: Final = 300.0
#: Plugins that read what a dump says of containers.
_READ_CONTAINERS: Final = frozenset({"PodLifeTime", "RemoveFailedPods", "RemovePodsHavingTooManyRestarts"})


@described("deschedule")
def deschedule(**given: Any) -> int:
    """Run ``moorage deschedule``."""
    interval_s = None if given["interval"] is None else _interval(given["interval"], "--interval")
    file = given["policy_file"]
    policy = None if file is None else read_descheduler_policy(read_file(file, CONFIG_LIMIT), file)
    usage = read_usage(given["usage_files"]) if given["usage_files"] else None
    kinds = _CONFIG_MAPS if policy is None else ()
    with Progress.of(given) as progress, open_question(given, progress, kinds) as asked:
        if policy is None:
            policy = policy_in(one.document for one in asked.given.custom)
        if interval_s is None:
            interval_s = _interval_of(asked.given.components)
        by_containers = any(not _READ_CONTAINERS.isdisjoint(profile.enabled("deschedule")) for profile in policy.profiles)
        reports = read_pod_reports(asked.files, recursive=given["recursive"]) if by_containers else {}
        now_s = dump_time_s(asked)
        options = DescheduleOptions(now_s, given["cycles"], interval_s, reports=reports, usage=usage)
        question = asked.request({"deschedule": file or "", "cycles": given["cycles"], "interval": f"{interval_s:g}s"})
        progress.say("descheduling …")
        found = asked.answered(lambda cluster: deschedule_report(cluster, question, policy, options, asked.budget))
    print_answer(found, given, asked)
    return exit_status(found)


def _interval(text: str, where: str) -> float:
    """Return the seconds of an interval.

    Raises  UsageError
    """
    try:
        found = duration_seconds(text)
    except DurationError as error:
        raise click.UsageError(f"{where}: {error}") from None
    if found <= 0:
        raise click.UsageError(f"{where}: {text} is not above 0")
    return found


def _interval_of(components: Sequence[Component]) -> float:
    """Return the interval of the descheduler that the input has; a usual one without it."""
    given = (one.flag("descheduling-interval") for one in components if one.name == "descheduler")
    return next((_interval(text, "--descheduling-interval of the descheduler") for text in given if text), _INTERVAL_S)


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
