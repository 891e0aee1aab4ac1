"""Topology requests: what pod sets ask of the topology of nodes, and where their pods stand in it.

Source  Kueue, apis/kueue/v1beta2/workload_types.go; pkg/util/tas
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from moorage.api.core import PodSpec


class Layer(NamedTuple):
    """Pods that stand together in one domain of a level, ``size`` at a time."""

    topology: str
    size: int


@dataclass(frozen=True, slots=True)
class TopologyRequest:
    """What a pod set asks for. ``layers`` are its slices, the outermost first; ``group`` joins a leader with its workers."""

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool = False
    layers: tuple[Layer, ...] = ()
    group: str | None = None

    @property
    def level(self) -> str | None:
        """The level that it names."""
        return self.preferred if self.required is None else self.required

    @property
    def is_explicit(self) -> bool:
        """False for a request that only names a group."""
        return self.level is not None or self.unconstrained or bool(self.layers)


def read_request(data: Mapping[str, Any]) -> TopologyRequest:
    """Read the topology request of a pod set; numbers may be texts, as in annotations."""
    layers = tuple(
        Layer(str(one["topology"]), int(one["size"])) for one in data.get("podsetSliceRequiredTopologyConstraints") or ()
    )
    if not layers and (level := data.get("podSetSliceRequiredTopology")) is not None:
        layers = (Layer(str(level), int(data.get("podSetSliceSize") or 0)),)
    unconstrained = str(data.get("unconstrained") or "false").lower() == "true"
    return TopologyRequest(data.get("required"), data.get("preferred"), unconstrained, layers, data.get("podSetGroupName"))


def read_placed(data: Mapping[str, Any]) -> TopologyPlacement:
    """Read a topology assignment: v1beta1 lists domains, v1beta2 packs them into slices."""
    domains = [(tuple(map(str, one.get("values") or ())), int(one.get("count", 0))) for one in data.get("domains") or ()]
    for part in data.get("slices") or ():
        number = int(part["domainCount"])
        columns = []
        for level in part.get("valuesPerLevel") or ():
            if (same := level.get("universal")) is not None:
                columns.append([str(same)] * number)
            else:
                one = level.get("individual") or {}
                columns.append([f"{one.get('prefix') or ''}{root}{one.get('suffix') or ''}" for root in one.get("roots") or ()])
        counts = part.get("podCounts") or {}
        each = [counts["universal"]] * number if counts.get("universal") is not None else counts.get("individual") or ()
        domains += [(values, int(count)) for values, count in zip(zip(*columns, strict=True), each, strict=True)]
    return TopologyPlacement(tuple(map(str, data.get("levels") or ())), tuple(domains))


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """Pods to place. ``implied``: the pod set has no topology request of its own, and its flavor has a topology."""

    name: str
    count: int
    requests: Mapping[str, int]
    spec: PodSpec
    topology: TopologyRequest | None
    implied: bool = False

    @property
    def terms(self) -> TopologyRequest:
        return _NO_REQUEST if self.topology is None else self.topology

    @property
    def unconstrained(self) -> bool:
        return self.implied or self.terms.unconstrained or (self.terms.level is None and bool(self.terms.layers))


_NO_REQUEST = TopologyRequest()


class TopologyPlacement(NamedTuple):
    """Where the pods of a pod set go: domains by their values of ``levels``, with their numbers of pods."""

    levels: tuple[str, ...]
    domains: tuple[tuple[tuple[str, ...], int], ...]
