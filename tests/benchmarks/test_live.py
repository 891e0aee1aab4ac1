"""Measurements of a live scheduler run, at sizes of a few seconds in all, and see all of their pods bound.

Relisting and failover take what they take at any size, and are run by hand.
"""

from __future__ import annotations

import json
import shlex
import sys

import pytest
from click.testing import CliRunner

from benchmarks.command import main
from benchmarks.live_world import PODS, Follower
from moorage.api.documents.records import Record
from moorage.rules.store.watches import StoreChange

#: Arguments → what the output must contain.
CASES = {
    "throughput": (["--nodes", "5", "--pods", "20"], {"pods_per_s", "cpu_s_per_1000"}),
    "throughput of pods that spread": (
        ["--nodes", "6", "--pods", "20", "--workload", "spread-zone-required"],
        {"pods_per_s", "workload"},
    ),
    "lag": (["--nodes", "5", "--init", "30", "--pods", "30"], {"p50_ms", "p99_ms"}),
    "cold-start": (["--nodes", "5", "--init", "30"], {"first_bind_s", "rss_mib"}),
    "soak": (["--nodes", "5", "--init", "10", "--pods", "5", "--seconds", "2"], {"early", "last"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_is_measured(name):
    arguments, told = CASES[name]
    result = CliRunner().invoke(main, ["live", name.partition(" ")[0], *arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    for line in result.output.splitlines():
        figures = json.loads(line)
        assert told | {"load", "loop_us", "nodes"} <= set(figures)
        assert figures.get("pods_known") == figures.get("pods_there")


@pytest.mark.slow
def test_a_peer_is_measured_in_the_same_run(tmp_path):
    program = tmp_path / "scheduler"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m moorage run "$@"\n')
    program.chmod(0o755)
    result = CliRunner().invoke(main, ["against-kube", "--peer", str(program), "--nodes", "5", "--pods", "20"])
    assert result.exit_code == 0, (result.output, result.exception)
    [figures] = map(json.loads, result.output.splitlines())
    assert figures["times_pods_per_s"] == round(figures["pods_per_s"] / figures["peer_pods_per_s"], 2)
    assert figures["peer_pods_per_cpu_s"] > 0


def test_a_comparison_needs_a_peer():
    result = CliRunner().invoke(main, ["live", "against"])
    assert result.exit_code == 2
    assert "against needs --peer" in result.output


def test_a_pod_that_goes_to_a_second_node_is_noticed():
    def pod(node, version):
        document = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {"nodeName": node}}
        return Record.of(PODS, document, version)

    follower = Follower(room=1)
    follower(PODS, StoreChange(1, None, pod("", 1)))
    follower(PODS, StoreChange(2, pod("", 1), pod("a", 2)))
    assert list(follower.bound) == ["u"]
    assert follower.broken == []
    follower(PODS, StoreChange(3, pod("a", 2), pod("b", 3)))
    assert follower.broken == ["default/p went from a to b"]
