"""Nodes that fail and are repaired, each at its own times.

Source  kubernetes, pkg/controller/nodelifecycle, pkg/controller/tainteviction
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final

from moorage.api.core import Node
from moorage.core.engine.facts import Gone, Seen
from moorage.errors import InputError
from moorage.laboratory.dynamics.pod_arrivals import DistributionLike, distribution_of
from moorage.laboratory.dynamics.simulation import Simulation
from moorage.laboratory.survive.failures import UNREACHABLE, FailureMode, reachable_node, tolerated_s, unreachable_node
from moorage.simulator.owners import controller_kind

#: kube-controller-manager's --node-monitor-grace-period: seconds without heartbeats before a node is marked unreachable.
_GRACE_S: Final = 50.0


class FailingNodes:
    """Nodes that fail and are repaired for as long as they are in the cluster; nodes that are added later fail as well.

    ``mtbf``   seconds from a repair to the next failure
    ``mttr``   seconds from a failure to its repair
    ``mode``   ``unreachable``: after 50 s the node is tainted, and its pods are evicted when their tolerations end, after 300 s
               by default; a repair before that keeps them, and their work goes on. Pods of StatefulSets and DaemonSets stay.
               ``deleted``: the node object is deleted at once, its pods 40 s later, and the repaired node is added again
    ``where``  which nodes can fail; None: all
    """

    def __init__(
        self,
        mtbf: DistributionLike,
        mttr: DistributionLike,
        *,
        mode: FailureMode = "unreachable",
        where: Callable[[Node], bool] | None = None,
        name: str = "failures",
    ) -> None:
        if mode not in {"unreachable", "deleted"}:
            raise InputError(f"mode: {mode!r} is neither 'unreachable' nor 'deleted'")
        self._mtbf, self._mttr, self._mode = distribution_of(mtbf), distribution_of(mttr), mode
        self._where, self._name = where, name
        #: The number of failures so far.
        self.count = 0
        #: The nodes that are down now, with the number of the failure, which tells successive failures of a node apart.
        self.down: dict[str, int] = {}

    def start(self, simulation: Simulation) -> None:
        self._simulation = simulation
        simulation.endless += 1
        simulation.on_new_node(self._watch)
        for node in simulation.engine.nodes_in_order():
            self._watch(node)

    def _watch(self, node: Node) -> None:
        if node.name not in self.down and (self._where is None or self._where(node)):
            self._fail_later(node.name, self._simulation.random(f"{self._name}/{node.name}"))

    def _fail_later(self, name: str, random: Random) -> None:
        simulation = self._simulation
        simulation.call_at(simulation.now_s + self._mtbf.draw(random), partial(self._fail, name, random))

    def _present(self, name: str) -> Node | None:
        table = self._simulation.table
        row = table.row_of.get(name)
        return None if row is None else table.nodes[row]

    def _fail(self, name: str, random: Random) -> None:
        node = self._present(name)
        if node is None:
            return
        self.count += 1
        number = self.down[name] = self.count
        simulation = self._simulation
        back_s = self._mttr.draw(random)
        if self._mode == "deleted":
            simulation.tell(Gone(node))
        elif back_s > _GRACE_S:
            simulation.call_at(simulation.now_s + _GRACE_S, partial(self._cut_off, name, number))
        simulation.call_at(simulation.now_s + back_s, partial(self._repair, node, random))

    def _cut_off(self, name: str, number: int) -> None:
        """Mark a node as unreachable, and evict its pods when their tolerations end."""
        node = self._present(name)
        if node is None:
            return
        simulation = self._simulation
        simulation.tell(Seen(unreachable_node(node)))
        due: dict[float, list[str]] = {}
        for pod in simulation.table.pods[simulation.table.row_of[name]].values():
            after_s = tolerated_s(pod.pod)
            if after_s is not None and controller_kind(pod.pod) != "StatefulSet":
                due.setdefault(after_s, []).append(pod.uid)
        for after_s, uids in due.items():
            simulation.call_at(simulation.now_s + after_s, partial(self._evict, name, number, uids))

    def _evict(self, name: str, number: int, uids: Sequence[str]) -> None:
        if self.down.get(name) != number:
            return
        engine = self._simulation.engine
        for uid in uids:
            if uid in engine.pods:
                engine.evict(uid, 0.0)

    def _repair(self, node: Node, random: Random) -> None:
        present = self._present(node.name)
        simulation = self._simulation
        if self._mode == "deleted":
            if present is None:
                simulation.tell(Seen(node))
        elif present is not None and any(taint.key == UNREACHABLE for taint in present.spec.taints):
            simulation.tell(Seen(reachable_node(present)))
        del self.down[node.name]
        if self._present(node.name) is not None:
            self._fail_later(node.name, random)
