"""Autoscalers as they are: what Karpenter decides about pending pods and about nodes, by its own rules.

``read_price_list`` reads instance types with their offerings and prices, ``read_node_pools`` NodePools. A ``PoolCluster`` is
the cluster; ``solve`` places pods on its nodes and on new ones, and a ``Disruptor`` judges which nodes can go.
"""

from moorage.simulator.autoscalers.instance_types import InstanceType, Offering, PriceList, read_price_list
from moorage.simulator.autoscalers.karpenter.consolidation import Disruptor, candidate_of
from moorage.simulator.autoscalers.karpenter.pools import ProvisioningPool, read_node_pools
from moorage.simulator.autoscalers.karpenter.scene import ExistingNode, PoolCluster
from moorage.simulator.autoscalers.karpenter.solve import LaunchClaim, LaunchPlan, solve
from moorage.simulator.autoscalers.key_requirements import KeyRequirement, Requirements

__all__ = [
    "Disruptor",
    "ExistingNode",
    "InstanceType",
    "KeyRequirement",
    "LaunchClaim",
    "LaunchPlan",
    "Offering",
    "PoolCluster",
    "PriceList",
    "ProvisioningPool",
    "Requirements",
    "candidate_of",
    "read_node_pools",
    "read_price_list",
    "solve",
]
