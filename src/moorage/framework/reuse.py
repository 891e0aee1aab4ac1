"""``Reuse``: what a plugin promises about its answers, so that the scheduler may reuse them for other pods and nodes.

A promise changes no decision; it saves calls. A plugin without one runs for every pod. ``moorage.testing.plugin_checks`` checks
promises.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from moorage.api.core import Pod
from moorage.api.meta import Object
from moorage.state.change_log import RowLog
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray, IntArray
from moorage.state.counts import PodMatcher
from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable
from moorage.state.usage import SomeUsage, Usage
from moorage.state.view import NodeView

__all__ = [
    "Depends",
    "Domains",
    "FollowedScores",
    "Idle",
    "Pins",
    "Reuse",
    "Rule",
    "Scope",
    "ScoresByCount",
    "Share",
    "Signature",
    "Versioned",
]

F_contra = TypeVar("F_contra", contravariant=True)
S_contra = TypeVar("S_contra", contravariant=True)

#: Name → what a plugin reads of a pod. Plugins that read the same use the same name.
Signature = Mapping[str, Hashable]


class Scope(IntEnum):
    """What the verdict and the raw score of a node depend on, in addition to the pod's signature. Each includes those above.

    Up to NODE_PODS, ``normalize`` of a node depends only on that node's raw score and on the highest raw score.
    """

    NODE = 1
    """The node itself, whatever pods are on it: reused until the node is updated; a plugin that reads other nodes too declares
    ``other_nodes``."""
    USAGE = 2
    """The sums over the node's pods (``pod_count``, ``requested`` …) too: large clusters judge nodes with equal sums once."""
    NODE_PODS = 3
    """The node's pods too: a node is judged again when its pods change."""
    DOMAIN = 4
    """Pods anywhere, but equal for nodes of one topology domain: ``Reuse.domains`` judges domains instead of nodes."""
    CLUSTER = 5
    """Anything in the snapshot: judged again for every pod, unless a pod of its class just failed and nothing has changed."""


class Versioned(Protocol):
    """A part of the state that counts its changes."""

    @property
    def position(self) -> int:
        """The number of changes so far."""


class Idle(NamedTuple):
    """Whether PreFilter and PreScore skip every pod of a shape (``now``), valid while no log in ``until`` moves on."""

    now: bool
    until: Sequence[Versioned] = ()


class Pins(NamedTuple):
    """For a PreFilter that answers ``Narrow({node}, pod)`` for a pod that names one node.

    ``node(pod)``     the node, if nothing else that the plugin reads of the pod depends on that name; None otherwise
    ``without(pod)``  the same pod without the name. Filter answers for it, on that node, as for the pod itself
    """

    node: Callable[[PodInfo], str | None]
    without: Callable[[PodInfo], Pod]


class ScoresByCount(NamedTuple):
    """Raw scores that follow from a node's domain and from how many pods on the node a matcher counts.

    ``raw(most)``  the raw scores for 0 to ``most`` such pods, in each domain of the label ``key``; shape (most + 1, values)
    """

    key: str
    matcher: PodMatcher
    raw: Callable[[int], IntArray]


class FollowedScores(NamedTuple):
    """The raw score of each value of the label ``key``, in an array that the plugin updates in place.

    ``changes`` logs the ids of values whose score changed; a new array has a new log. All scores are multiples of ``step``.
    Normalizing must depend on nothing but the different scores of the feasible nodes.
    """

    key: str
    raw: IntArray
    changes: RowLog
    step: int = 1


@dataclass(frozen=True, slots=True)
class Domains(Generic[F_contra, S_contra]):
    """Filter and Score by topology domain. Values of a label are given by id; id 0 stands for nodes without the label.

    ``closed(state, nodes)``  yields label keys, each with a mask of the values that Filter refuses, shape (values,)
    ``scores(state, nodes)``  returns a key and the raw score of each value, or ``ScoresByCount``; None if neither fits. A
                              built-in plugin may return ``FollowedScores``
    """

    closed: Callable[[F_contra, NodeView], Iterable[tuple[str, BoolArray]]] | None = None
    scores: Callable[[S_contra, NodeView], tuple[str, IntArray] | ScoresByCount | FollowedScores | None] | None = None


class Rule(Protocol):
    """Judges rows by CPU, memory and the number of pods, for all plugins that took part in making it."""

    def rows(self, usage: SomeUsage | Usage) -> tuple[IntArray, BoolArray | None]:
        """Return the weighted sum of the scores of each row, and which rows are refused; None for none."""

    def row(self, row: int, table: NodeTable) -> int | None:
        """Return the same for one row, -1 if it is refused; None if the plugins must be asked."""


class Share(NamedTuple):
    """A built-in plugin's share in a rule for several plugins of scope USAGE, which is faster than asking each.

    ``rule(parts)``                  the rule, made of the parts of all plugins that judge a pod
    ``part(point, state, weight)``   the plugin's part at Filter or Score; None if it has none for this pod
    """

    rule: Callable[[Sequence[Any]], Rule]
    part: Callable[[str, Any, int], Any | None]


@dataclass(frozen=True, slots=True)
class Reuse:
    """A plugin's promises. A subclass that overrides one of the plugin's methods declares ``reuse`` again, or has none.

    ``scope``                what verdicts and scores depend on
    ``signature(pod)``       everything that the plugin reads of a pod, or None if this pod must be judged by itself. Pods with
                             equal signatures get equal answers, in PostFilter too where it finds nothing to do
    ``signature_reads``      kinds of objects that the signature depends on, in addition to the pod's shape (its namespace,
                             labels, owners, spec and status). None: it may depend on anything, and every pod is signed
    ``domains``              the forms for DOMAIN
    ``idle(pod, snapshot)``  for a plugin that reads other pods but skips most pods: whether it skips all pods of this shape
    ``narrows_to(pod)``      for a PreFilter that may answer ``Narrow``: the node names, without running it, or None
    ``rests_when_skipped``   from Reserve on there is nothing to do for pods that PreFilter skipped
    ``other_nodes(table)``   for a plugin of scope NODE that reads other nodes too: a value that differs whenever its answer for
                             a node that was not updated may
    ``ignores(state, pod, other)``  for a plugin with ``add_pod`` and ``remove_pod``: True if moving ``other`` changes no
                             verdict on ``pod``, whatever the node. Preemption then tries many nodes at once
    ``ignores_all(state, pod, nodes)``  for a plugin with ``ignores``: a mask of rows where it holds for every pod there. It may
                             leave out rows; their pods are asked about one by one
    ``pins``                 for a PreFilter that may answer ``Narrow``: how to judge pods that name one node each as equal pods
    ``share``                for a built-in plugin of scope USAGE: its share in a rule that judges rows for several plugins
    """

    scope: Scope = Scope.CLUSTER
    signature: Callable[[PodInfo], Signature | None] | None = None
    signature_reads: tuple[type[Object], ...] | None = None
    domains: Domains[Any, Any] | None = None
    idle: Callable[[PodInfo, Snapshot], Idle] | None = None
    narrows_to: Callable[[PodInfo], frozenset[str] | None] | None = None
    rests_when_skipped: bool = False
    other_nodes: Callable[[NodeTable], Hashable] | None = None
    ignores: Callable[[Any, PodInfo, PodInfo], bool] | None = None
    ignores_all: Callable[[Any, PodInfo, NodeView], BoolArray] | None = None
    pins: Pins | None = None
    share: Share | None = None


class Depends(Enum):
    """The old form of ``Scope``, for plugins that declare ``depends``. Deprecated."""

    NODES = "nodes"
    ROW = "row"
    CLUSTER = "cluster"
