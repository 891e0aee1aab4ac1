"""What kubectl makes of the folder ``deploy/``: the objects, decoded."""

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


@cache
def kustomized(folder):
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    made = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False, timeout=30
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return list(yaml.safe_load_all(made.stdout))


@pytest.fixture(scope="session")
def render():
    """Return the objects of a folder with a kustomization, below ``deploy/kustomize`` if it is no whole path."""
    return lambda folder: kustomized(ROOT / "deploy" / "kustomize" / folder)


def pick(objects, kind, name=None):
    """Return the only object of a kind, or that with a name."""
    found = [one for one in objects if one["kind"] == kind and name in {None, one["metadata"]["name"]}]
    assert len(found) == 1, [one["metadata"]["name"] for one in found]
    return found[0]


@pytest.fixture(scope="session", name="pick")
def _pick():
    return pick
