"""The course of a run: pending pods and resources in use, at each time at which they change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from moorage.report.outcome import PodOutcome, Run

__all__ = ["RunMoment", "moments"]


class RunMoment(NamedTuple):
    """The state from a time until the next moment. ``shares`` are requested amounts as shares of the allocatable ones."""

    at_s: float
    pending: int
    shares: dict[str, float]


def moments(run: Run) -> list[RunMoment]:
    """Return the moments of a run, the first at its start."""
    totals = run.totals()
    held = {name: asked for name, (_, asked) in totals.items()}
    changes = list(_changes(run.pods))
    for _, _, amounts in changes:
        for name, amount in amounts.items():
            held[name] = held.get(name, 0) - amount
    pending = 0
    found: dict[float, RunMoment] = {}
    for time_s, waiting, amounts in sorted([(0.0, 0, {}), *changes], key=lambda change: change[0]):
        pending += waiting
        for name, amount in amounts.items():
            held[name] += amount
        shares = {name: held[name] / offered for name, (offered, _) in totals.items() if offered}
        found[time_s] = RunMoment(time_s, pending, shares)
    return list(found.values())


def _changes(pods: Iterable[PodOutcome]) -> Iterator[tuple[float, int, dict[str, int]]]:
    """Yield each change of the number of pending pods and of requested amounts, with its time."""
    for pod in pods:
        if pod.placed_s is not None or pod.state == "Pending":
            yield pod.arrived_s, 1, {}
        wants = {**pod.requests, "pods": 1} if pod.node else {}
        if pod.placed_s is not None:
            yield pod.placed_s, -1, wants
        if pod.ended_s is not None and pod.node:
            yield pod.ended_s, 0, {name: -amount for name, amount in wants.items()}
