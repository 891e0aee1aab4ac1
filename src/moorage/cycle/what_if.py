"""What-ifs: run Filter over nodes as if some pods were removed and others added.

A what-if changes the node table itself for the length of a ``with`` block and restores it afterwards. It calls ``add_pod`` and
``remove_pod`` of plugins whose PreFilter state depends on other pods. Preemption uses what-ifs, and so does Filter on a node
with nominated pods.

Within one what-if most plugins run only once: a taint does not depend on the other pods of the node. If every active plugin
reads only sums over pods, ``ManyNodes`` tries many nodes at once by changing their columns instead of moving pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from moorage.framework.plugin_runner import ask, drained, run_filter, shifted
from moorage.framework.prefilter_state import PreFiltered
from moorage.framework.profile import Profile, Step
from moorage.framework.reuse import Scope
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
    """Return the nominated pods that ``pod`` must leave room for: other pods of the same or a higher priority."""
    return [other for other in nominated if other.uid != pod.uid and other.priority >= pod.priority]


class OneNode:
    """One node with pods added and removed, until the block ends.

    ``rest`` is the profile without the Filter plugins that do not read pods. Once the pod has fitted, only ``rest`` runs.
    If it is None, all plugins run every time.
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
        """Add a pod to the node."""
        self._snapshot.table.add_pod(self._row, pod)
        self._found = shifted(self._profile, self._found, self._pod, [("add_pod", pod)], self.node)

    def remove(self, pod: PodInfo) -> None:
        """Remove a pod from the node."""
        self._snapshot.table.remove_pod(self._row, pod)
        self._found = shifted(self._profile, self._found, self._pod, [("remove_pod", pod)], self.node)

    def refused_by(self) -> Status | None:
        """Filter the node as it is now, first with its contending nominated pods, then without. Return None if the pod fits."""
        status = self._crowded(OneNode.refused_by) or self._judge()
        if status is None and self._rest is not None:
            self._profile = self._rest
        return status

    def fits(self) -> bool:
        """Return whether ``refused_by`` would be None; faster."""
        if self._crowded(lambda node: not node.fits()):
            return False
        for step in self._profile.at("filter"):
            if step.name not in self._found.skipped:
                for reject in drained(step, self._found.state_of(step, self._pod), self._view):
                    if reject.rows[0]:
                        return False
        return True

    def _crowded(self, ask: Callable[[OneNode], T]) -> T | None:
        """Call ``ask`` with the contending nominated pods added to the node; None if there are none."""
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
    """Several nodes with changed sums over their pods, until the block ends. The pods themselves do not move.

    The columns that may change are the number of pods, then each resource's requests.
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

        Shapes  at (n,): distinct positions among the rows; amounts (n, 1 + resources)
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
        """Return whether the pod still fits on some of the nodes, all of which it has fitted before; shape of ``at``."""
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
    """Filter one row that has nominated pods.

    Source  framework/runtime/framework.go, RunFilterPluginsWithNominatedPods
    """
    with OneNode(profile, found, pod, snapshot, row, nominated) as node:
        return node.refused_by()


class FailedAttempt:
    """A failed attempt, as PostFilter plugins receive it: the pod, the snapshot, the verdicts, and what-ifs."""

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
        """Open what-ifs on many rows at once, none ``contended``; None if a plugin has to see the pods themselves."""
        for step in self._rest.at("filter"):
            if step.name not in self.found.skipped and step.reuse.scope is not Scope.USAGE:
                return None
        return ManyNodes(self._profile, self.found, self.pod, self.snapshot, rows, self._rest)

    def nominated(self, row: int) -> tuple[PodInfo, ...]:
        """Return the pods nominated to the row's node, most important first."""
        return tuple(self._nominated.get(self.snapshot.table.nodes[row].name, ()))

    @cached_property
    def contended(self) -> frozenset[int]:
        """The rows with nominated pods that the pod must leave room for."""
        row_of = self.snapshot.table.row_of
        return frozenset(
            row_of[name] for name, pods in self._nominated.items() if name in row_of and contenders(pods, self.pod)
        )

    def _looks_at_pods(self, step: Step) -> bool:
        """Return whether a Filter plugin's verdict may change when pods move.

        A plugin that signs pods may read more than nodes for a pod that it does not sign.
        """
        if step.reuse.scope is not Scope.NODE:
            return True
        if step.reuse.signature is None or step.name in self.found.skipped:
            return False
        return ask(Step(step.name, step.plugin, step.reuse.signature), "signature", self.pod) is None

    @cached_property
    def _moving(self) -> Profile:
        """The profile with only those PreFilter plugins that implement ``add_pod`` or ``remove_pod``."""
        steps = tuple(s for s in self._profile.at("preFilter") if s.name in self.found.states and _follows_pods(s))
        return replace(self._profile, steps={**self._profile.steps, "preFilter": steps})

    @cached_property
    def _rest(self) -> Profile:
        """``_moving`` without the Filter plugins that do not read pods."""
        looking = tuple(step for step in self._profile.at("filter") if self._looks_at_pods(step))
        return replace(self._moving, steps={**self._moving.steps, "filter": looking})


def _follows_pods(step: Step) -> bool:
    return step.add_pod is not None or step.remove_pod is not None
