"""Answers about a room for many pod classes at once.

Where pods of many classes come in turn, each class finds a row changed by every pod that came in between. Most of their rooms
are new to all classes alike. ``JoinedRooms`` runs the plugins on a new room for all classes in one step, with states that ask
for several pods (see ``Join``), and each class then only looks the scores up. Classes whose plugins have equal states share
one set of scores. ``DistinctScores`` are those of all rooms that nodes have, from which a pod's node follows without rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from moorage.cycle import room_scores
from moorage.cycle.room_scores import LOW, REFUSED_ROOM, RoomScores, entries_of
from moorage.framework.plugin_runner import are_in_range, ask
from moorage.framework.profile import Step
from moorage.state.cluster import Snapshot
from moorage.state.columns import BoolArray, IntArray
from moorage.state.view import FewRows, NodeView

__all__ = ["DistinctScores", "JoinedRooms", "JoinedScores"]

#: Fewer classes than this are answered one by one.
_WORTH_JOINING: Final = 4
#: The most answers that are computed in one step.
_MOST_ANSWERS: Final = 1 << 16
#: The most scores that are kept for all classes together.
_MOST_KEPT: Final = 1 << 21
#: The most states whose scores new classes find; all are dropped when there are more.
_STATES_REMEMBERED: Final = 4096
#: For how many rooms there is place at first, a power of two. It grows.
_FEWEST: Final = 256
#: A class that was not asked about for so many steps, and four times as many as there are classes, leaves.
_IDLE: Final = 64


class JoinedScores(RoomScores):
    """The scores of classes whose plugins have these states."""

    __slots__ = ("last", "rooms", "states")

    def __init__(self, rooms: JoinedRooms[Any], states: tuple[Any, ...]) -> None:
        super().__init__()
        #: The states of the plugins in the order of ``rooms``.
        self.states = states
        self.rooms = rooms
        #: The last step of ``rooms`` at which a class asked; -1 if these scores are not among those that it computes.
        self.last = -1

    def leave(self) -> None:
        """Keep nothing until a class asks again."""
        self.last = -1
        self.forget()

    def extend(self, size: int) -> None:
        if self.last < 0:
            super().extend(size)
        else:
            self.rooms.extend(size)

    def columns_of(self, numbers: IntArray) -> npt.NDArray[np.intp]:
        """Return the places of rooms among the entries."""
        return numbers & self._mask


class DistinctScores(JoinedScores):
    """The scores of the distinct rooms, each at the index of the room (see ``DistinctRooms``)."""

    __slots__ = ()

    def move_to(self, entries: IntArray) -> None:
        known = self._entries[: len(entries)] if self.last >= 0 else self._entries[:0]
        self._use(entries)
        entries[: len(known)] = known

    def admit(self, size: int) -> bool:
        """Prepare for a look at so many rooms. Return False if they are too many."""
        self.rooms.admit(self)
        return self.rooms.extend(size)

    def of_all(self, keys: IntArray) -> IntArray:
        """Return for each room, given by its key, its score plus one; more than ``LOW`` for an unknown one, and a negative
        number for an index that no room has."""
        return self._entries[: len(keys)] ^ keys


S = TypeVar("S", bound=JoinedScores)


class JoinedRooms(Generic[S]):
    """The scores of classes that run the same plugins, with states that can be joined."""

    def __init__(self, kind: type[S], filters: Sequence[Step], scores: Sequence[Step], weights: Sequence[int]) -> None:
        """``weights`` of the scores. All plugins have a ``Join``. ``kind`` says which room has which place."""
        self._kind = kind
        self._filters, self._scores, self._weights = filters, scores, weights
        self._by_states: dict[Hashable, S] = {}
        self._members: list[S] = []
        self._joined: list[Any] | None = None
        #: How many times several classes were answered in one step.
        self.step = 0
        self._swept = 0
        #: A row of entries for each member, then free ones.
        self._entries: IntArray = np.zeros((0, 0), dtype=np.int64)
        #: Has an entry for each room that was computed for all members, and stands for no class.
        self._computed = kind(self, ())

    def of(self, states: tuple[Any, ...]) -> S:
        """Return the scores of classes whose plugins have these states, which can be hashed."""
        found = self._by_states.get(states)
        if found is None:
            if len(self._by_states) >= _STATES_REMEMBERED:
                self._by_states.clear()
            found = self._by_states[states] = self._kind(self, states)
        return found

    def learn(
        self, scores: S, numbers: IntArray, rows: npt.NDArray[np.intp], snapshot: Snapshot,
        columns: npt.NDArray[np.intp] | None = None,
    ) -> bool:  # fmt: skip
        """Answer for all classes about rooms that are new to all of them. Return False if nothing was computed.

        ``numbers``: rooms that are not in ``scores``; ``rows`` that have them; ``columns``: their places, if they have others
        than ``columns_of`` says
        """
        self.admit(scores)
        if len(self._members) < _WORTH_JOINING:
            return False
        at = self._computed.columns_of(numbers) if columns is None else columns
        new = (self._computed.numbers_at(at) != numbers).nonzero()[0]
        if not len(new):
            return False
        if len(new) > 1:
            new = new[np.unique(numbers[new], return_index=True)[1]]
            new = new[-max(_MOST_ANSWERS // len(self._members), 1) :]  # the newest rooms
        answers = self._answers(FewRows(snapshot, rows[new]))
        if answers is None:
            return False
        numbers = numbers[new]
        if columns is None:
            if 2 * len(new) > self._size or self._computed.numbers_at(at[new]).any():
                self.extend(max(2 * self._size, 1 << (2 * len(new)).bit_length()))
            at = self._computed.columns_of(numbers)
        else:
            at = columns[new]
        self._computed.put(at, entries_of(numbers, answers[0]))
        self._entries[: len(self._members), at] = entries_of(numbers, answers)
        self.step += 1
        if self.step - self._swept > _IDLE + 4 * len(self._members):
            self._sweep()
        return True

    def _answers(self, view: NodeView) -> IntArray | None:
        """Run the plugins for all members; shape (members, rows). None if a plugin scores out of range."""
        if self._joined is None:
            joins = [*(step.reuse.joins.filter for step in self._filters), *(step.reuse.joins.score for step in self._scores)]
            states = zip(*[member.states for member in self._members], strict=True)
            self._joined = [join.join(own) for join, own in zip(joins, states, strict=True) if join is not None]
        refused: BoolArray | None = None
        for step, state in zip(self._filters, self._joined, strict=False):
            for reject in ask(step, "filter", state, view) or ():
                refused = reject.rows if refused is None else refused | reject.rows
        worths: IntArray = np.zeros((len(self._members), len(view)), dtype=np.int64)
        for step, weight, state in zip(self._scores, self._weights, self._joined[len(self._filters) :], strict=True):
            scores = ask(step, "score", state, view)
            if not are_in_range(scores.reshape(-1)):
                return None
            worths += scores if weight == 1 else scores * weight
        if refused is not None:
            worths[np.broadcast_to(refused, worths.shape)] = REFUSED_ROOM
        return worths if worths.item(worths.argmax()) < LOW else None

    # -- members ------------------------------------------------------------------------------------------------------

    def admit(self, scores: S) -> None:
        """Note that a class asks. From now on it is among those that are answered together."""
        if scores.last < 0:
            if len(self._members) == len(self._entries):
                self._rebuild(max(2 * len(self._entries), _WORTH_JOINING), self._size or _FEWEST)
            self._join(scores)
        scores.last = self.step

    def _join(self, scores: S) -> None:
        """Move the scores to the next free row, which has zeros."""
        scores.move_to(self._entries[len(self._members)])
        self._members.append(scores)
        self._joined = None

    @property
    def _size(self) -> int:
        return int(self._entries.shape[1])

    def extend(self, size: int) -> bool:
        """Make place for so many rooms, or for as many as may be kept. Return whether there is place for all."""
        if self._size < size and self._size < _most_rooms(len(self._entries)):
            self._rebuild(len(self._entries), 1 << (size - 1).bit_length())
        return self._size >= size

    def _sweep(self) -> None:
        """Drop the classes that were not asked about for long."""
        self._swept = self.step
        idle = [scores for scores in self._members if self.step - scores.last > _IDLE + 4 * len(self._members)]
        for scores in idle:
            scores.leave()
            self._by_states.pop(scores.states, None)
        if idle:
            self._rebuild(len(self._entries), self._size)

    def _rebuild(self, capacity: int, size: int) -> None:
        """Begin with new arrays, and keep what is known."""
        size = min(size, _most_rooms(capacity))
        self._computed.move_to(np.zeros(size, dtype=np.int64))
        self._computed.last = 0
        self._entries = np.zeros((capacity, size), dtype=np.int64)
        stay = [scores for scores in self._members if scores.last >= 0]
        self._members.clear()
        for scores in stay:
            self._join(scores)


def _most_rooms(capacity: int) -> int:
    """Return for how many rooms the scores of so many classes are kept, a power of two."""
    share = max(_MOST_KEPT // max(capacity, 1), 1)
    return min(room_scores._MOST, 1 << (share.bit_length() - 1))
