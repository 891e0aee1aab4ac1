"""Build a failed attempt, the input of PostFilter plugins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moorage.core.preemption.what_if import FailedAttempt, Nominated
from moorage.framework.plugin_runner import run_filter, run_pre_filter
from moorage.framework.profile import make_profile, points_of
from moorage.framework.verdict_table import Verdicts
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo

__all__ = ["failed_attempt"]


def failed_attempt(rules: Iterable[Any], pod: PodInfo, snapshot: Snapshot, nominated: Nominated | None = None) -> FailedAttempt:
    """Return the input of PostFilter for a pod, filtered by these plugins in this order.

    Nodes that admit the pod get no status. PreFilter must not reject the pod.
    """
    plugins = {rule.name: rule for rule in rules}
    points = {point: [name for name, rule in plugins.items() if point in points_of(rule)] for point in ("preFilter", "filter")}
    profile = make_profile("default", plugins, points, {})
    found = run_pre_filter(profile, pod, snapshot)
    verdicts = Verdicts(len(snapshot.table))
    run_filter(profile, found, pod, snapshot.nodes, verdicts)
    return FailedAttempt(profile, found, pod, snapshot, verdicts, nominated or {})
