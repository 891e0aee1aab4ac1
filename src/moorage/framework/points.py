"""The extension points: what a plugin may implement, and what the framework promises in return.

A plugin is any object with a ``name`` and one or more of the methods below; which it has decides where it runs. Within one
attempt state flows by return value: what ``pre_filter`` returns is what ``filter`` receives, what ``pre_score`` returns is what
``score`` receives.

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
                ``normalize_over(state, scores, nodes)``               … or the same, told which rows they are
Reserve         ``reserve / unreserve(state, pod, node)``              ``None`` or ``Hold`` / effects, or ``None``
Permit          ``permit(state, pod, node)``                           ``None``, ``Hold`` or ``Wait``
PreBind         ``pre_bind(state, pod, node)``                         effects, or ``Hold``
Bind            ``bind(state, pod, node)``                             effects, ``SKIP``, or ``Hold``
PostBind        ``post_bind(state, pod, node)``                        nothing
==============  =====================================================  ============================================

For pod groups that have to keep together (gate TopologyAwareWorkloadScheduling) there are two points more; see
``moorage.framework.placements``. PlacementGenerate: ``generate_placements(group, everywhere, snapshot)`` returns sets of nodes
to confine the group to, ``Placement`` s, or ``Hold``; only the first plugin is asked. PlacementScore:
``score_placement(group, proposal, snapshot)`` returns an int for what became of the group on one of them, and
``normalize_placements(group, scores)``, where there is one, brings all of them into 0-100.

Where a plugin has no ``pre_filter``, ``filter`` receives the pod itself; where it has no ``pre_score``, ``score`` receives what
its ``pre_filter`` returned, or else the pod. From Reserve on, ``state`` is what ``pre_filter`` returned (None if it was
skipped or absent). ``add_pod`` and ``remove_pod`` are only needed by plugins whose state depends on other pods; they return
the state that holds then (a new one: the old must stay good). A plugin that has neither gets its old state. One that
from Reserve on has nothing to do for pods that its ``pre_filter`` skipped may say so with ``rests_when_skipped = True``.

A plugin that judges columns may offer ``filter_node`` or ``score_node`` as well, with the same answers: they are asked where a
single row has changed. One whose ``normalize`` looks at nothing but a row's own raw score and the highest of all may say so
with ``scales_by_highest = True``. One whose Filter and Score read nothing of a node but what it offers (``allocatable``,
``allowed_pods``) and what its pods come to in sum (``pod_count``, ``requested`` …) may say so with ``sums_only = True``:
preemption then tries many nodes at once, and nodes that are filled alike are judged once.

A PostFilter plugin that signs (see below) may say ``fails_alike = True``: where it finds nothing to do, its answer follows from
its signature, the snapshot and the nominations. While these stay as they are, pods of one class then share that answer.

Optional besides: ``wakes_on()`` yields the events after which a pod that the plugin turned down is worth another try
(without it: any event); ``sign(pod)`` returns everything the plugin reads of a pod, so that pods with equal signatures
share verdicts (without it, or when it returns None: every pod is asked about); ``signs_by``, next to it, names the kinds of
objects that decide what is signed beside the pod's shape, its namespace, labels, owners, spec and status (often none: ``()``;
without it every pod is signed anew); ``depends`` says what else its answers hang on; ``attach(handle)`` is called once before
the first pod, with the means to reach the running scheduler. A rule may have other forms beside that over columns, with
the same answers. The form for one node: what changed since the last pod is mostly a single row, judged without arrays. And
where its answers hang on topology domains, ``closed_domains(state, nodes)`` yields label keys with a mask of which of their
values are refused (shape (values,), id 0 for nodes without the label), and ``domain_scores(state, nodes)`` returns a key and
the raw score of each value, or None if rows of one domain differ; ``normalize`` then sees each score once. A PreFilter that may
answer ``Narrow`` can say so beforehand: ``narrows_to(pod)`` returns the names, or None. One that looks at other pods, but
mostly has nothing to say, can say that beforehand: while ``idle(pod, snapshot)`` is true, PreFilter and PreScore would answer
``SKIP`` for every pod of this shape (see ``sign``) until one of the logs moves on that ``idle_until(snapshot)`` returns.
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
from moorage.framework.prefiltered import PreFiltered
from moorage.framework.verdict_table import Verdicts
from moorage.framework.verdicts import Code, Hold, Narrow, Reject, Skip, Status, Wait
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray, IntArray
from moorage.state.pod_info import PodInfo
from moorage.state.view import NodeInfo, NodeView

__all__ = [
    "POINTS", "AnyPlugin", "Attempt", "BindPlugin", "Depends", "FilterNodePlugin", "FilterPlugin", "Log", "NormalizeOverPlugin",
    "NormalizePlugin", "PermitPlugin", "Plugin", "PostBindPlugin", "PostFilterPlugin", "PostFilterResult",
    "PreBindPlugin", "PreEnqueuePlugin", "PreFilterPlugin", "PreScorePlugin", "QueueSortPlugin", "ReservePlugin",
    "ScoreNodePlugin", "ScorePlugin", "Signature", "SortableQueued", "WhatIf", "WhatIfPlugin", "WhatIfs", "points_of",
]  # fmt: skip

#: What a plugin reads of a pod, by a name shared between plugins that read the same.
Signature = Mapping[str, Hashable]


class Depends(Enum):
    """What a plugin's verdict or raw score for a row hangs on, besides the pod's signature; nothing is said of pods without."""

    NODES = "nodes"
    """The nodes themselves, whatever pods are on them: kept until a node comes, goes or changes."""
    ROW = "row"
    """That row's own facts, its pods among them: judging a changed row again is enough."""
    CLUSTER = "cluster"
    """Anything in the snapshot: judged again for every pod, unless a pod of its class just failed and nothing has changed."""


