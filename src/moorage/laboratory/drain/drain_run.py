"""Drain nodes in virtual time, in an open transaction, and record the outcome for every pod.

``kubectl drain a b`` cordons all nodes, then drains one after the other, each as soon as the pods of the one before are
gone, and stops at the first node that it cannot drain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from moorage.api.core import Node, Pod
from moorage.api.selectors import EVERYTHING, Selector
from moorage.errors import InputError
from moorage.framework.changes import Change
from moorage.laboratory.drain.kubectl_filters import DrainFlags, DrainVerdict, judge_pods
from moorage.laboratory.drain.virtual_drain import DrainCourse, Evicting, EvictionRules, NodeDrain
from moorage.laboratory.edit.edits import no_such_node


class DrainPlan(Struct, frozen=True):
    """How to drain nodes.

    ``manner``       ``one-by-one``: each waits for the one before; ``together``: all at once
    ``returns``      a node takes pods again as soon as it is drained, as after an upgrade; it is cordoned when its turn comes
    ``surge``        the number of empty nodes like the first one to add before
    ``pods``         only pods that this selector matches are evicted
    ``leaving_s``    returns for how many seconds a pod has been terminating already
    """

    flags: DrainFlags = DrainFlags()
    rules: EvictionRules = EvictionRules()
    manner: Literal["one-by-one", "together"] = "one-by-one"
    returns: bool = False
    surge: int = 0
    pods: Selector = EVERYTHING
    leaving_s: Callable[[Pod], float] | None = None


@dataclass
class NodeTurn:
    """One node of a drain, and its turn."""

    name: str
    verdicts: list[DrainVerdict] = field(default_factory=list)
    evictions: list[Evicting] = field(default_factory=list)
    begin_s: float | None = None
    done_s: float | None = None
    drained: bool = False

    @property
    def refused(self) -> list[DrainVerdict]:
        return [one for one in self.verdicts if one.action == "refuse"]


@dataclass
class DrainRun:
    """A drain of nodes in this order. After ``run``, ``turns`` has the outcome for each node."""

    course: DrainCourse
    plan: DrainPlan
    daemon_sets: frozenset[str]
    nodes: Sequence[str]

    def __post_init__(self) -> None:
        self.begun_s = self.course.now
        self.was_open = {name: not self._node(name).spec.unschedulable for name in self.nodes}
        #: The nodes whose turn has come.
        self.turns: list[NodeTurn] = []
        self.pending_before = frozenset(pod.metadata.uid for pod in self.course.simulation.pending_pods())
        self.victims_before = frozenset(self.course.simulation.victims)

    def run(self) -> None:
        """Drain the nodes, then let time pass until nothing more happens."""
        self.begin()
        if self.plan.manner == "together":
            self.turns += map(NodeTurn, self.nodes)
            self._drain(self.turns)
        else:
            for name in self.nodes:
                if not self.drain_next(name).drained:
                    break
        self.course.advance(None)

    def begin(self) -> None:
        """Add the surge nodes, and cordon the nodes that are cordoned from the beginning."""
        like = self.nodes[0]
        rows = self.course.simulation.scheduler.cluster.table.row_of
        for number in range(1, self.plan.surge + 1):
            name = next(free for at in range(number, number + len(rows) + 1) if (free := f"{like}-surge-{at}") not in rows)
            self.course.cluster.apply(Change("cluster", "add-node", f"node/{name}", "like", None, f"like {like}"))
        if not self.plan.returns or self.plan.manner == "together":
            self._cordon(self.nodes)

    def drain_next(self, name: str) -> NodeTurn:
        """Drain one node after those that had their turn."""
        turn = NodeTurn(name)
        self.turns.append(turn)
        self._cordon([name])
        self._drain([turn])
        if turn.drained and self.plan.returns and self.was_open[name]:
            self.course.cluster.apply(Change("node", "uncordon", f"node/{name}", "unschedulable", None, False))
        return turn

    def _cordon(self, names: Iterable[str]) -> None:
        fresh = [name for name in names if not self._node(name).spec.unschedulable]
        if fresh:
            self.course.cluster.apply(
                *(Change("node", "cordon", f"node/{name}", "unschedulable", None, True) for name in fresh)
            )

    def _node(self, name: str) -> Node:
        table = self.course.simulation.scheduler.cluster.table
        row = table.row_of.get(name)
        if row is None:
            raise InputError(no_such_node(name, table.row_of))
        return table.nodes[row]

    def _drain(self, turns: Sequence[NodeTurn]) -> None:
        """Drain nodes at the same time. A node with a refused pod is left as it is."""
        names = {turn.name: turn for turn in turns}
        listed: dict[str, list[Pod]] = {name: [] for name in names}
        for pod in self.course.simulation.pods.values():
            if pod.spec.node_name in names and self.plan.pods.matches(pod.metadata.labels):
                listed[pod.spec.node_name].append(pod)
        for turn in turns:
            turn.begin_s = self.course.now
            # The API server lists pods by namespace and name.
            pods = sorted(listed[turn.name], key=lambda pod: (pod.namespace, pod.name))
            turn.verdicts = judge_pods(pods, self.plan.flags, self.daemon_sets, self.plan.leaving_s)
        drain = NodeDrain(self.course)
        goes = [turn for turn in turns if not turn.refused]
        drain.run((one.pod, turn.name) for turn in goes for one in turn.verdicts if one.action == "evict")
        for turn in goes:
            turn.evictions = [one for one in drain.evictions if one.node == turn.name]
            turn.drained = not any(one.failed for one in turn.evictions)
            ends = [one.gone_s for one in turn.evictions if one.gone_s is not None]
            turn.done_s = max([*ends, turn.begin_s or self.begun_s]) if turn.drained else None
