"""Create pods that a quota refused once other pods have ended and the quota has room.

In a cluster, the quota controller counts again when a pod is deleted, and controllers retry refused pods. They race; here
a pod that replaces another is created first, then the others of the namespace in the order in which they were refused. A pod
that a user creates is tried once, so it stays refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from moorage.api.core import Pod
from moorage.basis.printable import counted, some
from moorage.core.engine.facts import Seen
from moorage.report.outcome import InputNote, RefusedPods
from moorage.simulator.outcome_collector import refused_outcomes
from moorage.simulator.pod_creation import PodCreation
from moorage.simulator.pod_records import PodRecord, in_turn
from moorage.simulator.simulation import SimulatedCluster


class QuotaRetries:
    """Watches the end of pods in a simulation, and creates the refused pods that fit then."""

    def __init__(self, creation: PodCreation | None, simulation: SimulatedCluster) -> None:
        self._creation = creation
        self._simulation = simulation

    @classmethod
    def watch(cls, creation: PodCreation | None, simulation: SimulatedCluster) -> QuotaRetries:
        """Watch a simulation from now on."""
        made = cls(creation, simulation)
        if creation is not None and creation.waits:
            simulation.on_end = in_turn(simulation.on_end, made.note_end)
        return made

    def note_end(self, record: PodRecord) -> None:
        """Release the quota of a pod that ended, and create the pods that fit now."""
        creation = self._creation
        if creation is None or record.replaced or not creation.waits:
            return
        creation.release(record.pod)
        for obj in creation.retry(record.pod.namespace):
            self._simulation.at(self._simulation.now, Seen(obj))

    @property
    def later(self) -> list[Pod]:
        """The pods that were created in the run."""
        return [] if self._creation is None else self._creation.later

    def refused(self, pods: Iterable[Pod], workloads: Mapping[str, str]) -> tuple[Set[str], tuple[RefusedPods, ...]]:
        """Return the UIDs of the pods that are still refused, and their entries in the report.

        ``pods``: the pods that existed at the start; ``workloads`` maps a pod's UID to its workload.
        """
        left = [] if self._creation is None else self._creation.refused
        return {one.pod.uid for one in left}, refused_outcomes(left, (*pods, *self.later), workloads)

    def notes(self) -> list[InputNote]:
        """Return a note that lists the pods created during the run; empty if there are none."""
        keys = [pod.key for pod in self.later]
        if not keys:
            return []
        return [
            InputNote("Remark", f"{counted(len(keys), 'pod')} created when other pods had left room in a quota: {some(keys)}")
        ]
