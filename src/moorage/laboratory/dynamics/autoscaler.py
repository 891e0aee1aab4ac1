"""``ClusterAutoscaler``: add nodes of node pools when pods do not fit, and remove nodes that are not needed.

Source  cluster-autoscaler 1.33, core/static_autoscaler.go, core/scaleup, core/scaledown
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf, tanh
from random import Random
from typing import Final, TypeAlias

import numpy as np
from msgspec import Struct

from moorage.api.core import Node, Pod, Taint
from moorage.api.meta import Object
from moorage.core.cycle.search import SearchScope
from moorage.core.engine.facts import Gone, Seen
from moorage.core.queue import QueuePlace
from moorage.errors import InputError
from moorage.laboratory.dynamics.consolidation import can_move, delete_node, empty_node, movable_pods
from moorage.laboratory.dynamics.distributions import distribution_of
from moorage.laboratory.dynamics.node_pools import NodePool, PoolState, pool_states
from moorage.laboratory.dynamics.simulation import Simulation
from moorage.laboratory.plan.new_nodes import daemon_pods, policies_of
from moorage.laboratory.trial.feasibility import fitting_rows
from moorage.simulator.simulate import Options, prepare
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.pod_info import PodInfo
from moorage.state.pod_requests import amount

__all__ = ["EXPANDERS", "AutoscalerRules", "ClusterAutoscaler", "ExpansionOption", "ScalingEvent"]


# -- expansion ---------------------------------------------------------------------------------------------------------
# Estimate how many nodes of a pool pending pods need: the engine places the pods on copies of the pool's node.
#
# The new nodes run only their DaemonSet pods. If a pod has affinity to other pods or spread constraints, the rest of the
# cluster is loaded, too.
#
# Source  cluster-autoscaler 1.33, estimator/binpacking_estimator.go

_NO_PREEMPTION = SearchScope(post_filter=False)


class ExpansionEstimate:
    """Estimates: ``left`` returns the pods that ``upcoming`` nodes do not take, ``needed`` how many more nodes to add.

    ``around`` returns the objects of the cluster without its pending pods; ``policies`` returns those that admission reads.
    """

    def __init__(self, options: Options, around: Callable[[], Iterable[Object]], policies: Callable[[], list[Object]]) -> None:
        self._options, self._around, self._policies = options, around, policies
        self._empty: SimulatedCluster | None = None

    def _scratch(self, pods: Iterable[PodInfo]) -> SimulatedCluster:
        if any(pod.has_affinity or pod.spread_constraints for pod in pods):
            made, _ = prepare(self._options)
            made.load(self._around())
            return made
        if self._empty is None:
            self._empty, _ = prepare(self._options)
            self._empty.keeps_records = False
        return self._empty

    def left(self, pods: Sequence[PodInfo], upcoming: Sequence[Node]) -> list[PodInfo]:
        """Return the pods that fit neither on upcoming nodes nor, if the cluster is loaded, on existing ones."""
        if not upcoming and not any(pod.has_affinity or pod.spread_constraints for pod in pods):
            return list(pods)
        scratch = self._scratch(pods)
        held = self._add(scratch, upcoming)
        left = [pod for pod in pods if not self._fits(scratch, pod, held)]
        self._clear(scratch, held)
        return left

    def needed(
        self, pods: Sequence[PodInfo], upcoming: Sequence[Node], make: Callable[[int], Node], most: int
    ) -> tuple[int, tuple[PodInfo, ...]]:
        """Return how many nodes to add, at most ``most``, and the pods that then fit. ``make`` creates the n-th node."""
        scratch = self._scratch(pods)
        held = self._add(scratch, upcoming)
        placed: list[PodInfo] = []
        hopeless: set[bytes] = set()
        count = 0
        for pod in sorted(pods, key=_size, reverse=True):
            shape = pod.waiting_shape()
            if shape in hopeless:
                continue
            if self._fits(scratch, pod, held):
                placed.append(pod)
                continue
            fresh = self._add(scratch, [make(count)]) if count < most else []
            if fresh and self._fits(scratch, pod, held):
                placed.append(pod)
                count += 1
                held += fresh
            else:
                hopeless.add(shape)
                self._clear(scratch, fresh)
        self._clear(scratch, held)
        return count, tuple(placed)

    def _add(self, scratch: SimulatedCluster, nodes: Sequence[Node]) -> list[Object]:
        if not nodes:
            return []
        daemons = daemon_pods(nodes, self._policies())
        scratch.tell([*map(Seen, nodes), *map(Seen, daemons)])
        for daemon in daemons:
            scratch.attempt(scratch.pods[daemon.metadata.uid], _NO_PREEMPTION)
        return [*daemons, *nodes]

    def _fits(self, scratch: SimulatedCluster, pod: PodInfo, held: list[Object]) -> bool:
        """Place a pod if it fits, and add it to ``held``."""
        if not len(scratch.scheduler.cluster.table):
            return False
        scratch.tell([Seen(pod.pod)])
        scratch.attempt(pod.pod, _NO_PREEMPTION)
        now = scratch.pods.get(pod.uid)
        if now is not None and now.spec.node_name:
            held.append(pod.pod)
            return True
        scratch.delete(pod.uid)
        return False

    def _clear(self, scratch: SimulatedCluster, held: Iterable[Object]) -> None:
        """Remove pods and nodes from the scratch cluster."""
        listed = list(held)
        for obj in listed:
            if isinstance(obj, Pod) and obj.metadata.uid in scratch.pods:
                scratch.delete(obj.metadata.uid)
        scratch.tell([Gone(obj) for obj in listed if not isinstance(obj, Pod)])


def _size(pod: PodInfo) -> float:
    return pod.requests.get("cpu", 0) / 1000 + pod.requests.get("memory", 0) / (4 << 30)


# -- expanders ---------------------------------------------------------------------------------------------------------
# Expanders: choose which node pool to scale up among those that would help pending pods.
#
# Source  cluster-autoscaler 1.33, expander/waste/waste.go, expander/price/price.go, expander/mostpods/mostpods.go

_GI: Final = 1 << 30
#: The pod that keeps the ratio of prices stable: 500 millicores, 500 MiB.
_STABILIZING: Final = (500, 500 << 20)
#: The price of a GiB of memory relative to a core, as for the machines of large providers.
_GIB_PER_CORE: Final = 0.13
#: (largest number of nodes, millicores of the preferred node): the size doubles whenever the cluster grows threefold.
_PREFERRED: Final = ((2, 1000), (6, 2000), (20, 4000), (60, 8000), (200, 16_000))
_PREFERRED_LARGE: Final = 32_000


class ExpansionOption(Struct, frozen=True):
    """``count`` more nodes like ``node``, at ``price`` each, would let these pods be placed."""

    pool: str
    node: Node
    price: float
    count: int
    pods: tuple[PodInfo, ...]


#: Returns the best options: more than one if they are equally good. The last argument is the number of nodes of the cluster.
Expander: TypeAlias = Callable[[Sequence[ExpansionOption], int], list[ExpansionOption]]


def size_of(node: Node) -> tuple[int, int]:
    """Return a node's capacity: millicores, bytes of memory."""
    held = node.status.capacity or node.status.allocatable
    return amount("cpu", held.get("cpu", "0")), amount("memory", held.get("memory", "0"))


