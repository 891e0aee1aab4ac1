"""Random clusters with NodePools, instance types, nodes and pods that wait, for the comparison with Karpenter.

No two offerings have one price, so that Karpenter's choice among types is decided by its rules.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

Document = dict[str, Any]

NOW: Final = datetime(2026, 11, 2, tzinfo=UTC)
_ZONES: Final = ("zone-a", "zone-b", "zone-c")
_ZONE: Final = "topology.kubernetes.io/zone"
_KIND: Final = "karpenter.sh/capacity-type"
_TYPE: Final = "node.kubernetes.io/instance-type"
_HOST: Final = "kubernetes.io/hostname"
_CLASS: Final = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
_KWOK: Final = "karpenter.kwok.sh"
_SYSTEM: Final = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}


def ago(seconds: float) -> str:
    """Return the time so long before that of the worlds."""
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def made(seed: int) -> Document:
    """Return the random world of a seed."""
    rng = random.Random(seed)  # noqa: S311  the worlds are to be the same again
    types = _types(rng)
    pools = [_pool(rng, f"pool{number}", types) for number in range(rng.choice([1, 1, 2, 3]))]
    nodes: list[Document] = []
    pods: list[Document] = []
    for number in range(rng.choice([0, 1, 1, 2, 3, 4])):
        claim, node = _machine(rng, f"node{number}", rng.choice(pools), types)
        nodes += [claim, node]
        pods += [_pod(rng, f"run-{number}-{at}", node["metadata"]["name"]) for at in range(rng.choice([0, 0, 1, 1, 2, 3]))]
    pods += [_pod(rng, f"wait-{number}", "") for number in range(rng.choice([0, 0, 1, 2, 3, 5]))]
    daemons = [_daemon(rng, f"daemon{number}") for number in range(rng.choice([0, 0, 0, 1, 2]))]
    budgets = [_budget(rng, f"budget{number}") for number in range(rng.choice([0, 0, 0, 1]))]
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dock", "uid": "dock", "labels": {"team": "a"}}}
    return {
        "name": f"seed {seed}", "now": NOW.timestamp(), "objects": [space, *pools, *nodes, *daemons, *budgets, *pods],
        "types": types, "spotToSpot": rng.random() < 0.15,
    }  # fmt: skip


# -- what a provider offers --------------------------------------------------------------------------------------------------


def _types(rng: random.Random) -> list[Document]:
    found: list[Document] = []
    sizes = rng.sample([1, 2, 4, 8, 16, 32], rng.randint(2, 4))
    for family in rng.sample(["elm", "oak", "fir"], rng.choice([1, 2, 2])):
        for size in sizes:
            memory = size * {"elm": 2, "oak": 4, "fir": 8}[family]
            offerings = []
            for zone in rng.sample(_ZONES, rng.choice([1, 2, 3])):
                for kind in rng.choice([["on-demand"], ["spot", "on-demand"], ["spot"]]):
                    price = (size * 0.05 + memory * 0.006) * (0.4 if kind == "spot" else 1.0) * rng.uniform(0.9, 1.1)
                    offerings.append({
                        "Price": round(price, 6), "Available": True,
                        "Requirements": [
                            {"key": _KIND, "operator": "In", "values": [kind]},
                            {"key": _ZONE, "operator": "In", "values": [zone]},
                        ],
                    })  # fmt: skip
            found.append({
                "name": f"{family}-{size}", "architecture": "amd64", "operatingSystems": ["linux"],
                "resources": {"cpu": str(size), "memory": f"{memory}Gi", "pods": str(rng.choice([8, 29, 110]))},
                "offerings": offerings,
            })  # fmt: skip
    return found


def _requirement(rng: random.Random, types: Sequence[Document]) -> Document:
    families = sorted({one["name"].split("-")[0] for one in types})
    bounds = rng.choice(["Gt", "Lt", "Gte", "Lte"])
    return rng.choice([
        {"key": _ZONE, "operator": rng.choice(["In", "NotIn"]), "values": rng.sample(_ZONES, rng.choice([1, 2]))},
        {"key": _KIND, "operator": "In", "values": rng.choice([["spot"], ["on-demand"], ["spot", "on-demand"]])},
        {"key": f"{_KWOK}/instance-family", "operator": rng.choice(["In", "In", "NotIn"]), "values": [rng.choice(families)]},
        {"key": f"{_KWOK}/instance-cpu", "operator": bounds, "values": [str(rng.choice([1, 4, 8]))]},
        {"key": _TYPE, "operator": rng.choice(["In", "NotIn"]), "values": [one["name"] for one in rng.sample(types, 2)]},
        {"key": "team", "operator": "In", "values": rng.choice([["red"], ["red", "blue"]])},
    ])  # fmt: skip


def _pool(rng: random.Random, name: str, types: Sequence[Document]) -> Document:
    asked = {one["key"]: one for one in (_requirement(rng, types) for _ in range(rng.choice([0, 0, 1, 1, 2])))}
    template: Document = {"nodeClassRef": _CLASS, "requirements": list(asked.values()), "expireAfter": "Never"}
    if rng.random() < 0.15:
        template["requirements"].append({"key": _TYPE, "operator": "Exists", "minValues": rng.choice([1, 2, 3])})
    if rng.random() < 0.2:
        template["taints"] = [_taint(rng)]
    if rng.random() < 0.1:
        template["startupTaints"] = [{"key": "starting", "effect": "NoSchedule"}]
    disruption: Document = {
        "consolidationPolicy": rng.choice(["WhenEmptyOrUnderutilized", "WhenEmptyOrUnderutilized", "WhenEmpty"]),
        "consolidateAfter": rng.choice(["0s", "0s", "0s", "30s", "Never"]),
        "budgets": rng.choice([
            [{"nodes": "100%"}], [{"nodes": "100%"}], [{"nodes": "10%"}], [{"nodes": "0"}], [{"nodes": "1"}],
            [{"nodes": "0", "reasons": ["Underutilized"]}, {"nodes": "100%"}],
        ]),
    }  # fmt: skip
    spec: Document = {"template": {"spec": template}, "disruption": disruption}
    if rng.random() < 0.2:
        spec["template"]["metadata"] = {"labels": {"team": rng.choice(["red", "blue"])}}
    if rng.random() < 0.3:
        spec["weight"] = rng.choice([1, 10, 50])
    if rng.random() < 0.25:
        spec["limits"] = rng.choice([{"cpu": "8"}, {"cpu": "40"}, {"memory": "64Gi"}, {"nodes": "2"}])
    return {
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": name, "uid": name, "creationTimestamp": ago(86400)}, "spec": spec,
    }  # fmt: skip


def _taint(rng: random.Random) -> Document:
    return {
        "key": rng.choice(["one", "two"]),
        "value": "x",
        "effect": rng.choice(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
    }


# -- nodes and pods ----------------------------------------------------------------------------------------------------------


def _machine(rng: random.Random, name: str, pool: Document, types: Sequence[Document]) -> tuple[Document, Document]:
    held = rng.choice(types)
    offered = {one["key"]: one["values"][0] for one in rng.choice(held["offerings"])["Requirements"]}
    cpu, memory = int(held["resources"]["cpu"]), int(held["resources"]["memory"].removesuffix("Gi"))
    labels = {
        **_SYSTEM, **offered, _TYPE: held["name"], "karpenter.sh/nodepool": pool["metadata"]["name"],
        f"{_KWOK}/instance-cpu": held["resources"]["cpu"], f"{_KWOK}/instance-memory": held["resources"]["memory"],
        f"{_KWOK}/instance-family": held["name"].split("-")[0], f"{_KWOK}/instance-size": held["resources"]["cpu"],
        **(pool["spec"]["template"].get("metadata") or {}).get("labels", {}),
        "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
    }  # fmt: skip
    shown = {
        "capacity": held["resources"],
        "allocatable": {**held["resources"], "cpu": f"{cpu * 1000 - 100}m", "memory": f"{memory * 1024 - 10}Mi"},
    }
    told = dict.fromkeys(("Launched", "Registered", "Initialized"), "True")
    if rng.random() < 0.85:
        told["Consolidatable"] = "True"
    if rng.random() < 0.1:
        told["Drifted"] = "True"
    conditions = [
        {"type": kind, "status": status, "lastTransitionTime": ago(rng.randint(600, 6000)), "reason": kind, "message": ""}
        for kind, status in told.items()
    ]
    taints = pool["spec"]["template"]["spec"].get("taints", [])
    claim_spec: Document = {"nodeClassRef": _CLASS, "requirements": [], "expireAfter": "Never", "taints": taints}
    if rng.random() < 0.05:
        claim_spec["terminationGracePeriod"] = "1h"
    claim: Document = {
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {
            "name": f"claim-{name}", "uid": f"claim-{name}", "labels": labels, "creationTimestamp": ago(7200),
            "finalizers": ["karpenter.sh/termination"],
        },
        "spec": claim_spec,
        "status": {
            "nodeName": name, "providerID": f"kwok://{name}", "lastPodEventTime": ago(rng.randint(300, 3000)),
            "conditions": conditions, **shown,
        },
    }  # fmt: skip
    if rng.random() < 0.04:
        claim["metadata"]["deletionTimestamp"] = ago(5)
    spec: Document = {"providerID": f"kwok://{name}"}
    if taints:
        spec["taints"] = taints
    annotations = {"karpenter.sh/do-not-disrupt": "true"} if rng.random() < 0.05 else {}
    ready = [{"type": "Ready", "status": "True" if rng.random() < 0.95 else "False"}]
    node = {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "uid": name, "labels": {**labels, _HOST: name}, "annotations": annotations,
            "creationTimestamp": ago(7000),
        },
        "spec": spec, "status": {**shown, "conditions": ready},
    }  # fmt: skip
    return claim, node


def _term(rng: random.Random) -> Document:
    key, values = rng.choice([
        (_ZONE, [rng.choice(_ZONES)]), (_KIND, ["spot"]), (_KIND, ["on-demand"]), (f"{_KWOK}/instance-family", ["elm"]),
        ("team", ["red"]), ("team", ["blue"]),
    ])  # fmt: skip
    operator = rng.choice(["In", "In", "In", "NotIn", "Exists"])
    return {"key": key, "operator": operator} | ({} if operator == "Exists" else {"values": values})


def _terms(rng: random.Random) -> list[Document]:
    return [{"matchExpressions": [_term(rng) for _ in range(rng.choice([1, 1, 2]))]} for _ in range(rng.choice([1, 1, 2]))]


def _affinity(rng: random.Random, app: str) -> Document:
    found: Document = {}
    if rng.random() < 0.2:
        found["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": _terms(rng)}}
    if rng.random() < 0.15:
        found.setdefault("nodeAffinity", {})["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": rng.choice([1, 10]), "preference": {"matchExpressions": [_term(rng)]}}
        ]
    for kind, chance in (("podAntiAffinity", 0.12), ("podAffinity", 0.08)):
        if rng.random() < chance:
            term = {"topologyKey": rng.choice([_HOST, _ZONE]), "labelSelector": {"matchLabels": {"app": app}}}
            if rng.random() < 0.7:
                found[kind] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            else:
                weighted = {"weight": 10, "podAffinityTerm": term}
                found[kind] = {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}
    return found


def _pod(rng: random.Random, name: str, node: str) -> Document:
    app = rng.choice(["mast", "sail", "rope"])
    asked = {
        "cpu": f"{rng.choice([100, 250, 500, 1000, 1500, 3000, 6000])}m",
        "memory": f"{rng.choice([128, 512, 1024, 4096])}Mi",
    }
    spec: Document = {
        "containers": [{"name": "c", "image": "app", "resources": {"requests": asked}}],
        "restartPolicy": "Always",
    }
    if node:
        spec["nodeName"] = node
    if affinity := _affinity(rng, app):
        spec["affinity"] = affinity
    if rng.random() < 0.15:
        spec["nodeSelector"] = rng.choice([{_ZONE: rng.choice(_ZONES)}, {_KIND: "spot"}, {"team": "red"}])
    if rng.random() < 0.25:
        spec["tolerations"] = [rng.choice([{"key": "one", "operator": "Exists"}, {"operator": "Exists"}])]
    if rng.random() < 0.15:
        spec["topologySpreadConstraints"] = [{
            "maxSkew": rng.choice([1, 1, 2]), "topologyKey": rng.choice([_ZONE, _HOST, _KIND]),
            "whenUnsatisfiable": rng.choice(["DoNotSchedule", "ScheduleAnyway"]),
            "labelSelector": {"matchLabels": {"app": app}},
        }]  # fmt: skip
    if rng.random() < 0.06:
        spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": f"ReplicaSet-{app}", "controller": True}
    metadata: Document = {
        "namespace": "dock", "name": name, "uid": name, "labels": {"app": app},
        "creationTimestamp": ago(rng.randint(100, 5000)),
        "ownerReferences": [owner] if rng.random() < 0.93 else [],
    }  # fmt: skip
    annotations: Document = {}
    if node and rng.random() < 0.05:
        annotations["karpenter.sh/do-not-disrupt"] = "true"
    if rng.random() < 0.08:
        annotations["controller.kubernetes.io/pod-deletion-cost"] = rng.choice(["-100", "5", "10000"])
    metadata["annotations"] = annotations
    status: Document = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    if not node:
        waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
        status = {"phase": "Pending", "conditions": [waits]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def _daemon(rng: random.Random, name: str) -> Document:
    asked = {"cpu": f"{rng.choice([100, 250, 1000])}m", "memory": "128Mi"}
    spec: Document = {"containers": [{"name": "c", "image": "agent", "resources": {"requests": asked}}]}
    if rng.random() < 0.4:
        spec["tolerations"] = [{"operator": "Exists"}]
    if rng.random() < 0.3:
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": _terms(rng)[:1]}}
        }
    labels = {"agent": name}
    return {
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"namespace": "dock", "name": name, "uid": name, "creationTimestamp": ago(9000)},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }  # fmt: skip


def _budget(rng: random.Random, name: str) -> Document:
    app = rng.choice(["mast", "sail", "rope"])
    most: Document = rng.choice([{"maxUnavailable": 0}, {"maxUnavailable": 1}, {"minAvailable": "100%"}, {"minAvailable": 1}])
    allowed = 0 if most in ({"maxUnavailable": 0}, {"minAvailable": "100%"}) else rng.choice([0, 1, 1])
    status = {
        "disruptionsAllowed": allowed,
        "currentHealthy": 1,
        "desiredHealthy": 1,
        "expectedPods": 1,
        "observedGeneration": 1,
    }
    return {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"namespace": "dock", "name": name, "uid": name, "generation": 1, "creationTimestamp": ago(9000)},
        "spec": {"selector": {"matchLabels": {"app": app}}, **most}, "status": status,
    }  # fmt: skip
