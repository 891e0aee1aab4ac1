"""What the cluster's own autoscaler may add, at what price and within which limits, and which nodes it would keep.

``plan`` and ``consolidate`` ask it instead of a file of node types. Karpenter launches the types of its NodePools, with their
labels and taints, at the prices that NodeOverlays leave, within the pools' limits. A node group of cluster-autoscaler adds
nodes like those that it has, up to its maximum, and keeps its minimum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import NamedTuple

from msgspec.structs import replace

from moorage.api.core import Node, Pod
from moorage.api.pod_requests import amount
from moorage.laboratory.dynamics.cluster_pools import pools_of_cluster
from moorage.laboratory.dynamics.node_pools import pool_states
from moorage.laboratory.plan.node_types import NodeType, TypeLimit, types_of_offerings
from moorage.report.plan import BlockingPod
from moorage.simulator.autoscalers.cluster_autoscaler.removal_rules import DrainContext, pods_to_move, unremovable_reason
from moorage.simulator.autoscalers.instance_types import PriceList
from moorage.simulator.autoscalers.karpenter.judgement import Karpenter
from moorage.simulator.cluster_input import ClusterInput


class AutoscaledTypes(NamedTuple):
    """What an autoscaler decides about a cluster.

    ``limits``   of what it adds
    ``kept``     node → why it never removes the node
    ``least``    node type → how many existing nodes of it must stay
    ``prices``   what existing nodes cost; ``currency``: of all prices, if it is known
    ``missing``  what the input does not say, and what is assumed instead
    """

    types: tuple[NodeType, ...]
    limits: tuple[TypeLimit, ...] = ()
    kept: Mapping[str, tuple[BlockingPod, ...]] = {}
    least: Mapping[str, int] = {}
    prices: Mapping[str, float] = {}
    missing: tuple[str, ...] = ()
    currency: str = ""


def of_karpenter(given: ClusterInput, prices: PriceList) -> AutoscaledTypes:
    """Return what Karpenter decides. ``given`` has its kinds, as they are.

    Raises  InputError for a NodePool that is not valid
    """
    karpenter = Karpenter(given, prices)
    cluster, types, limits = karpenter.cluster, list[NodeType](), list[TypeLimit]()
    for template in cluster.templates:
        pool, launched = template.pool, [cluster.prices.types[row] for row in template.rows]
        if template.told:
            continue
        own = types_of_offerings(launched, cluster.prices.well_known, pool.requirements, pool.name, pool.taints)
        types += own
        for name, most in cluster.remaining(pool).items():
            text = f"NodePool {pool.name}: its limit of {name} is reached"
            limits.append(TypeLimit(text, max(most, 0), {one.name: _counted(one, name) for one in own}))
    kept = {held.name: why for held in cluster.nodes if (why := tuple(_keeping(*karpenter.blocked(held))))}
    known = {held.name: price for held in cluster.nodes if (price := cluster.prices.price_of(held.labels)) is not None}
    return AutoscaledTypes(tuple(types), tuple(limits), kept, prices=known, missing=karpenter.missing, currency=prices.currency)


def _counted(one: NodeType, resource: str) -> float:
    """Return what a node counts for a limit of its NodePool."""
    assert isinstance(one.node, Node)
    return 1.0 if resource == "nodes" else float(amount(resource, one.node.status.capacity.get(resource, 0)))


def _keeping(why: str, pods: Mapping[str, str]) -> Iterator[BlockingPod]:
    if pods:
        yield from (BlockingPod(pod, "autoscaler", text=told) for pod, told in pods.items())
    elif why:
        yield BlockingPod(rule="autoscaler", text=why)


def of_cluster_autoscaler(given: ClusterInput, prices: PriceList | None, now_s: float) -> AutoscaledTypes:
    """Return what cluster-autoscaler decides. Utilisation does not count: less is wanted than a threshold.

    Raises  InputError for flags that cannot be read
    """
    found = pools_of_cluster((held.document for held in given.custom), given.nodes, prices, components=given.components)
    states = pool_states(found.pools, given.nodes)
    types = tuple(
        NodeType(name=name, like=state.pool.like, price=state.pool.price, max=max(state.pool.max - state.size, 0))
        for name, state in states.items()
    )
    group_of = {node: name for name, state in states.items() for node in state.members}
    flags = replace(found.flags, scale_down_utilization_threshold=inf, scale_down_gpu_utilization_threshold=inf)
    context = DrainContext(now_s, tuple(given.pod_disruption_budgets), flags=flags)
    on_node: dict[str, list[Pod]] = {node.name: [] for node in given.nodes}
    for pod in given.pods:
        if pod.spec.node_name in on_node:
            on_node[pod.spec.node_name].append(pod)
    kept = {}
    for node in given.nodes:
        pods = on_node[node.name]
        why, text = unremovable_reason(node, pods, flags, now_s, autoscaled=node.name in group_of)
        blocking = pods_to_move(pods, context).blocking
        if why:
            kept[node.name] = (BlockingPod(rule=why, text=text),)
        elif blocking is not None:
            kept[node.name] = (BlockingPod(blocking[0].key, blocking[1].reason, text=blocking[1].text),)
    least = {name: state.pool.min for name, state in states.items() if state.pool.min}
    currency = prices.currency if prices is not None else ""
    return AutoscaledTypes(types, (), kept, least, missing=found.missing, currency=currency)
