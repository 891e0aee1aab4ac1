"""What PreFilter found; what a PostFilter plugin sees of a failed attempt, the what-ifs it may try, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from moorage.framework.effects import Effect
from moorage.framework.verdicts import Code, Status, Verdicts
from moorage.state.view import BoolArray, IntArray, NodeInfo, PodInfo, Snapshot

_C = TypeVar("_C")


class _HasName(Protocol):
    @property
    def name(self) -> str: ...


class PreFiltered(Struct, frozen=True):
    """The results of PreFilter: each plugin's state, the plugins that returned ``SKIP``, and the nodes that remain.

    ``refused`` is set when a plugin rejected the pod; ``nodes`` is None when no plugin narrowed the nodes.
    ``narrowing_rejects``: the plugins that narrowed the nodes count as plugins that rejected the pod.
    """

    states: Mapping[str, Any]
    skipped: frozenset[str]
    nodes: frozenset[str] | None = None
    narrowed_by: tuple[str, ...] = ()
    refused: Status | None = None
    narrowing_rejects: bool = True

    def state_of(self, step: _HasName, pod: PodInfo) -> Any:
        """Return what ``filter`` receives: the plugin's PreFilter state, or the pod if it has no PreFilter."""
        return self.states.get(step.name, pod)


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """The result of PostFilter.

    ``code``       SUCCESS: the pod can be placed once the victims are deleted and the effects done; UNSCHEDULABLE: nothing
                   helps; UNRESOLVABLE or ERROR: run no further plugin
    ``nominated``  the node to nominate the pod to; "" clears an earlier nomination, None leaves it unchanged
    ``victims``    pods to preempt, in that order; none of them is being deleted already
    ``displaced``  pending pods whose nomination to the node ends, so that they are retried at once
    ``disruptions``, ``violations``  for metrics: groups, or pods of groups, among the victims; how many violate a budget
    """

    code: Code
    reasons: tuple[str, ...] = ()
    nominated: str | None = None
    victims: tuple[PodInfo, ...] = ()
    effects: tuple[Effect, ...] = ()
    displaced: tuple[PodInfo, ...] = ()
    disruptions: int = 0
    violations: int = 0


@dataclass(frozen=True, slots=True)
class Consult(Generic[_C]):
    """A PostFilter answer that waits for the extenders. A plugin may return it only if ``Attempt.consults``."""

    candidates: Sequence[_C]
    choose: Callable[[Sequence[_C]], PostFilterResult]


class Attempt(Protocol):
    """A failed attempt, as PostFilter sees it: its verdicts, and what-ifs that try nodes with pods removed or added."""

    @property
    def pod(self) -> PodInfo:
        """The pod that fits nowhere."""

    @property
    def snapshot(self) -> Snapshot:
        """The state of the cluster."""

    @property
    def verdicts(self) -> Verdicts:
        """Each row's status after Filter; if PreFilter rejected the pod, that status for every row."""

    @property
    def found(self) -> PreFiltered:
        """The results of PreFilter."""

    @property
    def consults(self) -> bool:
        """True if extenders take part in preemption: the plugin may then return ``Consult``."""

    def what_if(self, row: int) -> WhatIf:
        """Open a what-if on one row; use it as a context manager."""

    def what_ifs(self, rows: npt.NDArray[np.intp]) -> WhatIfs | None:
        """Open what-ifs on many rows at once; None if a plugin needs the pods themselves.

        Only pods of lower priority may move, on rows where they are ``ignored``.
        """

    def ignored(self, rows: npt.NDArray[np.intp]) -> BoolArray:
        """Return a mask of the rows on which all plugins that follow pods ignore pods of lower priority; shape of ``rows``."""

    def nominated(self, row: int) -> tuple[PodInfo, ...]:
        """Return the pods nominated to the row's node, by descending priority."""

    @property
    def contended(self) -> frozenset[int]:
        """Rows with nominated pods for which the pod must leave room."""


class WhatIf(Protocol):
    """One node with some of its pods removed or others added, until the ``with`` block ends."""

    def __enter__(self) -> WhatIf: ...
    def __exit__(self, *exc: object) -> None: ...
    @property
    def node(self) -> NodeInfo:
        """The node as it is in the what-if."""

    def add(self, pod: PodInfo) -> None:
        """Put a pod on the node."""

    def remove(self, pod: PodInfo) -> None:
        """Take a pod off the node."""

    def miss(self, row: int, pod: PodInfo, *, back: bool = False) -> None:
        """Let plugins count a pod of another row as gone, or as ``back``."""

    def refused_by(self) -> Status | None:
        """Run Filter on the node as it is now, including nominated pods of higher or equal priority; None if the pod fits.

        The status names the plugin that refused the node; its code is ERROR if that plugin could not judge it.
        """

    def fits(self) -> bool:
        """Return True if ``refused_by`` would return None; faster."""


class WhatIfs(Protocol):
    """Many nodes with changed sums over their pods, until the ``with`` block ends. ``at`` are positions among the rows."""

    def __enter__(self) -> WhatIfs: ...
    def __exit__(self, *exc: object) -> None: ...
    @property
    def resources(self) -> tuple[str, ...]:
        """The resources that are summed."""

    def shift(self, at: npt.NDArray[np.intp], amounts: IntArray) -> None:
        """Add to the sums of these nodes: one row of amounts each, the number of pods first, then one for each resource."""

    def verdicts(self, at: npt.NDArray[np.intp]) -> Verdicts:
        """Run Filter on these nodes as they are now."""

    def fits(self, at: npt.NDArray[np.intp]) -> BoolArray:
        """Return for nodes that the pod fitted before whether it still fits; shape of ``at``."""
