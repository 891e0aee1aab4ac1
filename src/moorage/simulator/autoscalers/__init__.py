"""Autoscalers as they are: what Karpenter and cluster-autoscaler decide about pending pods and about nodes, by their own rules.

``Karpenter`` answers for a cluster that was read: which nodes it adds for pending pods, and why each node stays or goes.
``read_price_list`` reads the instance types with offerings and prices. Below it, ``solve`` places pods on the nodes of a
``PoolCluster`` and on new ones, and a ``Disruptor`` judges which nodes can go.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from moorage.simulator.autoscalers.instance_types import InstanceType, Offering, PriceList, read_price_list
    from moorage.simulator.autoscalers.karpenter.consolidation import Disruptor, candidate_of
    from moorage.simulator.autoscalers.karpenter.judgement import Karpenter, NodeVerdict
    from moorage.simulator.autoscalers.karpenter.scene import (
        KINDS,
        ExistingNode,
        PoolCluster,
        ProvisioningPool,
        read_node_pools,
    )
    from moorage.simulator.autoscalers.karpenter.solve import LaunchClaim, LaunchPlan, solve
    from moorage.simulator.autoscalers.key_requirements import KeyRequirement, Requirements

__all__ = [
    "KINDS", "Disruptor", "ExistingNode", "InstanceType", "Karpenter", "KeyRequirement", "LaunchClaim", "LaunchPlan",
    "NodeVerdict", "Offering", "PoolCluster", "PriceList", "ProvisioningPool", "Requirements", "candidate_of",
    "read_node_pools", "read_price_list", "solve",
]  # fmt: skip

#: The modules, loaded when a name of theirs is asked for: instance types alone need no Karpenter.
_MODULES: Final = (
    "key_requirements", "instance_types", "karpenter.scene", "karpenter.solve", "karpenter.consolidation",
    "karpenter.judgement",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in _MODULES:
            found = import_module(f"{__name__}.{module}")
            if hasattr(found, name):
                return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
