"""``Simulation``: a cluster in virtual time that changes while time passes.

It uses the engine of ``moorage simulate``. Changes happen at given times (``at``), calls repeat (``every``), and processes
such as arrivals, node failures, an autoscaler or a recorder take part (``use``). Equal objects, options and processes give
equal runs: all random numbers come from generators that are seeded by the run's seed and a name.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from os import PathLike
from random import Random
from typing import Final, Protocol, Self, TypeAlias, TypeVar, Unpack

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from moorage.api.core import Node, Object, Pod
from moorage.api.gc_pause import collector_paused
from moorage.core.engine.facts import Gone, Seen
from moorage.errors import InputError
from moorage.framework.changes import Change
from moorage.laboratory.cluster_objects import ObjectLike, aside_of, flat_objects, present_objects, read_given
from moorage.laboratory.cluster_options import ClusterOptions, cluster_options
from moorage.laboratory.edit.object_edits import ChangeLike, ObjectEdit, ObjectEdits, read_change
from moorage.laboratory.frames import ColumnFrame, nodes_frame, pods_frame
from moorage.laboratory.inventory import Inventory
from moorage.laboratory.trial.history import Told, take
from moorage.report.outcome import Run
from moorage.simulator.cluster_input import ClusterInput
from moorage.simulator.cluster_reader import read
from moorage.simulator.cluster_run import objects_of, workload_names
from moorage.simulator.job_groups import create_for
from moorage.simulator.outcome_collector import collect
from moorage.simulator.pod_records import PodRecord, SimulatedAttempt, State
from moorage.simulator.quota_retries import QuotaRetries
from moorage.simulator.simulate import Options, kinds_named, prepare
from moorage.simulator.simulation import SimulatedCluster
from moorage.state.pod_info import PodInfo
from moorage.state.table import NodeTable


class SimulationTotals(Struct, frozen=True):
    """Counts since the simulation began, and percentiles of the waits from arrival to placement.

    ``arrived``    pods that came without a node, replacements included
    ``placed``     pods that were bound to a node; a pod that Permit holds is pending
    ``finished``   pods that ran for their whole lifetime
    ``preempted``  pods that were evicted for others
    ``deleted``    pods that were evicted, lost their node, or were deleted
    ``pending``    pods that are pending now
    ``attempts``   decisions of the scheduler
    """

    now_s: float
    arrived: int
    placed: int
    finished: int
    preempted: int
    deleted: int
    pending: int
    attempts: int
    wait_p50_s: float = 0.0
    wait_p90_s: float = 0.0
    wait_p99_s: float = 0.0
    wait_mean_s: float = 0.0

    def to_dict(self) -> Mapping[str, float]:
        """Return all figures by name."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


def wait_figures(waits: npt.NDArray[np.float64]) -> dict[str, float]:
    """Return percentiles (by nearest rank) and the mean of waits, in seconds, by name."""
    if not len(waits):
        return {}
    p50, p90, p99 = np.percentile(waits, (50, 90, 99), method="inverted_cdf").tolist()
    return {"wait_p50_s": p50, "wait_p90_s": p90, "wait_p99_s": p99, "wait_mean_s": float(waits.mean())}


_SECONDS_WITHOUT_END: Final = (
    "this simulation has processes without an end (every, arrivals, failures, an autoscaler); give run(until=SECONDS)"
)


class ClusterProcess(Protocol):
    """Something that takes part in a simulation. ``start`` schedules its first event with ``Simulation.call_at``."""

    def start(self, simulation: Simulation) -> None: ...


class Sampler(Protocol):
    """Something that looks at the simulation at certain times and changes nothing: it causes no events.

    ``next_s`` is the next of its times. ``sample`` is called when the state of that time is final, and advances ``next_s``.
    """

    next_s: float

    def sample(self, simulation: Simulation) -> None: ...


