"""Every example runs, and prints what it promises."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*/run.py"))


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.parent.name)
def test_example_prints_what_it_promises(script):
    run = subprocess.run([sys.executable, script], cwd=script.parent, capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout == script.with_name("expected.txt").read_text(encoding="utf-8")
