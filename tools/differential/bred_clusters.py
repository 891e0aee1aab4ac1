"""Make clusters at random, for recording what a release of kube-scheduler decides in them.

A cluster is bred from recorded ones: nodes, pods and other objects come from one to three scenarios, and the specs of pods and
nodes exchange whole parts (affinity, tolerations, constraints, resources, volumes, priority). So each part stays valid, and
meets parts that it has never met. A fifth of the clusters have a configuration, a fifth set feature gates (no alpha ones that
are off by default), and a quarter place their pods one after the other.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from moorage.api.feature_gates import FeatureGates
from moorage.api.releases import ALPHA, Release, find_release
from tools.differential.random_configurations import configuration
from tools.recordings.comparing import documents

DATA = Path(__file__).resolve().parents[2] / "tests" / "data" / "conformance"
SOURCES = ("v1.36", "generated", "releases")

# Parts of a pod's spec that can be exchanged alone. Containers, volumes and claims refer to each other and stay together.
PARTS = (
    ("affinity",),
    ("nodeSelector",),
    ("tolerations",),
    ("topologySpreadConstraints",),
    ("priority", "preemptionPolicy"),
    ("containers", "initContainers", "overhead", "resources", "volumes", "resourceClaims"),
)
NODE_PARTS = (
    ("spec", "taints"),
    ("spec", "unschedulable"),
    ("status", "images"),
    ("status", "allocatable"),
    ("status", "declaredFeatures"),
)

#: Gates of pod groups: the kind ``groups`` opens them.
OF_GROUPS: Final = (
    "GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling", "WorkloadAwarePreemption", "CompositePodGroup",
)  # fmt: skip
#: Gates by which the API server writes keys of labels into selectors.
OF_SELECTORS: Final = ("MatchLabelKeysInPodAffinity", "MatchLabelKeysInPodTopologySpreadSelectorMerge")
#: Plugins for in-tree disks, which 1.30 has by default.
DISKS = ("AzureDiskLimits", "EBSLimits", "GCEPDLimits")

Document = dict[str, Any]


@cache
def recorded() -> tuple[Document, ...]:
    """Return all stored scenarios with single pods."""
    fields: tuple[str, ...] = ("family", "objects", "config", "name")
    found: list[Document] = []
    for source in SOURCES:
        for path in sorted((DATA / source).rglob("*.jsonl.gz")):
            if path.name != "groups.jsonl.gz":
                found += [
                    {key: document[key] for key in fields if key in document}
                    for document in documents(path)
                    if "objects" in document
                ]
    return tuple(found)


@cache
def old_configurations() -> tuple[Document, ...]:
    """Return the recorded Policies and v1beta1 configurations of 1.21, each under its field of a scenario."""
    paths = sorted((DATA / "v1.21").rglob("*.jsonl.gz"))
    found = ({field: document[field]} for path in paths for document in documents(path) for field in ("policy", "config")
             if document.get(field))  # fmt: skip
    return tuple(found)


class Variation(NamedTuple):
    """What the clusters vary: all have a random configuration, all open feature gates that are off by default, all have a
    Policy or a configuration of 1.21, or none of it."""

    configured: bool = False
    opens_gates: bool = False
    old: bool = False


PLAIN = Variation()


def cluster(seed: int, release: str, variation: Variation = PLAIN) -> Document:
    """Return the scenario of a seed."""
    rng = random.Random(f"{release} {seed}")  # noqa: S311  draws no secrets
    parents = rng.sample(recorded(), rng.choice((1, 2, 2, 3)))
    made: Document = {
        "name": f"{family(parents[0])}-{seed}",
        "family": family(parents[0]),
        "release": release,
        "objects": list(_objects(rng, parents)),
    }
    if rng.random() < 0.25:
        made["mode"] = "sequence"
    if rng.random() < 0.2 or variation.configured:
        known = [d["config"] for d in recorded() if d.get("config")]
        made["config"] = _as_read(configuration(rng) if variation.configured else rng.choice(known), release)
        names = [p.get("schedulerName") for p in made["config"].get("profiles", ())] or [None]
        for pod in (o for o in made["objects"] if o["kind"] == "Pod" and not o["spec"].get("nodeName")):
            pod["spec"]["schedulerName"] = rng.choice(names) or "default-scheduler"
    else:
        for pod in (o for o in made["objects"] if o["kind"] == "Pod"):
            pod["spec"].pop("schedulerName", None)
    if variation.old:
        made.pop("config", None)
        made |= rng.choice(old_configurations())
        for pod in (o for o in made["objects"] if o["kind"] == "Pod"):
            pod["spec"]["schedulerName"] = "default-scheduler"
    if variation.opens_gates:
        made["featureGates"] = _opened(rng, release)
    elif rng.random() < 0.2:
        made["featureGates"] = _gates(rng, release)
    return made


def _as_read(config: Document, release: str) -> Document:
    """Return a configuration in the newest version that the release reads."""
    found = find_release(release)
    assert found is not None
    version = max(one for one in found.documents if one.startswith("v"))
    own = str(config["apiVersion"]).rpartition("/")[2]
    return config if own in found.documents else {**config, "apiVersion": f"kubescheduler.config.k8s.io/{version}"}


def family(document: Mapping[str, Any]) -> str:
    """Return the family that a recorded scenario belongs to."""
    return str(document.get("family") or document["name"].rsplit("-", 1)[0])


def _gates(rng: random.Random, release: str) -> dict[str, bool]:
    """Return settings of feature gates that the release accepts."""
    found = find_release(release)
    assert found is not None
    can_be_set = sorted(name for name in found.gates if _can_be_drawn(name, found))
    while True:
        settings = {gate: rng.random() < 0.7 for gate in rng.sample(can_be_set, min(3, len(can_be_set)))}
        if not FeatureGates.faults(settings, found.name):
            return settings


def _opened(rng: random.Random, release: str) -> dict[str, bool]:
    """Return some gates that are off by default, open, together with gates that can be set anyway."""
    found = find_release(release)
    assert found is not None
    closed = sorted(name for name in found.gates if _can_be_opened(name, found))
    others = sorted(name for name in found.gates if _can_be_drawn(name, found))
    while True:
        opened = dict.fromkeys(rng.sample(closed, min(rng.choice((1, 2, len(closed))), len(closed))), True)
        settings = {**dict.fromkeys(rng.sample(others, min(2, len(others))), True), **opened}
        if not FeatureGates.faults(settings, found.name):
            return settings


def gates_of_devices(rng: random.Random, release: str) -> dict[str, bool]:
    """Return settings of some feature gates of devices, those that are off by default among them."""
    found = find_release(release)
    assert found is not None
    names = sorted(
        name for name, gate in found.gates.items() if name.startswith("DRA") and not gate.locked and "Workload" not in name
    )
    while True:
        settings = {gate: rng.random() < 0.6 for gate in rng.sample(names, min(3, len(names)))}
        if not FeatureGates.faults(settings, found.name):
            return settings


def gates_of_any(rng: random.Random, release: str) -> dict[str, bool]:
    """Return settings of some feature gates, either of those that are on by default or of those that are off."""
    return _opened(rng, release) if rng.random() < 0.5 else _gates(rng, release)


def is_drawn(name: str, release: Release) -> bool:
    """Return whether scenarios are drawn with a gate turned, of single pods or of groups."""
    settable = not release.gates[name].locked
    of_devices = name.startswith("DRA") and "Workload" not in name
    return _can_be_drawn(name, release) or _can_be_opened(name, release) or (settable and of_devices) or name in OF_GROUPS


def _can_be_opened(name: str, release: Release) -> bool:
    """Return whether a gate is off by default and decides about single pods.

    Gates of pod groups need the scheduler's queue, and before 1.34 devices have another API.
    """
    gate = release.gates[name]
    of_groups = any(word in name for word in ("Gang", "Workload"))
    open_here = replace(release, gates={**release.gates, name: gate._replace(default=True)})
    is_open_to_draw = name != "DynamicResourceAllocation" and _can_be_drawn(name, open_here)
    return not gate.default and not of_groups and is_open_to_draw


def _can_be_drawn(name: str, release: Release) -> bool:
    """Return whether recordings can have a gate.

    Not if it makes preemption asynchronous, needs another API of devices, or decides what the API server writes into selectors.
    """
    gate = release.gates[name]
    is_of_devices = name.startswith("DRA") or name == "DynamicResourceAllocation"
    devices = release.gates.get("DynamicResourceAllocation")
    has_devices = devices is not None and devices.default
    is_alpha = gate.stage == ALPHA and not gate.default
    return (
        not gate.locked
        and not is_alpha
        and "Async" not in name
        and name not in OF_SELECTORS
        and (has_devices or not is_of_devices)
    )


def _objects(rng: random.Random, parents: list[Document]) -> Iterator[Document]:
    objects = [copy.deepcopy(o) for parent in parents for o in parent["objects"]]
    nodes = _distinct(o for o in objects if o["kind"] == "Node")
    others = _distinct(o for o in objects if o["kind"] not in {"Node", "Pod"})
    for claim in (o for o in others if o["kind"] in {"ResourceClaim", "ResourceClaimTemplate"}):
        _default_claim(claim)
    pods = _distinct(o for o in objects if o["kind"] == "Pod")
    for pod in pods:
        pod["metadata"].setdefault("namespace", "default")
    if len(nodes) > 12:
        nodes = rng.sample(nodes, 12)
    present = {o["metadata"]["name"] for o in others if o["kind"] == "Namespace"}
    for name in sorted({pod["metadata"]["namespace"] for pod in pods} - present):
        others.append(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
            }
        )
    for node in nodes:
        mixed_node(rng, node, nodes)
    names = [node["metadata"]["name"] for node in nodes]
    for pod in pods:
        _mix_pod(rng, pod, pods)
        if pod["spec"].get("nodeName") and pod["spec"]["nodeName"] not in names:
            pod["spec"]["nodeName"] = rng.choice(names) if names else "gone"
    placed = [pod for pod in pods if pod["spec"].get("nodeName")]
    pending = [pod for pod in pods if not pod["spec"].get("nodeName")]
    kept = rng.sample(placed, min(len(placed), rng.randint(0, 25))) + rng.sample(pending, min(len(pending), 8))
    for at, thing in enumerate([*others, *nodes, *sorted(kept, key=listed)]):
        thing["metadata"]["uid"] = f"u{at:05d}"
        if thing["kind"] == "Pod":
            _merge_label_keys(thing)
        yield thing


def listed(thing: Document) -> tuple[str, str]:
    """Return the place of an object in a list, which decides ties of preemption: API servers and recorders sort by name."""
    return thing["metadata"]["namespace"], thing["metadata"]["name"]


def _default_claim(claim: Document) -> None:
    """Fill in what an API server does: the recorder's objects come from no server."""
    for request in claim["spec"].get("devices", {}).get("requests", ()):
        for one in (*([request["exactly"]] if "exactly" in request else ()), *request.get("firstAvailable", ())):
            if one.setdefault("allocationMode", "ExactCount") == "ExactCount":
                one.setdefault("count", 1)