def _asked(option: ExpansionOption) -> tuple[int, int]:
    asked = [pod.requests for pod in option.pods]
    return sum(one.get("cpu", 0) for one in asked), sum(one.get("memory", 0) for one in asked)


def _least(options: Sequence[ExpansionOption], score: Callable[[ExpansionOption], float]) -> list[ExpansionOption]:
    scores = [score(option) for option in options]
    least = min(scores, default=inf)
    return [option for option, found in zip(options, scores, strict=True) if found == least]


def least_waste(options: Sequence[ExpansionOption], nodes: int) -> list[ExpansionOption]:
    """Return the options that leave the least cpu and memory unused: the sum of both shares."""

    def waste(option: ExpansionOption) -> float:
        wasted = 0.0
        for whole, asked in zip(size_of(option.node), _asked(option), strict=True):
            offered = whole * option.count
            wasted += (offered - asked) / offered if offered else 0.0
        return wasted

    return _least(options, waste)


def most_pods(options: Sequence[ExpansionOption], nodes: int) -> list[ExpansionOption]:
    """Return the options that place the most pods."""
    return _least(options, lambda option: -len(option.pods))


def cheapest(options: Sequence[ExpansionOption], nodes: int) -> list[ExpansionOption]:
    """Return the options with the lowest price relative to the price of the pods, on nodes of a size that suits the cluster.

    The price of a pod: its requests at the prices of the cheapest pool, where a GiB of memory costs 0.13 of a core. (A cloud
    provider has a price list for pods.)
    """
    unit = min(option.price / _cores(*size_of(option.node)) for option in options)
    preferred = next((cpu for most, cpu in _PREFERRED if nodes <= most), _PREFERRED_LARGE)
    stable = unit * _cores(*_STABILIZING)

    def score(option: ExpansionOption) -> float:
        worth = unit * _cores(*_asked(option))
        paid = (option.price * option.count + stable) / (worth + stable)
        cpu = max(size_of(option.node)[0], 1)
        unfitness = max(preferred / cpu, cpu / preferred)
        return ((unfitness - 1.0) * (1.0 - tanh((option.count - 1) / 15.0)) + 1.0) * paid

    return _least(options, score)


