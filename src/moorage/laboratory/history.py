"""What happened to a cluster since it was read, as values, and the simulation that it leads to.

A simulation is a function of its options, the objects that it began with, and the steps that followed: it reads no clock, and
draws nothing that is not seeded. So a ``History`` stands for a simulation. It is small, it can be copied and pickled, and
``play`` makes a simulation of it that decides as the first one did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct

from moorage.api.meta import Object
from moorage.cycle.search_scope import EVERYWHERE, Scope
from moorage.engine.facts import Gone, Seen
from moorage.errors import InputError
from moorage.simulator.simulate import Options, prepare
from moorage.simulator.simulation import Simulation

__all__ = ["Deleted", "Evicted", "History", "Ran", "Step", "Told", "Tried", "play", "take"]


class Told(Struct, frozen=True):
    """Facts about objects, in order."""

    facts: tuple[Seen | Gone, ...]


class Deleted(Struct, frozen=True):
    """A pod was deleted, and its controller makes no other."""

    uid: str


class Evicted(Struct, frozen=True):
    """A pod was evicted: it leaves after its grace period, and its controller makes another."""

    uid: str
    grace_s: float | None


class Tried(Struct, frozen=True):
    """One attempt for one pod; ``nodes`` limits it to these nodes."""

    uid: str
    nodes: tuple[str, ...] | None = None


class Ran(Struct, frozen=True):
    """The simulation ran, until a time or until nothing more could happen."""

    until_s: float | None


Step = Told | Deleted | Evicted | Tried | Ran


@dataclass
class History:
    """How to come to a simulation's state. ``objects`` are shared between histories and never changed."""

    options: Options
    objects: Sequence[Object]
    steps: list[Step] = field(default_factory=list)

    def copy(self) -> History:
        return History(self.options, self.objects, list(self.steps))


def play(history: History) -> Simulation:
    """Return a new simulation in the state that a history leads to.

    Raises  ConfigError, InputError
    """
    simulation, _ = prepare(history.options)
    simulation.load(history.objects)
    for step in history.steps:
        take(simulation, step)
    return simulation


def take(simulation: Simulation, step: Step) -> None:
    """Make one step."""
    match step:
        case Told(facts):
            simulation.tell(facts)
        case Deleted(uid):
            simulation.delete(uid)
        case Evicted(uid, grace_s):
            simulation.evict(uid, grace_s)
        case Tried(uid, nodes):
            simulation.attempt(simulation.pods[uid], scope_of(simulation, nodes))
        case Ran(until_s):
            simulation.run(until_s)


def scope_of(simulation: Simulation, nodes: Sequence[str] | None) -> Scope:
    """Return the scope of a search that is limited to these nodes.

    Raises  InputError for a name that no node has
    """
    if nodes is None:
        return EVERYWHERE
    row_of = simulation.scheduler.snapshot.table.row_of
    unknown = [name for name in nodes if name not in row_of]
    if unknown:
        raise InputError(f"no node has the name {unknown[0]!r}")
    return Scope(np.array(sorted({row_of[name] for name in nodes}), dtype=np.intp))
