"""``RunRecorder``: a simulation as a log, which the page and all questions read like one of ``moorage record``.

Nodes and pods are compared after each simulated second in which something changed. What a simulation creates has no time of
creation; the log gives it that of the moment in which it came.
"""

from __future__ import annotations

from os import PathLike

from msgspec.structs import replace

from moorage.api.core import Node, Object, Pod
from moorage.api.documents.object_fields import stamp
from moorage.basis.change_recorder import ChangeRecorder, LogClock, ObjectEncoder
from moorage.basis.recording.log_reader import is_log
from moorage.basis.recording.log_writer import LogWriter
from moorage.core.engine.facts import Gone, Seen
from moorage.errors import InputError
from moorage.laboratory.dynamics.simulation import Simulation


class RunRecorder:
    """Writes a log into a directory while a simulation runs; ``close`` ends it.

    ``start_s``  when the simulation begins, in Unix seconds
    Raises  InputError if the directory has a log, or cannot be written
    """

    def __init__(self, directory: str | PathLike[str], start_s: float) -> None:
        if is_log(directory):
            raise InputError(f"{directory}: it has a log already; give a directory that does not exist yet")
        self._writer, self._start_s = LogWriter(directory), start_s
        self._known: dict[str, Object] = {}
        self._born: dict[str, str] = {}
        self._facts = -1

    def start(self, simulation: Simulation) -> None:
        clock = LogClock(lambda: round((self._start_s + simulation.now_s) * 1e9), lambda: simulation.now_s)
        self._recorder = ChangeRecorder(self._writer, clock, ObjectEncoder())
        for obj in simulation.objects():
            if not isinstance(obj, Node | Pod):
                self._recorder.observe(Seen(obj))
        self.next_s = simulation.now_s
        self._see(simulation)
        self._recorder.start({"simulated": True, "seed": simulation.seed})
        simulation.sample_with(self)

    def sample(self, simulation: Simulation) -> None:
        """Write what changed up to ``next_s``."""
        self.next_s += 1.0
        facts = simulation.engine.scheduler.state.facts
        if facts != self._facts:
            self._facts = facts
            self._see(simulation)
            self._recorder.turn()

    def _see(self, simulation: Simulation) -> None:
        now: dict[str, Object] = {f"node {node.name}": node for node in simulation.table.nodes}
        now |= simulation.engine.pods
        for key, before in self._known.items():
            if key not in now:
                self._recorder.observe(Gone(before))
        for key, obj in now.items():
            if self._known.get(key) is not obj:
                self._recorder.observe(Seen(self._with_time(key, obj, simulation.now_s)))
        self._known = now

    def _with_time(self, key: str, obj: Object, now_s: float) -> Object:
        if obj.metadata.creation_timestamp is not None:
            return obj
        born = self._born.setdefault(key, stamp(self._start_s + now_s))
        return replace(obj, metadata=replace(obj.metadata, creation_timestamp=born))

    def close(self) -> None:
        """Write what waits, and end the log at the present time.

        Raises  OSError
        """
        self._recorder.mark("ended", {})
        self._recorder.close()
