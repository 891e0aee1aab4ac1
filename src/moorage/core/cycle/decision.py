"""The outcome of one scheduling attempt."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from moorage.api.releases import CURRENT, Release
from moorage.errors import PluginError
from moorage.framework.plugin_runner import Scores
from moorage.framework.points import PostFilterResult
from moorage.framework.post_filter import PreFiltered
from moorage.framework.verdicts import Code, Status, Verdicts, fit_error
from moorage.state.view import BoolArray, PodInfo

#: kube-scheduler's own text for an empty cluster.
NO_NODES = "no nodes available to schedule pods"


class Quick(Struct, frozen=True):
    """A decision of the cached path: the row, how many rows were feasible, and PreFilter's state for later points.

    ``among``: how many rows PreFilter left for this pod; -1 if it left all.
    """

    row: int
    feasible: int
    found: PreFiltered
    among: int = -1

    def decision(self, pod: PodInfo, node: str, nodes: int) -> Decision:
        """Return the whole decision for the pod; ``node`` is that of the row, and ``nodes`` the number of all."""
        evaluated = nodes if self.found.nodes is None else len(self.found.nodes)
        return Decision(pod, node, self.found, evaluated=evaluated, feasible=self.feasible)


class Feasible(NamedTuple):
    """The rows that a pod could go to, as a mask that must not be changed, their number, and PreFilter's state.

    ``beside``: the plugins whose verdict on a row may depend on more than its node and the pods there; None if PreFilter left
    out nodes, which may too
    """

    rows: BoolArray
    number: int
    found: PreFiltered
    beside: frozenset[str] | None = None


class Decision(Struct, frozen=True):
    """The outcome for one pod.

    ``node``           the chosen node; None if the pod is unschedulable
    ``verdicts``       each row's status; None if there are no nodes
    ``scores``         of the feasible rows; None if nothing had to be scored
    ``post_filter``    the result of preemption (or another PostFilter plugin), if one ran
    ``error``          the error of a broken plugin that ended the attempt
    ``done_without``   errors of extenders that failed and were skipped
    ``refused_after``  the rejection by Reserve, Permit or binding, after a node had been chosen
    ``group``          the status of the pod's group, if the group is why the pod is not placed
    ``form``           how the release words the message
    ``among``          the number of nodes in scope; None: all rows of ``verdicts``
    """

    pod: PodInfo
    node: str | None = None
    found: PreFiltered | None = None
    verdicts: Verdicts | None = None
    scores: Scores | None = None
    post_filter: PostFilterResult | None = None
    error: PluginError | None = None
    refused_after: Status | None = None
    evaluated: int = 0
    feasible: int = 0
    done_without: tuple[PluginError, ...] = ()
    group: Status | None = None
    among: int | None = None
    release: Release = CURRENT

    @property
    def code(self) -> Code:
        if self.error is not None:
            return Code.ERROR
        if self.group is not None:
            return self.group.code
        if self.refused_after is not None:
            return self.refused_after.code
        if self.node is not None:
            return Code.SUCCESS
        return Code.UNRESOLVABLE if self.verdicts is None else Code.UNSCHEDULABLE

    @property
    def rejected_by(self) -> tuple[str, ...]:
        """The plugins that rejected the pod, sorted; a PreFilter plugin that narrowed the nodes counts."""
        if self.refused_after is not None:
            return (self.refused_after.plugin,) if self.refused_after.code.is_rejection and self.refused_after.plugin else ()
        if self.node is not None or self.verdicts is None or self.group is not None:
            return ()
        narrowed = self.found.narrowed_by if self.found is not None and self.found.narrowing_rejects else ()
        return tuple(sorted({*self.verdicts.plugins(), *narrowed}))

    @property
    def pending_on(self) -> tuple[str, ...]:
        """The plugins that returned PENDING: the pod waits without backoff."""
        if self.refused_after is not None and self.refused_after.code is Code.PENDING:
            return (self.refused_after.plugin,)
        return ()

    @property
    def message(self) -> str:
        """Why the pod was not placed, in the words of kube-scheduler's event; empty if it was placed."""
        if self.error is not None:
            return str(self.error)
        if self.group is not None:
            return self.group.message
        if self.node is not None:
            return ""
        if self.refused_after is not None:
            return self._refusal(self.refused_after)
        if self.verdicts is None:
            return NO_NODES
        after = ", ".join(self.post_filter.reasons) if self.post_filter is not None else ""
        return fit_error(self.verdicts, after, self.among, self.release)

    @staticmethod
    def _refusal(status: Status) -> str:
        if not status.code.is_rejection:
            return status.message
        return f"0/1 nodes are available: {', '.join(f'1 {reason}' for reason in sorted(status.reasons))}."

    def status_of(self, row: int) -> Status | None:
        """Return the status that Filter gave a row of the table; None if it is feasible."""
        return None if self.verdicts is None else self.verdicts.status(row)

    def margin_over(self, row: int, own: int | None) -> tuple[int | None, tuple[str, ...]]:
        """Return by how much the chosen node, in row ``own``, outscores another one, and the plugins that score it higher.

        The margin is None for a node that is refused, with the plugins that refuse it.
        """
        places = {} if self.scores is None else {at: place for place, at in enumerate(self.scores.rows.tolist())}
        if self.scores is None or own is None or row not in places:
            status = self.status_of(row)
            return None, (status.plugin,) if status is not None and status.plugin else self.rejected_by
        mine, its = places[own], places[row]
        better = sorted(name for name, final in self.scores.final.items() if final[mine] > final[its])
        return int(self.scores.total[mine] - self.scores.total[its]), tuple(better)
