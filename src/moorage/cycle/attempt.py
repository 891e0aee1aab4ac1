"""What-ifs: Filter run over nodes as they would be with some pods gone and others come.

The node table itself is changed for the length of the block and put back afterwards; plugins whose PreFilter state hangs on
other pods are told of each move. Preemption asks through this, and so does Filter where pods are nominated to a node.

Within one what-if most rules need to be asked but once: a taint is there whoever else is on the node. And where every rule
that is at work reads no more of pods than sums, many nodes are tried at once, with their columns moved instead of their pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from moorage.framework.points import Depends
from moorage.framework.prefiltered import PreFiltered
from moorage.framework.profile import Profile, Step
from moorage.framework.running import ask, drained, run_filter, shifted
from moorage.framework.verdict_table import Verdicts
from moorage.framework.verdicts import Status
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray, IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeInfo, NodeView

__all__ = ["FailedAttempt", "ManyNodes", "Nominated", "OneNode", "contenders", "judge_with_nominated"]

T = TypeVar("T")

#: Node name → pods nominated to it, most important first.
Nominated = Mapping[str, Sequence[PodInfo]]


def contenders(nominated: Iterable[PodInfo], pod: PodInfo) -> list[PodInfo]:
    """Return the nominated pods that ``pod`` must leave room for: others, of its own priority or higher."""
    return [other for other in nominated if other.uid != pod.uid and other.priority >= pod.priority]


class OneNode:
    """One node with pods moved on and off it, until the block ends.

    ``rest`` is the profile without the Filter plugins that look at no pods: once the pod has fitted, they need not be asked
    again. Without it all are asked every time.
    """

    def __init__(
        self, profile: Profile, found: PreFiltered, pod: PodInfo, snapshot: Snapshot, row: int, nominated: Sequence[PodInfo],
        rest: Profile | None = None,
    ) -> None:  # fmt: skip
        self._profile = profile
        self._found = found
        self._pod = pod
        self._snapshot = snapshot
        self._row = row
        self._nominated = contenders(nominated, pod)
        self._rest = rest
        self._view = NodeView(snapshot, np.array([row], dtype=np.intp))
        self._block = snapshot.table.what_if(row)

    def __enter__(self) -> OneNode:
        self._block.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._block.__exit__(kind, error, trace)

    @property
    def node(self) -> NodeInfo:
        return NodeInfo(self._snapshot.table, self._row)

    def add(self, pod: PodInfo) -> None:
        """Put a pod on the node."""
        self._snapshot.table.add_pod(self._row, pod)
        self._found = shifted(self._profile, self._found, self._pod, [("add_pod", pod)], self.node)

    def remove(self, pod: PodInfo) -> None:
        """Take a pod off the node."""
        self._snapshot.table.remove_pod(self._row, pod)
        self._found = shifted(self._profile, self._found, self._pod, [("remove_pod", pod)], self.node)

    def refused_by(self) -> Status | None:
        """Filter the node as it is now: with the nominated pods that count on it, then without. None if it fits."""
        status = self._crowded(OneNode.refused_by) or self._judge()
        if status is None and self._rest is not None:
            self._profile = self._rest
        return status

    def fits(self) -> bool:
        """Say whether ``refused_by`` would be None; faster."""
        if self._crowded(lambda node: not node.fits()):
            return False
        for step in self._profile.at("filter"):
            if step.name not in self._found.skipped:
                for reject in drained(step, self._found.state_of(step, self._pod), self._view):
                    if reject.rows[0]:
                        return False
        return True

    def _crowded(self, ask: Callable[[OneNode], T]) -> T | None:
        """Ask something with the nominated pods that count on the node put on it; None if there are none."""
        if not self._nominated:
            return None
        with OneNode(self._profile, self._found, self._pod, self._snapshot, self._row, ()) as crowded:
            present = self._snapshot.table.pods[self._row]
            for other in self._nominated:
                if other.uid not in present:
                    crowded.add(other)
            return ask(crowded)

    def _judge(self) -> Status | None:
        verdicts = Verdicts(len(self._snapshot.table))
        run_filter(self._profile, self._found, self._pod, self._view, verdicts)
        return verdicts.status(self._row)


class ManyNodes:
    """Several nodes with sums over their pods changed, until the block ends. The pods themselves stay where they are.

    ``sums`` are the columns that may change: the number of pods, then each resource's requests.
    """

    def __init__(
        self, profile: Profile, found: PreFiltered, pod: PodInfo, snapshot: Snapshot, rows: npt.NDArray[np.intp], rest: Profile
    ) -> None:
        self._profile = profile
        self._found = found
        self._pod = pod
        self._snapshot = snapshot
        self._rows = rows
        self._rest = rest
        table = snapshot.table
        self.resources = table.resources_requested
        self._sums = [table.pod_count, *map(table.requested, self.resources)]
        self._before: list[IntArray] = []

    def __enter__(self) -> ManyNodes:
        self._before = [column.data[self._rows] for column in self._sums]
        return self

    def __exit__(self, *exc: object) -> None:
        for column, before in zip(self._sums, self._before, strict=True):
            column.data[self._rows] = before

    def shift(self, at: npt.NDArray[np.intp], amounts: IntArray) -> None:
        """Add to the sums of some of the nodes.

        Shapes  at (n,): positions among the rows, no two alike; amounts (n, 1 + resources)
        """
        rows = self._rows[at]
        for column, amount in zip(self._sums, amounts.T, strict=True):
            column.data[rows] += amount

    def verdicts(self, at: npt.NDArray[np.intp]) -> Verdicts:
        """Filter some of the nodes as they are now."""
        verdicts = Verdicts(len(self._snapshot.table))
        run_filter(self._profile, self._found, self._pod, NodeView(self._snapshot, self._rows[at]), verdicts)
        return verdicts

    def fits(self, at: npt.NDArray[np.intp]) -> BoolArray:
        """Say of some of the nodes, on which the pod has fitted before, whether it still does; shape of ``at``."""
        view = NodeView(self._snapshot, self._rows[at])
        fitting = np.ones(len(at), dtype=bool)
        for step in self._rest.at("filter"):
            if step.name not in self._found.skipped:
                for reject in drained(step, self._found.state_of(step, self._pod), view):
                    fitting &= ~reject.rows
        return fitting


def judge_with_nominated(
    profile: Profile, found: PreFiltered, pod: PodInfo, snapshot: Snapshot, row: int, nominated: Sequence[PodInfo]
) -> Status | None:
    """Filter one row that pods are nominated to.

    Source  framework/runtime/framework.go, RunFilterPluginsWithNominatedPods
    """
    with OneNode(profile, found, pod, snapshot, row, nominated) as node:
        return node.refused_by()


class FailedAttempt:
    """What PostFilter gets to work with."""

    def __init__(
        self, profile: Profile, found: PreFiltered, pod: PodInfo, snapshot: Snapshot, verdicts: Verdicts, nominated: Nominated,
        *, consults: bool = False,
    ) -> None:  # fmt: skip
        self.pod = pod
        self.snapshot = snapshot
        self.verdicts = verdicts
        self.found = found
        self.consults = consults
        self._profile = profile
        self._nominated = nominated

    def what_if(self, row: int) -> OneNode:
        """Open a what-if on one row; use it as a context manager."""
        return OneNode(self._moving, self.found, self.pod, self.snapshot, row, self.nominated(row), self._rest)

    def what_ifs(self, rows: npt.NDArray[np.intp]) -> ManyNodes | None:
        """Open what-ifs on many rows at once, none of them ``contended``; None where a rule has to see the pods themselves."""
        for step in self._rest.at("filter"):
            if step.name not in self.found.skipped and not getattr(step.plugin, "sums_only", False):
                return None
        return ManyNodes(self._profile, self.found, self.pod, self.snapshot, rows, self._rest)

    def nominated(self, row: int) -> tuple[PodInfo, ...]:
        """Pods nominated to the row's node, most important first."""
        return tuple(self._nominated.get(self.snapshot.table.nodes[row].name, ()))

    @cached_property
    def contended(self) -> frozenset[int]:
        """Rows with nominated pods that the pod has to leave room for."""
        row_of = self.snapshot.table.row_of
        return frozenset(
            row_of[name] for name, pods in self._nominated.items() if name in row_of and contenders(pods, self.pod)
        )

    def _looks_at_pods(self, step: Step) -> bool:
        """Say whether a Filter plugin may judge otherwise once pods move.

        What a plugin says of itself goes for pods that it signs: one that looks at nodes alone may look at more for others.
        """
        if getattr(step.plugin, "depends", Depends.CLUSTER) is not Depends.NODES:
            return True
        sign = getattr(step.plugin, "sign", None)
        if sign is None or step.name in self.found.skipped:
            return False
        return ask(Step(step.name, step.plugin, sign), "sign", self.pod) is None

    @cached_property
    def _moving(self) -> Profile:
        """The profile with those PreFilter plugins only that have to be told when pods move."""
        told = tuple(step for step in self._profile.at("preFilter") if step.name in self.found.states and _is_told(step))
        return replace(self._profile, steps={**self._profile.steps, "preFilter": told})

    @cached_property
    def _rest(self) -> Profile:
        """The same without Filter plugins that look at no pods."""
        looking = tuple(step for step in self._profile.at("filter") if self._looks_at_pods(step))
        return replace(self._moving, steps={**self._moving.steps, "filter": looking})


def _is_told(step: Step) -> bool:
    return any(getattr(step.plugin, method, None) is not None for method in ("add_pod", "remove_pod"))
