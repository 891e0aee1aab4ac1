"""``moorage demo`` and ``moorage completion``."""

import os
import subprocess
import sys

import pytest


def test_the_demo_is_that_of_the_readme(moorage):
    ran = moorage("demo")
    assert ran.status == 0
    shown = moorage("simulate", "-f", "examples/demo")
    assert ran.out.startswith("$ moorage simulate -f examples/demo\n" + shown.out)
    assert ran.out.endswith("    moorage explain search-2 -f examples/demo\n")


def test_the_examples_can_be_copied_and_used(moorage, tmp_path):
    ran = moorage("demo", "--copy", tmp_path)
    assert (ran.status, ran.err) == (0, "")
    assert moorage("explain", "search-2", "-f", tmp_path / "examples" / "demo").status == 2
    again = moorage("demo", "--copy", tmp_path)
    assert (again.status, again.out) == (1, "")
    assert again.err == f"error: {tmp_path}/examples: exists already; name another folder\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_asks_the_program(moorage, shell):
    ran = moorage("completion", shell)
    assert ran.status == 0
    assert "_MOORAGE_COMPLETE" in ran.out


@pytest.mark.slow
@pytest.mark.parametrize(("words", "found"), [("moorage sim", "plain,simulate"), ("moorage explain --prob", "plain,--probes")])
def test_commands_and_options_are_completed(words, found):
    asked = {"_MOORAGE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    ran = subprocess.run(
        [sys.executable, "-m", "moorage"], env=os.environ | asked, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.stdout.splitlines(), ran.stderr) == ([found], "")
