"""The extension points: the methods that a plugin may implement, and how the framework calls them.

A plugin is any object with a ``name`` and one or more of the methods below; it runs at the points whose methods it has. Within
one attempt state is passed by return value: ``filter`` receives what ``pre_filter`` returned, ``score`` what ``pre_score``
returned.

==============  =====================================================  ============================================
point           method                                                 answer
==============  =====================================================  ============================================
PreEnqueue      ``pre_enqueue(pod)``                                   ``None`` or ``Hold``
QueueSort       ``sort_key(queued)``                                   a key; the least is popped first
PreFilter       ``pre_filter(pod, snapshot)``                          state, ``SKIP``, ``Hold`` or ``Narrow``
                ``add_pod / remove_pod(state, pod, other, node)``      the state with ``other`` on / off ``node``
Filter          ``filter(state, nodes)``                               ``Reject`` s over the view …
                ``filter_node(state, node)``                           … or ``None`` / ``Hold`` for one node
PostFilter      ``post_filter(pod, attempt)``                          ``PostFilterResult``
PreScore        ``pre_score(pod, snapshot, feasible)``                 state or ``SKIP``
Score           ``score(state, nodes)``                                int64, one a row, any range …
                ``score_node(state, node)``                            … or an int for one node
NormalizeScore  ``normalize(state, scores)``                           scores in 0-100, one a feasible row …
                ``normalize_over(state, scores, nodes)``               … or the same, given the rows as a view
Reserve         ``reserve / unreserve(state, pod, node)``              ``None`` or ``Hold`` / effects, or ``None``
Permit          ``permit(state, pod, node)``                           ``None``, ``Hold`` or ``Wait``
PreBind         ``pre_bind(state, pod, node)``                         effects, or ``Hold``
Bind            ``bind(state, pod, node)``                             effects, ``SKIP``, or ``Hold``
PostBind        ``post_bind(state, pod, node)``                        nothing
==============  =====================================================  ============================================

For pod groups that must stay together (gate TopologyAwareWorkloadScheduling) there are two more points; see
``moorage.framework.placements``. PlacementGenerate: ``generate_placements(group, everywhere, snapshot)`` returns the sets of
nodes to try the group on, as ``Placement`` s, or ``Hold``; only the first plugin runs. PlacementScore:
``score_placement(group, proposal, snapshot)`` returns an int for the result of the group on one placement. The optional
``normalize_placements(group, scores)`` brings the scores of all placements into 0-100.

Where a plugin has no ``pre_filter``, ``filter`` receives the pod itself; where it has no ``pre_score``, ``score`` receives what
its ``pre_filter`` returned, or else the pod. From Reserve on, ``state`` is what ``pre_filter`` returned (None if it was
skipped or absent). Only plugins whose state depends on other pods need ``add_pod`` and ``remove_pod``; they return a new state
and must leave the old one unchanged. A plugin that has neither keeps its state. A plugin sets ``rests_when_skipped = True`` if,
from Reserve on, it has nothing to do for pods that its ``pre_filter`` skipped.

These optional members make a plugin faster; none of them changes an answer:

* ``filter_node`` or ``score_node`` next to ``filter`` or ``score``: called where a single row has changed, which is the usual
  case from one pod to the next, and judges it without arrays.
* ``scales_by_highest = True``: ``normalize`` of a row depends only on that row's raw score and on the highest raw score.
* ``sums_only = True``: of a node, Filter and Score read only what it offers (``allocatable``, ``allowed_pods``) and the sums
  over its pods (``pod_count``, ``requested`` …). Preemption then tries many nodes at once, and nodes with equal values are
  judged once.
* ``sign(pod)`` returns everything that the plugin reads of a pod; pods with equal signatures share verdicts. Without it, or
  when it returns None, the plugin runs for every pod.
* ``signs_by``, next to ``sign``, names the kinds of objects that the signature depends on in addition to the pod's shape: its
  namespace, labels, owners, spec and status. It is often ``()``. Without it, every pod is signed separately.
* ``depends`` says what else the plugin's answers depend on; see ``Depends``.
* ``fails_alike = True``, for a PostFilter plugin that signs: where it finds nothing to do, its answer depends only on its
  signature, the snapshot and the nominations. While these do not change, pods of one class share that answer.
* ``closed_domains(state, nodes)``, for a Filter that depends on topology domains: yields label keys, each with a mask of the
  values that are refused, shape (values,), id 0 for nodes without the label.
* ``domain_scores(state, nodes)``, for such a Score: returns a key and the raw score of each value, or None if rows of one
  domain differ; ``normalize`` then receives each score once.
* ``narrows_to(pod)``, for a PreFilter that may answer ``Narrow``: returns the node names without running it, or None.
* ``idle(pod, snapshot)``, for a plugin that looks at other pods but mostly skips: while it is true, PreFilter and PreScore
  would answer ``SKIP`` for every pod of this shape, until one of the logs that ``idle_until(snapshot)`` returns moves on.

Two more are optional. ``wakes_on()`` yields the events after which a pod that the plugin rejected is worth another attempt
(without it: any event). ``attach(handle)`` is called once before the first pod, with the means to reach the running scheduler.
Plugins explain refusals with the optional methods of ``moorage.framework.explaining``, and say what would lift them with that
of ``moorage.framework.changes``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from moorage.framework.effects import Effect
from moorage.framework.events import Wake
from moorage.framework.prefilter_state import PreFiltered
from moorage.framework.verdict_table import Verdicts
from moorage.framework.verdicts import Code, Hold, Narrow, Reject, Skip, Status, Wait
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray, IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeInfo, NodeView

__all__ = [
    "POINTS",
    "AnyPlugin",
    "Attempt",
    "BindPlugin",
    "Depends",
    "FilterNodePlugin",
    "FilterPlugin",
    "NormalizeOverPlugin",
    "NormalizePlugin",
    "PermitPlugin",
    "Plugin",
    "PostBindPlugin",
    "PostFilterPlugin",
    "PostFilterResult",
    "PreBindPlugin",
    "PreEnqueuePlugin",
    "PreFilterPlugin",
    "PreScorePlugin",
    "QueueSortPlugin",
    "ReservePlugin",
    "ScoreNodePlugin",
    "ScorePlugin",
    "Signature",
    "SortableQueued",
    "Versioned",
    "WhatIf",
    "WhatIfPlugin",
    "WhatIfs",
    "points_of",
]  # fmt: skip

#: What a plugin reads of a pod, by a name shared between plugins that read the same.
Signature = Mapping[str, Hashable]


class Depends(Enum):
    """What a plugin's verdict or raw score for a row depends on, in addition to the signature. Unsigned pods ignore it."""

    NODES = "nodes"
    """The nodes themselves, whatever pods are on them: kept until a node is added, removed or updated."""
    ROW = "row"
    """The row's own columns and pods: only a changed row is judged again."""
    CLUSTER = "cluster"
    """Anything in the snapshot: judged again for every pod, unless a pod of its class just failed and nothing has changed."""


