"""Play incidents on a cluster of 30 nodes in three zones, and print the first line of the answer to each.

Each incident changes the objects of the cluster and asks one question, as someone on call would type it. `python run.py FOLDER`
keeps the files, so that the same commands can be typed by hand.
"""

import copy
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ZONES = ("eu-west-1a", "eu-west-1b", "eu-west-1c")
SINCE = "2026-11-28T18:08:00Z"
IMAGE = "registry.example.com/app"


def node(number):
    zone = ZONES[number % 3]
    name = f"{zone[-2:]}-{number // 3}"
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone, "pool": "general"}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-01T08:00:00Z"}
    status = {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}, "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {}, "status": status}


def workload(name, replicas, cpu, **spec):
    """Return a ReplicaSet in the namespace shop."""
    container = {"name": "c", "image": IMAGE, "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **spec}}
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}"}
    whole = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": whole}


def pods(of, nodes):
    """Return the pods of a ReplicaSet, on nodes in turn."""
    name, template = of["metadata"]["name"], of["spec"]["template"]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": f"uid-{name}", "controller": True}
    for number in range(of["spec"]["replicas"]):
        metadata = {"name": f"{name}-{number}", "namespace": "shop", "labels": {"app": name}, "ownerReferences": [owner]}
        spec = {**template["spec"], "nodeName": nodes[number % len(nodes)]["metadata"]["name"]}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def named(kind, name, spec, version="v1"):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "shop"}, "spec": spec}


NODES = [node(number) for number in range(30)]
WEB, API = workload("web", 90, "2"), workload("api", 30, "1")
CLUSTER = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
    *NODES, WEB, API, *pods(WEB, NODES), *pods(API, NODES),
    named("PodDisruptionBudget", "api", {"selector": {"matchLabels": {"app": "api"}}, "maxUnavailable": 0}, "policy/v1"),
]  # fmt: skip


def lose(objects, zone):
    """Let the kubelets of a zone fall silent."""
    for one in objects:
        if one["metadata"].get("labels", {}).get("topology.kubernetes.io/zone") == zone:
            one["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": SINCE}]
            one["spec"]["taints"] = [
                {"key": "node.kubernetes.io/unreachable", "effect": effect} for effect in ("NoSchedule", "NoExecute")
            ]
    return objects


def taint(objects):
    for one in objects:
        if one["kind"] == "Node":
            one["spec"]["taints"] = [{"key": "maintenance", "value": "true", "effect": "NoSchedule"}]
    return [*objects, workload("late", 2, "1")]


def pod(name, cpu, **spec):
    container = {"name": "c", "image": IMAGE, "resources": {"requests": {"cpu": cpu}}}
    return named("Pod", name, {"containers": [container], **spec})


#: What happens → the objects then, and the question.
INCIDENTS = {
    "a zone falls silent": (lambda it: lose(it, ZONES[1]), "report"),
    "and what its eviction brings": (lambda it: lose(it, ZONES[1]), f"fail --zone {ZONES[1]} --mode unreachable"),
    "one node goes": (lambda it: it, "fail 1a-0"),
    "a quota is full": (
        lambda it: [*it, named("ResourceQuota", "few", {"hard": {"pods": "120"}}), workload("late", 2, "1")],
        "explain -n shop replicaset/late",
    ),
    "every node gets a taint": (taint, "explain -n shop replicaset/late"),
    "a pod is too large": (lambda it: [*it, pod("jumbo", "9")], "explain -n shop jumbo"),
    "a selector is misspelt": (lambda it: [*it, pod("lost", "1", nodeSelector={"pool": "generl"})], "explain -n shop lost"),
    "a gate is left": (
        lambda it: [*it, pod("held", "1", schedulingGates=[{"name": "example.com/check"}])],
        "explain -n shop held",
    ),
    "a drain is blocked": (lambda it: it, "drain 1a-0"),
}  # fmt: skip


def main():
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for number, (title, (happens, question)) in enumerate(INCIDENTS.items(), 1):
            file = folder / f"incident-{number:02}.json"
            items = happens(copy.deepcopy(CLUSTER))
            file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8")
            command = [sys.executable, "-m", "moorage", *question.split(), "-f", str(file)]
            answer = subprocess.run(command, capture_output=True, text=True, check=False)
            first = (answer.stdout or answer.stderr).partition("\n\n")[0]
            print(f"{title}\n  $ moorage {question}\n  {' '.join(first.split())}")


if __name__ == "__main__":
    main()
