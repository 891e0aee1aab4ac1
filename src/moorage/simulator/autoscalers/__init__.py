"""Autoscalers as they are: what Karpenter decides about pending pods and about nodes, by its own rules.

``read_price_list`` reads instance types with their offerings and prices, in the format of Karpenter's KWOK provider.
"""

from moorage.simulator.autoscalers.instance_types import InstanceType, Offering, PriceList, read_price_list
from moorage.simulator.autoscalers.key_requirements import KeyRequirement, Requirements

__all__ = ["InstanceType", "KeyRequirement", "Offering", "PriceList", "Requirements", "read_price_list"]
