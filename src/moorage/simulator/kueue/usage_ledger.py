"""Admission fair sharing: in a ClusterQueue, workloads of LocalQueues that used less of late go first.

What a LocalQueue used decays by half in each half-life and moves towards what it uses now, at samples. A workload that gets
quota adds a penalty at once, so that a queue cannot take all before the next sample.

Units   amounts as quantities: cpu in cores, memory in bytes; seconds
Source  Kueue, pkg/util/admissionfairsharing; pkg/cache/queue/afs; pkg/controller/core/localqueue_controller.go
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from moorage.api.pod_requests import add_amounts
from moorage.simulator.kueue.settings import UsageRules
from moorage.simulator.kueue.workloads import Workload

_Totals = dict[str, float]


@dataclass(slots=True)
class _Account:
    """What a LocalQueue used, what it uses now, and penalties by workload that are not yet part of what it used."""

    since_s: float
    used: _Totals = field(default_factory=dict)
    held: dict[str, _Totals] = field(default_factory=dict)
    penalties: dict[str, _Totals] = field(default_factory=dict)


class UsageLedger:
    """The use of LocalQueues over time. Times are seconds, and never go back."""

    def __init__(self, rules: UsageRules, weights: Mapping[str, float]) -> None:
        self._rules = rules
        self._weights = weights
        self._accounts: dict[str, _Account] = {}
        self._now_s = 0.0

    def advance(self, now_s: float) -> None:
        """Take the samples up to a time."""
        self._now_s = now_s
        for account in self._accounts.values():
            samples = (now_s - account.since_s) // self._rules.sampling_s
            if samples > 0:
                self._sample(account, account.since_s + samples * self._rules.sampling_s)

    def seed(self, local_queue: str, used: Mapping[str, float]) -> None:
        """Set what a LocalQueue used until now."""
        self._account(local_queue).used = dict(used)

    def reserve(self, workload: Workload) -> None:
        """Add the penalty of a workload that got quota."""
        penalty = self._account(workload.local_queue).penalties[workload.key] = {}
        add_amounts(penalty, _requests(workload), self._part(self._rules.sampling_s))

    def start(self, workload: Workload) -> None:
        """Count a workload that is admitted, all checks passed; its penalty becomes a part of what was used."""
        account = self._account(workload.local_queue)
        account.held[workload.key] = _requests(workload)
        self._sample(account, self._now_s)
        add_amounts(account.used, account.penalties.pop(workload.key, {}))

    def stop(self, workload: Workload, *, comes_back: bool) -> None:
        """Forget a workload that gave its quota back; the penalty of one that waits again stays."""
        account = self._account(workload.local_queue)
        account.held.pop(workload.key, None)
        if not comes_back:
            account.penalties.pop(workload.key, None)

    def usage(self, workload: Workload) -> float:
        """Return what its LocalQueue used, by the weights of resources and of the queue; infinite for weight 0."""
        weight = self._weights.get(workload.local_queue, 1.0)
        if weight <= 0:
            return math.inf
        account = self._account(workload.local_queue)
        totals = dict(account.used)
        for penalty in account.penalties.values():
            add_amounts(totals, penalty)
        return sum(self._rules.weights.get(name, 1.0) * totals[name] for name in sorted(totals)) / weight

    def _account(self, local_queue: str) -> _Account:
        return self._accounts.setdefault(local_queue, _Account(self._now_s))

    def _sample(self, account: _Account, now_s: float) -> None:
        part = self._part(now_s - account.since_s)
        account.since_s = now_s
        if not self._rules.half_life_s:
            account.used.clear()
            return
        now: _Totals = {}
        for held in account.held.values():
            add_amounts(now, held)
        for name in {*account.used, *now}:
            account.used[name] = account.used.get(name, 0.0) * (1 - part) + now.get(name, 0.0) * part

    def _part(self, seconds: float) -> float:
        half = self._rules.half_life_s
        return 1.0 - 0.5 ** (seconds / half) if half else 0.0


def _requests(workload: Workload) -> _Totals:
    totals: _Totals = {}
    for (_, resource), amount in workload.usage.items():
        add_amounts(totals, {resource: amount / 1000 if resource == "cpu" else amount})
    return totals