def _cores(cpu_milli: int, memory_bytes: int) -> float:
    return max(cpu_milli / 1000 + _GIB_PER_CORE * memory_bytes / _GI, 1e-9)


def any_option(options: Sequence[ExpansionOption], nodes: int) -> list[ExpansionOption]:
    """Return all options: ``chosen`` picks one at random."""
    return list(options)


EXPANDERS: Final[Mapping[str, Expander]] = {
    "least-waste": least_waste, "price": cheapest, "most-pods": most_pods, "random": any_option,
}  # fmt: skip


def chosen(options: Sequence[ExpansionOption], expander: str, nodes: int, random: Random) -> ExpansionOption:
    """Return the option that an expander prefers; of equally good ones, a random one."""
    best = EXPANDERS[expander](options, nodes)
    return best[random.randrange(len(best))] if len(best) > 1 else best[0]


# -- autoscaler --------------------------------------------------------------------------------------------------------

_TAINT: Final = Taint(key="ToBeDeletedByClusterAutoscaler", effect="NoSchedule")
#: --expendable-pods-priority-cutoff: no node is added for pods below this priority.
_EXPENDABLE_BELOW: Final = -10


class AutoscalerRules(Struct, frozen=True, kw_only=True):
    """The flags of cluster-autoscaler, with its defaults. Times are in seconds.

    ``scan_s``                --scan-interval
    ``unneeded_s``            --scale-down-unneeded-time
    ``delay_after_add_s``     --scale-down-delay-after-add
    ``recheck_s``             --unremovable-node-recheck-timeout
    ``utilisation``           --scale-down-utilization-threshold, for the higher of cpu and memory
    ``bulk``                  --max-empty-bulk-delete
    ``scale_down``            --scale-down-enabled
    """

    scan_s: float = 10.0
    unneeded_s: float = 600.0
    delay_after_add_s: float = 600.0
    recheck_s: float = 300.0
    utilisation: float = 0.5
    bulk: int = 10
    scale_down: bool = True


_DEFAULTS: Final = AutoscalerRules()


class ScalingEvent(Struct, frozen=True):
    """``nodes`` of a pool were ordered (``up``), became ready (``ready``) or were removed (``down``)."""

    time_s: float
    action: str
    pool: str
    nodes: tuple[str, ...]


