"""``ClusterAutoscaler``: add nodes of node pools when pods do not fit, and remove nodes that are not needed.

Source  cluster-autoscaler 1.33, core/static_autoscaler.go, core/scaleup, core/scaledown
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import numpy as np
from msgspec import Struct

from moorage.api.core import Taint
from moorage.api.meta import Object
from moorage.dynamics.distributions import distribution_of
from moorage.dynamics.expanders import EXPANDERS, ExpansionOption, chosen
from moorage.dynamics.expansion import ExpansionEstimate
from moorage.dynamics.idle_nodes import can_move, movable_pods
from moorage.dynamics.node_pools import NodePool, PoolState, pool_states
from moorage.dynamics.node_removal import delete_node, empty_node
from moorage.dynamics.simulation import Simulation
from moorage.engine.facts import Seen
from moorage.errors import InputError
from moorage.laboratory.feasibility import fitting_rows
from moorage.laboratory.new_nodes import daemon_pods, policies_of
from moorage.queue import QueuePlace
from moorage.state.pod_info import PodInfo

__all__ = ["AutoscalerRules", "ClusterAutoscaler", "ScalingEvent"]

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
