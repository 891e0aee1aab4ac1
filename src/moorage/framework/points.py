"""The extension points of the Scheduling Framework, as Protocols.

A plugin is any object with a ``name`` and the methods of one or more points. A class that inherits the Protocols of its points
has its signatures checked by mypy; a class that only has the methods runs as well. Methods with a ``state`` receive what the
plugin returned earlier in the same attempt: ``filter`` what ``pre_filter`` returned, ``score`` what ``pre_score`` returned.

``moorage.framework.explaining`` and ``moorage.framework.changes`` have the Protocols of plugins that explain refusals.

Source  kube-scheduler 1.36, staging/src/k8s.io/kube-scheduler/framework/interface.go
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from moorage.api.pod_groups import PodGroup
from moorage.framework.answer_forms import NOTHING_TO_DO, Domains, Idle, Pins, ScoresByCount, Versioned
from moorage.framework.effects import Effect
from moorage.framework.events import Wake
from moorage.framework.handle import Handle
from moorage.framework.post_filter import Attempt, Consult, PostFilterResult, WhatIf, WhatIfs
from moorage.framework.reuse import Reuse, Scope, Signature
from moorage.framework.verdicts import Hold, Narrow, Reject, Skip, Status, Wait
from moorage.state.group_trees import GroupInfo, Placement, Proposal
from moorage.state.view import IntArray, NodeInfo, NodeView, PodInfo, Snapshot

__all__ = [
    "NOTHING_TO_DO",
    "POINTS",
    "Attachable",
    "Attempt",
    "BindPlugin",
    "Consult",
    "Domains",
    "EnqueueExtensions",
    "FilterNodePlugin",
    "FilterPlugin",
    "Idle",
    "NodeScoreExtensions",
    "PermitPlugin",
    "Pins",
    "PlacementFeasiblePlugin",
    "PlacementGeneratePlugin",
    "PlacementScoreExtensions",
    "PlacementScorePlugin",
    "Plugin",
    "PodFollower",
    "PodGroupPostFilterPlugin",
    "PostBindPlugin",
    "PostFilterPlugin",
    "PostFilterResult",
    "PreBindPlugin",
    "PreEnqueuePlugin",
    "PreFilterExtensions",
    "PreFilterPlugin",
    "PreScorePlugin",
    "QueueSortPlugin",
    "ReservePlugin",
    "Reusable",
    "Reuse",
    "Scope",
    "ScoreExtensions",
    "ScoreNodePlugin",
    "ScorePlugin",
    "ScoresByCount",
    "Signature",
    "SortableQueued",
    "Versioned",
    "WhatIf",
    "WhatIfs",
]  # fmt: skip

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
S_contra = TypeVar("S_contra", contravariant=True)


class Plugin(Protocol):
    """The member that all plugins have: the name that configuration files use."""

    @property
    @abstractmethod
    def name(self) -> str: ...


# -- what a plugin may say about itself -----------------------------------------------------------------------------------


class EnqueueExtensions(Plugin, Protocol):
    """The events after which a pod that the plugin rejected is worth another attempt. Without it: any event."""

    @abstractmethod
    def wakes_on(self) -> Iterable[Wake]: ...


class Attachable(Plugin, Protocol):
    """Called once before the first pod, with access to the running scheduler."""

    @abstractmethod
    def attach(self, handle: Handle, /) -> None: ...


class PodFollower(Plugin, Protocol):
    """Called for every pod that the scheduler comes to know (``old`` is None), that changes, or that is gone (``new`` is None).

    That includes pods that were never placed, and at the start all that exist, so that a plugin can seed its state. It is not
    called when this scheduler places a pod: Reserve and PostBind are.
    """

    @abstractmethod
    def pod_changed(self, old: PodInfo | None, new: PodInfo | None, /) -> None: ...


class Reusable(Plugin, Protocol):
    """A plugin that makes promises about its answers. A plugin without ``reuse`` runs for every pod."""

    @property
    @abstractmethod
    def reuse(self) -> Reuse: ...


# -- the queue ------------------------------------------------------------------------------------------------------------


class SortableQueued(Protocol):
    """A queued pod, limited to what a QueueSort plugin may read."""

    @property
    def pod(self) -> PodInfo:
        """The pod."""

    @property
    def timestamp(self) -> float:
        """When it came to the queue, or failed last, in seconds of the scheduler's clock."""


class PreEnqueuePlugin(Plugin, Protocol):
    """Keeps pods out of the active queue: None admits the pod."""

    @abstractmethod
    def pre_enqueue(self, pod: PodInfo, /) -> Hold | None: ...


class QueueSortPlugin(Plugin, Protocol):
    """Orders the queue: the pod with the least key is popped first."""

    @abstractmethod
    def sort_key(self, queued: SortableQueued, /) -> Any: ...


# -- the scheduling cycle -------------------------------------------------------------------------------------------------


class PreFilterPlugin(Plugin, Protocol[S_co]):
    """Returns the state for ``filter``, or skips, rejects the pod, or narrows the search to some nodes."""

    @abstractmethod
    def pre_filter(self, pod: PodInfo, snapshot: Snapshot, /) -> S_co | Skip | Hold | Narrow[S_co]: ...


class PreFilterExtensions(Plugin, Protocol[S]):
    """For a state that depends on other pods: returns the state with ``other`` on or off ``node``, and keeps the old one."""

    @abstractmethod
    def add_pod(self, state: S, pod: PodInfo, other: PodInfo, node: NodeInfo, /) -> S: ...
    @abstractmethod
    def remove_pod(self, state: S, pod: PodInfo, other: PodInfo, node: NodeInfo, /) -> S: ...


