"""Plugins that 1.27.16 and 1.28.8 enable for random configurations of each version that they read: v1beta2, v1beta3, v1.

``tools.recordings.beta_profiles`` recorded them with the releases' own code.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tools.recordings.beta_profiles import GROUP, VERSIONS, same

FOLDER = Path(__file__).parents[2] / "data" / "conformance" / "config"
RECORDED = {
    release: [json.loads(line) for line in gzip.decompress((FOLDER / f"v{release}.jsonl.gz").read_bytes()).splitlines()]
    for release in VERSIONS
}


@pytest.mark.parametrize("release", VERSIONS)
def test_every_version_is_recorded(release):
    read = [one for one in RECORDED[release] if not one["expected"].get("refused")]
    assert {json.loads(one["text"])["apiVersion"] for one in read} == {f"{GROUP}/{one}" for one in VERSIONS[release]}
    assert len(read) > 200


@pytest.mark.parametrize("release", VERSIONS)
def test_the_same_plugins_are_enabled(release):
    different = {one["name"]: why for one in RECORDED[release] if (why := same(one, release))}
    assert different == {}
