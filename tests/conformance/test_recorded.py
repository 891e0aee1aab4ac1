"""Decisions of the real kube-scheduler, recorded: ours must be the same, field by field.

The recordings are measurements of Kubernetes 1.36.2 and 1.21.2 with their default gates. Every family that is bundled is held
here; a newer or larger set beside the project is held too where it is present (see ``shared_recordings``).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moorage.core.cycle.cycle import Cycle
from tools.recordings.answers import answer
from tools.recordings.comparing import differing, documents
from tools.recordings.scenarios import load_scenario

HERE = Path(__file__).parent.parent
BUNDLED = HERE / "data" / "conformance"


def shared_recordings():
    """The folder of recordings beside the project, if there is one."""
    folder = Path(os.environ.get("MOORAGE_SHARED", HERE.parent.parent / "shared")) / "conformance"
    return folder if folder.is_dir() else None


def disagreements(path):
    for document in documents(path):
        results = {result["pod"]: result for result in answer(document)["results"]}
        for wanted in document["expected"]["results"]:
            got = results.get(wanted["pod"], {})
            fields = differing(wanted, got)
            if fields or got.get("error"):
                yield f"{document['name']} {wanted['pod']}: {', '.join(fields)} {got.get('error', '')}"


FAMILIES = sorted(BUNDLED.glob("v1.*/*.jsonl.gz"))


@pytest.mark.slow
@pytest.mark.parametrize("path", FAMILIES, ids=lambda path: f"{path.parent.name}-{path.name.split('.')[0]}")
def test_every_recorded_decision_is_ours(path):
    assert list(disagreements(path)) == []


@pytest.mark.slow
@pytest.mark.parametrize("family", ["scale", "sequence"])
def test_deciding_by_class_stays_among_the_recorded_best(family):
    """The same sequences by way of pod classes: the node is one of those that kube-scheduler found best."""
    for document in documents(BUNDLED / "v1.36" / f"{family}.jsonl.gz"):
        scenario = load_scenario(document)
        cycle = Cycle(nominated_first=False)
        wanted = {result["pod"]: result for result in document["expected"]["results"]}
        for pod in scenario.pending:
            recorded = wanted[pod.key]
            profile = scenario.profiles[pod.spec.scheduler_name]
            decision = cycle.decide(profile, pod, scenario.cluster.snapshot, scenario.nominated)
            assert (decision.node is None) == ("chosen" not in recorded), (document["name"], pod.key)
            if decision.node is not None:
                assert decision.node in recorded["best"], (document["name"], pod.key)
                scenario.cluster.assume(pod, recorded["chosen"])
                scenario.drop_nomination(pod.uid)


@pytest.mark.slow
def test_recordings_beside_the_project_agree_too():
    folder = shared_recordings()
    if folder is None:
        pytest.skip("no recordings beside the project (../shared/conformance)")
    known = {path.name: path.read_bytes() for path in BUNDLED.glob("v1.*/*.gz")}
    # ``test_earlier_releases`` compares those of other releases.
    releases = sorted(path.name for path in BUNDLED.glob("v1.*"))
    beside = [path for release in releases for path in sorted(folder.glob(f"{release}/*.jsonl.gz"))]
    assert {path.parent.name for path in beside} == set(releases)
    others = [path for path in beside if path.read_bytes() != known.get(path.name)]
    assert [line for path in others for line in disagreements(path)] == []
