"""How a plugin says no, not now, or nothing to do.

"No" is a value. Where one answer holds for the pod, it is a ``Hold``; where rows differ, a ``Reject`` names the rows.
Raising means that the plugin is broken, and ends the attempt.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar, final

from moorage.state.columns import BoolArray

__all__ = ["SKIP", "Code", "Hold", "Narrow", "Reject", "Skip", "Status", "Wait"]

S = TypeVar("S")


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
        return self in {Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING}


@final
class Skip:
    """The type of ``SKIP``: this plugin has nothing to say about this pod (or, in Bind, leaves it to the next one)."""

    def __repr__(self) -> str:
        return "SKIP"


SKIP: Final = Skip()


@dataclass(frozen=True, slots=True)
class Hold:
    """The pod cannot go on. ``unresolvable``: evicting pods would not help. ``pending``: wait without a backoff penalty."""

    reasons: tuple[str, ...]
    unresolvable: bool = False
    pending: bool = False

    @classmethod
    def because(cls, *reasons: str, unresolvable: bool = False, pending: bool = False) -> Hold:
        return cls(reasons, unresolvable, pending)

    @property
    def code(self) -> Code:
        if self.pending:
            return Code.PENDING
        return Code.UNRESOLVABLE if self.unresolvable else Code.UNSCHEDULABLE


@dataclass(frozen=True, slots=True)
class Reject:
    """These rows are refused. ``rows`` is a mask over the view that was judged.

    A plugin may yield several; a row that is in more than one carries all their reasons, in the order they were yielded,
    and is unresolvable if any of them is. ``unresolvable`` may be a mask too, where rows of one reason differ.

    ``error``: the rows cannot be judged, because what the pod asks for makes no sense there. Unlike a refusal this ends the
    attempt, whatever other rows could take; ``reason`` then says what is wrong.
    """

    rows: BoolArray
    reason: str
    unresolvable: bool | BoolArray = False
    error: bool = False


@dataclass(frozen=True, slots=True)
class Narrow(Generic[S]):
    """From PreFilter: only these nodes need be looked at; ``state`` is what ``filter`` receives.

    Raises  TypeError, in the plugin that makes it, if ``nodes`` are not a set of names
    """

    nodes: frozenset[str]
    state: S

    def __post_init__(self) -> None:
        if not isinstance(self.nodes, Set) or not all(isinstance(name, str) for name in self.nodes):
            raise TypeError(f"Narrow({self.nodes!r:.100}, ...) holds no set of node names; give a frozenset of them")


@dataclass(frozen=True, slots=True)
class Wait:
    """From Permit: hold the pod on its node until the plugin allows it, at most this many seconds (never over 15 min).

    ``reasons`` say what for; they are told of pods whose group came to nothing.
    """

    timeout_s: float
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Status:
    """What became of one node, or of the pod as a whole: a code, the plugin that said so, and its reasons."""

    code: Code
    plugin: str = ""
    reasons: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        return ", ".join(self.reasons)
