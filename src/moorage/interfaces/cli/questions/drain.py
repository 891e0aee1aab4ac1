"""``moorage drain``: what ``kubectl drain`` would do, and what would happen to the pods."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

import click

from moorage.api.durations import duration_seconds
from moorage.errors import MoorageError
from moorage.interfaces.cli.option_tables import described
from moorage.interfaces.cli.questions.question import Asked, exit_status, open_question, print_answer
from moorage.interfaces.cli.questions.question_options import named_nodes, seldom, selector_of
from moorage.interfaces.cli.terminal import Progress
from moorage.laboratory.cluster import Cluster
from moorage.laboratory.drain.drain_question import drain_report
from moorage.laboratory.drain.drain_run import DrainPlan
from moorage.laboratory.drain.kubectl_filters import DrainFlags, leaving_for
from moorage.laboratory.drain.virtual_drain import EvictionRules
from moorage.report.drain_report import DrainReport


@described("drain")
def drain(**given: Any) -> int:
    """Run ``moorage drain``."""
    with Progress.of(given) as progress, open_question(given, progress) as asked:
        nodes = named_nodes(asked.cluster, given)
        progress.say("draining …")
        plan = _plan(given, dump_time_s(asked))
        question = asked.request({"drain": list(nodes), **_options(given)})

        def ask(cluster: Cluster) -> DrainReport:
            count = seldom(lambda drains: progress.say(f"{drains:,} drains tried …"))
            return drain_report(
                cluster, question, nodes, plan, find_order=given["find_order"], on_drain=count, budget=asked.budget
            )

        found = asked.answered(ask)
    print_answer(found, given, asked)
    return exit_status(found)


_FLAGS = (
    "ignore_daemonsets", "delete_emptydir_data", "force", "disable_eviction", "together", "returns", "surge", "find_order",
    "skip_wait_for_delete_timeout", "pod_selector",
)  # fmt: skip


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that differ from their defaults, for the document."""
    return {name: given[name] for name in _FLAGS if given[name]} | {
        name: given[name]
        for name, default in (("grace_period", -1), ("timeout", "0s"), ("ready_after", "10s"))
        if given[name] != default
    }


def _plan(given: Mapping[str, Any], now_s: float) -> DrainPlan:
    return DrainPlan(
        DrainFlags(
            given["ignore_daemonsets"], given["delete_emptydir_data"], given["force"], given["skip_wait_for_delete_timeout"]
        ),
        EvictionRules(
            given["disable_eviction"], given["grace_period"], _seconds(given, "timeout"), _seconds(given, "ready_after")
        ),
        "together" if given["together"] else "one-by-one",
        given["returns"],
        given["surge"],
        selector_of(given["pod_selector"], "--pod-selector=<pod_selector> must be a valid label selector"),
        partial(leaving_for, now_s=now_s),
    )


def _seconds(given: Mapping[str, Any], name: str) -> float:
    option = name.replace("_", "-")
    try:
        found = duration_seconds(given[name])
    except MoorageError as error:
        raise click.UsageError(f"--{option}: {error}") from None
    if found < 0:
        raise click.UsageError(f"--{option}: {given[name]} is negative")
    return found


def dump_time_s(asked: Asked) -> float:
    """Return when the dump was taken, in Unix seconds; the current time if that is not known."""
    taken = asked.given.report.taken_at
    return datetime.fromisoformat(taken).timestamp() if taken else time.time()
