"""Make KubeSchedulerConfigurations at random: valid ones for random clusters, and documents with faults.

An oracle answers them with profiles or faults (``documents``).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from moorage.api.releases import find_release

Document = dict[str, Any]

GROUP: Final = "kubescheduler.config.k8s.io"
VERSION: Final = f"{GROUP}/v1"
VERSIONS: Final = ("v1", "v1beta3", "v1beta2", "v2")
#: Plugins that a profile can lack without being refused, and those that score.
FILTERS: Final = (
    "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit", "VolumeRestrictions",
    "NodeVolumeLimits", "VolumeZone", "PodTopologySpread", "InterPodAffinity",
)  # fmt: skip
SCORES: Final = (
    "TaintToleration", "NodeAffinity", "NodeResourcesFit", "PodTopologySpread", "InterPodAffinity",
    "NodeResourcesBalancedAllocation", "ImageLocality",
)  # fmt: skip
RESOURCES: Final = (
    "cpu",
    "memory",
    "ephemeral-storage",
    "nvidia.com/gpu",
    "example.com/gpu",
    "example.com/foo",
    "hugepages-2Mi",
)
LABELS: Final = {
    "topology.kubernetes.io/zone": ("z1", "z2", "a"), "topology.kubernetes.io/region": ("r1", "r2"), "disk": ("ssd", "hdd"),
    "kubernetes.io/hostname": ("n0", "n1"), "rack": ("rack1", "rack2"), "cores": ("4", "16"),
}  # fmt: skip
TOPOLOGIES: Final = ("kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "rack")


def configuration(rng: random.Random) -> Document:
    """Return a configuration that every release accepts, with one to three profiles."""
    names = ["default-scheduler", "second", "third"][: rng.choice((1, 1, 2, 3))]
    return {
        "apiVersion": VERSION,
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": rng.choice((0, 1, 50, 100)),
        "profiles": [_profile(rng, name) for name in names],
    }


def _profile(rng: random.Random, name: str) -> Document:
    made: Document = {"schedulerName": name, "pluginConfig": [], "plugins": {}}
    for plugin, arguments in ARGUMENTS.items():
        if rng.random() < 0.4:
            made["pluginConfig"].append({"name": plugin, "args": arguments(rng)})
    if rng.random() < 0.3:
        made["percentageOfNodesToScore"] = rng.choice((0, 10, 100))
    if rng.random() < 0.6:
        made["plugins"]["score"] = _weights(rng)
    if rng.random() < 0.4:
        off = rng.sample(FILTERS, rng.choice((1, 1, 2, 4)))
        made["plugins"][rng.choice(("filter", "filter", "multiPoint"))] = {"disabled": [{"name": p} for p in off]}
    if rng.random() < 0.15:
        made["plugins"]["postFilter"] = {"disabled": [{"name": "*"}]}
    return made


def _weights(rng: random.Random) -> Document:
    """Return score plugins with other weights: all others off, some off, or the rest as by default."""
    chosen = rng.sample(SCORES, rng.randint(1, 4))
    enabled = [{"name": name, "weight": rng.choice((1, 2, 5, 17, 100))} for name in chosen]
    off = rng.choice((["*"], chosen, [*chosen, rng.choice(SCORES)]))
    return {"enabled": enabled, "disabled": [{"name": name} for name in dict.fromkeys(off)]}


def _amounts(rng: random.Random) -> list[Document]:
    return [{"name": name, "weight": rng.choice((1, 1, 2, 5, 100))} for name in rng.sample(RESOURCES, rng.randint(1, 3))]


def _fit(rng: random.Random) -> Document:
    kind = rng.choice(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"))
    strategy: Document = {"type": kind, "resources": _amounts(rng)}
    if kind == "RequestedToCapacityRatio":
        at = sorted(rng.sample(range(0, 101, 5), rng.choice((1, 2, 3, 4))))
        strategy["requestedToCapacityRatio"] = {"shape": [{"utilization": one, "score": rng.randint(0, 10)} for one in at]}
    made: Document = {"scoringStrategy": strategy}
    if rng.random() < 0.3:
        made["ignoredResources"] = rng.sample(RESOURCES[4:6], 1)
    if rng.random() < 0.2:
        made["ignoredResourceGroups"] = ["example.com"]
    return made


def _balance(rng: random.Random) -> Document:
    return {"resources": [{**one, "weight": 1} for one in _amounts(rng)]}


def _affinity(rng: random.Random) -> Document:
    made: Document = {"hardPodAffinityWeight": rng.choice((0, 1, 10, 100))}
    return {**made, "ignorePreferredTermsOfExistingPods": True} if rng.random() < 0.4 else made


def _spread(rng: random.Random) -> Document:
    if rng.random() < 0.2:
        return {"defaultingType": "System"}
    return {
        "defaultingType": "List",
        "defaultConstraints": [
            {
                "maxSkew": rng.choice((1, 1, 2, 5)),
                "topologyKey": key,
                "whenUnsatisfiable": rng.choice(("ScheduleAnyway", "DoNotSchedule")),
            }
            for key in rng.sample(TOPOLOGIES, rng.choice((0, 1, 1, 2)))
        ],
    }


def _selected(rng: random.Random) -> Document:
    key = rng.choice(sorted(LABELS))
    operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    return {"key": key, "operator": operator, **({"values": [rng.choice(LABELS[key])]} if "In" in operator else {})}


def _added(rng: random.Random) -> Document:
    made: Document = {}
    if rng.random() < 0.6:
        terms = [{"matchExpressions": [_selected(rng)]} for _ in range(rng.choice((1, 2)))]
        made["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if rng.random() < 0.6:
        made["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": rng.choice((1, 10, 100)), "preference": {"matchExpressions": [_selected(rng)]}}
            for _ in range(rng.choice((1, 2)))
        ]
    return {"addedAffinity": made}


def _preemption(rng: random.Random) -> Document:
    return {"minCandidateNodesPercentage": rng.choice((0, 10, 100)), "minCandidateNodesAbsolute": rng.choice((1, 2, 100))}


ARGUMENTS: Final[dict[str, Callable[[random.Random], Document]]] = {
    "NodeResourcesFit": _fit,
    "NodeResourcesBalancedAllocation": _balance,
    "InterPodAffinity": _affinity,
    "PodTopologySpread": _spread,
    "NodeAffinity": _added,
    "DefaultPreemption": _preemption,
}

# -- documents with faults ------------------------------------------------------------------------------------------------

POINTS: Final = (
    "preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score", "reserve", "permit", "preBind", "bind",
    "postBind", "multiPoint", "placementScore",
)  # fmt: skip
NAMES: Final = (
    *FILTERS, *SCORES, "EBSLimits", "GCEPDLimits", "AzureDiskLimits", "CinderLimits", "VolumeBinding", "DynamicResources",
    "NodeDeclaredFeatures", "GangScheduling", "SchedulingGates", "DefaultPreemption", "PrioritySort", "DefaultBinder",
    "PodGroupPodsCount", "TopologyPlacementGenerator", "SelectorSpread", "Unknown",
)  # fmt: skip


def document(seed: int, release: str) -> Document:
    """Return the text of a configuration that may have faults, in the form that recorders and ``answers`` read."""
    rng = random.Random(f"{release} configuration {seed}")  # noqa: S311  draws no secrets
    made: Document = {
        "apiVersion": rng.choice(_versions(release)),
        "kind": "KubeSchedulerConfiguration",
        "profiles": [_any_profile(rng, at) for at in range(rng.choice((1, 1, 1, 2)))],
    }
    if rng.random() < 0.05:
        del made["profiles"]
    made |= _some(rng, 0.06, TOP)
    return {"name": f"configuration-{seed}", "release": release, "text": json.dumps(made)}


def _versions(release: str) -> list[str]:
    """Return each version as often as it is to be drawn: those that the release reads most."""
    found = find_release(release)
    read = {"v1"} if found is None else {one for one in found.documents if one.startswith("v")}
    return [f"{GROUP}/{one}" for one in VERSIONS for _ in range(20 if one in read else 1)]


def _some(rng: random.Random, chance: float, fields: dict[str, Sequence[Any]]) -> Document:
    return {name: rng.choice(values) for name, values in fields.items() if rng.random() < chance}


TOP: Final[dict[str, Sequence[Any]]] = {
    "parallelism": (1, 16, 0, -1),
    "percentageOfNodesToScore": (0, 50, 101, -1),
    "podInitialBackoffSeconds": (1, 0, -1, 20),
    "podMaxBackoffSeconds": (10, 0, -1, 1),
    "leaderElection": (
        {"leaderElect": True, "leaseDuration": "1s"}, {"resourceLock": "endpoints"}, {"retryPeriod": "0s"},
        {"leaderElect": True, "renewDeadline": "20s", "resourceName": ""}, {"leaderElect": False, "leaseDuration": "0s"},
    ),
    "clientConnection": ({"burst": 100}, {"burst": -1}, {"qps": -1}),
    "extenders": (
        [{"urlPrefix": "http://127.0.0.1/x", "filterVerb": "f"}], [{"filterVerb": "f"}],
        [{"urlPrefix": "http://127.0.0.1/x", "prioritizeVerb": "p", "weight": 0}],
        [{"urlPrefix": "http://127.0.0.1/x", "bindVerb": "b"}] * 2,
        [{"urlPrefix": "http://127.0.0.1/x", "managedResources": [{"name": "cpu"}]}],
    ),
}  # fmt: skip


def _any_profile(rng: random.Random, at: int) -> Document:
    made: Document = {}
    if at or rng.random() < 0.5:
        made["schedulerName"] = rng.choice(("default-scheduler", "a", "b", ""))
    if rng.random() < 0.5:
        made["plugins"] = {point: _any_set(rng, point) for point in rng.sample(POINTS, rng.choice((1, 1, 2, 3)))}
    if rng.random() < 0.7:
        makers = FAULTY if rng.random() < 0.4 else ARGUMENTS
        names = rng.sample(sorted(makers), rng.choice((1, 1, 2)))
        made["pluginConfig"] = [{"name": name, "args": makers[name](rng)} for name in names]
    if rng.random() < 0.15:
        made["percentageOfNodesToScore"] = rng.choice((0, 50, 100, 101, -1))
    return made


def _any_set(rng: random.Random, point: str) -> Document:
    made: Document = {}
    suitable = {"score": SCORES, "filter": FILTERS, "multiPoint": NAMES}.get(point, NAMES[-9:])
    known = NAMES if rng.random() < 0.2 else suitable
    if rng.random() < 0.7:
        names = [rng.choice(known) for _ in range(rng.choice((1, 2)))]
        made["enabled"] = [{"name": name, **_some(rng, 0.4, {"weight": (1, 2, 5, 7, 100, 0, -1)})} for name in names]
    if rng.random() < 0.5:
        made["disabled"] = [{"name": rng.choice((*NAMES, "*"))} for _ in range(rng.choice((1, 2)))]
    return made


def _any_shape(rng: random.Random) -> list[Document]:
    return [
        {"utilization": rng.choice((0, 10, 50, 100, 101, -1)), "score": rng.choice((0, 5, 10, 11, -1))}
        for _ in range(rng.randint(0, 3))
    ]


def _any_amounts(rng: random.Random) -> list[Document]:
    return [
        {"name": rng.choice(("cpu", "memory", "nvidia.com/gpu", "")), "weight": rng.choice((1, 1, 2, 100, 0, 101, -1))}
        for _ in range(rng.randint(0, 3))
    ]


def _any_fit(rng: random.Random) -> Document:
    kind = rng.choice(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio", "Other"))
    strategy: Document = {"type": kind}
    if rng.random() < 0.6:
        strategy["resources"] = _any_amounts(rng)
    if kind == "RequestedToCapacityRatio" or rng.random() < 0.15:
        strategy["requestedToCapacityRatio"] = {"shape": _any_shape(rng)}
    ignored: dict[str, Sequence[Any]] = {
        "ignoredResources": (["example.com/foo"], ["a b"], ["/x"], []),
        "ignoredResourceGroups": (["example.com"], ["a/b"], ["-x"], []),
    }
    return {**({"scoringStrategy": strategy} if rng.random() < 0.7 else {}), **_some(rng, 0.3, ignored)}


def _any_affinity(rng: random.Random) -> Document:
    return {"hardPodAffinityWeight": rng.choice((0, 1, 100, 101, -1))}


def _any_spread(rng: random.Random) -> Document:
    constraint: dict[str, Sequence[Any]] = {
        "maxSkew": (1, 2, 0, -1),
        "topologyKey": ("zone", "kubernetes.io/hostname", "bad key", ""),
        "whenUnsatisfiable": ("ScheduleAnyway", "DoNotSchedule", "Other", ""),
    }
    constraints = [
        {**_some(rng, 1, constraint), **_some(rng, 0.15, {"labelSelector": ({},)})} for _ in range(rng.randint(0, 2))
    ]
    return {"defaultingType": rng.choice(("System", "List", "List", "Other", "")), "defaultConstraints": constraints}


def _any_term(rng: random.Random) -> Document:
    values: tuple[list[str], ...] = ([], ["x"], ["1"])
    operators = ("In", "NotIn", "Exists", "Gt", "Other")
    return {"key": rng.choice(("a", "zone", "bad key", "")), "operator": rng.choice(operators), "values": rng.choice(values)}


def _any_added(rng: random.Random) -> Document:
    terms = [{"matchExpressions": [_any_term(rng)]} for _ in range(rng.randint(0, 2))]
    weighted = {"weight": rng.choice((1, 100, 0, 101)), "preference": {"matchExpressions": [_any_term(rng)]}}
    made = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
        "preferredDuringSchedulingIgnoredDuringExecution": [weighted],
    }
    return {"addedAffinity": {name: value for name, value in made.items() if rng.random() < 0.6}}


def _any_preemption(rng: random.Random) -> Document:
    return {
        "minCandidateNodesPercentage": rng.choice((0, 10, 100, 101, -1)),
        "minCandidateNodesAbsolute": rng.choice((0, 100, -1)),
    }


def _any_binding(rng: random.Random) -> Document:
    return {"bindTimeoutSeconds": rng.choice((0, 600, -1)), **({"shape": _any_shape(rng)} if rng.random() < 0.3 else {})}


def _any_devices(rng: random.Random) -> Document:
    return {rng.choice(("filterTimeout", "bindingTimeout")): rng.choice(("10s", "-1s", "0s", "1ms"))}


def _none(rng: random.Random) -> Document:
    del rng
    return {}


FAULTY: Final[dict[str, Callable[[random.Random], Document]]] = {
    "NodeResourcesFit": _any_fit,
    "NodeResourcesBalancedAllocation": lambda rng: {"resources": _any_amounts(rng)},
    "InterPodAffinity": _any_affinity,
    "PodTopologySpread": _any_spread,
    "NodeAffinity": _any_added,
    "DefaultPreemption": _any_preemption,
    "VolumeBinding": _any_binding,
    "DynamicResources": _any_devices,
    "EBSLimits": _none,
    "TaintToleration": _none,
    "Unknown": _none,
}
