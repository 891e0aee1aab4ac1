"""Readiness turns false when watches or the lease fail for longer than the lease lasts."""

from types import SimpleNamespace

import pytest

from moorage.live.runtime.leader_election import Election, LeaseRecord, Timing
from moorage.live.server.health import lease_answers, watches

CASES = {
    "never failed": ([None, None], 100.0, None),
    "failed for a while": ([None, 90.0], 100.0, None),
    "failed for longer than the lease": ([None, 80.0], 100.0, "the watches fail: kind-1 for 20s"),
    "several": ([10.0, 80.0], 100.0, "the watches fail: kind-0 for 90s, kind-1 for 20s"),
}


@pytest.mark.parametrize(("since", "now", "expected"), CASES.values(), ids=CASES)
def test_watches_may_fail_for_as_long_as_the_lease(since, now, expected):
    reflectors = [
        SimpleNamespace(resource=SimpleNamespace(plural=f"kind-{i}"), failing_since=one) for i, one in enumerate(since)
    ]
    assert watches(reflectors, 15.0, lambda: now).ask() == expected


def test_a_lease_that_cannot_be_read_is_told():
    election, now = Election("me", Timing(15.0, 10.0, 2.0)), 100.0
    check = lease_answers(election, "kube-scheduler", lambda: now)
    assert check.ask() is None  # nothing was asked yet
    election.seen(LeaseRecord("other", 15, "", ""), 100.0)
    now = 114.0
    assert check.ask() is None
    now = 116.0
    assert check.ask() == "lease kube-scheduler could not be read for 16s"
    election.seen(LeaseRecord("other", 15, "", ""), 116.0)
    assert check.ask() is None
