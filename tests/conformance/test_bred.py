"""Random clusters and configurations with kube-scheduler's answers: the clusters were decided differently here at first.

``tests/data/conformance/bred`` has a file of clusters for each release, configurations that a release reads differently
from the next one, and configurations in beta versions. Random clusters are not made from these, so that a seed keeps its
cluster.
"""

from __future__ import annotations

import random

import pytest

from moorage.api.releases import RELEASES, find_release
from tests.conformance.test_recorded import BUNDLED
from tools.differential.bred_clusters import Variation, cluster
from tools.differential.decisions import differences as decided_otherwise
from tools.differential.documents import differences
from tools.differential.random_configurations import configuration
from tools.recordings.answers import answer
from tools.recordings.comparing import documents

PATHS = sorted((BUNDLED / "bred").glob("v*.jsonl.gz"))
CONFIGURATIONS = documents(BUNDLED / "bred" / "configurations.jsonl.gz")
BETAS = documents(BUNDLED / "bred" / "betas.jsonl.gz")
SINCE_1_30 = [name for name, one in RELEASES.items() if one.minor >= 30]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name.removesuffix(".jsonl.gz"))
def test_every_recorded_decision_is_ours(path):
    assert [(one["name"], line) for one in documents(path) for line in decided_otherwise(one["expected"], one)] == []


@pytest.mark.parametrize("document", [*CONFIGURATIONS, *BETAS], ids=lambda one: f"{one['release']}-{one['name']}")
def test_a_configuration_is_read_as_recorded(document):
    assert list(differences(document["expected"], answer(document))) == []


@pytest.mark.parametrize("document", CONFIGURATIONS, ids=lambda one: f"{one['release']}-{one['name']}")
def test_the_next_minor_release_reads_it_differently(document):
    newer = find_release(f"1.{find_release(document['release']).minor + 1}")
    assert list(differences(document["expected"], answer({**document, "release": newer.name})))


@pytest.mark.parametrize("release", SINCE_1_30)
def test_random_configurations_are_accepted(release):
    document = {"name": "made", "release": release, "text": _text(random.Random(release))}
    assert answer(document)["faults"] == []


def _text(rng):
    return str(configuration(rng)).replace("'", '"').replace("True", "true")


@pytest.mark.slow
@pytest.mark.parametrize("release", SINCE_1_30)
def test_random_clusters_can_open_gates_that_are_closed_by_default(release):
    settings = cluster(1, release, Variation(opens_gates=True))["featureGates"]
    assert any(value and not RELEASES[release].gates[gate].default for gate, value in settings.items())
