"""Node pools of an autoscaler: the template of their nodes, the minimum and maximum size, and the existing nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import asdict, replace

from moorage.api.core import Node, Taint
from moorage.core.engine.facts import Gone, Seen
from moorage.errors import InputError
from moorage.laboratory.compare.typical_mix import is_bound_to_its_node
from moorage.laboratory.dynamics.pod_arrivals import DistributionLike
from moorage.laboratory.dynamics.simulation import Simulation
from moorage.laboratory.node_groups import group_nodes
from moorage.laboratory.plan.node_types import NodeType, Offer, offers_of_types, read_list, read_types
from moorage.state.pod_info import PodInfo

#: The maximum size of a pool that gives none, and the longest provisioning time of a node in seconds.
_MOST: Final = 1000
_LONGEST_S: Final = 1e7
#: The fields of a pool in a file that a node type does not have.
_OWN: Final = ("min", "provisionSeconds")


class NodePool(NodeType, frozen=True, kw_only=True):
    """Nodes that an autoscaler adds and removes: a type of nodes with a price for an hour.

    The nodes of the cluster that it is ``like`` belong to the pool from the beginning.

    ``provision_s``  from the decision until a new node is ready
    """

    max: int = 1000
    min: int = 0
    provision_s: DistributionLike = 120.0


class PoolState:
    """The state of a pool. ``members`` are its nodes, ``upcoming`` those that are ordered and do not exist yet."""

    def __init__(self, pool: NodePool, offer: Offer, members: Iterable[str]) -> None:
        self.pool, self.offer = pool, offer
        self.members = dict.fromkeys(members)
        self.upcoming: dict[str, Node] = {}
        self._made = 0

    @property
    def size(self) -> int:
        return len(self.members) + len(self.upcoming)

    def order(self, taken: Iterable[str]) -> Node:
        """Order a node: return it, and count it as upcoming."""
        node = self.offer.node(self._made, taken)
        self._made += 1
        self.upcoming[node.name] = node
        return node

    def sketch(self, number: int) -> Node:
        """Return a node like those that could be ordered, for an estimate."""
        return self.offer.node(1_000_000 + number)


def read_pools(path: str) -> list[NodePool]:
    """Read a file of pools: node types as for ``moorage plan``, each with ``min`` and ``provisionSeconds`` if wanted.

    Raises  InputError that names the field
    """
    found = []
    for at, entry in enumerate(read_list(path)):
        where = f"{path}[{at}]"
        if not isinstance(entry, Mapping):
            raise InputError(f"{where}: expected a pool, such as {{name: general, like: node-1, max: 10}}")
        [one] = read_types([{key: value for key, value in entry.items() if key not in _OWN}])
        least, seconds, most = entry.get("min", 0), entry.get("provisionSeconds", 120), _MOST if one.max is None else one.max
        if not isinstance(least, int) or isinstance(least, bool) or not 0 <= least <= most:
            raise InputError(f"{where}.min: expected a whole number from 0 to max, found {str(least)[:40]!r}")
        if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds < _LONGEST_S:
            raise InputError(f"{where}.provisionSeconds: expected seconds, found {str(seconds)[:40]!r}")
        found.append(NodePool(**asdict(one) | {"min": least, "max": most, "provision_s": float(seconds)}))
    return found


def pool_states(pools: Sequence[NodePool], nodes: Sequence[Node]) -> dict[str, PoolState]:
    """Return the pools by name. The members of a pool with ``like`` are the existing nodes of the same node group.

    Raises  InputError
    """
    found: dict[str, PoolState] = {}
    for pool, offer in zip(pools, offers_of_types(pools, nodes), strict=True):
        if pool.name in found or not 0 <= pool.min <= pool.max:
            raise InputError(f"pool {pool.name}: give each pool a name of its own, and a minimum that is at most its maximum")
        alike = group_nodes([offer.pattern, *nodes])[0].nodes[1:] if pool.like else ()
        found[pool.name] = PoolState(pool, offer, [node.name for node in alike])
    if not found:
        raise InputError("an autoscaler needs at least one pool")
    return found


# -- node removal ------------------------------------------------------------------------------------------------------
# Empty a node and delete it, as autoscalers do.

#: The longest grace period of evicted pods, in seconds (--max-graceful-termination-sec of cluster-autoscaler).
_LONGEST_GRACE_S: Final = 600


def taint_node(simulation: Simulation, name: str, taint: Taint) -> None:
    """Add a taint to a node that does not have it."""
    node = simulation.table.nodes[simulation.table.row_of[name]]
    if taint not in node.spec.taints:
        simulation.tell(Seen(replace(node, spec=replace(node.spec, taints=(*node.spec.taints, taint)))))


def empty_node(simulation: Simulation, name: str, pods: Iterable[PodInfo], taint: Taint, then: Callable[[], None]) -> None:
    """Taint a node, evict its pods, and call ``then`` when the last grace period is over."""
    taint_node(simulation, name, taint)
    longest = 0.0
    for pod in pods:
        grace = pod.spec.termination_grace_period_seconds
        grace_s = float(min(30 if grace is None else grace, _LONGEST_GRACE_S))
        longest = max(longest, grace_s)
        simulation.engine.evict(pod.uid, grace_s)
    simulation.call_at(simulation.now_s + longest, then)


def delete_node(simulation: Simulation, name: str) -> None:
    """Delete a node if it exists, with its remaining pods that go with it."""
    row = simulation.table.row_of.get(name)
    if row is not None:
        bound = [pod.pod for pod in simulation.table.pods[row].values() if is_bound_to_its_node(pod.pod)]
        simulation.tell(*map(Gone, bound), Gone(simulation.table.nodes[row]))
