"""What counts as a difference between a scheduler's state and the API's at the end of a run."""

import pytest

from tools.simtest.convergence import _unwritten
from tools.simtest.recording import RequestRecord


def patch(uid, code, method="PATCH", path="/api/v1/namespaces/default/pods/p/status"):
    return RequestRecord(0.0, "a-1", method, path, code, uid=uid)


@pytest.mark.parametrize(
    ("entries", "unwritten"),
    [
        ([patch("a", 200), patch("a", 0)], {"a"}),
        ([patch("a", 0), patch("a", 200)], set()),
        ([patch("a", 500), patch("b", 200)], {"a"}),
        ([patch("a", 500, method="DELETE"), patch("b", 0, path="/api/v1/namespaces/default/pods/p/binding")], set()),
    ],
    ids=["lost after a write", "repeated", "one of two pods", "other requests"],
)
def test_only_the_last_status_patch_of_a_pod_counts(entries, unwritten):
    assert _unwritten(entries) == unwritten
