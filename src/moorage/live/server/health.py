"""Health checks behind /healthz, /livez and /readyz.

Every client may read whether a probe passes; only clients that may read single checks see the reasons of a failure.

Source  apiserver/pkg/server/healthz/healthz.go; client-go/tools/leaderelection/healthzadaptor.go
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from moorage.api.documents.http_messages import health_text
from moorage.api.releases import TODAY
from moorage.api.releases.metrics import metrics_of
from moorage.basis.client.reflector import Reflector
from moorage.live.runtime.attempt_metrics import Log
from moorage.live.runtime.leader_election import Election
from moorage.live.server.plugin_metrics import CounterVec, Family, Gauge

#: Seconds after a leader's lease expired before its health check fails.
GRACE_S: Final = 20.0


class Check(NamedTuple):
    """A named check: ``ask`` returns None if it passes, else the reason."""

    name: str
    ask: Callable[[], str | None]


PING: Final = Check("ping", lambda: None)


def watchdog(election: Election, lease: str, clock: Callable[[], float]) -> Check:
    """Return the check that fails when a leader neither renewed its lease nor stepped down in time."""

    def ask() -> str | None:
        return f"failed election to renew leadership on lease {lease}" if election.is_overdue(clock(), GRACE_S) else None

    return Check("leaderElection", ask)


def watches(reflectors: Sequence[Reflector[Any]], most_s: float, clock: Callable[[], float]) -> Check:
    """Return the check that fails when a kind could neither be listed nor watched for longer than ``most_s``."""

    def ask() -> str | None:
        now = clock()
        failing = [(one.resource.plural, now - since) for one in reflectors if (since := one.failing_since) is not None]
        long = [f"{plural} for {lasted_s:.0f}s" for plural, lasted_s in failing if lasted_s > most_s]
        return f"the watches fail: {', '.join(long)}" if long else None

    return Check("watches", ask)


def lease_answers(election: Election, lease: str, clock: Callable[[], float]) -> Check:
    """Return the check that fails when the lease could not be read for longer than its duration."""

    def ask() -> str | None:
        answered_at = election.answered_at
        silent_s = 0.0 if answered_at is None else clock() - answered_at
        return f"lease {lease} could not be read for {silent_s:.0f}s" if silent_s > election.timing.lease_s else None

    return Check("lease", ask)


class Report(NamedTuple):
    """The response to a probe."""

    healthy: bool
    text: str


class Health:
    """The checks of each path: ``healthz``, ``livez``, ``readyz``. Their results are also metrics."""

    def __init__(self, checks: Mapping[str, Sequence[Check]], log: Log, release: str = TODAY) -> None:
        self.checks = {path: tuple(found) or (PING,) for path, found in checks.items()}
        self._log = log
        self._outcomes: dict[tuple[str, str], float] = {}
        self._specs = metrics_of(release)
        self._totals = CounterVec(self._specs["kubernetes_healthchecks_total"])

    @property
    def families(self) -> list[Family]:
        """The metrics of /metrics/slis."""
        return [Gauge(self._specs["kubernetes_healthcheck"], lambda: list(self._outcomes.items())), self._totals]

    def report(self, path: str, *, verbose: bool, exclude: Collection[str]) -> Report:
        """Run all checks of a path, except the excluded ones."""
        found = {one.name: None if one.name in exclude else self._ask(path, one) for one in self.checks[path]}
        failed = {name: wrong for name, wrong in found.items() if wrong is not None}
        if failed:
            details = "\n".join(f"[-]{name} failed: {wrong}" for name, wrong in failed.items())
            self._log.info(2, f"{','.join(failed)} check failed: {path}", details=details)
        return Report(*health_text(path, found, exclude, verbose=verbose))

    def single(self, path: str, name: str) -> Report | None:
        """Run one check; return None if no check has that name."""
        check = next((one for one in self.checks[path] if one.name == name), None)
        if check is None:
            return None
        wrong = check.ask()
        return Report(True, "ok") if wrong is None else Report(False, f"internal server error: {wrong}\n")

    def _ask(self, path: str, check: Check) -> str | None:
        wrong = check.ask()
        self._outcomes[check.name, path] = float(wrong is None)
        self._totals.inc(check.name, path, "success" if wrong is None else "error")
        return wrong


#: Seconds before the first check, and between two checks.
PATIENCE_S = 5.0


async def report_delays(waits_for: Callable[[], list[str]], report: Callable[[str], None]) -> None:
    """Each ``PATIENCE_S`` seconds, report what ``waits_for`` returns, unless it is empty or unchanged. Runs until cancelled."""
    reported: list[str] = []
    while True:
        await asyncio.sleep(PATIENCE_S)
        left = waits_for()
        if left and left != reported:
            report(f"Still waiting for {'; '.join(left)}")
        reported = left
