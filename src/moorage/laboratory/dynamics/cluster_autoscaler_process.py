"""``ClusterAutoscaler``: cluster-autoscaler in virtual time. It adds nodes of pools and removes those that are unneeded.

Its decisions are those of ``simulator.autoscalers.cluster_autoscaler``; this gives them times, and their effects on the
cluster.

Source  cluster-autoscaler at 87d9c45c02^, core/static_autoscaler.go, core/scaledown/actuation
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Final, NamedTuple

from msgspec.structs import replace

from moorage.api.core import Node, Object, Pod, Taint
from moorage.api.workloads import DaemonSet
from moorage.core.engine.facts import Gone, Seen
from moorage.errors import InputError
from moorage.laboratory.dynamics import node_pools
from moorage.laboratory.dynamics.node_scalers import NodeScaler, PaidNode
from moorage.laboratory.dynamics.pod_arrivals import distribution_of
from moorage.laboratory.dynamics.simulation import Simulation
from moorage.laboratory.edit.edits import no_such_node
from moorage.laboratory.plan.node_types import daemon_pods, policies_of
from moorage.simulator.autoscalers.cluster_autoscaler.flags import (
    AutoscalerFlags,
    ExpansionOption,
    read_flags,
)
from moorage.simulator.autoscalers.cluster_autoscaler.loop import AutoscalerLoop, NodeRemoval, Unremovable
from moorage.simulator.autoscalers.cluster_autoscaler.packing import PackingSnapshot
from moorage.simulator.autoscalers.cluster_autoscaler.removal_rules import DELETED
from moorage.simulator.autoscalers.cluster_autoscaler.scale_up import GroupSize, RoundView, Templates
from moorage.simulator.simulate import prepare
from moorage.state.pod_info import PodInfo

#: --node-delete-delay-after-taint
_DELETED_AFTER_S: Final = 5.0
#: A cooldown is over at its last second, while a node is unneeded for long enough after it.
_ULP_S: Final = 1e-6


class Growth(NamedTuple):
    """``options`` for the pods that wait, the one that is taken first; ``reasons`` as for ``ScaleUp``."""

    waiting: tuple[Pod, ...]
    options: tuple[ExpansionOption, ...]
    reasons: Mapping[str, Mapping[str, tuple[str, ...]]]


class ClusterAutoscaler(NodeScaler):
    """See the module's description.

    ``flags``       those of its command line, such as ``["--scale-down-unneeded-time=5m"]``, or read ones
    ``expander``    instead of the flag's: ``least-waste``, ``price``, ``most-pods``, ``least-nodes``, ``priority`` or
                    ``random``, or several in order
    ``start_s``     Unix seconds at the beginning of the run: pods that were to be gone by then count no more
    ``priorities``  the config map of ``priority``: regular expressions of names of pools by priority, as YAML

    Scale-up      every --scan-interval, pods that fit on no node that exists or is coming are packed on copies of each pool's
                  node; the expander chooses a pool, and its nodes are ready after ``provision_s``
    Scale-down    a node below the threshold for long enough, whose pods may be evicted and fit elsewhere, is tainted, emptied
                  and deleted
    """

    def __init__(
        self,
        pools: Sequence[node_pools.NodePool],
        *,
        flags: AutoscalerFlags | Iterable[str] = (),
        expander: str = "",
        priorities: str = "",
        missing: Sequence[str] = (),
        currency: str = "",
        start_s: float = 0.0,
        name: str = "autoscaler",
    ) -> None:
        super().__init__(currency, missing)
        self._start_s = start_s
        self._given, self._name, self._priorities = tuple(pools), name, priorities
        #: The flags that hold.
        self.flags = flags if isinstance(flags, AutoscalerFlags) else read_flags(flags)
        if expander:
            self.flags = replace(self.flags, expander=read_flags([f"--expander={expander}"]).expander)

    def start(self, simulation: Simulation) -> None:
        self._pools = node_pools.pool_states(self._given, simulation.engine.nodes_in_order())
        self._random = simulation.random(self._name)
        self._loop = AutoscalerLoop(self.flags, self._random, self._priorities)
        self._delays = {pool.name: distribution_of(pool.provision_s) for pool in self._given}
        self._templates = Templates()
        self._packed: PackingSnapshot | None = None
        self._known: dict[str, Object] = {}
        self._done: tuple[object, ...] = ()
        self._next_s = -inf
        self._begin(simulation, self._pools)
        for pool in self._pools.values():
            self._paid |= {name: PaidNode(pool.pool.name, pool.pool.price, simulation.now_s) for name in pool.members}
            if pool.size < pool.pool.min:
                self._order(pool, pool.pool.min - pool.size)
        self._note_rate()
        simulation.every(self.flags.scan_interval, self._scan)

    # -- rounds ----------------------------------------------------------------------------------------------------------

    def _scan(self, simulation: Simulation) -> None:
        """Run a round if something changed, or if a time is over that makes a difference."""
        now_s, waiting = self._now_s, self._waiting() if simulation.pending else []
        state = (simulation.engine.scheduler.state.facts, len(self.events), tuple(pod.metadata.uid for pod in waiting))
        if state == self._done and now_s <= self._next_s:
            return
        made = self._loop.run_once(self._view(waiting), now_s)
        for name, count in made.more.items():
            self._order(self._pools[name], count)
        for removal in made.empty:
            self._taint(removal.name)
            simulation.call_at(simulation.now_s + _DELETED_AFTER_S, partial(self._remove, removal.name))
        for removal in made.drains:
            self._drain(removal)
        loop, flags = self._loop, self.flags
        times = (
            loop.planner.next_change_s(now_s), loop.added_s + flags.scale_down_delay_after_add - _ULP_S,
            loop.deleted_s + flags.scale_down_delay_after_delete - _ULP_S,
            *(self._born_s(pod) + flags.new_pod_scale_up_delay for pod in waiting),
        )  # fmt: skip
        self._done, self._next_s = state, min((time_s for time_s in times if time_s >= now_s), default=inf)

    @property
    def _now_s(self) -> float:
        """The time as cluster-autoscaler reads it: deletions in the input were before it."""
        return self._start_s + self._simulation.now_s

    def _born_s(self, pod: Pod) -> float:
        record = self._simulation.engine.records.get(pod.metadata.uid)
        return self._start_s + record.arrived_s if record is not None else -inf

    def _view(self, waiting: Sequence[Pod]) -> RoundView:
        packed = self._packed_now(waiting)
        budgets = self._budgets()
        nodes = [packed.node(name) for name in packed.order]
        group_of = {name: pool.pool.name for pool in self._pools.values() for name in pool.members}
        upcoming = {name: len(pool.upcoming) for name, pool in self._pools.items() if pool.upcoming}
        born_s = {pod.metadata.uid: self._born_s(pod) for pod in waiting}
        return RoundView(packed, nodes, waiting, self._groups(packed), group_of, budgets, upcoming, born_s)

    def _groups(self, packed: PackingSnapshot) -> list[GroupSize]:
        daemons = [obj for obj in self._simulation.aside.values() if isinstance(obj, DaemonSet)]
        found = []
        for name, pool in self._pools.items():
            nodes = [packed.node(member) for member in pool.members if member in packed.order]
            template = self._templates.of(name, nodes, pool.sketch(0), packed.pods, daemons)
            assert template is not None  # there is always a sketch
            found.append(GroupSize(name, pool.pool.min, pool.pool.max, pool.size, template, pool.pool.price))
        return found

    def _packed_now(self, waiting: Sequence[Pod]) -> PackingSnapshot:
        """Return the nodes with their pods as they are now. Pods with claims need the objects of their volumes, too."""
        simulation = self._simulation
        if self._packed is None or any(pod.spec.volumes for pod in waiting):
            made, _ = prepare(simulation.options)
            made.keeps_records = False
            made.load(obj for obj in simulation.objects() if not isinstance(obj, Node | Pod))
            self._packed, self._known = PackingSnapshot(made), {}
        now = self._present()
        gone = [Gone(held) for uid, held in self._known.items() if uid not in now]
        seen = [Seen(obj) for uid, obj in now.items() if self._known.get(uid) is not obj]
        self._packed.tell(sorted(gone, key=lambda one: isinstance(one.obj, Node)))  # pods before their nodes
        self._packed.tell(seen)
        self._known = now
        return self._packed

    def _present(self) -> dict[str, Object]:
        """Return the nodes, and the pods that no other pod may displace, by UID or name, nodes first."""
        table, cutoff = self._simulation.table, self.flags.expendable_pods_priority_cutoff
        rows = table.arrival.view.argsort(kind="stable").tolist()
        found: dict[str, Object] = {f"node {table.nodes[row].name}": table.nodes[row] for row in rows}
        for row in rows:
            found |= {uid: held.pod for uid, held in table.pods[row].items() if held.priority >= cutoff}
        return found

    # -- up --------------------------------------------------------------------------------------------------------------

    def _order(self, state: node_pools.PoolState, count: int) -> None:
        simulation = self._simulation
        taken = {*simulation.table.row_of, *(name for pool in self._pools.values() for name in pool.upcoming)}
        names = [state.order(taken).name for _ in range(count)]
        self._note("up", state.pool.name, names)
        delay = self._delays[state.pool.name]
        for name in names:
            simulation.call_at(simulation.now_s + delay.draw(self._random), partial(self._join, state, name))

    def _join(self, state: node_pools.PoolState, name: str) -> None:
        simulation = self._simulation
        node = state.upcoming.pop(name)
        state.members[name] = None
        self._note("ready", state.pool.name, [name])
        self._pay(name, state.pool.name, state.pool.price)
        policies = policies_of(simulation.aside.values())
        simulation.tell(Seen(node), *map(Seen, daemon_pods([node], policies)))

    def next_growth(self) -> Growth:
        """Return the pods that wait, and how pools would grow for them now: the option that is taken first."""
        waiting = self._waiting()
        found = self._loop.growth(self._view(waiting))
        best = sorted(found.options, key=lambda one: one.pool not in found.more)
        return Growth(tuple(waiting), tuple(best), found.reasons)

    def pool_of(self, name: str) -> str:
        """Return the pool of a node; "" if it has none."""
        return next((pool.pool.name for pool in self._pools.values() if name in pool.members), "")

    def why_not_added(self, pod: PodInfo) -> str:
        """Return the message of the event NotTriggerScaleUp for a pending pod; "" if some pool would grow for it."""
        found = self._loop.growth(self._view([pod.pod]))
        reasons = found.reasons.get(pod.uid, {})
        counted = Counter(text for why in reasons.values() for text in why)
        if found.options or not counted:
            return ""
        if "" in reasons:  # what no group can change
            return f"pod didn't trigger scale-up: {', '.join(reasons[''])}"
        told = sorted(counted.items(), key=lambda one: (-one[1], one[0]))
        return f"pod didn't trigger scale-up: {', '.join(f'{number} {text}' for text, number in told)}"

    # -- down ------------------------------------------------------------------------------------------------------------

    def why_kept(self, name: str) -> Unremovable | None:
        """Return why a node is not removed now, as cluster-autoscaler would say; None if the next round may remove it.

        Raises  InputError for a node that does not exist
        """
        return self.reasons_kept([name])[name]

    def reasons_kept(self, names: Iterable[str]) -> dict[str, Unremovable | None]:
        """Return why each of these nodes is not removed now, as ``why_kept`` does.

        Raises  InputError for a node that does not exist
        """
        now_s, view = self._now_s, self._view(())
        found: dict[str, Unremovable | None] = {}
        for name in names:
            if name not in view.packed.order:
                raise InputError(no_such_node(name, self._simulation.table.row_of))
            judged = self._loop.planner.judge(view, name, now_s)
            found[name] = judged if isinstance(judged, Unremovable) else self._still_waits(name)
        return found

    def _still_waits(self, name: str) -> Unremovable | None:
        now_s, loop = self._now_s, self._loop
        since_s = loop.planner.unneeded[name][0] if name in loop.planner.unneeded else now_s
        until_s = since_s + self.flags.scale_down_unneeded_time, loop.added_s + self.flags.scale_down_delay_after_add
        left_s = max(until_s) - now_s
        return Unremovable("NotUnneededLongEnough", f"it may go in {left_s:g} s, if nothing changes") if left_s > 0 else None

    def _taint(self, name: str) -> Taint:
        taint = Taint(key=DELETED, value=str(int(self._now_s)), effect="NoSchedule")
        node_pools.taint_node(self._simulation, name, taint)
        return taint

    def _drain(self, removal: NodeRemoval) -> None:
        pods = [PodInfo(pod) for pod in removal.pods if pod.metadata.uid in self._simulation.engine.pods]
        node_pools.empty_node(
            self._simulation, removal.name, pods, self._taint(removal.name), partial(self._remove, removal.name)
        )

    def _remove(self, name: str) -> None:
        """Delete a node, with the pods bound to its existence (DaemonSet and mirror pods)."""
        state = next(pool for pool in self._pools.values() if name in pool.members)
        state.members.pop(name, None)
        self._loop.gone(name)
        self._note("down", state.pool.name, [name])
        self._end(name)
        node_pools.delete_node(self._simulation, name)
