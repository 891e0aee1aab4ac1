"""The page that says which of kube-scheduler's integration tests are played by which of ours names tests that there are."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "contribute" / "integration-tests.md"
WORD = re.compile(r"`([\w/]+\.py)`|`(test_\w+)`")


def named(text):
    """Yield each test that is named, with the file that was named last before it."""
    for line in text.splitlines():
        file = ""
        for path, name in WORD.findall(line):
            file = path or file
            if name:
                yield file, name


def test_every_cited_test_exists():
    found = list(named(PAGE.read_text(encoding="utf-8")))
    assert len(found) > 60
    for file, name in found:
        path = ROOT / file if "/" in file else ROOT / "tests" / "regressions" / file
        assert f"def {name}(" in path.read_text(encoding="utf-8"), f"{file} has no {name}"


def test_a_name_belongs_to_the_file_before_it():
    assert list(named("| x | `a.py`: `test_b`, `test_c`; `t/d.py`: `test_e` |")) == [
        ("a.py", "test_b"), ("a.py", "test_c"), ("t/d.py", "test_e"),
    ]  # fmt: skip