def _merge_label_keys(pod: Document) -> None:
    """Add to the selectors of affinity terms what an API server adds for ``matchLabelKeys`` and ``mismatchLabelKeys``."""
    labels = pod["metadata"].get("labels", {})
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = (pod["spec"].get("affinity") or {}).get(kind) or {}
        weighted = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        for term in (
            *(affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()),
            *(one["podAffinityTerm"] for one in weighted),
        ):
            if term.get("labelSelector") is None:
                continue
            for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
                added = [
                    {"key": key, "operator": operator, "values": [labels[key]]} for key in term.get(field, ()) if key in labels
                ]
                present = term["labelSelector"].setdefault("matchExpressions", [])
                present += [one for one in added if one not in present]


def _distinct(objects: Iterable[Document]) -> list[Document]:
    found: dict[tuple[str, str, str], Document] = {}
    for o in objects:
        if o["kind"] == "Namespace":  # some recorded ones name a namespace that they are in
            o["metadata"].pop("namespace", None)
        found.setdefault((o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]), o)
    return list(found.values())


def mixed_node(rng: random.Random, node: Document, nodes: list[Document], chance: float = 0.25) -> Document:
    """Exchange parts of a node for those of others, and return it."""
    for section, field in NODE_PARTS:
        if rng.random() < chance:
            _exchange(rng.choice(nodes).get(section, {}), node.setdefault(section, {}), (field,))
    if rng.random() < 0.15:
        other = rng.choice(nodes)["metadata"].get("labels", {})
        own = {k: v for k, v in node["metadata"].get("labels", {}).items() if k == "kubernetes.io/hostname"}
        node["metadata"]["labels"] = {**other, **own}
    return node


def _mix_pod(rng: random.Random, pod: Document, pods: list[Document]) -> None:
    for part in PARTS:
        if rng.random() < 0.3:
            other = rng.choice(pods)
            if part[0] == "containers" and other["metadata"].get("namespace") != pod["metadata"].get("namespace"):
                continue
            _exchange(other["spec"], pod["spec"], part)
            if part[0] == "containers":
                _exchange(
                    other.get("status", {}),
                    pod.setdefault("status", {}),
                    ("containerStatuses", "resize", "resourceClaimStatuses"),
                )
    if rng.random() < 0.15:
        _exchange(rng.choice(pods)["metadata"], pod["metadata"], ("labels",))


def _exchange(source: Mapping[str, Any], target: Document, fields: Iterable[str]) -> None:
    for field in fields:
        target.pop(field, None)
        if field in source:
            target[field] = copy.deepcopy(source[field])
