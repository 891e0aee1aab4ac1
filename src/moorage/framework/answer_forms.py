"""Forms of answers that are faster than verdicts and scores of rows; a plugin declares them in its ``Reuse``.

Domains answer for all nodes with a value of a label, pins for one node, rules for several plugins at once, and an idle plugin
does not answer at all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from moorage.api.core import Pod
from moorage.state.change_log import RowLog
from moorage.state.counts import PodMatcher
from moorage.state.table import NodeTable
from moorage.state.usage import SomeUsage, Usage
from moorage.state.view import BoolArray, IntArray, NodeView, PodInfo

__all__ = [
    "NOTHING_TO_DO", "Domains", "FollowedScores", "Idle", "Pins", "Rule", "ScoresByCount", "Share", "Versioned",
]  # fmt: skip

#: The signature of a pod for which a plugin has nothing to do: its PreFilter skips the pod or is silent, its Filter refuses no
#: node, and it scores all nodes alike. It is not asked about such pods.
NOTHING_TO_DO: Final[Mapping[str, Hashable]] = MappingProxyType({})

F_contra = TypeVar("F_contra", contravariant=True)
S_contra = TypeVar("S_contra", contravariant=True)


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

    ``closed(state, nodes)``  yields label keys, each with a mask of the values that Filter refuses, shape (values,); None if
                              it refuses other rows
    ``scores(state, nodes)``  returns a key and the raw score of each value, or ``ScoresByCount``; None if neither fits. A
                              built-in plugin may return ``FollowedScores``
    """

    closed: Callable[[F_contra, NodeView], Iterable[tuple[str, BoolArray]] | None] | None = None
    scores: Callable[[S_contra, NodeView], tuple[str, IntArray] | ScoresByCount | FollowedScores | None] | None = None


class Rule(Protocol):
    """Judges rows by CPU, memory and the number of pods, for all plugins that took part in making it."""

    def rows(self, usage: SomeUsage | Usage) -> tuple[IntArray, BoolArray | None]:
        """Return the weighted sum of the scores of each row, and which rows are refused; None for none."""

    def row(self, row: int, table: NodeTable) -> int | None:
        """Return the same for one row, -1 if it is refused; None if the plugins must be asked."""


class Share(NamedTuple):
    """A built-in plugin's share in a rule for several plugins of scope USAGE, which is faster than asking each.

    ``rules(parts)``         made of the parts of all plugins, it returns the rule of a pod; None if it has none for the pod
    ``part(point, weight)``  the plugin's part at Filter or Score, without PreFilter and PreScore, which neither reject nor
                             narrow; None if it has none
    """

    rules: Callable[[Sequence[Any]], Callable[[PodInfo], Rule | None]]
    part: Callable[[str, int], Any | None]
