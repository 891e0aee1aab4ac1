"""Random clusters and policies for the comparison with the descheduler: all its default plugins, and what protects pods."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any, Final

Document = dict[str, Any]

_NOW: Final = datetime(2026, 11, 24, tzinfo=UTC)
_ANNOTATIONS: Final = (
    {"descheduler.alpha.kubernetes.io/evict": "true"},
    {"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""},
    {"kubernetes.io/config.mirror": "x"},
    {"kubernetes.io/config.source": "file"},
)
_REASONS: Final = ("CrashLoopBackOff", "ImagePullBackOff", "CreateContainerConfigError", "PodInitializing")
_ENDS: Final = ("OOMKilled", "Error", "Completed")
_GPU: Final = "example.com/gpu"


#: Pods on a node by an owner. Go's order of more than twelve equal ones is left open.
_MOST_PODS: Final = 10


def _node_of(pod: Document) -> str:
    return str(pod["spec"].get("nodeName", ""))


def _ago(seconds: int) -> str:
    return (_NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def made(seed: int) -> Document:
    """Return the random world of a seed."""
    rng = random.Random(seed)  # noqa: S311  the worlds are to be the same again
    spaces = [f"space{number}" for number in range(rng.choice([1, 1, 2, 3]))]
    objects: list[Document] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": rng.choice("ab")}}}
        for name in spaces
    ]
    nodes = [_node(rng, f"node{number}") for number in range(rng.choice([1, *[2, 3, 4] * 4, 5, 5, 6, 6]))]
    pods: list[Document] = []
    for number in range(rng.randint(1, 5)):
        owner = f"owner{number}"
        template = _template(rng, owner, spaces)
        crowded, space = rng.choice(nodes) if rng.random() < 0.6 else None, rng.choice(spaces) if rng.random() < 0.8 else None
        for at in range(rng.choice([1, 2, 3, 4, 5, 7])):
            room = [one for one in nodes if sum(_node_of(pod) == one["metadata"]["name"] for pod in pods) < _MOST_PODS]
            if not room:
                break
            node = crowded if crowded in room and rng.random() < 0.75 else rng.choice(room)
            pods.append(_pod(rng, f"{owner}-{at}", space or rng.choice(spaces), template, node, len(pods)))
    for number in range(rng.choice([0, 0, 1, 2])):
        template = {**_template(rng, "bare", spaces), "owners": []}
        pods.append(_pod(rng, f"bare-{number}", rng.choice(spaces), template, rng.choice(nodes), len(pods)))
    classes = {"low": 10, "high": 1000}
    objects += [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
        for name, value in classes.items()
    ]
    for number in range(rng.choice([0, 1, 2])):
        objects.append({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"namespace": rng.choice(spaces), "name": f"budget{number}"},
            "spec": {"minAvailable": 1, "selector": _selector(rng)},
        })  # fmt: skip
    for space in spaces:
        objects += [
            {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"namespace": space, "name": name},
                "spec": {} if not kind else {"storageClassName": kind},
            }
            for name, kind in (("fast", "fast"), ("slow", "slow"), ("plain", ""))
        ]  # fmt: skip
    keys = [f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in pods]
    world: Document = {
        "name": f"seed {seed}", "now": _ago(0), "objects": [*nodes, *pods, *objects],
        "policy": _policy(rng, spaces), "refused": rng.sample(keys, min(len(keys), rng.choice([0, 0, 0, 1, 3]))),
    }  # fmt: skip
    if rng.random() < 0.85:
        world["nodeUsage"] = {
            one["metadata"]["name"]: {"cpu": f"{rng.randint(0, 40) * 100}m", "memory": f"{rng.randint(0, 8)}Gi"}
            for one in nodes if rng.random() < 0.97
        }  # fmt: skip
        world["podUsage"] = {
            key: [{"cpu": f"{rng.randint(0, 10) * 100}m", "memory": f"{rng.randint(0, 4) * 256}Mi"}]
            for key in keys if rng.random() < 0.9
        }  # fmt: skip
    world["shares"] = {one["metadata"]["name"]: rng.randint(0, 100) / 100 for one in nodes if rng.random() < 0.97}
    if rng.random() < 0.1:
        _break(rng, world["policy"])
    return world


def _selector(rng: random.Random) -> Document:
    return rng.choice([
        {"matchLabels": {"app": f"owner{rng.randint(0, 3)}"}},
        {"matchLabels": {"color": rng.choice(["red", "blue"])}},
        {"matchExpressions": [{"key": "color", "operator": rng.choice(["In", "NotIn"]), "values": ["red"]}]},
        {"matchExpressions": [{"key": "color", "operator": "Exists"}]},
    ])  # fmt: skip


def _taint(rng: random.Random) -> Document:
    taint: Document = {"key": rng.choice(["one", "two"]), "effect": rng.choice(["NoSchedule", "NoExecute", "PreferNoSchedule"])}
    if rng.random() < 0.6:
        taint["value"] = rng.choice(["x", "y"])
    return taint


def _toleration(rng: random.Random) -> Document:
    if rng.random() < 0.2:
        return {"operator": "Exists"}
    found: Document = {"key": rng.choice(["one", "two"])}
    if rng.random() < 0.5:
        found["operator"] = "Exists"
    else:
        found |= {"operator": "Equal", "value": rng.choice(["x", "y", ""])}
    if rng.random() < 0.5:
        found["effect"] = rng.choice(["NoSchedule", "NoExecute", "PreferNoSchedule"])
    return found


def _node(rng: random.Random, name: str) -> Document:
    labels = {"kubernetes.io/hostname": name, "zone": rng.choice(["a", "b", "c"]), "disk": rng.choice(["ssd", "hdd"])}
    if rng.random() < 0.1:
        del labels["zone"]
    room: Document = {
        "cpu": str(rng.choice([1, 2, 4])),
        "memory": f"{rng.choice([2, 4, 8])}Gi",
        "pods": str(rng.choice([4, 8, 20])),
    }
    if rng.random() < 0.3:
        room[_GPU] = str(rng.choice([1, 2, 4]))
    ready = [] if rng.random() < 0.1 else [{"type": "Ready", "status": "False" if rng.random() < 0.06 else "True"}]
    spec: Document = {}
    if rng.random() < 0.3:
        spec["taints"] = [_taint(rng) for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.12:
        spec["unschedulable"] = True
    status: Document = {"capacity": room, "allocatable": room, "conditions": ready}
    if rng.random() < 0.05:
        del status["allocatable"]
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def _requirement(rng: random.Random) -> Document:
    key, values = rng.choice([("zone", ["a", "b"]), ("disk", ["ssd"]), ("zone", ["c"]), ("disk", ["hdd"])])
    operator = rng.choice(["In", "In", "In", "NotIn", "Exists"])
    return {"key": key, "operator": operator} | ({} if operator == "Exists" else {"values": values})


def _requests(rng: random.Random) -> Document:
    asked: Document = {}
    if rng.random() < 0.7:
        asked["cpu"] = f"{rng.choice([50, 100, 200, 300, 500, 1000])}m"
    if rng.random() < 0.6:
        asked["memory"] = f"{rng.choice([64, 128, 256, 512, 1024])}Mi"
    if rng.random() < 0.1:
        asked[_GPU] = "1"
    if rng.random() < 0.1:
        asked["ephemeral-storage"] = "1Gi"
    return asked


def _container(rng: random.Random, name: str) -> Document:
    asked = _requests(rng)
    limits = dict(asked) if rng.random() < 0.35 else {key: value for key, value in asked.items() if key == _GPU}
    return {"name": name, "image": rng.choice(["web:1", "web:2", "db:1"]), "resources": {"requests": asked, "limits": limits}}


def _spread(rng: random.Random, owner: str) -> Document:
    found: Document = {
        "maxSkew": rng.choice([1, 1, 1, 2]), "topologyKey": rng.choice(["zone", "kubernetes.io/hostname", "disk"]),
        "whenUnsatisfiable": rng.choice(["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]),
    }  # fmt: skip
    if rng.random() < 0.95:
        found["labelSelector"] = {"matchLabels": {"app": owner}} if rng.random() < 0.7 else _selector(rng)
    if rng.random() < 0.15:
        found["matchLabelKeys"] = ["color"]
    if rng.random() < 0.15:
        found["minDomains"] = rng.randint(1, 4)
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if rng.random() < 0.2:
            found[policy] = rng.choice(["Honor", "Ignore"])
    return found


def _template(rng: random.Random, owner: str, spaces: Sequence[str]) -> Document:
    """Return what the pods of an owner have in common."""
    kind = rng.choice([*["ReplicaSet"] * 6, "StatefulSet", "StatefulSet", "Job", "DaemonSet"])
    owners = [{"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": f"uid-{owner}"}]
    if rng.random() < 0.05:
        owners.append({"apiVersion": "v1", "kind": "Other", "name": "other", "uid": "uid-other"})
    labels = {"app": owner} | ({"color": rng.choice(["red", "blue"])} if rng.random() < 0.6 else {})
    return {"spec": _spec(rng, owner, spaces), "owners": owners, "labels": labels}


def _affinity(rng: random.Random, spaces: Sequence[str]) -> Document:
    affinity: Document = {}
    if rng.random() < 0.3:
        terms = [
            {"matchExpressions": [_requirement(rng) for _ in range(rng.choice([1, 1, 2]))]}
            for _ in range(rng.choice([1, 1, 2]))
        ]
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    if rng.random() < 0.25:
        affinity.setdefault("nodeAffinity", {})["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": rng.choice([1, 10, 50]), "preference": {"matchExpressions": [_requirement(rng)]}}
            for _ in range(rng.choice([1, 2]))
        ]
    if rng.random() < 0.3:
        terms = []
        for _ in range(rng.choice([1, 1, 2])):
            term: Document = {
                "topologyKey": rng.choice(["zone", "kubernetes.io/hostname", "none"]),
                "labelSelector": _selector(rng),
            }
            if rng.random() < 0.2:
                term["namespaces"] = rng.sample(list(spaces), rng.randint(1, len(spaces)))
            if rng.random() < 0.1:
                term["namespaceSelector"] = {"matchLabels": {"team": "a"}}
            terms.append(term)
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return affinity


def _spec(rng: random.Random, owner: str, spaces: Sequence[str]) -> Document:
    spec: Document = {
        "containers": [_container(rng, f"c{number}") for number in range(rng.choice([1, 1, 1, 2]))],
        "tolerations": [_toleration(rng) for _ in range(rng.choice([0, 0, 0, 1, 1, 2]))],
    }
    if rng.random() < 0.15:
        spec["initContainers"] = [_container(rng, "init")]
    if affinity := _affinity(rng, spaces):
        spec["affinity"] = affinity
    if rng.random() < 0.15:
        spec["nodeSelector"] = rng.choice([{"disk": "ssd"}, {"zone": "a"}])
    if rng.random() < 0.8:
        spec["priority"] = rng.choice([0, 0, 0, 0, 10, 10, 500, 1000, 2000000000])
    if rng.random() < 0.4:
        spec["topologySpreadConstraints"] = [_spread(rng, owner) for _ in range(rng.choice([1, 1, 2]))]
    if rng.random() < 0.1:
        spec["overhead"] = {"cpu": "50m"}
    volumes = rng.choice([
        *([[]] * 8), [{"name": "v", "emptyDir": {}}], [{"name": "v", "hostPath": {"path": "/x"}}],
        [{"name": "v", "persistentVolumeClaim": {"claimName": rng.choice(["fast", "slow", "plain", "missing"])}}],
    ])  # fmt: skip
    if volumes:
        spec["volumes"] = volumes
    if rng.random() < 0.05:
        spec["resourceClaims"] = [{"name": "device", "resourceClaimName": "claim"}]
    return spec


def _state(rng: random.Random, name: str) -> Document:
    found: Document = {"name": name, "restartCount": rng.choice([0, 0, 1, 2, 5, 10]), "state": {"running": {}}}
    if rng.random() < 0.25:
        found["state"] = {"waiting": {"reason": rng.choice(_REASONS)}}
    elif rng.random() < 0.2:
        found["state"] = {"terminated": {"reason": rng.choice(_ENDS), "exitCode": rng.choice([0, 1, 137])}}
    return found


def _pod(rng: random.Random, name: str, space: str, template: Document, node: Document, number: int) -> Document:
    age = rng.randint(1, 60) * 600 + 30 + number
    spec = deepcopy(template["spec"])
    if rng.random() < 0.97:
        spec["nodeName"] = node["metadata"]["name"]
    if rng.random() < 0.05:
        spec["priority"] = rng.choice([0, 100, 2000])
    phase = "Running" if rng.random() < 0.8 else rng.choice(["Failed", "Failed", "Succeeded", "Pending"])
    status: Document = {"phase": phase, "containerStatuses": [_state(rng, one["name"]) for one in spec["containers"]]}
    if "initContainers" in spec:
        status["initContainerStatuses"] = [_state(rng, "init")]
    if rng.random() < 0.95:
        status["startTime"] = _ago(age)
    if phase == "Failed" and rng.random() < 0.5:
        status["reason"] = rng.choice(["Evicted", "NodeAffinity", "DeadlineExceeded"])
    if rng.random() < 0.5:
        condition: Document = {
            "type": rng.choice(["Ready", "PodScheduled"]), "status": rng.choice(["True", "False"]),
            "reason": rng.choice(["", "PodCompleted"]),
        }  # fmt: skip
        if rng.random() < 0.8:
            condition["lastTransitionTime"] = _ago(rng.randint(1, 60) * 600 + 30)
        status["conditions"] = [condition]
    metadata: Document = {
        "namespace": space, "name": name, "uid": f"uid-{space}-{name}", "labels": template["labels"],
        "creationTimestamp": _ago(age), "annotations": rng.choice(_ANNOTATIONS) if rng.random() < 0.07 else {},
    }  # fmt: skip
    if template["owners"]:
        metadata["ownerReferences"] = template["owners"]
    if rng.random() < 0.04:
        metadata["deletionTimestamp"] = _ago(5)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def _lists(rng: random.Random, names: Sequence[str], *fields: str) -> Document:
    return {rng.choice(fields or ("include", "exclude")): rng.sample(list(names), rng.randint(1, len(names)))}


def _filtered(rng: random.Random, spaces: Sequence[str], args: Document) -> Document:
    if rng.random() < 0.2:
        args["namespaces"] = _lists(rng, spaces)
    if rng.random() < 0.15:
        args["labelSelector"] = _selector(rng)
    return args


def _evictor(rng: random.Random) -> Document:
    args: Document = {}
    if rng.random() < 0.5:
        args["nodeFit"] = True
    if rng.random() < 0.15:
        args["nodeSelector"] = rng.choice(["disk=ssd", "zone in (a,b)"])
    if rng.random() < 0.15:
        args["labelSelector"] = _selector(rng)
    if rng.random() < 0.15:
        args["namespaceLabelSelector"] = {"matchLabels": {"team": "a"}}
    if rng.random() < 0.25:
        args["priorityThreshold"] = rng.choice([{"value": 100}, {"value": 1000}, {"name": "high"}, {"name": "low"}])
    if rng.random() < 0.2:
        args["minReplicas"] = rng.choice([1, 2, 3])
    if rng.random() < 0.15:
        args["minPodAge"] = rng.choice(["1h", "3h", "90m"])
    if rng.random() < 0.2:
        args["noEvictionPolicy"] = rng.choice(["Preferred", "Mandatory"])
    if rng.random() < 0.4:
        off = ["PodsWithLocalStorage", "SystemCriticalPods", "FailedBarePods", "DaemonSetPods"]
        more = ["PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims"]
        args["podProtections"] = {
            "defaultDisabled": rng.sample(off, rng.randint(0, 4)), "extraEnabled": rng.sample(more, rng.choice([0, 0, 1, 2])),
        }  # fmt: skip
        if rng.random() < 0.4:
            args["podProtections"]["config"] = {
                "PodsWithPVC": {"protectedStorageClasses": [{"name": rng.choice(["fast", "slow"])}]}
            }
    else:
        flags = [
            "evictLocalStoragePods",
            "evictDaemonSetPods",
            "evictSystemCriticalPods",
            "ignorePvcPods",
            "evictFailedBarePods",
        ]
        args |= {flag: True for flag in (*flags, "ignorePodsWithoutPDB") if rng.random() < 0.2}
    return args


def _pod_life_time(rng: random.Random, spaces: Sequence[str]) -> Document:
    args: Document = {}
    if rng.random() < 0.6:
        args["maxPodLifeTimeSeconds"] = rng.choice([600, 6000, 18000])
    if rng.random() < 0.4:
        args["states"] = rng.sample(["Running", "Pending", "Failed", "CrashLoopBackOff", "OOMKilled", "Evicted"], 2)
    if rng.random() < 0.25:
        asked: Document = {"type": "Ready", "status": rng.choice(["True", "False"])}
        if rng.random() < 0.5:
            asked["minTimeSinceLastTransitionSeconds"] = rng.choice([600, 12000])
        if rng.random() < 0.2:
            asked["reason"] = "PodCompleted"
        args["conditions"] = [asked]
    if rng.random() < 0.15:
        args["exitCodes"] = [1, 137]
    if rng.random() < 0.2:
        args["ownerKinds"] = _lists(rng, ["ReplicaSet", "Job", "StatefulSet"])
    if not args.keys() & {"maxPodLifeTimeSeconds", "states", "conditions", "exitCodes"}:
        args["maxPodLifeTimeSeconds"] = 1200
    if rng.random() < 0.3:
        args["includingInitContainers"] = True
    return _filtered(rng, spaces, args)


def _failed(rng: random.Random, spaces: Sequence[str]) -> Document:
    args: Document = {}
    if rng.random() < 0.3:
        args["minPodLifetimeSeconds"] = rng.choice([600, 6000, 18000])
    if rng.random() < 0.3:
        args["reasons"] = rng.sample(["Evicted", "NodeAffinity", "OOMKilled", "Error", "CrashLoopBackOff"], 2)
    if rng.random() < 0.2:
        args["exitCodes"] = [rng.choice([1, 137])]
    if rng.random() < 0.2:
        args["excludeOwnerKinds"] = [rng.choice(["Job", "ReplicaSet"])]
    if rng.random() < 0.3:
        args["includingInitContainers"] = True
    return _filtered(rng, spaces, args)


def _restarts(rng: random.Random, spaces: Sequence[str]) -> Document:
    args: Document = {"podRestartThreshold": rng.choice([1, 2, 5, 10])}
    if rng.random() < 0.3:
        args["states"] = [rng.choice(["Running", "CrashLoopBackOff"])]
    if rng.random() < 0.4:
        args["includingInitContainers"] = True
    return _filtered(rng, spaces, args)


def _node_affinity(rng: random.Random, spaces: Sequence[str]) -> Document:
    kinds = [f"{kind}DuringSchedulingIgnoredDuringExecution" for kind in ("required", "preferred")]
    return _filtered(rng, spaces, {"nodeAffinityType": rng.sample(kinds, rng.choice([1, 1, 2]))})


def _node_taints(rng: random.Random, spaces: Sequence[str]) -> Document:
    args: Document = {}
    if rng.random() < 0.4:
        args["includePreferNoSchedule"] = True
    if rng.random() < 0.4:
        args[rng.choice(["excludedTaints", "includedTaints"])] = rng.sample(["one", "two", "one=x", "two=y"], rng.randint(1, 2))
    return _filtered(rng, spaces, args)


def _thresholds(rng: random.Random, names: Sequence[str], least: int, most: int) -> Document:
    return {name: rng.randint(least, most) for name in names}


def _low_utilization(rng: random.Random, spaces: Sequence[str]) -> Document:
    names = rng.sample(["cpu", "memory", "pods", _GPU], rng.choice([1, 2, 3]))
    args: Document = {}
    source = rng.random()
    if source < 0.2:
        names = ["MetricResource"]
        args["metricsUtilization"] = {"source": "Prometheus", "prometheus": {"query": "up"}}
    elif source < 0.4:
        names = [name for name in names if name != _GPU] or ["cpu"]
        args["metricsUtilization"] = rng.choice([{"source": "KubernetesMetrics"}, {"metricsServer": True}])
    if rng.random() < 0.25:
        args |= {"useDeviationThresholds": True, "thresholds": _thresholds(rng, names, 0, 30)}
        args["targetThresholds"] = _thresholds(rng, names, 0, 30)
    else:
        args |= {"thresholds": _thresholds(rng, names, 10, 50), "targetThresholds": _thresholds(rng, names, 50, 90)}
    if rng.random() < 0.2:
        args["numberOfNodes"] = rng.choice([1, 2])
    if rng.random() < 0.2:
        args["evictableNamespaces"] = _lists(rng, spaces, "exclude")
    if rng.random() < 0.2:
        args["evictionLimits"] = {"node": rng.choice([1, 2])}
    return args


def _high_utilization(rng: random.Random, spaces: Sequence[str]) -> Document:
    names = rng.sample(["cpu", "memory", "pods", _GPU], rng.choice([1, 2, 3]))
    args: Document = {"thresholds": _thresholds(rng, names, 20, 80)}
    if rng.random() < 0.2:
        args["numberOfNodes"] = 1
    if rng.random() < 0.3:
        args["evictionModes"] = ["OnlyThresholdingResources"]
    if rng.random() < 0.2:
        args["evictableNamespaces"] = _lists(rng, spaces, "exclude")
    return args


def _duplicates(rng: random.Random, spaces: Sequence[str]) -> Document:
    args: Document = {}
    if rng.random() < 0.2:
        args["namespaces"] = _lists(rng, spaces)
    if rng.random() < 0.2:
        args["excludeOwnerKinds"] = [rng.choice(["Job", "ReplicaSet"])]
    return args


def _topology_spread(rng: random.Random, spaces: Sequence[str]) -> Document:
    args: Document = {}
    if rng.random() < 0.5:
        args["constraints"] = rng.choice([["DoNotSchedule"], ["ScheduleAnyway"], ["DoNotSchedule", "ScheduleAnyway"]])
    if rng.random() < 0.4:
        args["topologyBalanceNodeFit"] = rng.choice([True, False])
    return _filtered(rng, spaces, args)


DESCHEDULE: Final[dict[str, Callable[[random.Random, Sequence[str]], Document]]] = {
    "PodLifeTime": _pod_life_time, "RemoveFailedPods": _failed, "RemovePodsHavingTooManyRestarts": _restarts,
    "RemovePodsViolatingInterPodAntiAffinity": lambda rng, spaces: _filtered(rng, spaces, {}),
    "RemovePodsViolatingNodeAffinity": _node_affinity, "RemovePodsViolatingNodeTaints": _node_taints,
}  # fmt: skip
BALANCE: Final[dict[str, Callable[[random.Random, Sequence[str]], Document]]] = {
    "LowNodeUtilization": _low_utilization, "HighNodeUtilization": _high_utilization, "RemoveDuplicates": _duplicates,
    "RemovePodsViolatingTopologySpreadConstraint": _topology_spread,
}  # fmt: skip


def _policy(rng: random.Random, spaces: Sequence[str]) -> Document:
    policy: Document = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": []}
    for limit in ("maxNoOfPodsToEvictPerNode", "maxNoOfPodsToEvictPerNamespace", "maxNoOfPodsToEvictTotal"):
        if rng.random() < 0.12:
            policy[limit] = rng.choice([0, 1, 2, 4])
    if rng.random() < 0.1:
        policy["nodeSelector"] = rng.choice(["disk=ssd", "zone"])
    for number in range(rng.choice([1, 1, 1, 2])):
        every = {**DESCHEDULE, **BALANCE}
        names = rng.sample(sorted(every) + sorted(BALANCE), rng.choice([1, 1, 2, 3]))
        names = list(dict.fromkeys(names))
        configured = [{"name": name, "args": every[name](rng, spaces)} for name in names]
        if rng.random() < 0.8:
            configured.append({"name": "DefaultEvictor", "args": _evictor(rng)})
        points = {
            point: {"enabled": [name for name in names if name in known]}
            for point, known in (("deschedule", DESCHEDULE), ("balance", BALANCE))
        }
        policy["profiles"].append({"name": f"profile{number}", "pluginConfig": configured, "plugins": points})
    return policy


#: Arguments that are wrong, or only look so, by plugin; "" stands for all plugins. Faults that the descheduler finds when the
#: plugin runs are left out: they are refused here at once.
_ODD: Final[dict[str, list[Document]]] = {
    "": [{"unknown": 1}, {"namespaces": {"include": ["a"], "exclude": ["b"]}}, {"labelSelector": {"matchLabels": {"a": "-"}}}],
    "DefaultEvictor": [
        {"noEvictionPolicy": "Never"}, {"priorityThreshold": {"name": "high", "value": 1}},
        {"priorityThreshold": {"name": "none"}}, {"priorityThreshold": {"value": 2000000001}}, {"minPodAge": "1 hour"},
        {"minReplicas": -1},
        {"podProtections": {"extraEnabled": ["DaemonSetPods"]}}, {"podProtections": {"defaultDisabled": ["PodsWithPVC"]}},
        {"podProtections": {"defaultDisabled": ["DaemonSetPods", "DaemonSetPods"]}},
        {"podProtections": {"extraEnabled": ["PodsWithPVC"]}, "evictDaemonSetPods": True},
        {"podProtections": {"extraEnabled": ["PodsWithPVC"], "config": {"PodsWithPVC": {"protectedStorageClasses": [{}]}}}},
    ],
    "PodLifeTime": [
        {"maxPodLifeTimeSeconds": -1}, {"states": ["Sleeping"]}, {"conditions": [{}]}, {"exitCodes": ["1"]},
        {"ownerKinds": {"include": ["Job"], "exclude": ["Job"]}}, {"states": ["NodeLost", "Shutdown"]},
    ],
    "RemoveFailedPods": [{"minPodLifetimeSeconds": 1.5}, {"reasons": [1]}],
    "RemovePodsHavingTooManyRestarts": [{"podRestartThreshold": 0}, {"states": ["Failed"]}],
    "RemovePodsViolatingNodeAffinity": [{"nodeAffinityType": []}, {"nodeAffinityType": ["required"]}],
    "RemovePodsViolatingNodeTaints": [{"includedTaints": ["a"], "excludedTaints": ["b"]}, {"includedTaints": []}],
    "RemovePodsViolatingTopologySpreadConstraint": [{"constraints": ["Sometimes"]}, {"constraints": []}],
    "LowNodeUtilization": [
        {"thresholds": {}}, {"thresholds": {"cpu": 101}}, {"targetThresholds": {"storage": 10}}, {"thresholds": {"cpu": -1}},
        {"evictableNamespaces": {"include": ["a"]}}, {"metricsUtilization": {"source": "Prometheus"}},
        {"metricsUtilization": {"source": "KubernetesMetrics", "metricsServer": True}},
        {"thresholds": {"cpu": 60}, "targetThresholds": {"cpu": 50}},
    ],
    "HighNodeUtilization": [{"thresholds": {}}, {"thresholds": {"cpu": 100.5}}, {"evictionModes": ["All"]}],
}  # fmt: skip


def _break(rng: random.Random, policy: Document) -> None:
    """Give a plugin of a policy odd arguments."""
    config = rng.choice(rng.choice(policy["profiles"])["pluginConfig"])
    config["args"] |= rng.choice([*_ODD[""], *_ODD.get(config["name"], [])])
