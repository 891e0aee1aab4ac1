"""What would a person do? Hand-written cases, from questions that people ask and the answers that they get."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import moorage
from moorage.laboratory.costs import Costs

CASES = yaml.safe_load(Path(__file__).with_name("advice_cases.yaml").read_text())
HOST = "kubernetes.io/hostname"
SHOWN = 3


def node(name, *, labels=None, taints=(), cordoned=False, cpu=4, memory="16Gi", pods=110, extra=None, created=None):
    parsed = [
        dict(zip(("key", "value"), one.rpartition(":")[0].split("=", 1), strict=False), effect=one.rpartition(":")[2])
        for one in taints
    ]
    metadata = {"name": name, "labels": {HOST: name, **(labels or {})}, "creationTimestamp": created or "2026-01-01T00:00:00Z"}
    amounts = {
        "cpu": str(cpu),
        "memory": memory,
        "pods": str(pods),
        **{key: str(count) for key, count in (extra or {}).items()},
    }
    cordon = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}] if cordoned else []
    spec = {"taints": [*parsed, *cordon], "unschedulable": cordoned}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": {"allocatable": amounts}}


def pods(name, like=None, count=1, **given):
    base = {key: value for key, value in (like or {}).items() if key in {"spec", "cpu", "memory"}}
    return [pod(name if count == 1 else f"{name}-{at}", **{**base, **given}) for at in range(count)]


def pod(
    name,
    *,
    node="",
    cpu="100m",
    memory="1Gi",
    of="",
    generation="",
    labels=None,
    spec=None,
    meta=None,
    extra=None,
    port=0,
    claim="",
    status=None,
    created=None,
):
    amounts = {"cpu": cpu, "memory": memory, **{key: str(count) for key, count in (extra or {}).items()}}
    limits = {key: str(count) for key, count in (extra or {}).items()}
    container = {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": limits}}
    if port:
        container["ports"] = [{"containerPort": port, "hostPort": port}]
    spec = {"containers": [container], **(spec or {}), **({"nodeName": node} if node else {})}
    if claim:
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    kind, _, owner = of.partition("/")
    named = (labels or {}) | ({"pod-template-hash": generation} if generation else {})
    metadata = {"name": name, "labels": named, "creationTimestamp": created or "2026-01-01T00:00:00Z", **(meta or {})}
    if kind:
        held = ("ReplicaSet", f"{owner}-{generation or 'x'}") if kind == "Deployment" else (kind, owner)
        metadata["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": held[0], "name": held[1], "uid": "-".join(held), "controller": True}
        ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": "Running" if node else "Pending", **(status or {})},
    }


def owners(given):
    """The ReplicaSets of Deployments, so that pods have the workload that they name."""
    found = {
        (one["of"].partition("/")[2], one.get("generation") or "x")
        for one in given.values()
        if one.get("of", "").startswith("Deployment/")
    }
    for name, generation in sorted(found):
        reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": f"d-{name}", "controller": True}
        template = {"metadata": {"labels": {"rs": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"replicas": 0, "selector": {"matchLabels": {"rs": name}}, "template": template}
        metadata = {"name": f"{name}-{generation}", "uid": f"ReplicaSet-{name}-{generation}", "ownerReferences": [reference]}
        yield {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata | {"namespace": "default"}, "spec": spec}


def cluster_of(case):
    given = case["pods"]
    made = [one for name, some in given.items() for one in pods(name, **{**some, "like": given.get(some.get("like"))})]
    return [*(node(name, **some) for name, some in case["nodes"].items()), *case.get("objects", ()), *owners(given), *made]


def shown(found):
    kinds = list(dict.fromkeys(one.kind for one in found))
    return kinds[:SHOWN]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_a_person_would_do(case):
    cluster = moorage.Cluster.from_objects(*cluster_of(case))
    found = cluster.least_change("new", alternatives=6, costs=Costs(usage=case.get("usage", {})))
    lines = [" + ".join((*one.texts, *one.effects)) for one in found]
    assert shown(found)[: len(case["kinds"])] == case["kinds"], lines
    if "first" in case:
        assert case["first"] in lines[0], lines
    assert [line for line in lines for word in case.get("never", ()) if word in line] == []