class ClusterAutoscaler:
    """See the module's description. ``expander``: ``least-waste``, ``price``, ``most-pods`` or ``random``.

    Scale-up      pods that no node could take are placed on copies of each pool's node; the expander chooses a pool, and its
                  nodes are ready after ``provision_s``
    Scale-down    a node below the threshold for ``unneeded_s``, whose pods may be evicted and fit elsewhere, is tainted,
                  emptied and deleted; empty nodes in bulk. Whether its pods fit elsewhere is checked when the time is over
    """

    def __init__(
        self,
        pools: Sequence[NodePool],
        *,
        expander: str = "least-waste",
        rules: AutoscalerRules = _DEFAULTS,
        name: str = "autoscaler",
    ) -> None:
        if expander not in EXPANDERS:
            raise InputError(f"expander: {expander!r} is none of {', '.join(EXPANDERS)}")
        self._given, self._expander, self._rules, self._name = tuple(pools), expander, rules, name
        #: The scaling events, in order.
        self.events: list[ScalingEvent] = []

    def start(self, simulation: Simulation) -> None:
        self._simulation = simulation
        table = simulation.table
        self._pools = pool_states(self._given, [table.nodes[row] for row in table.arrival.view.argsort().tolist()])
        self._random = simulation.random(self._name)
        self._delays = {pool.name: distribution_of(pool.provision_s) for pool in self._given}
        self._expansion = ExpansionEstimate(simulation.options, self._around, self._policies)
        self._added_s = -np.inf
        self._futile: tuple[int, ...] = ()
        #: Since when a node is below the threshold, and until when one that cannot be removed is passed over.
        self._low_since: dict[str, float] = {}
        self._kept_until: dict[str, float] = {}
        self._leaving: set[str] = set()
        for pool in self._pools.values():
            pool.account(simulation.now_s)
            if pool.size < pool.pool.min:
                self._order(pool, pool.pool.min - pool.size)
        simulation.every(self._rules.scan_s, self._scan)

    # -- what it did -----------------------------------------------------------------------------------------------------

    def sizes(self) -> dict[str, int]:
        """Return the number of nodes of each pool, without those on order."""
        return {name: len(pool.members) for name, pool in self._pools.items()}

    def node_hours(self) -> dict[str, float]:
        """Return the node hours of each pool: the hours that its nodes existed, added up."""
        return {name: pool.node_hours(self._simulation.now_s) for name, pool in self._pools.items()}

    def cost(self) -> float:
        """Return the sum of node hours times the price of their pools."""
        return sum(self._pools[name].pool.price * hours for name, hours in self.node_hours().items())

    # -- scans -----------------------------------------------------------------------------------------------------------

    def _scan(self, simulation: Simulation) -> None:
        if len(simulation.engine.scheduler.queue):
            self._scale_up()
        if self._rules.scale_down:
            self._scale_down()

    def _around(self) -> Iterable[Object]:
        return [obj for obj in self._simulation.objects() if getattr(getattr(obj, "spec", None), "node_name", None) != ""]

    def _policies(self) -> list[Object]:
        return policies_of(self._simulation.aside.values())

    # -- up --------------------------------------------------------------------------------------------------------------

    def _scale_up(self) -> None:
        engine = self._simulation.engine
        state = (engine.arrived, len(engine.scheduler.queue), len(self.events))
        if state == self._futile:
            return
        waiting = [
            one.pod for one in engine.scheduler.queue.ranked()
            if one.attempts and one.place is not QueuePlace.GATED and one.pod.priority >= _EXPENDABLE_BELOW
            and not one.pod.status.nominated_node_name
        ]  # fmt: skip
        upcoming = [node for pool in self._pools.values() for node in pool.upcoming.values()]
        waiting = self._without_room(waiting)
        left = self._expansion.left(waiting, upcoming) if waiting else []
        options = [option for pool in self._pools.values() if (option := self._option(pool, left)) is not None] if left else []
        if not options:
            self._futile = state
            return
        best = chosen(options, self._expander, len(self._simulation.table), self._random)
        self._order(self._pools[best.pool], best.count)

    def _without_room(self, pods: Sequence[PodInfo]) -> list[PodInfo]:
        """Return the pods that fit on no node now: one may have been added since their last attempt."""
        fits: dict[bytes, bool] = {}
        left = []
        for pod in pods:
            shape = pod.waiting_shape()
            if shape not in fits:
                fits[shape] = bool(len(fitting_rows(self._simulation.engine, pod)))
            if not fits[shape]:
                left.append(pod)
        return left

    def _option(self, state: PoolState, pods: Sequence[PodInfo]) -> ExpansionOption | None:
        room = state.pool.max - state.size
        if room <= 0:
            return None
        count, placed = self._expansion.needed(pods, (), state.sketch, room)
        if not count:
            return None
        return ExpansionOption(state.pool.name, state.offer.pattern, state.pool.price, count, placed)

    def _order(self, state: PoolState, count: int) -> None:
        simulation = self._simulation
        taken = {*simulation.table.row_of, *(name for pool in self._pools.values() for name in pool.upcoming)}
        names = [state.order(taken).name for _ in range(count)]
        self._note("up", state, names)
        self._added_s = simulation.now_s
        delay = self._delays[state.pool.name]
        for name in names:
            simulation.call_at(simulation.now_s + delay.draw(self._random), partial(self._join, state, name))

    def _join(self, state: PoolState, name: str) -> None:
        simulation = self._simulation
        node = state.upcoming.pop(name)
        state.account(simulation.now_s)
        state.members[name] = None
        self._note("ready", state, [name])
        simulation.tell(Seen(node), *map(Seen, daemon_pods([node], self._policies())))

    # -- down ------------------------------------------------------------------------------------------------------------

    def _scale_down(self) -> None:
        now, rules = self._simulation.now_s, self._rules
        low = self._low_nodes()
        self._low_since = {name: self._low_since.get(name, now) for name in low}
        if now - self._added_s < rules.delay_after_add_s:
            return
        ripe = [name for name, since in self._low_since.items() if now - since >= rules.unneeded_s]
        ripe = [name for name in ripe if self._kept_until.get(name, now) <= now]
        empty = 0
        for name in ripe:
            state = next(pool for pool in self._pools.values() if name in pool.members)
            if state.size - len(self._leaving & state.members.keys()) <= state.pool.min:
                continue
            pods = self._pods_to_move(name)
            if pods is None:
                self._kept_until[name] = now + rules.recheck_s
            elif not pods and empty < rules.bulk:
                empty += 1
                self._remove(state, name)
            elif pods and not empty and not self._leaving:
                self._empty_and_remove(state, name, pods)
                return

    def _low_nodes(self) -> list[str]:
        """Return the nodes of pools below the threshold, in the order of their pools."""
        table = self._simulation.table
        share = np.zeros(len(table))
        for name in ("cpu", "memory"):
            offered = table.allocatable(name).view
            share = np.maximum(share, table.requested(name).view / np.maximum(offered, 1))
        is_low = share < self._rules.utilisation
        row_of = table.row_of
        if not is_low.any():
            return []
        return [
            name for pool in self._pools.values() for name in pool.members
            if (row := row_of.get(name)) is not None and is_low[row] and name not in self._leaving
        ]  # fmt: skip

    def _pods_to_move(self, name: str) -> list[PodInfo] | None:
        """Return the pods to evict before a node is removed; None if it must stay."""
        simulation = self._simulation
        row_of = simulation.table.row_of
        pods = movable_pods(simulation.engine, row_of[name])
        if not pods:
            return pods
        closed = [row_of[other] for other in self._leaving if other in row_of]
        return pods if can_move(simulation.engine, row_of[name], pods, closed) else None

    def _empty_and_remove(self, state: PoolState, name: str, pods: Sequence[PodInfo]) -> None:
        self._leaving.add(name)
        empty_node(self._simulation, name, pods, _TAINT, partial(self._remove, state, name))

    def _remove(self, state: PoolState, name: str) -> None:
        """Delete a node, with the pods bound to its existence (DaemonSet and mirror pods)."""
        simulation = self._simulation
        state.account(simulation.now_s)
        state.members.pop(name, None)
        self._leaving.discard(name)
        self._low_since.pop(name, None)
        self._kept_until.pop(name, None)
        self._note("down", state, [name])
        delete_node(simulation, name)

    def _note(self, action: str, state: PoolState, names: Sequence[str]) -> None:
        self.events.append(ScalingEvent(self._simulation.now_s, action, state.pool.name, tuple(names)))
