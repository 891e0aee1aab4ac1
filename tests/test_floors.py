"""Floors can be loaded alone: a fresh process that imports all of one loads nothing that drives or shows it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.house import FOREIGN, loaded

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "moorage"
FLOORS = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))


@pytest.mark.slow
@pytest.mark.parametrize("floor", sorted(FOREIGN))
def test_a_floor_loads_nothing_foreign(floor):
    names = loaded(ROOT, floor)
    assert len([name for name in names if name.startswith(f"moorage.{floor}")]) > 5
    assert [name for name in names if name.split(".")[1] in FOREIGN[floor]] == []


@pytest.mark.slow
def test_a_question_is_loaded_without_what_only_few_answers_need():
    """The reader of certificates and the client of HTTP take a tenth of the time to start."""
    code = "import sys, moorage.laboratory.cluster; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT / "src")
    assert "moorage.rules.admission.registration_checks" in told.stdout.split()
    assert {"cryptography", "http.client"} & set(told.stdout.split()) == set()


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_has_a_page_of_one_screen_that_names_what_is_there(floor):
    page = (ROOT / "docs" / "contribute" / f"{floor}.md").read_text("utf-8")
    files = re.findall(r"`(src/moorage/\S+\.py)`", page)
    assert len(files) == 3
    assert [name for name in files if not (ROOT / name).is_file()] == []
    assert f"make test FLOOR={floor}" in page
    assert (ROOT / "tests" / floor).is_dir()
    assert len(page.splitlines()) <= 30


def test_the_decision_path_names_functions_that_are_there():
    page = (ROOT / "docs" / "contribute" / "decision.md").read_text("utf-8")
    core = "\n".join(path.read_text("utf-8") for path in (SOURCE / "core").rglob("*.py"))
    named = set(re.findall(r"\b([A-Z]\w+)\.(\w+)", page))
    assert len(named) >= 8
    for owner, function in named:
        assert re.search(rf"^class {owner}\b", core, re.MULTILINE), owner
        assert re.search(rf"^    def {function}\(", core, re.MULTILINE), function
