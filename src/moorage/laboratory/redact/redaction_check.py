"""Check a redacted input: simulate it and the original, and compare every attempt.

Ties are broken by names and UIDs, so they are broken differently with other names. The check breaks them as the original
run did, so that one tie does not change all later decisions, and counts them. Nodes and pods are compared by their
positions in the input.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from moorage.core.cycle.cycle import Cycle
from moorage.core.cycle.decision import Decision
from moorage.core.cycle.search import EVERYWHERE, SearchScope
from moorage.framework.profile import Profile
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_run import objects_of
from moorage.simulator.pod_creation import create_pods
from moorage.simulator.simulate import Options, prepare
from moorage.simulator.simulation import SimulatedAttempt
from moorage.state.table import NodeTable
from moorage.state.view import PodInfo, Snapshot

#: The counts in a message: at its start, after a colon, a comma or a full stop.
_COUNTS: Final = re.compile(r"(?:^|: |, |\. )(\d+)(?=[ /])")
#: Maximum number of differences to describe.
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class RedactionCheck:
    """The result of a check: the number of attempts, the number of placements that were ties, and differences in words."""

    attempts: int
    ties: int
    differences: tuple[str, ...]


@dataclass
class _Positions:
    """The positions of nodes and pods in an input."""

    nodes: dict[str, int]
    pods: dict[str, int]

    @classmethod
    def of(cls, cluster: ClusterInput) -> _Positions:
        return cls(
            {node.name: at for at, node in enumerate(cluster.nodes)}, {pod.uid: at for at, pod in enumerate(cluster.pods)}
        )


@dataclass
class _Trace:
    """The course of a run. ``draws``: positions of the best nodes and of the chosen one; ``followed``: draws to repeat."""

    positions: _Positions
    followed: list[tuple[frozenset[int], int]] = field(default_factory=list)
    draws: list[tuple[frozenset[int], int]] = field(default_factory=list)
    attempts: list[tuple[Any, ...]] = field(default_factory=list)

    def take(self, attempt: SimulatedAttempt) -> None:
        decision, nodes, pods = attempt.decision, self.positions.nodes, self.positions.pods
        after = decision.post_filter
        victims = () if after is None else tuple(pods.get(pod.uid, -1) for pod in after.victims)
        nominated = -1 if after is None else nodes.get(after.nominated or "", -1)
        counts = () if decision.node is not None else tuple(map(int, _COUNTS.findall(decision.message)))
        pod = pods.get(decision.pod.uid, -1)
        self.attempts.append((pod, nodes.get(decision.node or "", -1), nominated, victims, decision.rejected_by, counts))


class _TracedCycle(Cycle):
    """A cycle that records ties, and breaks them as another run did."""

    trace: _Trace

    def decide(
        self, profile: Profile, pod: PodInfo, snapshot: Snapshot, nominated: Any = None, scope: SearchScope = EVERYWHERE
    ) -> Decision:
        self.by_class = False
        return super().decide(profile, pod, snapshot, nominated, scope)

    def drawn(self, table: NodeTable, best: npt.NDArray[np.intp], pod: PodInfo) -> int:
        trace, nodes = self.trace, self.trace.positions.nodes
        at = {nodes[table.nodes[row].name]: int(row) for row in best.tolist()}
        wanted = trace.followed[len(trace.draws)][1] if len(trace.draws) < len(trace.followed) else -1
        taken = at.get(wanted, -1)
        if taken < 0:
            taken = super().drawn(table, best, pod)
        trace.draws.append((frozenset(at), nodes[table.nodes[taken].name]))
        return taken


def check_redacted(
    original: ClusterInput, redacted: ClusterInput, options: Options, redacted_options: Options | None = None
) -> RedactionCheck:
    """Simulate both inputs and compare pods, nodes, ties, victims and the counts of messages.

    ``redacted_options``: how the redacted input is scheduled, if its configuration is redacted as well.
    Raises  ConfigError, InputError
    """
    first = _run(original, options, [])
    second = _run(redacted, redacted_options or options, first.draws)
    differences = [*_differences("attempt", first.attempts, second.attempts), *_differences("tie", first.draws, second.draws)]
    ties = sum(len(best) > 1 for best, _ in first.draws)
    return RedactionCheck(len(first.attempts), ties, tuple(differences))


def _run(given: ClusterInput, options: Options, followed: list[tuple[frozenset[int], int]]) -> _Trace:
    created = create_pods(given, quota=options.quota)
    trace = _Trace(_Positions.of(created.cluster), followed)
    simulation, _ = prepare(options, trace.take, cycle=_TracedCycle)
    cycle = simulation.scheduler.cycle
    assert isinstance(cycle, _TracedCycle)
    cycle.trace = trace
    simulation.load(objects_of(created.cluster))
    simulation.run()
    return trace


def _differences(what: str, first: list[Any], second: list[Any]) -> list[str]:
    if len(first) != len(second):
        return [f"{len(first)} {what}s before, {len(second)} after"]
    different = [number for number, pair in enumerate(zip(first, second, strict=True), 1) if pair[0] != pair[1]]
    shown = [f"{what} {number}: {first[number - 1]} before, {second[number - 1]} after" for number in different[:_SHOWN]]
    return shown if len(different) <= _SHOWN else [*shown, f"and {len(different) - _SHOWN} more {what}s"]