class FilterPlugin(Plugin, Protocol[S_contra]):
    """Refuses nodes of a view. Without PreFilter, ``state`` is the pod."""

    @abstractmethod
    def filter(self, state: S_contra, nodes: NodeView, /) -> Iterable[Reject]: ...


class FilterNodePlugin(Plugin, Protocol[S_contra]):
    """Filter for one node. Next to ``filter`` it judges single nodes faster; alone it is called for each node."""

    @abstractmethod
    def filter_node(self, state: S_contra, node: NodeInfo, /) -> Hold | None: ...


class PostFilterPlugin(Plugin, Protocol):
    """Runs when no node fits: nominates a node, preempts pods, or finds nothing to do."""

    @abstractmethod
    def post_filter(self, pod: PodInfo, attempt: Attempt, /) -> PostFilterResult | Consult[Any]: ...


class PodGroupPostFilterPlugin(Plugin, Protocol):
    """Runs when a pod group fits nowhere: a generator that returns the pods to evict, or why that does not help.

    ``status = yield from fits()`` says whether the group fits the node table as it is; the plugin may move pods in it, and
    restores it. Needs the gate WorkloadAwarePreemption. Of several plugins, the first runs.
    """

    @abstractmethod
    def pod_group_post_filter(
        self, group: PodGroup, pods: Sequence[PodInfo], snapshot: Snapshot, fits: Callable[[], Generator[Any, Any, Status]], /
    ) -> Generator[Any, Any, tuple[PodInfo, ...] | Status]: ...


class PlacementFeasiblePlugin(Plugin, Protocol):
    """Says, before the first pod of a group and after each, whether enough of them can be placed: None if they are, WAIT if
    they still may be, UNSCHEDULABLE if not. Since 1.37; it runs wherever the plugin is enabled."""

    @abstractmethod
    def placement_feasible(self, info: GroupInfo, scheduled: int, remaining: int, /) -> Status | None: ...


class PreScorePlugin(Plugin, Protocol[S_co]):
    """Returns the state for ``score``, or skips. ``feasible`` holds the nodes that Filter left."""

    @abstractmethod
    def pre_score(self, pod: PodInfo, snapshot: Snapshot, feasible: NodeView, /) -> S_co | Skip: ...


class ScorePlugin(Plugin, Protocol[S_contra]):
    """Returns an int64 for each node of a view. Without PreScore, ``state`` is that of ``filter``, or else the pod."""

    @abstractmethod
    def score(self, state: S_contra, nodes: NodeView, /) -> IntArray: ...


class ScoreNodePlugin(Plugin, Protocol[S_contra]):
    """Score for one node. Next to ``score`` it scores single nodes faster; alone it is called for each node."""

    @abstractmethod
    def score_node(self, state: S_contra, node: NodeInfo, /) -> int: ...


class ScoreExtensions(Plugin, Protocol[S_contra]):
    """NormalizeScore: maps raw scores to 0-100. Without it, raw scores must be in that range."""

    @abstractmethod
    def normalize(self, state: S_contra, scores: IntArray, /) -> IntArray: ...


class NodeScoreExtensions(Plugin, Protocol[S_contra]):
    """NormalizeScore for a plugin that also needs the nodes that were scored."""

    @abstractmethod
    def normalize_over(self, state: S_contra, scores: IntArray, nodes: NodeView, /) -> IntArray: ...


# -- the binding cycle: ``state`` is what PreFilter returned; None if it was skipped or is absent ----------------------------


class ReservePlugin(Plugin, Protocol[S_contra]):
    """``unreserve`` undoes ``reserve``. It runs for all plugins, the last one first, when a later step fails, and may return
    effects."""

    @abstractmethod
    def reserve(self, state: S_contra | None, pod: PodInfo, node: str, /) -> Hold | None: ...
    @abstractmethod
    def unreserve(self, state: S_contra | None, pod: PodInfo, node: str, /) -> Iterable[Effect] | None: ...


class PermitPlugin(Plugin, Protocol[S_contra]):
    """Allows the pod on its node (None), rejects it, or makes it wait there."""

    @abstractmethod
    def permit(self, state: S_contra | None, pod: PodInfo, node: str, /) -> Hold | Wait | None: ...


class PreBindPlugin(Plugin, Protocol[S_contra]):
    """Returns effects that must succeed before the pod is bound."""

    @abstractmethod
    def pre_bind(self, state: S_contra | None, pod: PodInfo, node: str, /) -> Iterable[Effect] | Hold: ...


class BindPlugin(Plugin, Protocol[S_contra]):
    """Returns the effects that bind the pod, or skips to the next plugin."""

    @abstractmethod
    def bind(self, state: S_contra | None, pod: PodInfo, node: str, /) -> Iterable[Effect] | Skip | Hold: ...


class PostBindPlugin(Plugin, Protocol[S_contra]):
    """Runs after the pod is bound."""

    @abstractmethod
    def post_bind(self, state: S_contra | None, pod: PodInfo, node: str, /) -> None: ...


# -- pod groups whose pods must stay together (gate TopologyAwareWorkloadScheduling) ------------------------------------------


class PlacementGeneratePlugin(Plugin, Protocol):
    """Returns the sets of nodes to try a group on. Only the first plugin runs."""

    @abstractmethod
    def generate_placements(
        self, group: GroupInfo, everywhere: Placement, snapshot: Snapshot, /
    ) -> Iterable[Placement] | Hold: ...


class PlacementScorePlugin(Plugin, Protocol):
    """Scores the result of a group on one placement."""

    @abstractmethod
    def score_placement(self, group: GroupInfo, proposal: Proposal, snapshot: Snapshot, /) -> int: ...


class PlacementScoreExtensions(Plugin, Protocol):
    """Maps the scores of all placements to 0-100."""

    @abstractmethod
    def normalize_placements(self, group: GroupInfo, scores: list[int], /) -> list[int]: ...


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
