"""Clusters made by ``random_clusters``, with kube-scheduler's answers: each decided differently here at first.

``tests/data/conformance/bred`` has a file for each release. Random clusters are not made from these, so that a seed keeps its
cluster.
"""

from __future__ import annotations

import pytest

from tests.conformance.test_recorded import BUNDLED, disagreements

PATHS = sorted((BUNDLED / "bred").glob("*.jsonl.gz"))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name.removesuffix(".jsonl.gz"))
def test_every_recorded_decision_is_ours(path):
    assert list(disagreements(path)) == []
