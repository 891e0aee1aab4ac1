"""Pods that a scheduler refused in the input and that would be placed now: they are pending, and the answer says why."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from moorage import read
from moorage.laboratory.explain.pending_in_input import refusal_in, unknown_reasons

FULL = "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 Preemption is not helpful."
HELD = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were held by team-quota. preemption: not eligible."
CHANGED, UNKNOWN = (
    "Either the cluster has changed since",
    "No plugin of Kubernetes gives the reason 'node(s) were held by team-quota'",
)


def a_cluster(path, message=FULL, reason="Unschedulable", cpu="1", node=""):
    node_of = lambda name: {  # noqa: E731
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"}},
    }  # fmt: skip
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q", "namespace": "default"},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}],
            **({"nodeName": node} if node else {}),
        },
        "status": {"phase": "Pending", "conditions": [condition]},
    }  # fmt: skip
    path.write_text(yaml.safe_dump_all([node_of("n1"), node_of("n2"), pod]))
    return str(path)


CASES = {
    "a reason of Kubernetes": ({}, 2, "is pending; scheduled now, it would go to n", (FULL[:20], CHANGED, "--config and")),
    "a reason of another plugin": ({"message": HELD}, 2, "is pending; scheduled now, it would go to n", (UNKNOWN,)),
    "no message": ({"message": ""}, 0, "is on n", ()),
    "gates that are gone": ({"reason": "SchedulingGated"}, 0, "is on n", ()),
    "it is refused now, too": ({"cpu": "3"}, 2, "is pending: no node is large enough", ()),
    "it has a node since": ({"node": "n1"}, 0, "is on n1", ()),
}


@pytest.mark.parametrize(("given", "status", "first", "says"), CASES.values(), ids=CASES)
def test_a_refused_pod_is_pending_although_it_would_be_placed(moorage, tmp_path, given, status, first, says):
    ran = moorage("explain", "q", "-f", a_cluster(tmp_path / "c.yaml", **given), "--probes", "0")
    text = " ".join(ran.out.split())
    assert text.startswith(f"default/q {first}"), text
    assert ran.status == status
    assert all(one in text for one in says)
    assert any(one in text for one in (CHANGED, UNKNOWN)) is bool(says)


def test_a_change_places_a_refused_pod(moorage, tmp_path):
    path = a_cluster(tmp_path / "c.yaml", cpu="3")
    ran = moorage("explain", "q", "-f", path, "--edit", "pod/q requests.cpu=1", "--probes", "0")
    assert (ran.status, ran.out.startswith("default/q is on n")) == (0, True), ran.out


def test_no_pod_stays_pending_but_one_is(moorage, tmp_path):
    path = a_cluster(tmp_path / "c.yaml")
    told = "No pod stays pending; scheduled now, 1 pod that a scheduler refused would be placed: default/q.\n"
    assert moorage("explain", "--all", "-f", path).out == told
    assert "No selected pod is pending" in moorage("explain", "--all", "-f", path, "-n", "other").out


def test_the_message_is_found_in_a_pod(tmp_path):
    (pod,) = read([a_cluster(tmp_path / "c.yaml")]).pods
    assert refusal_in(pod) == FULL


def test_every_reason_of_a_plugin_for_nodes_is_known():
    """A reason that one of our plugins gives must not be called that of another one."""
    found: set[str] = set()
    for path in Path("src/moorage/plugins").rglob("*.py"):
        if "gpu_sharing" not in path.parts:  # not Kubernetes' own
            found |= set(re.findall(r'"(node\(s\) [^"]*)"', path.read_text()))
    assert len(found) > 15
    written = [one.replace("{{{}: {}}}", "{a: b}") for one in found]
    assert {one for text in written for one in unknown_reasons(f"0/1 nodes are available: 1 {text}.")} == set()
