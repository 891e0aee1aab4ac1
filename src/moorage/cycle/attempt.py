"""What-ifs: Filter run over one node as it would be with some pods gone and others come.

The node table itself is changed for the length of the block and put back afterwards; plugins whose PreFilter state hangs on
other pods are told of each move. Preemption asks through this, and so does Filter where pods are nominated to a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType

import numpy as np

from moorage.framework.profile import Profile
from moorage.framework.running import PreFiltered, run_filter, shifted
from moorage.framework.verdict_table import Verdicts
from moorage.framework.verdicts import Status
from moorage.state.cluster import Snapshot
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeInfo, NodeView

__all__ = ["FailedAttempt", "Nominated", "OneNode", "contenders", "judge_with_nominated"]

#: Node name → pods nominated to it, most important first.
Nominated = Mapping[str, Sequence[PodInfo]]


def contenders(nominated: Iterable[PodInfo], pod: PodInfo) -> list[PodInfo]:
    """Return the nominated pods that ``pod`` must leave room for: others, of its own priority or higher."""
    return [other for other in nominated if other.uid != pod.uid and other.priority >= pod.priority]


class OneNode:
    """One node with pods moved on and off it, until the block ends."""

    def __init__(
        self, profile: Profile, found: PreFiltered, pod: PodInfo, snapshot: Snapshot, row: int, nominated: Sequence[PodInfo]
    ) -> None:
        self._profile = profile
        self._found = found
        self._pod = pod
        self._snapshot = snapshot
        self._row = row
        self._nominated = contenders(nominated, pod)
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
        if self._nominated:
            with OneNode(self._profile, self._found, self._pod, self._snapshot, self._row, ()) as crowded:
                present = self._snapshot.table.pods[self._row]
                for other in self._nominated:
                    if other.uid not in present:
                        crowded.add(other)
                status = crowded._judge()
            if status is not None:
                return status
        return self._judge()

    def _judge(self) -> Status | None:
        verdicts = Verdicts(len(self._snapshot.table))
        view = NodeView(self._snapshot, np.array([self._row], dtype=np.intp))
        run_filter(self._profile, self._found, self._pod, view, verdicts)
        return verdicts.status(self._row)


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
        self, profile: Profile, found: PreFiltered, pod: PodInfo, snapshot: Snapshot, verdicts: Verdicts, nominated: Nominated
    ) -> None:
        self.pod = pod
        self.snapshot = snapshot
        self.verdicts = verdicts
        self.found = found
        self._profile = profile
        self._nominated = nominated

    def what_if(self, row: int) -> OneNode:
        """Open a what-if on one row; use it as a context manager."""
        return OneNode(self._profile, self.found, self.pod, self.snapshot, row, self.nominated(row))

    def nominated(self, row: int) -> tuple[PodInfo, ...]:
        """Pods nominated to the row's node, most important first."""
        return tuple(self._nominated.get(self.snapshot.table.nodes[row].name, ()))