@runtime_checkable
class Plugin(Protocol):
    """What all plugins have."""

    @property
    def name(self) -> str: ...


class SortableQueued(Protocol):
    """A pod in the queue, as far as sorting may look."""

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


class Log(Protocol):
    """Anything in the state that keeps count of its changes."""

    @property
    def position(self) -> int: ...


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """What PostFilter achieved.

    ``code``       SUCCESS: the pod can be placed once victims are gone and effects done; UNSCHEDULABLE: nothing helps;
                   UNRESOLVABLE or ERROR: ask no further plugin
    ``nominated``  the node to nominate the pod to; "" clears an earlier nomination, None leaves it as it is
    ``victims``    pods to be preempted, in the order they are to go; none of them is being deleted already
    ``displaced``  pending pods whose nomination to the node ends, so that they look for another place at once
    """

    code: Code
    reasons: tuple[str, ...] = ()
    nominated: str | None = None
    victims: tuple[PodInfo, ...] = ()
    effects: tuple[Effect, ...] = ()
    displaced: tuple[PodInfo, ...] = ()


class Attempt(Protocol):
    """A failed attempt, as PostFilter sees it: what was found, and the means to ask what would be if pods were gone."""

    @property
    def pod(self) -> PodInfo: ...
    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def verdicts(self) -> Verdicts:
        """Each row's status after Filter; every row's if PreFilter turned the pod down."""

    @property
    def found(self) -> PreFiltered:
        """What PreFilter left behind."""

    @property
    def consults(self) -> bool:
        """True if extenders have a say in preemption; see ``moorage.cycle.consulting``."""

    def what_if(self, row: int) -> WhatIf:
        """Open a what-if on one row; use it as a context manager."""

    def what_ifs(self, rows: npt.NDArray[np.intp]) -> WhatIfs | None:
        """Open what-ifs on many rows at once, none of them ``contended``; None where a rule has to see the pods themselves."""

    def nominated(self, row: int) -> tuple[PodInfo, ...]:
        """Pods nominated to the row's node, most important first."""

    @property
    def contended(self) -> frozenset[int]:
        """Rows with nominated pods that the pod has to leave room for."""


class WhatIf(Protocol):
    """One node with some of its pods taken away or others put on it, until the block ends."""

    def __enter__(self) -> WhatIf: ...
    def __exit__(self, *exc: object) -> None: ...
    @property
    def node(self) -> NodeInfo: ...
    def add(self, pod: PodInfo) -> None: ...
    def remove(self, pod: PodInfo) -> None: ...

    def refused_by(self) -> Status | None:
        """Run Filter on the node as it is now, nominated pods of higher or equal priority included; None if it fits.

        The status names the plugin that said no; its code is ERROR if that plugin could not judge the node.
        """

    def fits(self) -> bool:
        """Say whether ``refused_by`` would be None; faster."""


class WhatIfs(Protocol):
    """Many nodes with the sums over their pods changed, until the block ends. ``at`` are positions among the rows."""

    def __enter__(self) -> WhatIfs: ...
    def __exit__(self, *exc: object) -> None: ...
    @property
    def resources(self) -> tuple[str, ...]:
        """The resources that are summed."""

    def shift(self, at: npt.NDArray[np.intp], amounts: IntArray) -> None:
        """Add to the sums of these nodes: a row of amounts each, the number of pods first, then one for each resource."""

    def verdicts(self, at: npt.NDArray[np.intp]) -> Verdicts:
        """Run Filter on these nodes as they are now."""

    def fits(self, at: npt.NDArray[np.intp]) -> BoolArray:
        """Say of nodes on which the pod has fitted before whether it still does; shape of ``at``."""


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
    """For the runner, which holds many kinds of plugin and has looked which methods each has."""

    name: str
    depends: Depends
    sign: Callable[[PodInfo], Signature | None]
    wakes_on: Callable[[], Iterable[Wake]]

    def __getattr__(self, method: str) -> Any: ...


#: Extension point, as configuration spells it → the methods of which a plugin needs one to run there.
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
