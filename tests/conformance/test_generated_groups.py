"""Clusters with pod groups made at random, and what the real kube-scheduler did in them: ours must do the same.

Kept are those of a thousand clusters that together show the most of what groups, gates, changes and answers can say. They
were played by Kubernetes 1.36.2 with a distribution's patches, its whole scheduler run in a process of its own.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.conformance.replaying_groups import differences

FILE = Path(__file__).parent.parent / "data" / "conformance" / "generated" / "groups.jsonl.gz"
DOCUMENTS = [json.loads(line) for line in gzip.decompress(FILE.read_bytes()).decode().splitlines()]


def attempts(document):
    every = (one for turn in document["expected"]["rounds"] for one in turn.get("attempts") or ())
    return sum(bool(one["trials"] or one["failed"]) for one in every)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document["name"])
def test_every_attempt_is_the_real_ones(document):
    assert differences(document) == ("", attempts(document))


@pytest.mark.parametrize("field", ["failed", "bound", "victims", "conditions"])
def test_an_answer_that_is_not_the_real_ones_is_noticed(field):
    document = next(one for one in DOCUMENTS if any(a[field] for a in one["expected"]["rounds"][0].get("attempts") or ()))
    changed = json.loads(json.dumps(document))
    wanted = next(one for one in changed["expected"]["rounds"][0]["attempts"] if one[field])
    wanted[field] = [] if field == "victims" else {}
    told, _ = differences(changed)
    assert told
