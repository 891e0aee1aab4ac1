"""A selector or a quantity that cannot be computed is an error of one pod, soon, and other pods are scheduled."""

from __future__ import annotations

import subprocess
import sys

import pytest

CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "8", memory: 16Gi, pods: "110"}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s1}
spec:
  driver: gpu.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices: [{name: d1, capacity: {memory: {value: 40Gi}}}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: hostile}
spec: {selectors: [{cel: {expression: "EXPRESSION"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: claim, namespace: hostile}
spec: {devices: {requests: [{name: a, exactly: {deviceClassName: hostile}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: bad, namespace: hostile}
spec: {resourceClaims: [{name: c, resourceClaimName: claim}], containers: [{name: c, resources: {claims: [{name: c}]}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: huge, namespace: hostile}
spec: {containers: [{name: c, resources: {requests: {cpu: 1e999999999}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: good}
spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}
"""
ANSWERS = {
    "a huge sum": ("sign(quantity('1e999999999').add(1)) > 0", "a sum or difference has 1000000000 digits; at most 4000"),
    "a long list": ("lists.range(900000).size() > 0", "actual cost limit exceeded"),
    "a huge quantity compared": ("quantity('1e999999999').isGreaterThan(quantity('1'))", None),
}


def moorage(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "moorage", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(("expression", "why"), ANSWERS.values(), ids=ANSWERS)
def test_a_hostile_selector_holds_up_one_pod(tmp_path, expression, why):
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER.replace("EXPRESSION", expression), encoding="utf-8")

    run = moorage("simulate", "-f", str(path))
    assert run.returncode == 2, run.stderr
    text = " ".join(run.stdout.split())
    assert f"{1 if why else 2} placed, {2 if why else 1} pending" in text
    assert "default Pod/good 1 cpu=1 n1" in text
    assert "hostile/huge 0/1 nodes are available: 1 Insufficient cpu" in text
    explained = moorage("explain", "hostile/bad", "-f", str(path))
    assert explained.returncode == (2 if why else 0)
    if why:
        assert why.replace(" ", "") in "".join(run.stdout.split())
        assert why.replace(" ", "") in "".join(explained.stdout.split())
