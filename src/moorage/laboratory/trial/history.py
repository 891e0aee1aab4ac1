"""The steps of a cluster since it was read, as values, and the simulation that results from them.

A simulation is a function of its options, its first objects, and the steps that followed: it reads no clock, and all random
numbers are seeded. So a ``History`` represents a simulation. It is small, it can be copied and pickled, and ``play`` returns a
simulation that decides as the first one did.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np
from msgspec import Struct

from moorage.api import packing
from moorage.api.custom_objects import CustomObject, custom_type
from moorage.api.gc_pause import collector_paused
from moorage.api.meta import Object
from moorage.core.config.scheduler_document import Loaded
from moorage.core.cycle.search import EVERYWHERE, SearchScope
from moorage.core.engine.facts import Gone, Seen
from moorage.errors import InputError
from moorage.framework.changes import Change
from moorage.laboratory.edit.config_changes import reconfigure
from moorage.laboratory.edit.edits import no_such_node
from moorage.laboratory.trial.recorded_simulation import RECORDED_PARTS, RecordedSimulation
from moorage.laboratory.trial.state_copies import StateCopy
from moorage.simulator.simulate import Options, load_options, prepare
from moorage.simulator.simulation import SimulatedCluster

#: The type of an object, or the name of its custom kind, and its content.
Packed: TypeAlias = tuple[type[Object] | str, bytes]


def pack(obj: Object) -> Packed:
    """Return an object as bytes."""
    return (obj.resource if isinstance(obj, CustomObject) else type(obj)), packing.pack(obj)


def unpack(packed: Packed) -> Object:
    """Return the object that ``pack`` encoded."""
    kind, content = packed
    found: Any = packing.unpack(content, custom_type(kind) if isinstance(kind, str) else kind)
    return cast(Object, found)


class Told(Struct, frozen=True):
    """Facts about objects, in order."""

    facts: tuple[Seen | Gone, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return _told, ([(type(fact), pack(fact.obj)) for fact in self.facts],)


def _told(packed: list[tuple[type[Seen | Gone], Packed]]) -> Told:
    return Told(tuple(kind(unpack(obj)) for kind, obj in packed))


class Deleted(Struct, frozen=True):
    """A pod was deleted, and its controller does not replace it."""

    uid: str


class Evicted(Struct, frozen=True):
    """A pod was evicted: it is deleted after its grace period, and its controller replaces it."""

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
    """The steps that lead to a simulation's state.

    ``objects`` are shared between histories and never changed; ``config`` are changes of the configuration.
    """

    options: Options
    objects: Sequence[Object]
    steps: list[Step] = field(default_factory=list)
    config: tuple[Change, ...] = ()

    def copy(self) -> History:
        return History(self.options, self.objects, list(self.steps), self.config)

    def __reduce__(self) -> tuple[Any, ...]:
        return _history, (self.options, [pack(obj) for obj in self.objects], self.steps, self.config)

    def load(self) -> Loaded:
        """Return the configuration."""
        loaded = load_options(self.options)
        for change in self.config:
            loaded = reconfigure(loaded, change)
        return loaded


def _history(options: Options, objects: list[Packed], steps: list[Step], config: tuple[Change, ...]) -> History:
    with collector_paused():
        return History(options, tuple([unpack(obj) for obj in objects]), steps, config)


def play(history: History) -> RecordedSimulation:
    """Return a new simulation in the state that a history leads to.

    Raises  ConfigError, InputError
    """
    with collector_paused():
        simulation, _ = prepare(history.options, parts=RECORDED_PARTS, simulation=RecordedSimulation, loaded=history.load())
        assert isinstance(simulation, RecordedSimulation)
        simulation.load(history.objects)
        simulation.catch_up()
        for step in history.steps:
            take(simulation, step)
    return simulation


def take(simulation: SimulatedCluster, step: Step) -> None:
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


def scope_of(simulation: SimulatedCluster, nodes: Sequence[str] | None) -> SearchScope:
    """Return the scope of a search that is limited to these nodes.

    Raises  InputError for a name that no node has
    """
    if nodes is None:
        return EVERYWHERE
    row_of = simulation.scheduler.snapshot.table.row_of
    unknown = [name for name in nodes if name not in row_of]
    if unknown:
        raise InputError(no_such_node(unknown[0], row_of))
    return SearchScope(np.array(sorted({row_of[name] for name in nodes}), dtype=np.intp))


def copy_of(simulation: RecordedSimulation, instead: Iterable[tuple[Any, Any]] = ()) -> RecordedSimulation | None:
    """Return a copy of a simulation; None if something in it cannot be copied. ``instead`` as for ``StateCopy``."""
    with collector_paused():
        made: RecordedSimulation | None = StateCopy([*instead, *simulation.plain_copies()]).of(simulation)
    return made
