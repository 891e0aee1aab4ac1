"""Test that nothing but the answer goes to standard output, whatever plugins and libraries print there."""

from __future__ import annotations

import json

import pytest

from tests.interfaces.cli.test_plan import DEMO, TYPES

#: Prints as a plugin would, as a child process would, and as a library in C would, which buffers what it prints.
NOISY = """
import ctypes
import subprocess
import sys

print("PRINTED at import")
ctypes.CDLL(None).printf(b"PRINTED by C at import\\n")


class Noisy:
    name = "Noisy"

    def filter_node(self, state, node):
        print("PRINTED by filter_node")
        sys.stdout.write("PRINTED through the stream\\n")
        return None

    def pre_filter(self, pod, snapshot):
        subprocess.run(["echo", "PRINTED by a child"], check=True)
        ctypes.CDLL(None).puts(b"PRINTED by C")
        return pod
"""
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {multiPoint: {enabled: [{name: Noisy}]}}}]
"""
QUESTIONS = {
    "simulate": ("simulate", "-o", "json"),
    "explain": ("explain", "search-2", "-o", "json"),
    "capacity": ("capacity", "deployment/web", "-o", "json"),
    "fail": ("fail", "general-a1", "-o", "json"),
    "report": ("report", "-o", "json"),
}


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_only_the_answer_is_on_standard_output(question, process, tmp_path):
    (tmp_path / "noisy.py").write_text(NOISY)
    (tmp_path / "config.yaml").write_text(CONFIG)
    plugin = ("--plugins", f"{tmp_path / 'noisy.py'}:Noisy", "--config", str(tmp_path / "config.yaml"))
    found = process(*question, "-f", DEMO, *plugin)
    json.loads(found.out)
    assert "PRINTED" not in found.out
    for how in ("at import", "by C at import", "by filter_node", "through the stream", "by a child", "by C\n"):
        assert f"PRINTED {how}" in found.err


@pytest.mark.slow
def test_events_are_on_standard_output(process):
    plain = process("simulate", "-f", DEMO, "--events")
    assert plain.out.index("default/web") < plain.out.index("Pending:")


@pytest.mark.slow
def test_a_solver_prints_nothing_into_the_plan(process, tmp_path):
    (tmp_path / "types.yaml").write_text(TYPES)
    found = process("plan", "-f", DEMO, "--types", str(tmp_path / "types.yaml"), "-o", "json")
    assert json.loads(found.out)["answer"]["status"] == "optimal"
