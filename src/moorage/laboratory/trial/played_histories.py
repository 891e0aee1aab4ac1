"""Simulations of histories: a history is played at most twice; after that, its simulation is copied."""

from __future__ import annotations

from collections.abc import Iterable
from operator import is_
from typing import Any, Final

from moorage.api.gc_pause import collector_paused
from moorage.laboratory.trial.history import History, Step, play
from moorage.laboratory.trial.recorded_simulation import RecordedSimulation
from moorage.laboratory.trial.state_copies import StateCopy

__all__ = ["PlayedHistories", "copy_of"]

#: Maximum number of simulations to keep.
_HELD: Final = 2


def copy_of(simulation: RecordedSimulation, instead: Iterable[tuple[Any, Any]] = ()) -> RecordedSimulation | None:
    """Return a copy of a simulation; None if something in it cannot be copied. ``instead`` as for ``StateCopy``."""
    with collector_paused():
        made: RecordedSimulation | None = StateCopy([*instead, *simulation.plain_copies()]).of(simulation)
    return made


class PlayedHistories:
    """Plays histories. It keeps the last simulations, because trials are rolled back to the same state repeatedly."""

    def __init__(self) -> None:
        self._has_played = False
        self._held: list[tuple[History, tuple[Step, ...], RecordedSimulation]] = []

    def play(self, history: History) -> RecordedSimulation:
        """Return a simulation in the state that a history leads to, for the caller alone.

        Raises  ConfigError, InputError
        """
        for known, steps, held in self._held:
            if known is history and len(steps) == len(history.steps) and all(map(is_, steps, history.steps)):
                return copy_of(held) or play(history)
        played = play(history)
        if self._has_played:
            spare = copy_of(played)
            self._held = self._held if spare is None else [(history, tuple(history.steps), spare), *self._held[: _HELD - 1]]
        self._has_played = True
        return played
