"""Load a recorded scenario: from its objects and configuration to cluster state and profiles."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from functools import cache
from typing import Any, Final

from moorage.api import core, storage, workloads
from moorage.api import devices as dra
from moorage.api.decode import decode
from moorage.api.defaults import default_node, default_pod
from moorage.api.meta import Object
from moorage.api.releases import find_release, why_unknown
from moorage.basis.inputs.scheduler_config import ConfigSource, load_source
from moorage.core.building.builder import build_resolved
from moorage.core.config.scheduler_document import Loaded, from_provider, load_any
from moorage.errors import InputError
from moorage.framework.dropped_fields import pod_reader
from moorage.framework.profile import Profile
from moorage.state.cluster import ClusterState
from moorage.state.pod_info import PodInfo
from moorage.testing.fake_handle import FakeHandle

__all__ = ["Scenario", "known_kinds", "load_scenario", "recorded_release"]

#: The release of scenarios that name none: the first recordings do not.
_UNNAMED: Final = "1.36"


@cache
def known_kinds() -> Mapping[str, type[Object]]:
    """Return the types of objects in recorded scenarios, by kind."""
    return {
        name: kind
        for module in (core, workloads, storage, dra)
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, Object) and "metadata" in kind.__struct_fields__
    }


@dataclass
class Scenario:
    """A cluster, its pending pods, and the profiles that schedule them."""

    cluster: ClusterState
    pending: list[PodInfo]
    profiles: Mapping[str, Profile]
    in_sequence: bool = False
    nominated: dict[str, list[PodInfo]] = field(default_factory=dict)

    def drop_nomination(self, uid: str) -> None:
        for node, pods in list(self.nominated.items()):
            self.nominated[node] = [pod for pod in pods if pod.uid != uid]


def load_scenario(document: Mapping[str, Any]) -> Scenario:
    """Build the scenario's cluster, with the API server's defaulting applied to every object."""
    cluster = ClusterState()
    pending: list[PodInfo] = []
    loaded = _loaded(document)
    read = pod_reader(loaded.gates)
    for at, data in sorted(enumerate(document["objects"]), key=_as_listed):
        _add(cluster, pending, data, f"objects[{at}]", read)
    built = build_resolved(loaded.profiles, loaded.registry, FakeHandle(cluster.snapshot, gates=loaded.gates))
    scenario = Scenario(cluster, pending, built.profiles, document.get("mode") == "sequence")
    for pod in sorted(pending, key=lambda p: -p.priority):
        if pod.status.nominated_node_name and not _is_gated(pod, built.profiles):
            scenario.nominated.setdefault(pod.status.nominated_node_name, []).append(pod)
    return scenario


def _is_gated(pod: PodInfo, profiles: Mapping[str, Profile]) -> bool:
    """Return whether a PreEnqueue plugin holds a pod back, which is not nominated then: up to 1.36."""
    profile = profiles.get(pod.spec.scheduler_name)
    if profile is None or profile.release.nominates_gated_pods:
        return False
    return any(step.call(pod) is not None for step in profile.at("preEnqueue"))


def _as_listed(numbered: tuple[int, Mapping[str, Any]]) -> tuple[int, str, int]:
    """Return a sort key that puts nodes first, by name, as in a scheduler's first list; other objects keep their order."""
    at, data = numbered
    is_node = data.get("kind") == "Node"
    return (0, data["metadata"]["name"], at) if is_node else (1, "", at)


def _loaded(document: Mapping[str, Any]) -> Loaded:
    """Return the scenario's configuration, in the release that it was recorded with."""
    rules = ConfigSource(feature_gates=",".join(f"{gate}={value}" for gate, value in document.get("featureGates", {}).items()))
    if "algorithmProvider" in document:
        return from_provider(document["algorithmProvider"], rules)
    release = recorded_release(document)
    given = document.get("policy") or document.get("config")
    if given is not None:
        emulate = None if _says_its_release(document, given) else release
        return load_any(json.dumps(given).encode(), document["name"], rules, emulate)
    return load_source(with_fields(rules, emulate=release))


def _says_its_release(document: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Return whether a document of a scenario that names no release is of a version that only earlier releases read."""
    return "release" not in document and not str(given.get("apiVersion", "")).endswith("/v1")


def recorded_release(document: Mapping[str, Any]) -> str:
    """Return the name of the release that a document was recorded with.

    Raises  InputError for a version that is not known
    """
    version = document.get("release") or ".".join(document.get("kubernetes", _UNNAMED).split(".")[:2])
    found = find_release(version)
    if found is None:
        raise InputError(f"release: {why_unknown(version)}")
    return found.name


def _add(
    cluster: ClusterState, pending: list[PodInfo], data: Mapping[str, Any], where: str, read: Callable[[core.Pod], core.Pod]
) -> None:
    kind = known_kinds().get(data.get("kind", ""))
    if kind is None:
        raise InputError(f"{where}: kind {data.get('kind')!r} is unknown")
    obj = decode(data, kind, where)
    if isinstance(obj, core.Node):
        cluster.set_node(default_node(obj))
    elif isinstance(obj, core.Namespace):
        cluster.set_namespace(obj)
    elif isinstance(obj, core.Pod):
        info = PodInfo(read(default_pod(obj)))
        if info.spec.node_name:
            cluster.place(info, info.spec.node_name)
        else:
            pending.append(info)
    else:
        cluster.set_object(obj)
