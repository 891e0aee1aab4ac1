"""The page of Kubernetes' own end-to-end tests: what is counted, and which outcomes are faults."""

import pytest

from tools.upstream_e2e import page as page_module
from tools.upstream_e2e.page import page


def one(
    cluster, state="passed", failure="", name="[sig-scheduling] Predicates place pods [Serial] [Conformance]",
    area="scheduling", run="2026-11-28",
):  # fmt: skip
    return {
        "area": area, "cluster": cluster, "run": run, "name": name, "state": state, "seconds": 1.0, "failure": failure,
    }  # fmt: skip


BOTH = [one("kube-scheduler"), one("moorage run")]
FAULTS = {  # outcomes, and what of them is a fault
    "both pass": (BOTH, []),
    "only ours fails": (
        [BOTH[0], one("moorage run", "failed", "no node")], ["failed with moorage run, passed with kube-scheduler: no node"],
    ),
    "only ours is not reached": (
        [BOTH[0], one("moorage run", "not run")], ["not run with moorage run, passed with kube-scheduler"],
    ),
    "both fail": ([one("kube-scheduler", "failed"), one("moorage run", "timedout")], []),
    "ours alone passes": ([one("kube-scheduler", "failed"), BOTH[1]], ["passed with moorage run, failed with kube-scheduler"]),
    "an unknown failure on up": ([one("moorage up", "panicked", "nil")], ["moorage up: failed: [sig-scheduling] Predicates"]),
    "a test on up that was not reached": ([one("moorage up", "not run")], ["moorage up: not run"]),
    "a known failure on up": ([one("moorage up", "failed", "x", "[sig-apps] Job runs a script", "apps")], []),
    "a known difference is no excuse for run": (
        [one("kube-scheduler", name="Job runs a script"), one("moorage run", "failed", name="Job runs a script")],
        ["failed with moorage run"],
    ),
    "skipped": ([one("moorage up", "skipped")], []),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _known(monkeypatch):
    monkeypatch.setattr(page_module, "_known", lambda: {"Job runs": "needs a script to run"})


@pytest.mark.parametrize(("results", "faults"), FAULTS.values(), ids=FAULTS)
def test_faults(results, faults):
    found = page(results)[1]
    assert len(found) == len(faults)
    assert all(wanted in fault for wanted, fault in zip(faults, found, strict=True))


def test_the_page_counts_and_lists():
    text, _ = page(
        [
            *BOTH,
            one("moorage up", "failed", "pod a-12345 | b", area="apps"),
            one("moorage up", "skipped", "no GPU", "other", "apps", "2026-11-29"),
        ]
    )
    assert "| Scheduling | kube-scheduler | 2026-11-28 | 1 | 1 | 0 | 0 | 0 |" in text
    assert "| Workloads | moorage up | 2026-11-28: 1, 2026-11-29: 1 | 2 | 0 | 1 | 1 | 0 |" in text
    assert "| Predicates place pods (C) | passed | passed |" in text
    assert "| Predicates place pods (C) | failed: pod a… \\| b |" in text
    assert "| other | skipped: no GPU |" in text
