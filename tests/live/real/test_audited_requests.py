"""What ``run`` asks of a real API server is what kube-scheduler asks of it, by the audit log of that server."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.live.real.test_real_cluster import FOLDER
from tools.real_cluster.audited import Requests, differences

PODS, BINDINGS, READS = ("patch", "pods/status"), ("create", "pods/binding"), ("get", "pods")


@pytest.mark.slow
@pytest.mark.skipif(FOLDER not in os.environ, reason=f"{FOLDER} names no cluster")
def test_moorage_makes_no_other_writes_than_kube_scheduler_and_no_more_requests():
    command = [sys.executable, "-m", "tools.real_cluster.audited", "--pods", "90"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr


def said(*, theirs, ours):
    return list(differences(Requests(**theirs), Requests(**ours)))


def test_the_same_requests_are_no_difference():
    same = {"kinds": Counter({PODS: 40, BINDINGS: 100}), "forms": {PODS: {(".status",)}}}
    assert said(theirs=same, ours=same) == []
    assert said(theirs=same, ours={**same, "kinds": Counter({PODS: 47, READS: 2})}) == []


DIFFERENCES = {
    "more of a kind": ({"kinds": Counter({PODS: 48})}, "patch pods/status: 48 times; kube-scheduler 40 times"),
    "another kind": ({"kinds": Counter({("delete", "nodes"): 1})}, "delete nodes: 1 times; kube-scheduler never does"),
    "another body": (
        {"kinds": Counter({PODS: 1}), "forms": {PODS: {(".metadata", ".status")}}},
        "patch pods/status: a body with .metadata, without nothing",
    ),
    "refusals": (
        {"refused": Counter({(*PODS, 409): 4}), "said": {(*PODS, 409): "no"}},
        "patch pods/status: refused 4 times with 409 (no); kube-scheduler's 0 times",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("ours", "line"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_a_difference_is_named(ours, line):
    assert said(theirs={"kinds": Counter({PODS: 40}), "forms": {PODS: {(".status",)}}}, ours=ours) == [line]