ProcessT = TypeVar("ProcessT", bound=ClusterProcess)
#: What ``Simulation.at`` takes: a change as for ``Cluster.apply``, or a function that is called with the simulation.
TimedChange: TypeAlias = ChangeLike | Callable[["Simulation"], object]


class RepeatedCall:
    """A call that ``every`` repeats until ``cancel``."""

    def __init__(self, simulation: Simulation, period_s: float, call: Callable[[Simulation], object]) -> None:
        self._simulation = simulation
        self._call = call
        self.period_s = period_s
        self.is_cancelled = False

    def cancel(self) -> None:
        """Stop repeating."""
        if not self.is_cancelled:
            self.is_cancelled = True
            self._simulation.endless -= 1

    def happen(self) -> None:
        """Call, and schedule the next time."""
        if self.is_cancelled:
            return
        self._call(self._simulation)
        if not self.is_cancelled:
            self._simulation.call_at(self._simulation.now_s + self.period_s, self.happen)


class Simulation:
    """A cluster in virtual time. It serves one thread; make one for each.

    ``keep_records``: keep what is known of pods that ended, for ``outcome``. Without it, a run of any length needs the memory
    of the pods that exist.
    """

    def __init__(self, given: ClusterInput, options: Options, *, keep_records: bool = False) -> None:
        created = create_for(given, options)
        self.options = options
        self.seed = options.seed
        #: The number of processes without an end; if there are any, ``run`` needs a time.
        self.endless = 0
        #: The engine in virtual time.
        self.engine: SimulatedCluster
        self.engine, self.notes = prepare(options, self._note_attempt)
        self.engine.keeps_records = keep_records
        self._retries = QuotaRetries(created.creation, self.engine)
        self.engine.on_end = self._note_end
        self.engine.on_placed = self._note_placed
        self.engine.on_advance = self._sample_before
        self._aside: Mapping[str, Object] = aside_of(created.cluster)
        self._workloads = workload_names(created.cluster, (one.pod for one in created.refused))
        self._samplers: list[Sampler] = []
        self._node_watchers: list[Callable[[Node], None]] = []
        self._streams: dict[str, int] = {}
        self._waits = array("d")
        self._attempts = 0
        self._ended: dict[str, int] = {State.FINISHED: 0, State.PREEMPTED: 0, State.DELETED: 0}
        with collector_paused():
            self.engine.load(objects_of(created.cluster))

    # -- ways in ---------------------------------------------------------------------------------------------------------

    @classmethod
    def read(
        cls, *paths: str | PathLike[str], recursive: bool = False, keep_records: bool = False, **options: Unpack[ClusterOptions]
    ) -> Self:
        """Read files and directories of manifests and dumps, as ``moorage simulate -f`` does. See ``ClusterOptions``.

        Raises  InputError, ConfigError
        """
        made = cluster_options(options)
        return cls(read(map(str, paths), recursive, custom=kinds_named(made)), made, keep_records=keep_records)

    @classmethod
    def from_objects(
        cls, *objects: ObjectLike | Iterable[ObjectLike], keep_records: bool = False, **options: Unpack[ClusterOptions]
    ) -> Self:
        """Make a simulation of objects, as ``Cluster.from_objects`` takes them. See ``ClusterOptions``.

        Raises  InputError, ConfigError
        """
        made = cluster_options(options)
        return cls(read_given(flat_objects(objects), custom=kinds_named(made)), made, keep_records=keep_records)

    # -- what there is ---------------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """Seconds of simulated time since the beginning."""
        return self.engine.now

    @property
    def table(self) -> NodeTable:
        """The engine's node table: one NumPy column per attribute. Read only."""
        return self.engine.scheduler.cluster.table

    @property
    def aside(self) -> Mapping[str, Object]:
        """The objects that the scheduler does not read, such as workloads, by ``kind/namespace/name``."""
        return self._aside

    @property
    def nodes(self) -> ColumnFrame:
        """The nodes in the order they were added, as columns."""
        return nodes_frame(self.table)

    @property
    def pods(self) -> ColumnFrame:
        """The pods that exist, in the order they arrived, as columns."""
        return pods_frame([PodInfo(pod) for pod in self.engine.pods_in_order()], _state_of)

    @property
    def pending(self) -> int:
        """The number of pending pods."""
        return len(self.engine.scheduler.queue)

    def objects(self) -> list[Object]:
        """Return all objects as they are now."""
        return present_objects(self._aside, self.engine)

    def get(self, ref: str | Object) -> Object:
        """Return an object as it is now, by ``kind/namespace/name``, ``kind/name``, or the name of a pod.

        Raises  InputError if there is none
        """
        return self._inventory().get(ref)

    def totals(self) -> SimulationTotals:
        """Return what happened so far."""
        return SimulationTotals(
            now_s=self.now_s, arrived=self.engine.arrived, placed=len(self._waits), finished=self._ended[State.FINISHED],
            preempted=self._ended[State.PREEMPTED], deleted=self._ended[State.DELETED], pending=self.pending,
            attempts=self._attempts, **wait_figures(np.frombuffer(self._waits) if self._waits else np.zeros(0)),
        )  # fmt: skip

    def outcome(self) -> Run:
        """Return the outcome of every pod, as ``moorage simulate`` reports it.

        Raises  InputError unless the simulation was made with ``keep_records=True``
        """
        if not self.engine.keeps_records:
            raise InputError("outcome() needs the records of all pods; make the simulation with keep_records=True")
        return collect(self.engine, self.engine.scheduler.gates.release, notes=self.notes, workloads=self._workloads)

    def random(self, name: str) -> Random:
        """Return a new generator for a process, seeded by the run's seed, the name, and how often the name was used before."""
        number = self._streams[name] = self._streams.get(name, 0) + 1
        return Random(f"{self.seed}/{name}/{number}")  # noqa: S311 (a draw that can be repeated)

    # -- what happens ----------------------------------------------------------------------------------------------------

    def at(self, time_s: float, change: TimedChange) -> None:
        """Make a change at a time: an edit as text, objects, a ``Change``, or a function that is called with the simulation.

        Raises  InputError for a time that is over, and at once for text that is neither an edit nor an object
        """
        if not time_s >= self.now_s:
            raise InputError(f"at {time_s!r} s: the simulated time is already {self.now_s:g} s")
        if isinstance(change, str) or not callable(change):
            self.engine.at(time_s, partial(self._apply, read_change(change)))
        else:
            self.engine.at(time_s, partial(_call, change, self))

    def every(self, period_s: float, call: Callable[[Simulation], object], *, first_s: float | None = None) -> RepeatedCall:
        """Call a function with the simulation once per ``period_s`` seconds, first after one period or at ``first_s``.

        Raises  InputError
        """
        if not period_s > 0:
            raise InputError(f"every {period_s!r} s: a period is above 0")
        repeated = RepeatedCall(self, period_s, call)
        self.endless += 1
        self.call_at(self.now_s + period_s if first_s is None else first_s, repeated.happen)
        return repeated

    def call_at(self, time_s: float, call: Callable[[], None]) -> None:
        """Call a function at a time, for processes."""
        self.engine.at(time_s, call)

    def use(self, process: ProcessT) -> ProcessT:
        """Start a process now, and return it."""
        process.start(self)
        return process

    def sample_with(self, sampler: Sampler) -> None:
        """Call a sampler at its times, with the state."""
        self._samplers.append(sampler)

    def on_new_node(self, call: Callable[[Node], None]) -> None:
        """Call a function with each node that is added from now on."""
        self._node_watchers.append(call)

    # -- changes now -----------------------------------------------------------------------------------------------------

    def apply(self, *changes: ChangeLike) -> None:
        """Change, patch or create objects now, as ``Cluster.apply`` does, one after the other.

        Raises  InputError; for a change of the configuration too
        """
        for change in map(read_change, changes):
            self._apply(change)

    def add(self, *objects: ObjectLike | Iterable[ObjectLike]) -> None:
        """Add new objects. They pass admission, and the pods of workloads are created.

        Raises  InputError for objects that cannot be read or that exist
        """
        self._make(self._edits().add(flat_objects(objects)))

    def remove(self, *refs: str | Object) -> None:
        """Delete objects at once. Pods of a deleted node are deleted after a while, and replaced.

        Raises  InputError for an object that is not there
        """
        self._make(self._edits().remove(refs))

    def evict(self, *pods: str | Pod, grace_s: float | None = None) -> None:
        """Evict pods: they leave after ``grace_s`` seconds (None: their own grace period), and controllers replace them.

        Raises  InputError for a pod that is not there
        """
        for pod in [self.get(pod) for pod in pods]:
            self.engine.evict(pod.metadata.uid, grace_s)

    def tell(self, *facts: Seen | Gone) -> None:
        """Report facts about objects as they are, without admission; for processes."""
        known = self.table.row_of
        fresh = [one.obj for one in facts if isinstance(one, Seen) and isinstance(one.obj, Node) and one.obj.name not in known]
        self.engine.tell(facts)
        for node in fresh:
            for call in self._node_watchers:
                call(node)

    def _apply(self, change: ChangeLike) -> None:
        if isinstance(change, Change) and change.owner == "config":
            raise InputError(f"{change.target}: the configuration of a running simulation does not change; make another one")
        self._make(self._edits().apply(change))

    def _inventory(self) -> Inventory:
        return Inventory(self.engine, self._aside)

    def _edits(self) -> ObjectEdits:
        return ObjectEdits(self._inventory(), self.engine.scheduler.cluster.custom_kinds or (), quota=self.options.quota)

    def _make(self, edit: ObjectEdit) -> None:
        for step in edit.steps:
            if isinstance(step, Told):
                self.tell(*step.facts)
            else:
                take(self.engine, step)
        if edit.aside is not None:
            self._aside = edit.aside

    # -- the passage of time ---------------------------------------------------------------------------------------------

    def run(self, until: float | None = None) -> SimulationTotals:
        """Let time pass until a time in seconds; None: until nothing more can happen. Return what happened so far.

        Raises  InputError for a time that is over, and without a time if a process has no end
        """
        if until is None and self.endless:
            raise InputError(_SECONDS_WITHOUT_END)
        if until is not None and not until >= self.now_s:
            raise InputError(f"run(until={until!r}): the simulated time is already {self.now_s:g} s")
        self.engine.run(until)
        for sampler in self._samplers:
            while sampler.next_s <= self.now_s:
                sampler.sample(self)
        return self.totals()

    def step(self) -> float | None:
        """Process everything that is due now; if there is nothing, let time pass to the next event. Return the time.

        None if nothing more can happen.
        """
        before = self._attempts, self.engine.scheduler.state.facts
        self.engine.run(self.now_s)
        if before == (self._attempts, self.engine.scheduler.state.facts):
            then = self.engine.next_event_s()
            if then is None:
                return None
            self.engine.run(then)
        return self.now_s

    def _sample_before(self, then: float) -> None:
        """Call the samplers whose times come before ``then``."""
        for sampler in self._samplers:
            while sampler.next_s < then:
                sampler.sample(self)

    def _note_attempt(self, attempt: SimulatedAttempt) -> None:
        self._attempts += 1

    def _note_placed(self, record: PodRecord) -> None:
        self._waits.append(self.now_s - record.arrived_s)

    def _note_end(self, record: PodRecord) -> None:
        self._ended[record.state] = self._ended.get(record.state, 0) + 1
        self._retries.note_end(record)


def _call(change: Callable[[Simulation], object], simulation: Simulation) -> None:
    change(simulation)


def _state_of(pod: PodInfo) -> str:
    return State.PLACED if pod.spec.node_name else State.PENDING
