"""Every command that takes ``--emulate`` names the release in its text; without it the text names none."""

from __future__ import annotations

import pytest

from tests.interfaces.cli.conftest import ROOT

DRAIN, DEMO = ROOT / "examples/drain", ROOT / "examples/demo"
COMMANDS = {
    "explain": ["explain", "warehouse", "-f", DEMO, "--probes", "0"],
    "explain all": ["explain", "--all", "-f", DEMO, "--probes", "0"],
    "drain": ["drain", "worker-3", "-f", DRAIN, "--ignore-daemonsets"],
    "fail": ["fail", "worker-3", "-f", DRAIN],
    "survive": ["survive", "-f", DRAIN],
    "capacity": ["capacity", "deployment/web", "-f", DEMO, "--no-gains"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_the_text_names_a_release_other_than_the_newest(moorage, command):
    assert "as kube-scheduler 1.22.6" in moorage(*command, "--emulate", "1.22").out
    assert "as kube-scheduler" not in moorage(*command).out


def test_a_comparison_names_the_release_of_each_side(moorage):
    found = moorage("compare", "-f", DRAIN, "--seeds", "1", "--a-release", "1.22", "--b-release", "1.24").out
    assert "as kube-scheduler" not in found
    assert all(f"kube-scheduler {release}" in found for release in ("1.22.6", "1.24.17"))
