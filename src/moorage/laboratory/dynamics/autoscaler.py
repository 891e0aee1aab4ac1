"""``ClusterAutoscaler``: add nodes of node pools when pods do not fit, and remove nodes that are not needed.

Its expanders, drain rules and reasons are those of ``simulator.autoscalers.cluster_autoscaler``.

Source  cluster-autoscaler at 87d9c45c02^, core/static_autoscaler.go, core/scaleup, core/scaledown
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import numpy as np
from msgspec import Struct

from moorage.api.core import Node, Pod, Taint
from moorage.api.meta import Object
from moorage.core.cycle.search import SearchScope
from moorage.core.engine.facts import Gone, Seen
from moorage.core.queue import QueuePlace
from moorage.errors import InputError
from moorage.laboratory.dynamics.consolidation import can_move, delete_node, empty_node, movable_pods, moves_of
from moorage.laboratory.dynamics.node_pools import NodePool, PoolState, pool_states
from moorage.laboratory.dynamics.pod_arrivals import distribution_of
from moorage.laboratory.dynamics.simulation import Simulation
from moorage.laboratory.edit.edits import no_such_node
from moorage.laboratory.plan.node_types import daemon_pods, policies_of
from moorage.laboratory.trial.feasibility import feasibility_of, fitting_rows
from moorage.simulator.autoscalers.cluster_autoscaler.eligibility import ScaleDownFlags, unremovable_reason
from moorage.simulator.autoscalers.cluster_autoscaler.expanders import ExpansionOption, chosen, read_expander
from moorage.simulator.simulate import Options, prepare
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.pod_info import PodInfo
from moorage.state.pod_requests import amount

__all__ = ["AutoscalerRules", "ClusterAutoscaler", "ScalingEvent", "Unremovable"]


# -- expansion ---------------------------------------------------------------------------------------------------------
# Estimate how many nodes of a pool pending pods need: the engine places the pods on copies of the pool's node.
#
# The new nodes run only their DaemonSet pods. If a pod has affinity to other pods or spread constraints, the rest of the
# cluster is loaded, too.
#
# Source  cluster-autoscaler at 87d9c45c02^, estimator/binpacking_estimator.go, estimator/decreasing_pod_orderer.go

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
        template = make(0)
        for pod in sorted(pods, key=lambda pod: _size(pod, template), reverse=True):
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

    def refusals(self, pod: PodInfo, node: Node) -> tuple[str, ...]:
        """Return the scheduler's reasons why a pod does not fit on a new node; none if it does."""
        scratch = self._scratch([pod])
        held = self._add(scratch, [node])
        found = feasibility_of(scratch, pod, [node.name])
        self._clear(scratch, held)
        return () if found else tuple(dict.fromkeys(found.verdicts.columns()["reason"]))

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


def _size(pod: PodInfo, template: Node) -> float:
    """Return the sum of the pod's shares of the template's cpu and memory. Pods are placed in falling order of it."""
    offers = {name: amount(name, template.status.allocatable.get(name, 0)) for name in ("cpu", "memory")}
    return sum(pod.requests.get(name, 0) / offered for name, offered in offers.items() if offered)


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


class Unremovable(Struct, frozen=True):
    """Why a node is not removed: cluster-autoscaler's reason, a sentence, and the pod that keeps the node, if one does."""

    reason: str
    text: str
    pod: str = ""


class ClusterAutoscaler:
    """See the module's description.

    ``expander``    ``least-waste``, ``price``, ``most-pods``, ``least-nodes``, ``priority`` or ``random``, or several in order
    ``priorities``  the config map of ``priority``: regular expressions of names of pools by priority, as YAML

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
        priorities: str = "",
        rules: AutoscalerRules = _DEFAULTS,
        name: str = "autoscaler",
    ) -> None:
        self._given, self._expander = tuple(pools), read_expander(expander, priorities)
        self._rules, self._name = rules, name
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

    def costs(self) -> dict[str, float]:
        """Return the node hours of each pool times its price."""
        return {name: self._pools[name].pool.price * hours for name, hours in self.node_hours().items()}

    def cost(self) -> float:
        """Return what all nodes of the pools cost so far."""
        return sum(self.costs().values())

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

    def why_not_added(self, pod: PodInfo) -> str:
        """Return the message of the event NotTriggerScaleUp for a pending pod; "" if some pool would grow for it."""
        reasons: Counter[str] = Counter()
        for state in self._pools.values():
            full = state.size >= state.pool.max
            found = ("max node group size reached",) if full else self._expansion.refusals(pod, state.sketch(0))
            if not found:
                return ""
            reasons.update(found)
        told = sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
        return f"pod didn't trigger scale-up: {', '.join(f'{number} {text}' for text, number in told)}"

    def why_kept(self, name: str) -> Unremovable | None:
        """Return why a node is not removed now, as cluster-autoscaler would say; None if the next scan may remove it.

        Raises  InputError for a node that does not exist
        """
        simulation, now, rules = self._simulation, self._simulation.now_s, self._rules
        row = simulation.table.row_of.get(name)
        if row is None:
            raise InputError(no_such_node(name, simulation.table.row_of))
        state = next((pool for pool in self._pools.values() if name in pool.members), None)
        pods = [held.pod for held in simulation.table.pods[row].values()]
        flags = ScaleDownFlags(utilisation=rules.utilisation)
        reason, text = unremovable_reason(simulation.table.nodes[row], pods, flags, now, autoscaled=state is not None)
        if reason or state is None:
            return Unremovable(reason, text)
        blocking = moves_of(simulation.engine, row).blocking
        if blocking is not None:
            return Unremovable(f"BlockedByPod: {blocking[1].reason}", blocking[1].text, blocking[0].key)
        if self._pods_to_move(name) is None:
            return Unremovable("NoPlaceToMovePods", "its pods do not fit on the other nodes, or their budgets are spent")
        if state.size - len(self._leaving & state.members.keys()) <= state.pool.min:
            return Unremovable("NodeGroupMinSizeReached", f"pool {state.pool.name} has its minimum of {state.pool.min} nodes")
        waits = max(
            self._low_since.get(name, now) + rules.unneeded_s,
            self._added_s + rules.delay_after_add_s,
            self._kept_until.get(name, now),
        )
        return Unremovable("NotUnneededLongEnough", f"it may go in {waits - now:g} s") if waits > now else None

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
        is_low = share <= self._rules.utilisation
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
