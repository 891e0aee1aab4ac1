"""Trials of a set of nodes: add them, place the pods in some order, and see which stay pending.

Most trials only count pods on nodes, which decides as the engine does. A set that seems to be enough is verified by a run of
the engine in virtual time, with bindings, retries and preemption, before it counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moorage.api.core import Node, Object, Pod
from moorage.core.engine.facts import Seen
from moorage.laboratory.plan.node_types import daemon_pods
from moorage.laboratory.plan.plan_packing import shares
from moorage.laboratory.plan.plan_problem import PlanProblem
from moorage.laboratory.trial.asked_cluster import AskedCluster
from moorage.laboratory.trial.dry_run import rests
from moorage.simulator.simulation import SimulatedCluster, State
from moorage.state.pod_info import PodInfo

#: The orders in which pods are placed.
ORDERS: Final = ("asGiven", "largestFirst", "smallestFirst")


class NodeTrials:
    """Trials in one cluster. ``runs`` counts runs of the engine, ``probes`` the quick trials."""

    def __init__(
        self, cluster: AskedCluster, problem: PlanProblem, pods: Sequence[Pod], policies: Sequence[Object], *, whole_queue: bool
    ) -> None:
        self.runs = self.probes = 0
        #: Results of the last run: the use of the new nodes, evicted pods that are not replaced, and why pods are pending.
        self.used: dict[str, tuple[int, int]] = {}
        self.evicted: tuple[str, ...] = ()
        self.messages: dict[str, str] = {}
        self._cluster = cluster
        self._problem = problem
        self._policies = policies
        self._whole_queue = whole_queue
        size = {pod.metadata.uid: one for shape, one in zip(problem.shapes, shares(problem), strict=True) for pod in shape.pods}
        # pods of higher priority stay before others
        largest = sorted(pods, key=lambda pod: (-(pod.spec.priority or 0), -size[pod.metadata.uid]))
        smallest = sorted(pods, key=lambda pod: (-(pod.spec.priority or 0), size[pod.metadata.uid]))
        self._pods = {"asGiven": list(pods), "largestFirst": largest, "smallestFirst": smallest}
        self._taken = {node.name for node in cluster.simulation.scheduler.snapshot.table.nodes}
        self._made: dict[tuple[int, int], tuple[Node, list[Pod]]] = {}
        self._quick = _is_quick(cluster.simulation, pods)

    def pending(self, counts: Sequence[int], order: str = "asGiven") -> tuple[str, ...]:
        """Return the pods that stay pending with these nodes, by offer; empty only after a run of the engine."""
        left = self._count(counts, order) if self._quick else None
        return left or self.verified(counts, order)

    def nodes(self, counts: Sequence[int]) -> list[tuple[Node, list[Pod]]]:
        """Return the nodes, each with its DaemonSet pods."""
        wanted = [(o, number) for o, count in enumerate(counts) for number in range(count)]
        for key in wanted:
            if key not in self._made:
                node = self._problem.offers[key[0]].node(key[1], self._taken)
                self._made[key] = node, daemon_pods([node], self._policies)
        return [self._made[key] for key in wanted]

    # -- quickly ---------------------------------------------------------------------------------------------------------

    def _count(self, counts: Sequence[int], order: str) -> tuple[str, ...] | None:
        """Decide for one pod after the other, and count each on its node; None if only an engine run gives the result."""
        self.probes += 1
        left: list[str] = []
        with self._cluster.transaction():
            simulation = self._cluster.simulation
            scheduler = simulation.scheduler
            self._add(counts, simulation)
            for pod in self._pods[order]:
                info, profile = PodInfo(pod), scheduler.profiles[pod.spec.scheduler_name]
                decision = scheduler.cycle.decide(profile, info, scheduler.snapshot, scheduler.queue.nominated)
                if decision.node is None:
                    after = decision.post_filter
                    if after is not None and after.victims:
                        return None
                    left.append(pod.key)
                elif not rests(profile, decision):
                    self._quick = False
                    return None
                else:
                    scheduler.cluster.assume(info, decision.node)
        return tuple(left)

    def _add(self, counts: Sequence[int], simulation: SimulatedCluster) -> None:
        made = self.nodes(counts)
        simulation.tell([Seen(node) for node, _ in made])
        daemons = [pod for _, pods in made for pod in pods]
        simulation.tell([Seen(pod) for pod in daemons])
        for pod in daemons:
            simulation.attempt(simulation.pods[pod.metadata.uid])

    # -- by the engine ---------------------------------------------------------------------------------------------------

    def verified(self, counts: Sequence[int], order: str = "asGiven") -> tuple[str, ...]:
        """Return the pods that stay pending with these nodes in a run of the engine."""
        self.runs += 1
        with self._cluster.transaction():
            simulation = self._cluster.simulation
            before = {pod.metadata.uid for pod in simulation.pending_pods()}
            asked = {pod.metadata.uid for pod in self._pods[order]}
            self._add(counts, simulation)
            if order != "asGiven" or not self._whole_queue:
                for pod in self._pods[order]:
                    now = simulation.pods.get(pod.metadata.uid)
                    if now is not None and not now.spec.node_name:
                        simulation.attempt(now)
            if self._whole_queue or simulation.victims:
                simulation.run()
            self.messages = {
                one.pod.key: one.message for uid, one in simulation.records.items()
                if one.state == State.PENDING and (uid in asked or uid not in before)
            }  # fmt: skip
            self.used = _usage(simulation, [node.name for node, _ in self.nodes(counts)])
            self.evicted = tuple(one.pod.key for one in simulation.victims.values() if not one.replaced)
        return tuple(self.messages)


def _is_quick(simulation: SimulatedCluster, pods: Sequence[Pod]) -> bool:
    """Return True if one pass over the pods gives their outcomes: no pod waits, and none makes room for an earlier one."""
    scheduler = simulation.scheduler
    if scheduler.cycle.extenders or scheduler.cluster.groups is not None:
        return False
    seen: set[int] = set()
    for pod in pods:
        spec = pod.spec
        if id(spec) in seen:
            continue
        seen.add(id(spec))
        info = PodInfo(pod)
        spreads = any(one.when_unsatisfiable == "DoNotSchedule" for one in spec.topology_spread_constraints)
        if spec.scheduling_gates or spec.resource_claims or spec.scheduling_group or spreads or info.required_affinity:
            return False
    return True


def _usage(simulation: SimulatedCluster, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return the requested and allocatable amounts of some nodes, by resource."""
    table = simulation.scheduler.snapshot.table
    nodes = simulation.scheduler.snapshot.nodes
    rows = [table.row_of[name] for name in names]
    return {
        name: (int(nodes.requested(name)[rows].sum()), int(nodes.allocatable(name)[rows].sum())) for name in ("cpu", "memory")
    }
