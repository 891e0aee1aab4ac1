"""One run of a cluster with one configuration and one seed, and its measurements.

A ``RunInput`` and ``Options`` go in and a ``MeasuredRun`` comes out. All three can be pickled, so runs may be spread over
processes. A ``RunSeries`` makes several runs that differ only in their seed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import TYPE_CHECKING, Any, Final, cast

from moorage.api.core import Node, Object, Pod
from moorage.api.gc_pause import collector_paused
from moorage.core.config.scheduler_document import Loaded
from moorage.framework.changes import Change
from moorage.framework.dropped_fields import ignored_fields_note
from moorage.laboratory.compare.run_metrics import MeasureSetting, RunMeter
from moorage.laboratory.compare.typical_mix import PodShape
from moorage.laboratory.edit.config_changes import reconfigure
from moorage.laboratory.trial.history import Packed, pack, unpack
from moorage.laboratory.trial.recorded_simulation import RECORDED_PARTS, RecordedSimulation
from moorage.laboratory.trial.recorded_state import UndoLog
from moorage.report.outcome import InputNote
from moorage.report.run_values import MeasuredRun
from moorage.simulator.outcome_collector import collect
from moorage.simulator.simulate import Options, load_options, prepare
from moorage.simulator.simulation import SimulatedCluster
from moorage.simulator.trace import Trace, simulate_trace

if TYPE_CHECKING:
    from moorage.simulator.kueue.batch_jobs import QueuedCluster  # loaded only for inputs with queues


_MEASURES: Final = MeasureSetting()


@dataclass(frozen=True)
class RunInput:
    """The input of a run: objects in order, notes on them, and the metrics to measure.

    ``config``  changes of the configuration
    ``queues``  the cluster with Kueue's queues, whose jobs are not among the objects; it is not sent to other processes
    ``trace``   pods that arrive on the nodes and end, in place of the pods among the objects
    """

    objects: tuple[Object, ...]
    notes: tuple[InputNote, ...] = ()
    workloads: Mapping[str, str] = field(default_factory=dict)
    setting: MeasureSetting = _MEASURES
    config: tuple[Change, ...] = ()
    queues: QueuedCluster | None = None
    trace: Trace | None = None

    @property
    def nodes(self) -> list[Node]:
        """The nodes among the objects."""
        return [obj for obj in self.objects if isinstance(obj, Node)]

    def __reduce__(self) -> tuple[Any, ...]:
        setting = self.setting
        shapes = [(shape.requests, shape.weight, pack(shape.pod), shape.pods) for shape in setting.shapes]
        measures = (dict(setting.prices), setting.all_nodes, setting.not_created)
        objects = [pack(obj) for obj in self.objects]
        return _run_input, (objects, self.notes, dict(self.workloads), shapes, measures, self.config, self.trace)


def _run_input(
    objects: list[Packed], notes: tuple[InputNote, ...], workloads: dict[str, str], shapes: list[tuple[Any, ...]],
    measures: tuple[Any, ...], config: tuple[Change, ...], trace: Trace | None = None,
) -> RunInput:  # fmt: skip
    typical = tuple(PodShape(requests, weight, cast(Pod, unpack(pod)), pods) for requests, weight, pod, pods in shapes)
    with collector_paused():
        found = tuple([unpack(obj) for obj in objects])
        return RunInput(found, notes, workloads, MeasureSetting(typical, *measures), config, trace=trace)


class RunSeries:
    """Runs of one input and one configuration with several seeds. The objects are loaded once, and each run is rolled back.

    ``loaded`` replaces the configuration of the options.

    Raises  ConfigError, InputError
    """

    def __init__(self, given: RunInput, options: Options, loaded: Loaded | None = None) -> None:
        self.given, self.options, self._configuration = given, with_fields(options, seed=0), loaded
        self._simulation: RecordedSimulation | None = None
        self._notes: list[InputNote] = []
        self._release = ""

    def suits(self, given: RunInput, options: Options) -> bool:
        """Return whether this is the series of a run, whatever its seed."""
        return self.given is given and self.options == with_fields(options, seed=0)

    def measure(self, seed: int) -> MeasuredRun:
        """Run the cluster to its end and return the measurements."""
        if self.given.queues is not None:
            from moorage.laboratory.compare.queue_runs import measure_queued

            return measure_queued(self.given.queues, with_fields(self.options, seed=seed), self.given.setting)
        if self.given.trace is not None:
            return self._replayed(self.given.trace.with_nodes(self.given.nodes), seed)
        simulation, self._simulation = self._simulation or self._loaded(), None
        simulation.scheduler.cycle.seed = seed
        simulation.begin()
        measured = self._measured(simulation)
        if simulation.log.roll_back():
            self._simulation = simulation
        return measured

    def _replayed(self, trace: Trace, seed: int) -> MeasuredRun:
        """Let the pods of a trace arrive in the order that the seed draws."""
        meter, ended = RunMeter(), list[SimulatedCluster]()
        begun = time.thread_time()
        run = simulate_trace(
            trace.shuffle(seed), with_fields(self.options, seed=seed), on_result=meter.count, on_repeats=meter.repeat,
            on_end=ended.append,
        )  # fmt: skip
        seconds = time.thread_time() - begun
        return meter.measured(ended[0], run, self.given.setting, speed=meter.decisions / seconds if seconds > 0 else 0.0)

    def _loaded(self) -> RecordedSimulation:
        loaded = self._configuration or load_options(self.options)
        for change in self.given.config:
            loaded = reconfigure(loaded, change)
        simulation, self._notes = prepare(self.options, parts=RECORDED_PARTS, simulation=RecordedSimulation, loaded=loaded)
        assert isinstance(simulation, RecordedSimulation)
        self._release = loaded.release
        simulation.load(self.given.objects)
        simulation.record(UndoLog())
        return simulation

    def _measured(self, simulation: RecordedSimulation) -> MeasuredRun:
        meter = RunMeter()
        simulation.on_result = meter.count
        begun = time.thread_time()
        simulation.run()
        seconds = time.thread_time() - begun
        notes = (*self.given.notes, *self._notes)
        # fields that the release does not know, or whose feature gates are off
        ignored = ignored_fields_note((obj for obj in self.given.objects if isinstance(obj, Pod)), simulation.scheduler.gates)
        run = collect(simulation, self._release, notes=notes, workloads=self.given.workloads)
        speed = meter.decisions / seconds if seconds > 0 else 0.0
        return meter.measured(simulation, run, self.given.setting, [ignored] if ignored else [], speed)


_last: Final = threading.local()


def measure_run(given: RunInput, options: Options) -> MeasuredRun:
    """Run the cluster to its end and return the measurements. The next run of the same input in this thread is faster.

    Raises  ConfigError, InputError
    """
    series: RunSeries | None = getattr(_last, "series", None)
    if series is None or not series.suits(given, options):
        series = _last.series = RunSeries(given, options)
    return series.measure(options.seed)
