"""Node pools and flags of cluster-autoscaler as a cluster's own objects give them; what they do not say is named.

Read are the Deployment (or Pod) of cluster-autoscaler with its command line, the config map ``cluster-autoscaler-status`` with
the bounds of node groups, and the one of the expander ``priority``. Nodes belong to the group that their labels name.

Source  cluster-autoscaler at 87d9c45c02^, clusterstate/api/types.go, expander/priority
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import asdict

from moorage.api.core import Node
from moorage.api.reading.manifests import read_first_yaml
from moorage.api.validation.rule_tables import field_of
from moorage.basis.inputs.components import Component
from moorage.laboratory.dynamics.node_pools import NodePool
from moorage.laboratory.node_groups import group_nodes
from moorage.laboratory.plan.node_types import NodeType
from moorage.simulator.autoscalers.cluster_autoscaler.flags import AutoscalerFlags, read_flags
from moorage.simulator.autoscalers.instance_types import PriceList

#: The kinds to read in addition, as they are.
AUTOSCALER_KINDS: Final = ("configmaps.v1.", "deployments.v1.apps")
_NAME: Final = "cluster-autoscaler"
_STATUS: Final = "cluster-autoscaler-status"
_PRIORITIES: Final = "cluster-autoscaler-priority-expander"
#: How older releases write a node group into the config map.
_OLD: Final = re.compile(r"Name:\s*(\S+).*?minSize=(\d+), maxSize=(\d+)", re.DOTALL)
_MOST: Final = 1000


class ClusterPools(NamedTuple):
    """``missing``: what the objects do not say, and what is assumed instead."""

    pools: tuple[NodePool, ...]
    flags: AutoscalerFlags
    priorities: str
    missing: tuple[str, ...]


def pools_of_cluster(
    documents: Iterable[Mapping[str, Any]], nodes: Sequence[Node], prices: PriceList | None = None, provision_s: float = 60.0,
    templates: Iterable[NodeType] = (), components: Iterable[Component] = (), remedy: str = "",
) -> ClusterPools:  # fmt: skip
    """Return the pools and flags of a cluster. ``documents``: its objects of ``AUTOSCALER_KINDS``.

    ``components``  what runs beside the scheduler, for the command line
    ``templates``  what nodes of groups are like that have none, by the names of the groups
    ``remedy``  how the user can give such a template, said of groups without one

    Raises  InputError for flags that cannot be read
    """
    held = list(documents)
    maps = {
        str((one.get("metadata") or {}).get("name")): one.get("data") or {} for one in held if one.get("kind") == "ConfigMap"
    }
    kept = (list(one.arguments) for one in components if one.name == _NAME)
    arguments = next(_command_lines(held), None) or next(kept, None)
    flags = read_flags(arguments or ())
    status = str(maps.get(_STATUS, {}).get("status", ""))
    reported = _groups_in(status)
    bounds = {name: (low, high) for name, low, high in flags.nodes} | dict(_bounds(status, reported))
    missing = []
    if arguments is None:
        missing.append("the command line of cluster-autoscaler: its defaults are assumed")
    if flags.ignored:
        missing.append(f"what these flags change: {', '.join(flags.ignored)}")
    if not bounds:
        missing.append(f"the bounds of node groups (config map {_STATUS}, or --nodes): 0 to {_MOST} nodes are assumed")
    waits = "cluster-autoscaler waits after a failed scale-up, and here it does not"
    missing += [f"node group {name}: {waits}" for name in _backing_off(status, reported)]
    groups = group_nodes(nodes)
    named = {group.name: name for group in groups if (name := _name_for(group.name, bounds))}
    known = {one.name: one for one in templates}
    pools, unpriced = [], set()
    for name, (low, high) in bounds.items():
        if name in named.values():
            continue
        if (given := known.get(name)) is None:
            without = "it has no node, so its template is unknown and it does not grow"
            missing.append(f"node group {name}: {without}{remedy and f' ({remedy})'}")
            continue
        own = {"min": low, "max": high if given.max is None else given.max, "provision_s": provision_s}
        pools.append(NodePool(**asdict(given) | own))
    for group in groups:
        if bounds and group.name not in named:
            continue  # not one of cluster-autoscaler's
        low, high = bounds.get(named.get(group.name, ""), (0, _MOST))
        price = prices.price_of(group.nodes[0].labels) if prices is not None else None
        name = named.get(group.name, group.name)  # as the config maps have it
        unpriced |= set() if price is not None else {name}
        like, price = group.nodes[0].name, 1.0 if price is None else price
        pools.append(NodePool(name=name, like=like, price=price, min=low, max=high, provision_s=provision_s))
    if unpriced:
        missing.append(f"prices of {', '.join(sorted(unpriced))} (a file of instance types): a node counts 1 an hour")
    return ClusterPools(tuple(pools), flags, str(maps.get(_PRIORITIES, {}).get("priorities", "")), tuple(missing))


def _command_lines(documents: Iterable[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Yield the arguments of each container that runs cluster-autoscaler."""
    for one in documents:
        spec = one.get("spec")
        pod = field_of(spec, "template.spec") or spec
        containers = field_of(pod, "containers")
        for container in containers if isinstance(containers, list) else ():
            words = [str(word) for key in ("command", "args") for word in container.get(key) or ()]
            if any(word.rpartition("/")[2] == _NAME for word in words) or f"/{_NAME}" in str(container.get("image", "")):
                yield words


def _groups_in(status: str) -> list[dict[str, Any]] | None:
    """Return the node groups of a status in YAML; None for the text of earlier releases."""
    if "nodeGroups:" not in status:
        return None
    tree = read_first_yaml(status, _STATUS)
    return (tree.get("nodeGroups") or []) if isinstance(tree, dict) else []


def _bounds(status: str, groups: list[dict[str, Any]] | None) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the names of node groups with their minimum and maximum. ``groups``: see ``_groups_in``"""
    if groups is None:
        for name, low, high in _OLD.findall(status):
            yield name, (int(low), int(high))
        return
    for one in groups:
        health = one.get("health") or {}
        yield str(one.get("name")), (int(health.get("minSize", 0)), int(health.get("maxSize", _MOST)))


def _backing_off(status: str, groups: list[dict[str, Any]] | None) -> Iterator[str]:
    """Yield the names of node groups that do not grow for a while, as the config map says. ``groups``: see ``_groups_in``"""
    if groups is None:
        for name, text in re.findall(r"Name:\s*(\S+)(.*?)(?=Name:|\Z)", status, re.DOTALL):
            if re.search(r"ScaleUp:\s*Backoff", text):
                yield name
        return
    for one in groups:
        if (one.get("scaleUp") or {}).get("status") == "Backoff":
            yield str(one.get("name"))


def _name_for(group: str, bounds: Mapping[str, tuple[int, int]]) -> str:
    """Return the node group of cluster-autoscaler of which the labels of nodes give a name; "" if there is none."""
    if group in bounds:
        return group
    return next((name for name in bounds if group in re.split(r"[/.]|(?<=[a-z0-9])-(?=[a-f0-9]{6,})", name)), "") or next(
        (name for name in bounds if group in name.rpartition("/")[2]), ""
    )
