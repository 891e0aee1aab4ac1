"""Faults that are put into code: each changes one place, and the text stays a module."""

import ast
import subprocess

import pytest

from tools.mutants.__main__ import choose
from tools.mutants.faults import faults
from tools.mutants.trial import Copies

CASES = {  # source → the sources with one fault
    "a comparison": ("a = b < c\n", {"a = b <= c\n"}),
    "a sum": ("a = b + c\n", {"a = ((b) - (c))\n"}),
    "both halves of a condition": ("a = b and c\n", {"a = ((b) or (c))\n", "a = ((c))\n", "a = ((b))\n"}),
    "not": ("a = not b\n", {"a = (b)\n"}),
    "a number": ("a = 41\n", {"a = 42\n"}),
    "a truth": ("a = True\n", {"a = False\n"}),
    "a call for its effect": ("f(x)\n", {"pass\n"}),
    "any and all": ("a = any(x)\n", {"a = all(x)\n"}),
    "what a function returns": ("def f(x):\n    return x\n", {"def f(x):\n    return None\n"}),
    "loops": ("for x in y:\n    break\n", {"for x in y:\n    continue\n"}),
    "letters of more bytes": ("é = b < c\n", {"é = b <= c\n"}),
    "annotations": ("def f(x: A[1]) -> B[2]: ...\n", set()),
    "errors": ("raise E(1)\n", set()),
    "text": ("a = 'x' + b\n", set()),
}


@pytest.mark.parametrize(("source", "made"), CASES.values(), ids=CASES)
def test_faults_of(source, made):
    found = {fault.applied(source) for fault in faults(source)}
    assert found == made
    for text in found:
        ast.parse(text)


def test_the_same_seed_draws_the_same_faults():
    sources = [("one.py", "a = 1\nb = 2\n"), ("two.py", "c = 3 < d\n")]
    assert choose(sources, 2, 7) == choose(sources, 2, 7)
    assert len(choose(sources, 99, 7)) == 4


PROJECT = {
    "src/berth.py": "def fits(asked, free):\n    return asked <= free\n",
    "tests/test_berth.py": "from berth import fits\n\n\ndef test_it():\n    assert fits(1, 1)\n    assert not fits(2, 1)\n",
    "tests/test_weak.py": "from berth import fits\n\n\ndef test_it():\n    assert fits(1, 2)\n",
}


@pytest.mark.slow
def test_a_fault_is_found_by_the_test_that_looks_at_the_edge(tmp_path):
    project, text = tmp_path / "project", PROJECT["src/berth.py"]
    for name, content in PROJECT.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(content, encoding="utf-8")
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=project, check=True)
    copies = Copies(project, tmp_path / "copies", 1, (), 60)
    (edge,) = [fault.applied(text) for fault in faults(text) if fault.says == "< in a comparison"]
    assert not copies.passes("src/berth.py", edge, ["tests/test_berth.py"])
    assert copies.passes("src/berth.py", edge, ["tests/test_weak.py"])
    assert copies.passes("src/berth.py", text, ["tests/test_berth.py"])
