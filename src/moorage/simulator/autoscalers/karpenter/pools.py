"""Karpenter's objects: NodePools and NodeClaims, read from plain data.

Source  karpenter, pkg/apis/v1/nodepool.go, nodeclaim.go; pkg/controllers/provisioning/scheduling/nodeclaimtemplate.go
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from moorage.api.core import Taint
from moorage.api.durations import DurationError, duration_seconds
from moorage.errors import InputError
from moorage.simulator.autoscalers.instance_types import amounts
from moorage.simulator.autoscalers.key_requirements import NODE_POOL, KeyRequirement, Requirements, add_to, of_labels, one

__all__ = ["KINDS", "DisruptionLimit", "ProvisioningPool", "by_weight", "read_node_pools"]

#: The kinds to read from a cluster, by their names.
KINDS: Final = ("nodepools.v1.karpenter.sh", "nodeclaims.v1.karpenter.sh")
_REASONS: Final = frozenset({"Underutilized", "Empty", "Drifted"})
_POLICIES: Final = ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced")


@dataclass(frozen=True)
class DisruptionLimit:
    """A budget of a NodePool: how many of its nodes may be disrupted at a time. ``reasons`` None: for every reason."""

    nodes: str
    reasons: frozenset[str] | None = None
    schedule: str = ""
    duration_s: float = 0.0

    def allowed(self, nodes: int) -> int:
        """Return the number for a pool of so many nodes; percentages round up."""
        if self.nodes.endswith("%"):
            return -(-int(self.nodes[:-1]) * nodes // 100)
        return int(self.nodes)


@dataclass(frozen=True, eq=False)
class ProvisioningPool:
    """A NodePool: what its nodes may be, and when Karpenter may disrupt them.

    ``consolidate_after_s``  None: consolidation is disabled
    ``static``               its number of nodes is fixed; pods add none
    """

    name: str
    requirements: Requirements
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    limits: Mapping[str, int] | None = None
    weight: int = 0
    static: bool = False
    ready: bool = True
    policy: str = "WhenEmptyOrUnderutilized"
    consolidate_after_s: float | None = 0.0
    budgets: tuple[DisruptionLimit, ...] = (DisruptionLimit("10%"),)


def by_weight(pools: Iterable[ProvisioningPool]) -> list[ProvisioningPool]:
    """Return pools in the order in which they are tried: by weight, then by name, both descending."""
    return sorted(pools, key=lambda pool: (pool.weight, pool.name), reverse=True)


def read_node_pools(documents: Sequence[Mapping[str, Any]]) -> list[ProvisioningPool]:
    """Read all NodePools among documents, except those that are being deleted.

    Raises  InputError that names the field
    """
    found = [
        _pool(document) for document in documents
        if document.get("kind") == "NodePool" and not _of(document, "metadata").get("deletionTimestamp")
    ]  # fmt: skip
    return by_weight(found)


def _of(data: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        data = data.get(name) or {}
    return data


def _pool(document: Mapping[str, Any]) -> ProvisioningPool:
    name = str(_of(document, "metadata").get("name", ""))
    where = f"nodepool/{name}"
    spec = _of(document, "spec")
    template = _of(spec, "template", "spec")
    disruption = _of(spec, "disruption")
    policy = disruption.get("consolidationPolicy") or "WhenEmptyOrUnderutilized"
    if policy not in _POLICIES:
        raise InputError(f"{where}: spec.disruption.consolidationPolicy: {policy!r} is none of {', '.join(_POLICIES)}")
    conditions = {one_.get("type"): one_.get("status") for one_ in _of(document, "status").get("conditions") or ()}
    limits = spec.get("limits")
    budgets = disruption.get("budgets")
    try:
        return ProvisioningPool(
            name, _requirements(name, spec), _taints(template, "taints"), _taints(template, "startupTaints"),
            None if not limits else amounts(limits, f"{where}: spec.limits"),
            int(spec.get("weight") or 0), spec.get("replicas") is not None, conditions.get("Ready", "True") == "True", policy,
            _seconds(disruption.get("consolidateAfter", "0s")),
            tuple(map(_limit, budgets)) if budgets else (DisruptionLimit("10%"),),
        )  # fmt: skip
    except (ValueError, TypeError, KeyError, DurationError, msgspec.ValidationError) as error:
        raise InputError(f"{where}: no valid NodePool of karpenter.sh/v1: {error}") from None


def _requirements(name: str, spec: Mapping[str, Any]) -> dict[str, KeyRequirement]:
    template = _of(spec, "template")
    labels = {str(key): str(value) for key, value in _of(template, "metadata", "labels").items()}
    node_class = _of(template, "spec", "nodeClassRef")
    if node_class.get("group"):
        labels[f"{node_class['group']}/{str(node_class.get('kind', '')).lower()}"] = str(node_class.get("name", ""))
    asked = _of(template, "spec").get("requirements") or ()
    found: dict[str, KeyRequirement] = {}
    add_to(found, (
        one(str(each["key"]), str(each["operator"]), tuple(map(str, each.get("values") or ())), each.get("minValues"))
        for each in asked
    ))  # fmt: skip
    add_to(found, of_labels({**labels, NODE_POOL: name}).values())
    # DaemonSets may select these labels, which every node gets.
    add_to(found, of_labels({"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}).values())
    return found


def _taints(template: Mapping[str, Any], name: str) -> tuple[Taint, ...]:
    return msgspec.convert(template.get(name) or (), tuple[Taint, ...])


def _seconds(text: Any) -> float | None:
    return None if text == "Never" else duration_seconds(str(text))


def _limit(given: Mapping[str, Any]) -> DisruptionLimit:
    reasons = given.get("reasons")
    if reasons is not None and not _REASONS.issuperset(reasons):
        raise ValueError(f"budgets: a reason is none of {', '.join(sorted(_REASONS))}")
    nodes = str(given.get("nodes", "10%"))
    int(nodes.removesuffix("%"))
    return DisruptionLimit(
        nodes, None if reasons is None else frozenset(reasons), str(given.get("schedule") or ""),
        duration_seconds(str(given["duration"])) if given.get("duration") else 0.0,
    )  # fmt: skip
