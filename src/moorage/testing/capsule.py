"""Capsules as regression tests: a decision that ``moorage record cut`` wrote is made again, and compared.

pytest_plugins = ["moorage.testing.capsule"]

def test_the_decision_stays(capsule):
    capsule("case.json.gz").check()
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert

from moorage.api.core import Pod
from moorage.basis.inputs.files import open_sources
from moorage.basis.inputs.objects import find_objects, plain_object
from moorage.core.cycle.decision import Decision
from moorage.errors import InputError
from moorage.laboratory.recording.capsule import Outcome, decide_alone, outcome_of
from moorage.simulator.cluster_input import DUMP_RECORD, ClusterInput
from moorage.simulator.cluster_reader import STRICT_RULES, read
from moorage.simulator.cluster_run import objects_of
from moorage.simulator.simulate import Options


@dataclass(frozen=True, slots=True)
class StoredCapsule:
    """A capsule that was read: the cluster, the pod, the options, and the outcome that it repeats; None in a redacted one."""

    path: str
    cluster: ClusterInput
    pod: Pod
    options: Options
    outcome: Outcome | None

    def decide(self) -> tuple[Decision, tuple[str, ...]]:
        """Decide on the pod again; return the names of the nodes by row, too."""
        others = [obj for obj in objects_of(self.cluster) if obj is not self.pod]
        return decide_alone(others, self.pod, self.options)

    def check(self) -> Decision:
        """Decide again, and compare the outcome with the one in the capsule.

        Raises  AssertionError that names both
        """
        decision, names = self.decide()
        if self.outcome is not None:
            found = outcome_of(decision, names, self.outcome.beside)
            said = decision.message if found is None else found.sentence()
            assert found == self.outcome, f"{self.path}: {self.pod.key} {said}; before, it {self.outcome.sentence()}"
        return decision


def read_capsule(path: str | PathLike[str], **changes: Any) -> StoredCapsule:
    """Read a capsule. ``changes`` replace fields of its options: ``config``, ``emulate``, ``plugins`` …

    Raises  InputError for a file that is no capsule
    """
    where = fspath(path)
    found = [one for source in open_sources([where]) for one in find_objects(source)]
    records = [plain_object(one) for one in found if (one.api_version, one.kind) == DUMP_RECORD]
    facts = records[0].get("capsule", {}) if records else {}
    cluster = read((where,), False, rules=STRICT_RULES)
    pod = next((one for one in cluster.pods if one.key == facts.get("pod")), None)
    if pod is None:
        raise InputError(f"{where}: no capsule; moorage record cut -o {Path(where).name} writes one")
    options = Options(
        config=facts["config"].encode() if facts.get("config") else None, where=where, emulate=facts.get("emulate"),
        feature_gates=facts.get("featureGates", ""), seed=facts.get("seed", 0), skip_extenders=True,
    )  # fmt: skip
    outcome = convert(facts.get("outcome"), Outcome | None)
    return StoredCapsule(where, cluster, pod, replace(options, **changes), outcome)


@pytest.fixture
def capsule(request: pytest.FixtureRequest) -> Callable[..., StoredCapsule]:
    """Return ``read_capsule``; paths are relative to the file of the test."""
    return lambda path, **changes: read_capsule(request.path.parent / path, **changes)