@runtime_checkable
class Plugin(Protocol):
    """The members that all plugins have."""

    @property
    def name(self) -> str: ...


class SortableQueued(Protocol):
    """A queued pod, limited to what a QueueSort plugin may read."""

    @property
    def pod(self) -> PodInfo: ...
    @property
    def timestamp(self) -> float: ...


@runtime_checkable
class PreEnqueuePlugin(Plugin, Protocol):
    def pre_enqueue(self, pod: PodInfo) -> Hold | None: ...


@runtime_checkable
class QueueSortPlugin(Plugin, Protocol):
    def sort_key(self, queued: SortableQueued) -> Any: ...


@runtime_checkable
class PreFilterPlugin(Plugin, Protocol):
    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> Any | Skip | Hold | Narrow[Any]: ...


@runtime_checkable
class WhatIfPlugin(Plugin, Protocol):
    def add_pod(self, state: Any, pod: PodInfo, other: PodInfo, node: NodeInfo) -> Any: ...
    def remove_pod(self, state: Any, pod: PodInfo, other: PodInfo, node: NodeInfo) -> Any: ...


@runtime_checkable
class FilterPlugin(Plugin, Protocol):
    def filter(self, state: Any, nodes: NodeView) -> Iterable[Reject]: ...


@runtime_checkable
class FilterNodePlugin(Plugin, Protocol):
    def filter_node(self, state: Any, node: NodeInfo) -> Hold | None: ...


class Versioned(Protocol):
    """A part of the state that counts its changes."""

    @property
    def position(self) -> int: ...


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """The result of PostFilter.

    ``code``       SUCCESS: the pod can be placed once the victims are deleted and the effects done; UNSCHEDULABLE: nothing
                   helps; UNRESOLVABLE or ERROR: run no further plugin
    ``nominated``  the node to nominate the pod to; "" clears an earlier nomination, None leaves it unchanged
    ``victims``    pods to preempt, in that order; none of them is being deleted already
    ``displaced``  pending pods whose nomination to the node ends, so that they are retried at once
    """

    code: Code
    reasons: tuple[str, ...] = ()
    nominated: str | None = None
    victims: tuple[PodInfo, ...] = ()
    effects: tuple[Effect, ...] = ()
    displaced: tuple[PodInfo, ...] = ()


