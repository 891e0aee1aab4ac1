"""The answers by which a plugin rejects a pod or a node, makes a pod wait, or skips.

A rejection is a return value: ``Hold`` for the pod as a whole, ``Reject`` for some rows. An exception means that the plugin is
broken, and ends the attempt.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar, final

from moorage.state.columns import BoolArray

__all__ = ["SKIP", "Code", "Hold", "Narrow", "Reject", "Skip", "Status", "Wait"]

S_co = TypeVar("S_co", covariant=True)


class Code(Enum):
    """Status codes, with kube-scheduler's names and meaning."""

    SUCCESS = "Success"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    WAIT = "Wait"
    SKIP = "Skip"
    PENDING = "Pending"

    @property
    def is_rejection(self) -> bool:
        """True if the pod, or the node, is refused."""
        return self in {Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING}


@final
class Skip:
    """The type of ``SKIP``: the plugin does not apply to this pod (or, in Bind, leaves the pod to the next plugin)."""

    def __repr__(self) -> str:
        return "SKIP"


SKIP: Final = Skip()


@dataclass(frozen=True, slots=True)
class Hold:
    """Reject the pod for these ``reasons``.

    ``unresolvable``: preemption would not help. ``pending``: wait without a backoff penalty.
    """

    reasons: tuple[str, ...]
    unresolvable: bool = False
    pending: bool = False

    @classmethod
    def because(cls, *reasons: str, unresolvable: bool = False, pending: bool = False) -> Hold:
        """Return a rejection with these reasons."""
        return cls(reasons, unresolvable, pending)

    @property
    def code(self) -> Code:
        """The status code that kube-scheduler has for it."""
        if self.pending:
            return Code.PENDING
        return Code.UNRESOLVABLE if self.unresolvable else Code.UNSCHEDULABLE


@dataclass(frozen=True, slots=True)
class Reject:
    """Refuse some rows. ``rows`` is a mask over the view that was judged.

    A plugin may yield several. A row that is in more than one carries all their reasons, in the order they were yielded, and
    is unresolvable if any of them is. ``unresolvable`` may be a mask too, where rows with one reason differ.

    ``error``: the plugin cannot judge these rows, because the pod's spec is invalid for them. Unlike a refusal this ends the
    attempt, even if the pod fits other rows; ``reason`` then describes the error.
    """

    rows: BoolArray
    reason: str
    unresolvable: bool | BoolArray = False
    error: bool = False


@dataclass(frozen=True, slots=True)
class Narrow(Generic[S_co]):
    """From PreFilter: judge only these nodes; ``state`` is what ``filter`` receives.

    Raises  TypeError, in the plugin that makes it, if ``nodes`` is not a set of names
    """

    nodes: frozenset[str]
    state: S_co

    def __post_init__(self) -> None:
        if not isinstance(self.nodes, Set) or not all(isinstance(name, str) for name in self.nodes):
            raise TypeError(f"Narrow({self.nodes!r:.100}, ...) holds no set of node names; give a frozenset of them")


@dataclass(frozen=True, slots=True)
class Wait:
    """From Permit: make the pod wait on its node until the plugin allows it, at most ``timeout_s`` seconds (never over 15 min).

    ``reasons`` say what the pod waits for; they are reported for the pods of a group that cannot be scheduled.
    """

    timeout_s: float
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Status:
    """The result for one node, or for the whole pod: a code, the plugin that returned it, and its reasons."""

    code: Code
    plugin: str = ""
    reasons: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The reasons as one text."""
        return ", ".join(self.reasons)