class Attempt(Protocol):
    """A failed attempt, as PostFilter sees it: its verdicts, and what-ifs that try nodes with pods removed or added."""

    @property
    def pod(self) -> PodInfo: ...
    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def verdicts(self) -> Verdicts:
        """Each row's status after Filter; if PreFilter rejected the pod, that status for every row."""

    @property
    def found(self) -> PreFiltered:
        """The results of PreFilter."""

    @property
    def consults(self) -> bool:
        """True if extenders take part in preemption; see ``moorage.cycle.extender_preemption``."""

    def what_if(self, row: int) -> WhatIf:
        """Open a what-if on one row; use it as a context manager."""

    def what_ifs(self, rows: npt.NDArray[np.intp]) -> WhatIfs | None:
        """Open what-ifs on many rows at once, none of them ``contended``; None if a plugin needs the pods themselves."""

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
    def node(self) -> NodeInfo: ...
    def add(self, pod: PodInfo) -> None: ...
    def remove(self, pod: PodInfo) -> None: ...

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


@runtime_checkable
class PostFilterPlugin(Plugin, Protocol):
    def post_filter(self, pod: PodInfo, attempt: Attempt) -> PostFilterResult: ...


@runtime_checkable
class PreScorePlugin(Plugin, Protocol):
    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView) -> Any | Skip: ...


@runtime_checkable
class ScorePlugin(Plugin, Protocol):
    def score(self, state: Any, nodes: NodeView) -> IntArray: ...


@runtime_checkable
class ScoreNodePlugin(Plugin, Protocol):
    def score_node(self, state: Any, node: NodeInfo) -> int: ...


@runtime_checkable
class NormalizePlugin(Plugin, Protocol):
    def normalize(self, state: Any, scores: IntArray) -> IntArray: ...


@runtime_checkable
class NormalizeOverPlugin(Plugin, Protocol):
    def normalize_over(self, state: Any, scores: IntArray, nodes: NodeView) -> IntArray: ...


@runtime_checkable
class ReservePlugin(Plugin, Protocol):
    def reserve(self, state: Any, pod: PodInfo, node: str) -> Hold | None: ...
    def unreserve(self, state: Any, pod: PodInfo, node: str) -> Iterable[Effect] | None: ...


@runtime_checkable
class PermitPlugin(Plugin, Protocol):
    def permit(self, state: Any, pod: PodInfo, node: str) -> Hold | Wait | None: ...


@runtime_checkable
class PreBindPlugin(Plugin, Protocol):
    def pre_bind(self, state: Any, pod: PodInfo, node: str) -> Iterable[Effect] | Hold: ...


@runtime_checkable
class BindPlugin(Plugin, Protocol):
    def bind(self, state: Any, pod: PodInfo, node: str) -> Iterable[Effect] | Skip | Hold: ...


@runtime_checkable
class PostBindPlugin(Plugin, Protocol):
    def post_bind(self, state: Any, pod: PodInfo, node: str) -> None: ...


class AnyPlugin(Protocol):
    """Any plugin, for the runner, which has checked which methods each plugin has."""

    name: str
    depends: Depends
    sign: Callable[[PodInfo], Signature | None]
    wakes_on: Callable[[], Iterable[Wake]]

    def __getattr__(self, method: str) -> Any: ...


#: Extension point, as configuration spells it → methods; a plugin that has one of them runs there.
POINTS: Mapping[str, tuple[str, ...]] = {
    "preEnqueue": ("pre_enqueue",),
    "queueSort": ("sort_key",),
    "preFilter": ("pre_filter",),
    "filter": ("filter", "filter_node"),
    "postFilter": ("post_filter",),
    "preScore": ("pre_score",),
    "score": ("score", "score_node"),
    "reserve": ("reserve",),
    "permit": ("permit",),
    "preBind": ("pre_bind",),
    "bind": ("bind",),
    "postBind": ("post_bind",),
    "placementGenerate": ("generate_placements",),
    "placementScore": ("score_placement",),
}


def points_of(plugin: object) -> tuple[str, ...]:
    """Return the extension points that a plugin, or a plugin's class, implements, in the order they run."""
    return tuple(point for point, methods in POINTS.items() if any(callable(getattr(plugin, m, None)) for m in methods))
